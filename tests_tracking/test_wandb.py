"""Runs tracked by wandb, offline, read back from its own files. Run by scripts/test_beside.sh."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

Points = list[tuple[int, float]]

PLAY = """
import os, sys, time
from pathlib import Path
from crbc_rl.runs.metrics import Metrics
from crbc_rl.runs.tracking import Tracker

folder, first, last, upto, end = Path(sys.argv[1]), *map(int, sys.argv[2:5]), sys.argv[5]
metrics = Metrics(folder, upto, [Tracker(folder, "tiny", {"seed": 3, "optim": {"lr": 0.5}})])
for update in range(first, last):
    metrics.write({"update": update, "success": update / 8, "test/success/heat": 1, "loss": float("nan")})
if end == "kill":
    time.sleep(3)
    os.kill(os.getpid(), 9)
metrics.close()
"""
"""A session of a run: what it writes, without what it trains."""


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No account, no settings and no runs of whoever runs the tests, and no way out."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def play(run: Path, first: int, last: int, upto: int = -1, end: str = "close") -> str:
    run.mkdir(exist_ok=True)
    numbers = map(str, (first, last, upto))
    done = subprocess.run([sys.executable, "-c", PLAY, run, *numbers, end], capture_output=True, text=True, check=False)
    assert done.returncode == (-signal.SIGKILL if end == "kill" else 0), done.stderr
    return done.stdout + done.stderr


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of an offline file: LevelDB's log format in blocks of 32 KiB, of wandb's own messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, record = path.read_bytes(), 7, b""  # behind wandb's header
    while place + 7 <= len(content):
        if (left := 32_768 - place % 32_768) < 7:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(record)
            record = b""


def read_wandb(run: Path, key: str) -> tuple[Points, dict[str, Any], set[str]]:
    """A metric's points, the config, and the ids under which all sessions would be sent."""
    points: Points = []
    config: dict[str, Any] = {}
    names = set()
    for path in sorted(run.glob("wandb/offline-run-*/*.wandb")):
        for record in wandb_records(path):
            if record.HasField("run"):
                names.add((record.run.run_id, record.run.display_name, record.run.project, record.run.run_group))
                config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            items = {(item.key or "/".join(item.nested_key)): item.value_json for item in record.history.item}
            if key in items:
                points.append((record.history.step.num, json.loads(items[key])))
    return points, config, names


def test_a_run_that_resumes_is_one_run_with_each_update_once(tmp_path: Path) -> None:
    run = tmp_path / "tiny-seed3"
    play(run, 0, 5)
    play(run, 3, 8, upto=2)
    points, config, names = read_wandb(run, "rollout/success")
    assert points == [(update, update / 8) for update in range(8)]
    assert read_wandb(run, "test/success/heat")[0] == [(update, 1) for update in range(8)]
    assert config["seed"] == 3 and config["optim"] == {"lr": 0.5}
    assert len(names) == 1


def test_a_killed_run_keeps_what_it_sent_and_resumes(tmp_path: Path) -> None:
    run = tmp_path / "killed"
    play(run, 0, 4, end="kill")
    play(run, 3, 6, upto=2)
    assert read_wandb(run, "rollout/success")[0] == [(update, update / 8) for update in range(6)]


def test_two_folders_of_one_name_are_two_runs(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent).mkdir()
        play(tmp_path / parent / "run", 0, 2)
    state = [json.loads((tmp_path / parent / "run/tracking.json").read_text()) for parent in ("a", "b")]
    assert state[0]["id"] != state[1]["id"] and state[0]["wandb"] == state[1]["wandb"] == 1


def test_wandb_gets_no_code_output_or_packages(tmp_path: Path) -> None:
    run = tmp_path / "run"
    play(run, 0, 2)
    names = {path.name for path in run.glob("wandb/offline-run-*/files/**/*") if path.is_file()}
    assert not names & {"requirements.txt", "output.log", "diff.patch", "wandb-metadata.json", "conda-environment.yaml"}


def test_a_tracker_without_a_disk_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    run = tmp_path / "run"
    run.mkdir()
    (run / "wandb").touch()  # where its folder would be
    said = play(run, 0, 3)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [0, 1, 2]
    assert "wandb" in said and "Traceback" not in said
