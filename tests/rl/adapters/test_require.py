"""An adapter asks for its trainer's version in one sentence, before anything else fails."""

from __future__ import annotations

from typing import Any

import pytest

from crbc_envs.errors import RequirementError
from crbc_rl import adapters


@pytest.mark.parametrize("found", ["2.8", "2.8.0", "2.9.2", "2.9.2rc1", "2.9.2+local"])
def test_a_tested_version_is_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "version", {"trainer": found}.get)
    adapters.require("trainer", "2.8", "2.10", "sb3")


@pytest.mark.parametrize("found", ["2.7.9", "2.10.0", "3.0", "nonsense"])
def test_another_version_gets_a_sentence(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "version", {"trainer": found}.get)
    said = rf"tested with trainer from 2\.8 to below 2\.10, and {found} is installed: .*pip install .*\[sb3\]"
    with pytest.raises(RequirementError, match=said):
        adapters.require("trainer", "2.8", "2.10", "sb3")


def test_every_adapter_asks_before_it_imports(run_python: Any) -> None:
    """Also where neither the trainer nor torch is installed."""
    names = ("sb3", "trl", "trl_tools", "verl", "openenv", "openenv_server")
    code = f"""
import importlib, sys
from crbc_envs import errors
import crbc_rl.adapters
for name in {names}:
    for found in (None, "99.0"):
        crbc_rl.adapters.version = lambda package: found
        try:
            importlib.import_module("crbc_rl.adapters." + name)
        except errors.RequirementError as error:
            print(error)
        else:
            print("nothing")
    print(*(m for m in ("stable_baselines3", "trl", "verl", "openenv", "torch", "transformers") if m in sys.modules))
"""
    told = [*run_python(code).split("\n"), ""]  # the last line is empty, and `run_python` strips it
    assert len(told) == 3 * len(names)
    for number, name in enumerate(names):
        missing, other, imported = told[3 * number : 3 * number + 3]
        assert "is not installed" in missing and "and 99.0 is installed" in other, name
        assert all(f"[{name.partition('_')[0]}]" in one for one in (missing, other)) and not imported, name
