#!/usr/bin/env bash
# The main job: train the tiny agent with CRBC and write a report. Further arguments go to `crbc train`.
# Run again, it continues where it stopped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh train
exec .venv/bin/crbc train configs/sokoban_boxes.yaml --start-or-resume "$@"
