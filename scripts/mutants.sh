#!/usr/bin/env bash
# How many deliberate faults the fast tests notice. For example: bash scripts/mutants.sh --only anchors/
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
exec .venv/bin/python scripts/mutants.py "$@"
