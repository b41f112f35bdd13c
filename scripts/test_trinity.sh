#!/usr/bin/env bash
# The tests of the adapter for Trinity-RFT, beside it and in an environment of their own, .venv-trinity. Several minutes
# and 2 GB the first time, half a minute of tests. Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh trinity
.venv-trinity/bin/python -c "import pytest" 2>/dev/null ||
    .venv-trinity/bin/python -m pip --disable-pip-version-check install --quiet "pytest>=9.0.3"
exec .venv-trinity/bin/python -m pytest tests_trinity -o pythonpath="tests/support" "$@"
