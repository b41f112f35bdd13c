"""Logs for Inspect: what they say of each step, and, in the part `inspect` of scripts/full.sh, what Inspect shows."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from kept_rollouts import HOSTILE, keep, kept_run, random_group
from paths import ROOT
from refusals import refusal

from anchors import EmpiricalProcess
from crbc_lab import cli
from crbc_lab.report.inspect_log import write_logs
from crbc_lab.report.scenes import scenes_of
from crbc_rl import credit
from crbc_rl.credit import closure
from crbc_rl.runs.folder import Run

PYTHON = ROOT / ".venv-inspect/bin/python"
READ = """
import sys
from inspect_ai.log import list_eval_logs, read_eval_log
for info in list_eval_logs(sys.argv[1]):
    log = read_eval_log(info)
    print(log.eval.task, len(log.samples), log.samples[0].messages[1].metadata["V"])
"""


def logs(folder: Path) -> dict[str, Any]:
    return {path.stem.rpartition("_")[2]: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_a_rollout_is_a_sample_with_the_pages_numbers(folder: Path, tmp_path: Path) -> None:
    write_logs(folder, tmp_path)
    found = logs(tmp_path)
    assert found.keys() == {"training", "start", "last"}
    scene = scenes_of(Run.open(folder))[0]
    process = EmpiricalProcess.from_group(scene.group)
    values, own = closure(process), credit.METHODS["crbc"](process)
    samples = [one for one in found["training"]["samples"] if one["metadata"]["group"] == scene.key]
    assert [one["epoch"] for one in samples] == list(range(1, len(scene.group) + 1))
    steps = [message["metadata"] for one in samples for message in one["messages"] if message["role"] == "assistant"]
    pairs = process.steps()[1]
    assert [step["V"] for step in steps] == pytest.approx(values.V[process.pair_anchor[pairs]], abs=1e-4)
    assert [step["Q"] for step in steps] == pytest.approx(values.Q[pairs], abs=1e-4)
    (name,) = {key for step in steps for key in step if key.startswith("this run: crbc")}
    assert [step[name] for step in steps] == pytest.approx(own, abs=1e-3)
    assert [step["action"] for step in steps] == [s.action for r in scene.group.rollouts for s in r.steps]
    turns = [message["content"] for one in samples for message in one["messages"]]
    assert turns[:2] == [scene.turns_of(0)[0].prompt, scene.turns_of(0)[0].reply]
    won = [one["scores"]["success"]["value"] for one in samples]
    assert won == [float(rollout.success) for rollout in scene.group.rollouts]


def test_the_command_writes_beside_the_run_and_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kept_run(tmp_path / "run", HOSTILE)
    keep(run, "training-000002", [random_group(41)])
    keep(run, "training-000001", [random_group(41)])
    cli.main(["export", str(run)])
    samples = logs(run / "inspect")["training"]["samples"]
    assert len({(one["id"], one["epoch"]) for one in samples}) == len(samples) == 16, "one task in two updates"
    first = {path.name: path.read_bytes() for path in (run / "inspect").iterdir()}
    cli.main(["export", str(run)])
    assert first == {path.name: path.read_bytes() for path in (run / "inspect").iterdir()} and len(first) == 3
    assert capsys.readouterr().out.count("wrote ") == 6
    for path in (run / "transcripts").iterdir():
        path.unlink()
    assert "kept no prompts and replies" in refusal(capsys, "export", str(run))


@pytest.mark.full
def test_inspect_shows_messages_success_and_credit(folder: Path, tmp_path: Path, chromium: Any) -> None:
    write_logs(folder, tmp_path)
    read = subprocess.run([PYTHON, "-c", READ, tmp_path], capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in read.splitlines()} == {"kept-training", "kept-start", "kept-last"}
    (last,) = tmp_path.glob("*last.json")
    with socket.create_server(("127.0.0.1", 0)) as some:
        port = some.getsockname()[1]
    command = [PYTHON.with_name("inspect"), "view", "start", "--log-dir", tmp_path, "--port", str(port)]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            address = f"http://127.0.0.1:{port}/#/logs/{last.name}/samples/sample/one/1/"
            until(lambda: chromium.get(address) or "this run: crbc" in chromium.page_source)
            said = chromium.find_element("tag name", "body").text
            assert "V:" in said and "Q:" in said and "Your move?" in said and "solved" in said
        finally:
            server.terminate()


def until(holds: Any, seconds: float = 60.0) -> None:
    from selenium.common.exceptions import WebDriverException

    end = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except WebDriverException:  # the server does not listen yet
            pass
        assert time.monotonic() < end
        time.sleep(2.0)
