#!/usr/bin/env bash
# The tests beside other people's packages, in an environment of their own, .venv-NAME: these bring dozens of packages, and
# some below the versions that the rest is tested with. bash scripts/test_beside.sh trinity|verifiers|openenv|tracking;
# further arguments go to pytest. Trinity takes several minutes and 2 GB the first time, the others two minutes at most.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name="${1:-}"
if [ ! -d "tests_${name//-/_}" ]; then
    echo "beside what? bash scripts/test_beside.sh trinity, verifiers, openenv or tracking" >&2
    exit 2
fi
shift
bash scripts/setup.sh "$name"
".venv-$name/bin/python" -c "import pytest" 2>/dev/null ||
    ".venv-$name/bin/python" -m pip --disable-pip-version-check install --quiet "pytest>=9.0.3"
exec ".venv-$name/bin/python" -m pytest "tests_${name//-/_}" "$@"
