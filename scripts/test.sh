#!/usr/bin/env bash
# The tests. Further arguments go to pytest, for example: bash scripts/test.sh -m "not slow"
# ALFWorld's own engine, which ours is held against, is compiled when it is installed.
for tool in c++ make cmake; do
    if ! command -v "$tool" >/dev/null; then
        echo "the tests need a C++ compiler, make and cmake; $tool is missing. On Debian: apt-get install build-essential cmake" >&2
        exit 1
    fi
done
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh" dev
exec .venv/bin/python -m pytest "$@"
