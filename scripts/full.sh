#!/usr/bin/env bash
# Everything there is to run: what .ci/run runs, with more random draws; the deliberate faults, the examples of the
# other adapters, and vLLM's tests in an environment of their own. About an hour on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CRBC_TEST_FULL=1 bash .ci/run
bash scripts/mutants.sh
bash scripts/adapter.sh trl
bash scripts/test_vllm.sh
