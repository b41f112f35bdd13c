#!/usr/bin/env bash
# Everything there is to run: what .ci/run runs, the deliberate faults, the examples of the other adapters, and vLLM's
# tests in an environment of their own. About an hour on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash .ci/run
bash scripts/mutants.sh
bash scripts/adapter.sh trl
bash scripts/test_vllm.sh
