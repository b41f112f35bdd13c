#!/usr/bin/env bash
# The tests, on all cores. Further arguments go to pytest, for example: bash scripts/test.sh -m "not slow"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
# One thread of linear algebra for each of pytest's workers, which are as many as there are cores.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec .venv/bin/python -m pytest --numprocesses auto --dist worksteal "$@"
