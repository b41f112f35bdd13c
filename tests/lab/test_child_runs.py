"""Cells: trainings side by side, of which each ends by itself, and all end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from learner_fixtures import small

from crbc_lab import child_runs as module
from crbc_lab.child_runs import ChildRun, run_children, side_by_side
from crbc_lab.interrupts import CHILD, SIGNALS
from crbc_rl.runs.own import LOG

SCRIPT = """
import sys, time
from crbc_lab.interrupts import Interrupts, stop_with_parent
status, seconds, stubborn = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "stubborn"
told = []
with Interrupts() as interrupts:
    stop_with_parent()
    interrupts.stop = lambda: told.append("stop")
    print("begun", flush=True)
    until = time.monotonic() + seconds
    while time.monotonic() < until and (stubborn or not told):
        time.sleep(0.02)
print("saved" if told else "done", flush=True)
sys.exit(status)
"""
"""A run that ends after some seconds, or, unless it is stubborn, in order when it is told to stop."""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def make(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ChildRun]:
    """A child that runs `SCRIPT` instead of a training."""
    words: dict[str, tuple[str, ...]] = {}

    def start(child: ChildRun) -> None:
        child.folder.mkdir(parents=True, exist_ok=True)
        with (child.folder / LOG).open("ab") as log:
            command = [sys.executable, "-c", SCRIPT, *words[child.name]]
            env = {**os.environ, CHILD: "1"}
            child.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=env, start_new_session=True
            )

    def child(name: str, status: int = 0, seconds: float = 0.0, manner: str = "kind") -> ChildRun:
        words[name] = (str(status), str(seconds), manner)
        return ChildRun(name, small(model), tmp_path / name)

    monkeypatch.setattr(ChildRun, "start", start)
    return child


def begun(child: ChildRun) -> bool:
    return child.process is not None and "begun" in (child.folder / LOG).read_text()


def signalling(children: list[ChildRun], number: int) -> Callable[[], None]:
    """Sends this process a signal once, when all of these have begun."""
    sent: list[bool] = []

    def look() -> None:
        if not sent and all(map(begun, children)):
            sent.append(True)
            signal.raise_signal(number)

    return look


def test_one_that_fails_ends_no_other_and_no_more_run_than_asked(make: Callable[..., ChildRun]) -> None:
    children = [make("a", 3), make("b", seconds=0.2), make("c"), make("d")]
    together: list[int] = []
    assert run_children(children, 2, lambda: together.append(sum(child.running for child in children)))
    assert [child.status for child in children] == [3, 0, 0, 0]
    assert [child.failed for child in children] == [True, False, False, False]
    assert max(together) <= 2
    assert children[1].last_log_line() == "done"


def test_what_has_ended_before_is_left_alone(make: Callable[..., ChildRun]) -> None:
    children = [make("a"), make("b")]
    children[0].status = 0
    assert run_children(children, 1)
    assert children[0].process is None and children[1].status == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_stops_all_with_everything_saved_and_starts_no_other(
    make: Callable[..., ChildRun], number: int
) -> None:
    children = [make("a", seconds=60), make("b", seconds=60), make("c")]
    assert not run_children(children, 2, signalling(children[:2], number))
    assert [child.last_log_line() for child in children[:2]] == ["saved", "saved"] and children[2].process is None
    assert not any(child.failed for child in children)


def test_a_stop_that_comes_while_one_starts_is_not_lost(
    make: Callable[..., ChildRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    child, start = make("a", seconds=60), ChildRun.start

    def signalled(self: ChildRun) -> None:
        signal.raise_signal(signal.SIGINT)
        start(self)
        while not begun(self):
            time.sleep(0.01)

    monkeypatch.setattr(ChildRun, "start", signalled)
    assert not run_children([child], 1)
    assert child.last_log_line() == "saved" and child.stopped


def test_a_stop_while_the_last_one_runs_is_a_stop(make: Callable[..., ChildRun]) -> None:
    """No child waits any more, and yet not all were run to their end."""
    child = make("a", seconds=60)
    assert not run_children([child], 1, signalling([child], signal.SIGINT))
    assert child.last_log_line() == "saved" and not child.failed


def test_the_second_signal_ends_them_at_once(make: Callable[..., ChildRun]) -> None:
    child = make("a", seconds=60, manner="stubborn")

    def look() -> None:
        if begun(child):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_children([child], 1, look)
    assert child.process is not None and child.process.poll() is not None
    assert "saved" not in child.last_log_line()


def test_one_that_does_not_end_is_killed(make: Callable[..., ChildRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.0)
    monkeypatch.setattr(ChildRun, "stop", lambda child: None)
    child = make("a", seconds=60)

    def look() -> None:
        if begun(child):
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        run_children([child], 1, look)
    assert child.process is not None and child.process.wait() == -signal.SIGKILL


def test_a_run_ends_in_order_when_its_parent_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            f"subprocess.Popen([sys.executable, '-c', {SCRIPT!r}, '0', '60', 'kind'], stdin=subprocess.PIPE, "
            f"stdout=open({str(log)!r}, 'w'), start_new_session=True)\ntime.sleep(60)",
        ],
        env={**os.environ, CHILD: "1"},
    )
    until = time.monotonic() + 60
    while "begun" not in (log.read_text() if log.exists() else "") and time.monotonic() < until:
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    while "saved" not in log.read_text() and time.monotonic() < until:
        time.sleep(0.02)
    assert log.read_text().splitlines() == ["begun", "saved"]


def test_as_many_run_as_have_cores_and_gpus(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)), raising=False)
    assert [side_by_side(small(model, threads=threads)) for threads in (1, 2, 7, 8)] == [7, 3, 1, 1]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert [side_by_side(small(model, threads=1), processes) for processes in (1, 2, 4, 8)] == [4, 2, 1, 1]
    assert side_by_side(small(model, threads=3)) == 2


@pytest.mark.parametrize(
    ("visible", "processes", "sets"),
    [
        (None, 1, ["0", "1", "2", "3"]),
        (None, 2, ["0,1", "2,3"]),
        ("4,5,6,7", 3, ["4,5,6"]),
        ("GPU-a,GPU-b", 1, ["GPU-a", "GPU-b"]),
    ],
)
def test_those_side_by_side_have_gpus_of_their_own(
    make: Callable[..., ChildRun],
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    processes: int,
    sets: list[str],
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4 if visible is None else visible.count(",") + 1)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    children = [make(name, seconds=0.1) for name in "abcd"[: len(sets) + 1]]
    for child in children:
        child.processes = processes

    def look() -> None:
        own = [child.gpus for child in children if child.running]
        assert len(set(own)) == len(own) <= len(sets)

    assert run_children(children, max(2, len(sets)) if len(sets) > 1 else 1, look)
    assert {child.gpus for child in children} == (set(sets) if len(sets) > 1 else {""})
    assert module.gpu_sets(processes) == sets


def test_a_child_sees_its_gpus_alone(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **__: seen.append(env))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    for gpus in ("6,7", ""):
        ChildRun("a", small(model), tmp_path / "a", 2, gpus=gpus).start()
    assert [env["CUDA_VISIBLE_DEVICES"] for env in seen] == ["6,7", "4,5,6,7"]
