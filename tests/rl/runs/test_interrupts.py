"""Ctrl-C and SIGTERM: the first saves, the second ends at once, and neither leaves a trace."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from learner_fixtures import write_config

from crbc_rl.runs.interrupts import SIGNALS, Interrupts
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.training.folders import newest


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_stops_and_the_second_ends(number: int) -> None:
    stopped = []
    interrupts = Interrupts()
    interrupts.stop = lambda: stopped.append(True)

    def twice() -> None:
        with interrupts:
            signal.raise_signal(number)
            signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert stopped == [True]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL  # one more kills a process that cannot clean up


def test_without_a_run_the_first_ends_and_afterwards_all_is_as_before() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGTERM)


class Command:
    """`crbc train` in a process of its own, with workers."""

    def __init__(self, model: Path, folder: Path, *more: str) -> None:
        rollout = {"num_groups": 2, "group_size": 3, "max_new_tokens": 4, "backend": "process", "num_workers": 2}
        config = write_config(folder / "c.yaml", model, updates=500, save_every=50, rollout=rollout)
        self.run = folder / "run"
        self.command = [sys.executable, "-m", "crbc_rl.cli", "train", str(config), "--run", str(self.run), *more]

    def __enter__(self) -> Command:
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def until(self, reached: Callable[[], bool]) -> None:
        while self.process.poll() is None and not reached():
            time.sleep(0.02)
        assert self.process.poll() is None, self.process.communicate()

    def end(self) -> tuple[int, str, str]:
        out, error = self.process.communicate(timeout=120)
        return self.process.returncode, out, error


@pytest.mark.slow
def test_the_first_ctrl_c_saves_and_resuming_goes_on(model: Path, tmp_path: Path) -> None:
    with Command(model, tmp_path) as command:
        command.until(lambda: len(read_metrics(command.run)) > 2)
        command.process.send_signal(signal.SIGINT)
        status, out, error = command.end()
    assert "stopping after this update; Ctrl-C again" in error
    assert status == 0 and "everything up to it is saved" in out and "Traceback" not in out + error
    kept = newest(command.run / "checkpoints")
    assert kept is not None and int(kept.name) == read_metrics(command.run)[-1]["update"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_two_signals_end_at_once_and_nothing_is_left(model: Path, tmp_path: Path, number: int) -> None:
    with Command(model, tmp_path) as command:
        command.until(lambda: len(read_metrics(command.run)) > 2)
        command.process.send_signal(number)
        time.sleep(0.05)
        command.process.send_signal(number)
        status, out, error = command.end()
        session = command.process.pid
    assert "Traceback" not in out + error and "Exception" not in error
    assert status == 130 or (status == 0 and "saved" in out), out + error  # the update may have ended between the two
    assert not list((command.run / "checkpoints").glob(".*"))
    shown = subprocess.run(["ps", "-eo", "sid,args"], capture_output=True, text=True, check=False).stdout
    left = [line for line in shown.splitlines() if line.split()[0] == str(session) and "defunct" not in line]
    assert not left


@pytest.mark.slow
def test_a_signal_while_it_starts_ends_it_and_the_same_command_starts_again(model: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with Command(model, tmp_path) as command:
            lock = tmp_path / "run/.lock"
            ours = f"pid {command.process.pid} "
            command.until(lambda: lock.is_file() and lock.read_text().startswith(ours))  # noqa: B023
            command.process.send_signal(signal.SIGTERM)
            status, out, error = command.end()
        assert (status, "Traceback" in out + error) == (130, False)
    assert not read_metrics(tmp_path / "run")
