#!/usr/bin/env bash
# The test of examples/verl_agent.py in a checkout of verl-agent: bash scripts/test_verl_agent.sh --source DIR. The checkout
# is read only. An environment of its own, .venv-verl-agent: several minutes and 2 GB the first time, a minute of tests.
# Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "${1:-}" != --source ] || [ ! -f "${2:-}/gigpo/core_gigpo.py" ]; then
    echo "which checkout? bash scripts/test_verl_agent.sh --source DIR, a clone of verl-agent" >&2
    exit 2
fi
VERL_AGENT="$(cd "$2" && pwd)"
shift 2
export PYTHONPATH="$VERL_AGENT" PYTHONDONTWRITEBYTECODE=1
exec bash scripts/test_beside.sh verl-agent -p no:cacheprovider "$@"
