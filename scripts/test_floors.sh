#!/usr/bin/env bash
# The tests of anchors, credit and of each environment's own room beside the oldest packages that pyproject.toml allows,
# in an environment of their own, .venv-floors: walks, anchors and credit are equal to the digests in the tests.
# Ten minutes; further arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh floors
# Without what needs the command `crbc`, the original ALFWorld or a browser.
OMP_NUM_THREADS=1 exec .venv-floors/bin/python -m pytest -m "not slow and not full" tests/anchors tests/rl/credit \
    tests/envs/alfworld tests/envs/babyai tests/envs/frozenlake tests/envs/sokoban tests/envs/vector tests/envs/webshop \
    --ignore tests/envs/alfworld/test_conformance.py --ignore tests/envs/webshop/test_official.py \
    --ignore tests/envs/webshop/test_browser.py "$@"
