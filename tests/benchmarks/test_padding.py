"""The benchmark of padding at the paper's lengths prints a row of each config."""

from __future__ import annotations

import pytest

from benchmarks import padding
from benchmarks.paper_runtime import CONFIGS


def test_each_config_has_its_three_divisions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(padding, "DRAWN", 256)
    padding.main()
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [name for name, *_ in rows] == list(CONFIGS)
    for _, apart, divided, packed in rows:
        assert float(apart) > float(divided) >= 1.0 <= float(packed)
