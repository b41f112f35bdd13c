#!/usr/bin/env bash
# crbc in another trainer: makes a fresh environment with that adapter's extra alone, .venv-NAME, and runs its example.
# bash scripts/adapter.sh sb3|trl|verl|openenv; further arguments go to the example.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
    sb3) example=examples/sb3_ppo.py ;;
    trl) example=examples/trl_grpo.py ;;
    verl) example=tests_verl/learn.py ;;
    openenv) example=examples/openenv_client.py ;;
    *) echo "which adapter? bash scripts/adapter.sh sb3, trl, verl or openenv" >&2; exit 2 ;;
esac
name="$1"
shift
bash scripts/setup.sh "$name"
if [ "$name" = verl ]; then  # the trained agent is evaluated by `crbc eval`, which wants another transformers
    bash scripts/setup.sh train
    export PYTHONPATH=tests_verl:.
fi
# torch's threads spin while they wait for each other, which is slow on few cores.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec ".venv-$name/bin/python" "$example" "$@"
