#!/usr/bin/env bash
# Makes .venv at the root of the clone, or brings it up to date: bash scripts/setup.sh train, or dev for the tests.
# With sb3, trl, verl, verl-agent, trinity, verifiers, openenv or tracking it makes an environment beside that trainer,
# .venv-sb3 and so on; with floors, one of the oldest packages that are allowed.
# This file finds a Python; scripts/setup.py does the rest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A name may be a version manager's and answer nothing: ask each one what it is. Those tried first: 3.11 to 3.13.
for below in "3, 14" "4, 0"; do
    for name in "${PYTHON:-python3}" python3 python3.13 python3.12 python3.11 python .venv/bin/python; do
        if "$name" -c "import sys; sys.exit(not (3, 11) <= sys.version_info < ($below))" 2>/dev/null; then
            exec "$name" scripts/setup.py "$@"
        fi
    done
done
echo "crbc needs Python 3.11, 3.12 or 3.13 on the PATH; found: $(python3 --version 2>&1 || echo none)." \
    "Install one, or name it: PYTHON=/path/to/python3" >&2
exit 1
