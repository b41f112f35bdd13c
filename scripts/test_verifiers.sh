#!/usr/bin/env bash
# The tests of crbc_verifiers, by vf-eval and beside verifiers, in an environment of their own, .venv-verifiers. Two minutes
# the first time, half a minute of tests. Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh verifiers
.venv-verifiers/bin/python -c "import pytest" 2>/dev/null ||
    .venv-verifiers/bin/python -m pip --disable-pip-version-check install --quiet "pytest>=9.0.3"
exec .venv-verifiers/bin/python -m pytest tests_verifiers -o pythonpath="tests/support" "$@"
