"""Ctrl-C and SIGTERM: the first saves, the second ends at once, and neither leaves a trace."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from learner_fixtures import write_config
from paths import ROOT
from warm import Ended, Warm

from crbc_lab.interrupts import SIGNALS, Interrupts
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.training.folders import newest


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
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


def test_a_terminal_that_closes_stops_a_run_however_often_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: False)
    stopped: list[bool] = []

    def told() -> None:
        with Interrupts() as interrupts:
            interrupts.stop = lambda: stopped.append(True)
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)
            stopped.append(False)  # it goes on
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        told()
    assert stopped == [True, False]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    with Interrupts() as interrupts:
        interrupts.stop = lambda: stopped.append(True)
        signal.raise_signal(signal.SIGHUP)
    assert stopped == [True, False]


def test_a_terminal_that_closes_without_a_run_kills_no_cleaning_up() -> None:
    cleaned: list[bool] = []

    def command() -> None:
        with Interrupts():
            try:
                signal.raise_signal(signal.SIGHUP)
            finally:
                signal.raise_signal(signal.SIGHUP)  # the second one, of the system
                cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        command()
    assert cleaned == [True]


PRINTS = """
import sys, time
from pathlib import Path
from crbc_lab.interrupts import Interrupts
told = []
with Interrupts() as interrupts:
    interrupts.stop = lambda: told.append(True)
    until = time.monotonic() + 60
    while not told and time.monotonic() < until:
        print("begun", flush=True)
        time.sleep(0.02)
    print("saving", flush=True)
    Path(sys.argv[1]).write_text("saved")
"""


def test_a_run_outlives_its_terminal_until_it_has_saved(tmp_path: Path) -> None:
    master, slave = pty.openpty()

    def own() -> None:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    ends = {"stdin": slave, "stdout": slave, "stderr": slave}
    command = [sys.executable, "-c", PRINTS, str(tmp_path / "kept")]
    with subprocess.Popen(command, cwd=ROOT, preexec_fn=own, **ends) as run:
        os.close(slave)
        assert b"begun" in os.read(master, 100)
        os.close(master)
        assert run.wait(60) == 0
    assert (tmp_path / "kept").read_text() == "saved"


def test_under_torchrun_a_repeated_signal_does_not_lose_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler's reaches every process, torchrun among them, which sends its own."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    monkeypatch.setattr(time, "monotonic", lambda: now)
    now = 50.0
    with Interrupts() as interrupts:
        stopped: list[bool] = []
        interrupts.stop = lambda: stopped.append(True)
        signal.raise_signal(signal.SIGTERM)
        now = 59.0
        signal.raise_signal(signal.SIGTERM)
        assert stopped == [True]
        now = 61.0
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


POOL = """
import os, time
from crbc_lab.interrupts import worker_pool
with worker_pool(1) as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 60).result()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_command(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", POOL], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.send_signal(number)
    until = time.monotonic() + 20  # of a task of 60 seconds
    while running(worker):
        assert time.monotonic() < until, "the worker goes on with its task"
        time.sleep(0.05)


def running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{number}/stat")  # one that has ended, and that nobody has waited for, is there yet
    return not (stat.is_file() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


ASKED = "from crbc_lab.interrupts import hurried; print(hurried())"
LAUNCHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        ((), {"TORCHELASTIC_RUN_ID": "x"}, True),
        (("--shutdown-timeout=60",), {"TORCHELASTIC_RUN_ID": "x"}, False),
        (("--shutdown_timeout", "60"), {"TORCHELASTIC_RUN_ID": "x"}, False),
        ((), {"TORCHELASTIC_RUN_ID": "x", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "60"}, False),
        ((), {}, False),
    ],
)
def test_torchrun_that_kills_early_is_noticed(
    words: tuple[str, ...], variables: dict[str, str], expected: bool
) -> None:
    told = {name: value for name, value in os.environ.items() if not name.startswith("TORCH")} | variables
    command = [sys.executable, "-c", LAUNCHER, ASKED, *words]
    done = subprocess.run(command, env=told, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"{expected}\n"


def test_without_a_run_the_first_ends_and_afterwards_all_is_as_before() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGTERM)


class Command:
    """`crbc train` in a process of its own, with workers."""

    def __init__(self, warm: Warm, model: Path, folder: Path) -> None:
        rollout = {"num_groups": 2, "group_size": 3, "max_new_tokens": 4, "backend": "process", "num_workers": 2}
        config = write_config(folder / "c.yaml", model, updates=500, save_every=50, rollout=rollout)
        self.run = folder / "run"
        self.process = warm.start(["train", config, "--run", self.run], folder)

    def after_updates(self, count: int, *numbers: int) -> Ended:
        """What it shows when it gets these signals after so many updates."""
        self.process.until(lambda: len(read_metrics(self.run)) > count)
        for number in numbers:
            os.kill(self.process.pid, number)
            time.sleep(0.05)
        return self.process.wait()


@pytest.mark.slow
def test_the_first_ctrl_c_saves_and_resuming_goes_on(warm: Warm, model: Path, tmp_path: Path) -> None:
    command = Command(warm, model, tmp_path)
    ended = command.after_updates(2, signal.SIGINT)
    assert "stopping after this update; Ctrl-C again" in ended.err
    assert (
        ended.status == 0 and "everything up to it is saved" in ended.out and "Traceback" not in ended.out + ended.err
    )
    kept = newest(command.run / "checkpoints")
    assert kept is not None and int(kept.name) == read_metrics(command.run)[-1]["update"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_two_signals_end_at_once_and_nothing_is_left(warm: Warm, model: Path, tmp_path: Path, number: int) -> None:
    command = Command(warm, model, tmp_path)
    ended = command.after_updates(1, number, number)
    assert "Traceback" not in ended.out + ended.err and "Exception" not in ended.err
    # The update may have ended between the two.
    assert ended.status == 130 or (ended.status == 0 and "saved" in ended.out), ended
    assert not list((command.run / "checkpoints").glob(".*"))
    shown = subprocess.run(["ps", "-eo", "sid,args"], capture_output=True, text=True, check=False).stdout
    left = [line.split() for line in shown.splitlines() if line.split()[0] == str(command.process.pid)]
    assert not [args for _, *args in left if not args[0].startswith("[")]  # "[python]" is about to be gone


@pytest.mark.slow
def test_a_signal_while_it_starts_ends_it_and_the_same_command_starts_again(
    warm: Warm, model: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        command = Command(warm, model, tmp_path)
        lock, ours = tmp_path / "run/.lock", f"pid {command.process.pid} "
        command.process.until(lambda: lock.is_file() and lock.read_text().startswith(ours))  # noqa: B023
        os.kill(command.process.pid, signal.SIGTERM)
        ended = command.process.wait()
        assert (ended.status, "Traceback" in ended.out + ended.err) == (130, False)
    assert not read_metrics(tmp_path / "run")
