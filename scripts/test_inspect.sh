#!/usr/bin/env bash
# `crbc export` read by Inspect itself and looked at in its viewer, in Chromium. Inspect is in an environment of its own,
# .venv-inspect, without crbc. Half a minute the first time. Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh dev
[ -x .venv-inspect/bin/python ] || .venv/bin/python -m venv .venv-inspect
.venv-inspect/bin/python -m pip --disable-pip-version-check install --quiet "inspect-ai==0.3.285"
CRBC_TEST_FULL=1 exec .venv/bin/python -m pytest tests/lab/report/test_inspect_log.py "$@"
