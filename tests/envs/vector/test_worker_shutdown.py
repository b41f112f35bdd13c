"""Worker processes end with their environments, and with the process that started them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import gymnasium
import pytest
from paths import ROOT, SUPPORT
from worker_play import corridors, processes
from worker_processes import inflict, workers


def test_close_ends_workers_and_closes_their_environments(tmp_path):
    envs = corridors(backend="process", num_workers=2, faults=str(tmp_path))
    pids = {process.pid for process in workers()}
    envs.close()
    envs.close()
    assert not workers()
    assert processes(tmp_path, "closed") == pids | {os.getpid()}
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.reset(seed=0)


@pytest.mark.parametrize("fault", ["SIGKILL", "SIGSTOP"])
def test_close_ends_workers_that_are_dead_or_stopped(fault, tmp_path, monkeypatch):
    monkeypatch.setattr("crbc_envs.vector.workers.CLOSE_TIMEOUT", 0.3)
    envs = corridors(backend="process", num_workers=2)
    envs.reset(seed=0)
    inflict(fault, tmp_path)
    envs.close()
    assert not workers()


def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def test_an_environment_that_is_dropped_is_closed():
    """By whatever version of Gymnasium: 1.4 has no finalizer."""
    before = None
    for _ in range(3):
        envs = corridors(backend="process", num_workers=2)
        envs.reset(seed=0)
        del envs
        before = before or descriptors()
    assert descriptors() == before and not workers()


def test_nothing_leaks_over_restarts_and_environments(tmp_path):
    def round_trip():
        with closing(corridors(backend="process", num_workers=2)) as envs:
            for _ in range(3):
                envs.reset(seed=0)
                inflict("SIGKILL", tmp_path)
                envs.step(["right"] * 6)
            assert envs.restarts == 3

    round_trip()  # the fork server and the resource tracker stay
    before = descriptors()
    for _ in range(4):
        round_trip()
    assert descriptors() == before


SCRIPT = """
import os, signal, sys, time
import faulty_env
from crbc_envs import GroupVectorEnv

def main():
    envs = GroupVectorEnv("FaultyCorridor-v0", 2, 2, backend="process", num_workers=2, faults=sys.argv[1])
    envs.reset(seed=0)
    print(*[supervisor.worker.process.pid for supervisor in envs.members.supervisors], flush=True)
    if sys.argv[2] == "forget":
        os.kill(envs.members.supervisors[0].worker.process.pid, signal.SIGSTOP)
        return
    while True:
        envs.step(["?"] * 4)
        if not envs.active.any():
            envs.reset(seed=0)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def started(tmp_path):
    """Starts a script with two workers: the script, which does not outlive the test, and their process ids."""
    scripts = []
    yield lambda how: _start(tmp_path, how, scripts)
    for script in scripts:
        with suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)


def _start(tmp_path, how, scripts):
    (tmp_path / "script.py").write_text(SCRIPT)
    path = os.pathsep.join([str(SUPPORT), str(ROOT), *sys.path])
    script = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    scripts.append(script)
    return script, [int(pid) for pid in script.stdout.readline().split()]


def gone(pids, within):
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.02)
    return False


def test_ctrl_c_ends_the_parent_alone_with_one_traceback(started, listens_to_ctrl_c):
    script, pids = started("play")
    time.sleep(0.3)
    os.killpg(script.pid, signal.SIGINT)
    _, errors = script.communicate(timeout=30)
    assert errors.count("Traceback") == 1
    assert errors.strip().endswith("KeyboardInterrupt")
    assert gone(pids, within=10)


def test_an_exit_without_close_does_not_wait_for_a_stopped_worker(started):
    script, pids = started("forget")
    _, errors = script.communicate(timeout=30)
    assert errors == ""
    assert gone(pids, within=10)
