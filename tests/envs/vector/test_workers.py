"""Worker processes: the same bytes as in this process, and a worker that is lost is made good."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing, contextmanager

import gymnasium
import pytest
from toy_env import CorridorEnv
from worker_play import corridors, play, traces
from worker_processes import SOON, inflict, server_pid, stop, workers

from anchors import GroupError
from crbc_envs import GroupVectorEnv
from crbc_envs.vector.workers import WorkerError
from crbc_envs.vector.workers.process import ProcessWorker
from crbc_envs.vector.workers.supervisor import MAX_RESTARTS
from crbc_envs.vector.workers.worker import WorkerLost

# ---- one behaviour --------------------------------------------------------------------------------


CORRIDOR = ("FaultyCorridor-v0", {})
SOKOBAN_TEXT = ("CRBC-Sokoban-v0", {"observation": "text"})
SOKOBAN_RGB = ("CRBC-Sokoban-v0", {"observation": "rgb", "max_steps": 5})


@pytest.mark.parametrize(
    ("env_id", "options", "num_groups", "group_size", "num_workers"),
    [
        (*CORRIDOR, 1, 1, 1),
        (*CORRIDOR, 5, 2, 3),
        (*CORRIDOR, 2, 40, 2),
        (*SOKOBAN_TEXT, 3, 1, 2),
        (*SOKOBAN_RGB, 5, 2, 3),
        (*SOKOBAN_RGB, 1, 40, None),
    ],
)
def test_workers_give_the_same_bytes(env_id, options, num_groups, group_size, num_workers):
    given = {"env_id": env_id, "num_groups": num_groups, "group_size": group_size, **options}
    assert traces(**given, backend="process", num_workers=num_workers) == traces(**given)


def test_groups_are_spread_whole_over_few_workers():
    with closing(corridors(num_groups=5, group_size=2, backend="process", num_workers=2)) as envs:
        assert [(supervisor.first, supervisor.size) for supervisor in envs.members.supervisors] == [(0, 6), (6, 4)]
        assert len(workers()) == 2
    with closing(corridors(num_groups=2, backend="process", num_workers=9)):
        assert len(workers()) == 2  # never more than groups
    with closing(corridors(num_groups=3, backend="process")):
        assert len(workers()) == min(3, os.cpu_count())


def test_rendering_shows_every_member_also_those_that_ended():
    frames = []
    for backend in ("sync", "process"):
        with closing(corridors(backend=backend, num_workers=2, max_steps=2, render_mode="ansi")) as envs:
            play(envs, 1, restart=False)
            frames.append(envs.render())
    assert frames[0] == frames[1]
    assert len(frames[0]) == 6


def test_errors_of_the_caller_are_those_of_this_process_and_cost_no_worker():
    with closing(corridors(backend="process", num_workers=2)) as envs:
        with pytest.raises(gymnasium.error.ResetNeeded):
            envs.step(["left"] * 6)
        with pytest.raises(IndexError, match="task 27 is not in the train panel of 27 tasks"):
            envs.reset(options={"task": 27})
        envs.reset(seed=0)
        with pytest.raises(ValueError, match="5 actions for 6 members"):
            envs.step(["left"] * 5)
        with pytest.raises(GroupError, match="the mask selects part of group 1"):
            envs.reset(options={"reset_mask": [True] * 3 + [False] * 3})
        assert envs.restarts == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "threads"}, "backend must be one of sync, process, ray; got 'threads'"),
        ({"num_workers": 0}, "num_workers must be a positive integer or None, got 0"),
        ({"num_workers": True}, "num_workers must be a positive integer or None, got True"),
        ({"timeout": 0}, "timeout must be a positive number of seconds, got 0"),
        ({"timeout": float("nan")}, "timeout must be a positive number of seconds, got nan"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        corridors(**options)


# ---- faults ---------------------------------------------------------------------------------------


def waits_once(supervisor, seconds):
    """Its worker has so many seconds for the next step. Those that replace it have a minute, on a busy machine too."""
    start = supervisor.start

    def patient():
        supervisor.timeout = 60.0
        return start()

    supervisor.timeout, supervisor.start = seconds, patient


@pytest.mark.parametrize(
    ("fault", "num_workers"),
    [("SIGKILL", 1), ("SIGKILL", 2), ("SIGSTOP", 1), ("SIGSTOP", 2), ("raise", 2), ("hang", 1), ("exit", 2)],
)
def test_a_lost_worker_is_replaced_and_nothing_differs(fault, num_workers, tmp_path, caplog):
    with closing(corridors()) as envs:
        expected = play(envs, 3)
    with closing(corridors(backend="process", num_workers=num_workers, faults=str(tmp_path))) as envs:
        steps = iter(range(100))

        def strike():
            if next(steps) in (2, 7):
                if fault in ("SIGSTOP", "hang"):  # only these are waited for
                    oldest = min(envs.members.supervisors, key=lambda supervisor: supervisor.worker.process.pid)
                    waits_once(oldest, 0.05 if fault == "SIGSTOP" else 1.0)
                inflict(fault, tmp_path)

        trace = play(envs, 3, before_step=strike)
        assert envs.restarts == 2
    assert trace == expected
    lost = [record.levelname for record in caplog.records if record.name == "crbc_envs.vector.workers"]
    assert lost == ["WARNING"] * 2


def test_a_worker_that_dies_between_episodes_is_replaced(tmp_path):
    with closing(corridors(backend="process", num_workers=2)) as envs, closing(corridors()) as local:
        assert play(envs, 0) == play(local, 0)
        inflict("SIGKILL", tmp_path)
        assert play(envs, 1) == play(local, 1)
        assert envs.restarts == 1


def test_a_worker_lost_at_a_masked_reset_brings_back_the_groups_that_play_on(tmp_path):
    traces = []
    for options in ({}, {"backend": "process", "num_workers": 1}):
        with closing(corridors(**options)) as envs:
            envs.reset(seed=0)
            for action in ("right", "left", "right"):
                envs.step([action] * 6)
            if options:
                inflict("SIGKILL", tmp_path)
            envs.reset(options={"reset_mask": [False] * 2 + [True] * 2 + [False] * 2})
            for action in ("right", "?", "left"):
                *_, info = envs.step([action] * 6)
            traces.append((info["anchor"].tolist(), envs.transition_counts()))
    assert traces[0] == traces[1]


def test_members_that_ended_come_back_for_rendering_only(tmp_path):
    options = {"max_steps": 3, "render_mode": "ansi"}
    with (
        closing(corridors(**options)) as local,
        closing(corridors(backend="process", num_workers=1, **options)) as envs,
    ):
        for e in (local, envs):
            play(e, 1, restart=False)
        inflict("SIGKILL", tmp_path)
        assert envs.render() == local.render()
        inflict("SIGKILL", tmp_path)
        envs.reset(seed=5)
        local.reset(seed=5)
        assert envs.render() == local.render()
        assert envs.restarts == 2


def test_a_worker_lost_in_its_replay_is_replaced_again(tmp_path):
    with closing(corridors()) as envs:
        expected = play(envs, 2)
    with closing(corridors(backend="process", num_workers=1, faults=str(tmp_path))) as envs:
        steps = iter(range(100))

        def both():
            if next(steps) == 6:
                inflict("SIGKILL", tmp_path)
                inflict("raise", tmp_path)  # the dead worker cannot use it up, so the replay does

        assert play(envs, 2, before_step=both) == expected
        assert envs.restarts == 2


def test_an_interrupted_step_is_not_taken_for_a_later_one(tmp_path, listens_to_ctrl_c):
    with (
        closing(corridors(backend="process", num_workers=2, faults=str(tmp_path))) as envs,
        closing(corridors()) as local,
    ):
        envs.reset(seed=0)
        inflict("hang", tmp_path)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            envs.step(["right"] * 6)
        with pytest.raises(gymnasium.error.ResetNeeded):
            envs.step(["right"] * 6)
        assert play(envs, 1) == play(local, 1)


@contextmanager
def process_worker():
    """A worker that is killed however its test ends: the tests after it count the workers."""
    worker = ProcessWorker(timeout=SOON)
    try:
        yield worker
    finally:
        worker.kill()


def test_a_worker_stopped_in_the_middle_of_an_answer_is_lost_not_waited_for(monkeypatch):
    monkeypatch.setattr("crbc_envs.vector.workers.process.new_memory", lambda: None)
    with process_worker() as worker:
        spec = gymnasium.spec("CRBC-Sokoban-v0")
        worker.send((1, "make", (spec, {"observation": "rgb"}, 40, [])))
        assert worker.receive(10.0) == (1, None)
        worker.send((2, "reset", (range(40), [0] * 40, [0] * 40)))  # a megabyte of frames: more than the socket holds
        while not worker.connection.poll(0.01):
            pass
        time.sleep(0.1)
        stop(worker.process.pid)
        with pytest.raises(WorkerLost, match="stuck in the middle of a message"):
            worker.receive(SOON)


def test_a_stopped_worker_does_not_block_a_large_request():
    with process_worker() as worker:
        stop(worker.process.pid)
        with pytest.raises(WorkerLost, match="stuck in the middle of a message"):
            worker.send((1, "step", ([0], ["x" * 5_000_000])))


# ---- what cannot be made good ---------------------------------------------------------------------


def test_a_member_that_always_fails_is_named_and_reset_goes_on(tmp_path):
    with closing(corridors(backend="process", num_workers=2, poison="right")) as envs:
        envs.reset(seed=0, options={"task": [0, 1, 2]})
        with pytest.raises(WorkerError) as raised:
            envs.step(["?", "?", "left", "?", "?", "right"])
        message = str(raised.value)
        assert message.startswith("member 5, task 2, 0 steps played, action 'right': failed 4 times in a row")
        assert "KeyError: 'poison'" in message
        assert "reset() starts again" in message
        assert "faulty_env.py" in str(raised.value.__cause__)  # the traceback from the worker
        assert envs.restarts == MAX_RESTARTS + 1
        with pytest.raises(gymnasium.error.ResetNeeded):
            envs.step(["left"] * 6)
        envs.reset(seed=0, options={"task": [0, 1, 2]})
        envs.step(["?"] * 6)
        assert envs.restarts == MAX_RESTARTS + 1


def test_a_replay_that_leads_elsewhere_raises_one_clear_error(tmp_path):
    with closing(corridors(backend="process", num_workers=1, faults=str(tmp_path))) as envs:
        envs.reset(seed=0, options={"task": [3, 1, 2]})
        envs.step(["right"] * 6)
        (tmp_path / "drift").touch()
        inflict("SIGKILL", tmp_path)
        with pytest.raises(WorkerError, match=r"member 0 \(task 3\) was replayed .* After step 0 its anchor is"):
            envs.step(["right"] * 6)
        (tmp_path / "drift").unlink()
        envs.reset(seed=0)
        envs.step(["?"] * 6)


def test_an_environment_that_cannot_be_imported_by_name_is_refused():
    class Local(CorridorEnv):
        pass

    gymnasium.register("LocalCorridor-v0", entry_point=Local)
    try:
        GroupVectorEnv("LocalCorridor-v0")
        with pytest.raises(ValueError, match="cannot be imported by name. Define it at the top level of a module"):
            GroupVectorEnv("LocalCorridor-v0", backend="process")
    finally:
        gymnasium.registry.pop("LocalCorridor-v0")


def test_an_environment_that_fails_to_be_made_in_a_worker_says_so(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text(
        "import gymnasium, os\nfrom toy_env import CorridorEnv\n"
        "class Here(CorridorEnv):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        f"        if os.getpid() != {os.getpid()}: raise OSError('no such device')\n"
        "gymnasium.register('OnlyHere-v0', entry_point='only_here:Here')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WorkerError, match="the environment could not be made 4 times in a row; .*no such device"):
        GroupVectorEnv("only_here:OnlyHere-v0", backend="process")
    gymnasium.registry.pop("OnlyHere-v0")


def test_workers_end_with_the_server_they_were_forked_from_and_are_replaced(monkeypatch):
    # A stopped server does not tell that the worker is gone: this is waited for in full.
    monkeypatch.setattr("crbc_envs.vector.workers.process._KILL_TIMEOUT", 0.2)
    with closing(corridors(backend="process", num_workers=2)) as envs, closing(corridors()) as local:
        envs.reset(seed=0)
        os.kill(server_pid(), signal.SIGKILL)
        assert play(envs, 0) == play(local, 0)
        assert envs.restarts == 2
        os.kill(server_pid(), signal.SIGSTOP)  # a stopped one wakes up when it is asked for a worker
        os.kill(envs.members.supervisors[0].worker.process.pid, signal.SIGKILL)
        assert play(envs, 1) == play(local, 1)
        assert envs.restarts == 3


def test_a_class_registered_in_this_process_alone_plays_in_workers():
    gymnasium.register("Registered-Here-v0", entry_point=CorridorEnv, max_episode_steps=3)
    try:
        with closing(GroupVectorEnv("Registered-Here-v0", 2, 2, backend="process", num_workers=2)) as envs:
            play(envs, 0, restart=False)
            assert max(len(rollout) for group in envs.groups() for rollout in group.rollouts) == 3
    finally:
        gymnasium.registry.pop("Registered-Here-v0")
