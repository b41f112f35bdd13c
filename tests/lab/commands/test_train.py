"""What `crbc train` says at its end."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from paths import ROOT
from rich.console import Console
from strategies import group

from crbc_envs.storage.rollouts import write_groups
from crbc_lab.commands import train
from crbc_rl.config import TrainConfig, load_config
from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError


def outcome(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(train, "write_report", lambda folder: folder / "report.html")
    out = io.StringIO()
    train.show_outcome(folder, 60, Console(file=out, width=200))
    return out.getvalue()


def test_a_run_that_went_on_and_was_stopped_shows_no_older_test_as_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {f"test/{name}": 0.5 for name in ("success", "low", "high", "episodes")}
    rows = [{"update": 0, **figures}, {"update": 30, **figures}, {"update": 60}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = outcome(tmp_path, monkeypatch)
    assert "stopped after update 60" in said and "held-out" not in said


@pytest.mark.parametrize(("ended", "shown"), [("+-", True), ("++", False)])
def test_it_shows_what_was_lost_where_something_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str, shown: bool
) -> None:
    folder = tmp_path / "my run"
    (folder / "transcripts").mkdir(parents=True)
    figures = {
        f"test/{name}": value for name, value in (("success", 0.5), ("low", 0.1), ("high", 0.9), ("episodes", 2))
    }
    (folder / "metrics.jsonl").write_text("".join(json.dumps({"update": n, **figures}) + "\n" for n in (0, 60)))
    write_groups(folder / "transcripts/test-000000.parquet", [group("s:a -")])
    assert "look first" not in outcome(folder, monkeypatch), "the last policy is meant"
    last = folder / "transcripts/test-000060.parquet"
    write_groups(last, [group(f"s:a {end}") for end in ended], update=60)
    said = f"look first at what it lost: crbc view '{folder}'  ('f' is the next failure)"
    assert (said in outcome(folder, monkeypatch)) == shown
    last.write_bytes(b"damaged")
    assert "look first" not in outcome(folder, monkeypatch)


@pytest.mark.parametrize(("rank", "order"), [(0, ["initial", "barrier", "check"]), (1, ["barrier", "check"])])
def test_an_adapter_is_merged_by_one_process_before_all_look_for_it(
    rank: int, order: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Several(Distributed):
        def barrier(self) -> None:
            done.append("barrier")

    def refused(*given: object, **named: object) -> None:
        done.append("check")
        raise ConfigError("no such model")

    def missing(config: TrainConfig) -> None:
        done.append("initial")
        raise ConfigError("no such model")

    done: list[str] = []
    monkeypatch.setattr(train.Distributed, "join", lambda: Several(rank, 2))
    monkeypatch.setattr(train, "initial", missing)
    monkeypatch.setattr(train, "check_run", refused)
    with pytest.raises(ConfigError, match="no such model"):
        train.train(load_config(ROOT / "configs/sokoban_tiny.yaml"), tmp_path / "run", False, Console(quiet=True))
    assert done == order
