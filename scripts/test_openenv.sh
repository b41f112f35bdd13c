#!/usr/bin/env bash
# The tests of the OpenEnv adapter, beside OpenEnv and in an environment of their own, .venv-openenv: OpenEnv brings fifty
# packages, and some of them below the versions that the rest is tested with. About two minutes the first time.
# Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh openenv
.venv-openenv/bin/python -c "import pytest" 2>/dev/null ||
    .venv-openenv/bin/python -m pip --disable-pip-version-check install --quiet "pytest>=9.0.3"
exec .venv-openenv/bin/python -m pytest tests_openenv "$@"
