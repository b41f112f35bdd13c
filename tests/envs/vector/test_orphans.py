"""A parent that dies leaves no process, and a forked child leaves its parent's workers alone."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from contextlib import closing

import gymnasium
import pytest
from dying_parents import kill_parents
from worker_play import corridors, play
from worker_processes import inflict, processes, server_pid, stop, workers


def in_a_forked_child(action):
    """Do something in a forked child. Returns the child's exit status: 0 if it did not raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_fifty_parents_that_die_leave_no_process(tmp_path, capsys):
    died, left, longest = kill_parents(50, 0, tmp_path)
    assert not left
    assert sum(died.values()) == 50
    with capsys.disabled():
        print(f"\n50 parents died in {len(died)} ways; the last process was gone after {longest:.1f} s")


def test_a_forked_child_that_lives_on_does_not_keep_its_parents_workers(tmp_path):
    died, left, _ = kill_parents(1, 2, tmp_path, states=["forked child"])
    assert next(iter(died)).startswith("forked child")  # the parent was not killed before it had forked
    assert not left


def test_a_forked_child_that_closes_and_exits_leaves_the_workers_alone():
    with closing(corridors(backend="process", num_workers=2)) as envs, closing(corridors()) as local:
        envs.reset(seed=0)
        before = workers()
        assert in_a_forked_child(envs.close) == 0
        assert workers() == before
        assert play(envs, 0) == play(local, 0)
        assert envs.restarts == 0


def test_a_forked_child_is_refused_its_parents_environments_and_makes_its_own():
    def child():
        with pytest.raises(gymnasium.error.ClosedEnvironmentError, match=f"belong to process {parent}, which this"):
            envs.reset(seed=0)
        with closing(corridors(backend="process", num_workers=1)) as own, closing(corridors()) as local:
            assert server_pid() != server
            assert play(own, 1) == play(local, 1)

    parent = os.getpid()
    with closing(corridors(backend="process", num_workers=2)) as envs, closing(corridors()) as local:
        envs.reset(seed=0)
        server = server_pid()
        assert in_a_forked_child(child) == 0
        assert play(envs, 0) == play(local, 0)
        assert envs.restarts == 0


def test_a_worker_that_keeps_the_interpreters_lock_ends_with_a_dead_server(tmp_path):
    with closing(corridors(backend="process", num_workers=1, timeout=0.5, faults=str(tmp_path))) as envs:
        envs.reset(seed=0)
        (tmp_path / "hold").touch()
        supervisor = envs.members.supervisors[0]
        pid = supervisor.worker.process.pid
        supervisor.worker.send((99, "step", ([0], ["right"])))
        deadline = time.monotonic() + 10
        while (tmp_path / "hold").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(server_pid(), signal.SIGKILL)
        while any(p.pid == pid for p in processes()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(p.pid == pid for p in processes())


def test_a_stopped_worker_does_not_delay_a_new_one(tmp_path):
    with closing(corridors(backend="process", num_workers=2)) as envs, closing(corridors()) as local:
        envs.reset(seed=0)
        stop(workers()[0].pid)
        inflict("SIGKILL", tmp_path)
        assert play(envs, 0) == play(local, 0)
