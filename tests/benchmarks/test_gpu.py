"""The runner of the GPU checks: it keeps what was done, repeats what died, and one failure does not hide the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import fake_gpu_checks as fakes
import pytest
from paths import ROOT
from worker_processes import alive

from benchmarks.gpu.record import Figure, Machine, append, latest, read, record_of
from benchmarks.gpu.runner import run, table


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine("cpu", small=True, folder=tmp_path)


def test_every_check_is_recorded_also_behind_one_that_fails_raises_or_dies(machine: Machine, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    checks = {"bad": fakes.fails, "error": fakes.raises, "dead": fakes.dies_once, "good": fakes.passes}
    assert not run(checks, machine, out)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["name"], line["ok"]) for line in lines] == [
        ("bad", False),
        ("error", False),
        ("dead", False),
        ("good", True),
    ]
    assert lines[0]["figures"] == {"error": 2.0} and lines[0]["bounds"] == {"error": [None, 1.0]}
    assert lines[1]["error"] == "RuntimeError: out of memory"
    assert lines[2]["error"] == "died with exit status -9"
    assert {"device_name", "versions", "seconds", "units"} <= lines[3].keys()

    # Another start repeats what did not come to its end, and nothing else.
    assert not run(checks, machine, out)
    again = read(out)[4:]
    assert [(line["name"], line["ok"]) for line in again] == [("error", False), ("dead", True)]
    assert not run({"bad": fakes.fails, "good": fakes.passes}, machine, out), "what failed before fails still"
    assert len(read(out)) == 6
    assert run({"dead": fakes.dies_once, "good": fakes.passes}, machine, out, again=["good"])
    assert [line["name"] for line in read(out)[6:]] == ["good"]
    printed = table(list(checks), machine, out)
    assert "FAILED bad" in printed and "at most 1" in printed and "ok     dead" in printed


STARTS = """
import sys; from pathlib import Path
import fake_gpu_checks as fakes; from benchmarks.gpu.record import Machine; from benchmarks.gpu.runner import run
folder = Path(sys.argv[1])
run({"good": fakes.passes, "other": fakes.waits}, Machine("cpu", True, folder), folder / "out.jsonl")
"""


def test_a_run_killed_in_the_middle_goes_on_where_it_was(machine: Machine, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    first = subprocess.Popen([sys.executable, "-c", STARTS, str(tmp_path)], env={**os.environ, "PYTHONPATH": path})
    while not (tmp_path / "pid").exists():
        assert first.poll() is None
        time.sleep(0.05)
    first.kill()
    first.wait()
    while alive(int((tmp_path / "pid").read_text())):  # the check's process ends with it
        time.sleep(0.05)
    out = tmp_path / "out.jsonl"
    assert [record["name"] for record in read(out)] == ["good"]
    assert run({"good": fakes.passes, "other": fakes.passes}, machine, out)
    assert [record["name"] for record in read(out)] == ["good", "other"]


def test_records_of_another_device_or_form_do_not_count(machine: Machine, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    append(out, record_of("one", Machine("cuda", small=True, folder=tmp_path), {}, 1.0))
    append(out, record_of("one", Machine("cpu", small=False, folder=tmp_path), {}, 1.0))
    assert latest(out, machine) == {}


@pytest.mark.parametrize(
    ("figure", "ok"),
    [
        (Figure(1.0), True),
        (Figure(1.0, most=1.0, least=1.0), True),
        (Figure(1.1, most=1.0), False),
        (Figure(0.9, least=1.0), False),
        (Figure(float("nan"), most=1.0), False),
        (Figure(float("nan"), least=1.0), False),
    ],
)
def test_a_figure_keeps_its_bounds(figure: Figure, ok: bool) -> None:
    assert figure.ok is ok
