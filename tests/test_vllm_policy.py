"""What VllmPolicy says where there is no vLLM; scripts/test_vllm.sh tests it where there is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from learner_fixtures import fresh_policy, small

from crbc_rl.errors import ConfigError
from crbc_rl.policies.vllm import VllmPolicy


def test_without_vllm_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)  # as if it were not there
    policy = fresh_policy()
    policy.save(tmp_path)
    with pytest.raises(ConfigError, match=r"pip install 'crbc\[vllm\]'"):
        VllmPolicy.colocated(small(tmp_path, generator={"engine": "vllm"}), policy)
