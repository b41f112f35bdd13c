#!/usr/bin/env bash
# The tests of the verl adapter, beside verl on a CPU and in an environment of their own, .venv-verl. About five minutes
# and 2 GB the first time, ten minutes of tests. Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh verl
# Its builds are for GPUs; tests/support/torchvision_on_cpu.py makes one importable from a folder of its own.
[ -d .venv-verl/torchvision ] || .venv-verl/bin/python -m pip --disable-pip-version-check --quiet \
    install --no-deps --target .venv-verl/torchvision torchvision==0.28.0
exec .venv-verl/bin/python -m pytest tests_verl -o pythonpath="tests_verl tests/support" "$@"
