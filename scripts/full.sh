#!/usr/bin/env bash
# What .ci/run leaves out: all tests with more random draws, the full-size ones, the deliberate faults, and what has an
# environment of its own. scripts/full.toml lists the parts. A part that passes gets a stamp in scripts/stamps/, to be
# committed; .ci/run fails where what a part guards has changed since. Hours on two cores; a part or two by name:
#
#     bash scripts/full.sh vllm openenv
#     bash scripts/full.sh --check          # runs nothing: the state of each part
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
exec .venv/bin/python scripts/full.py "$@"
