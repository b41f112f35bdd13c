"""Ray actors: the same bytes as in this process, and an actor that is lost is made good."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from pathlib import Path

import gymnasium
import pytest
from paths import ROOT, SUPPORT
from worker_play import corridors, play, processes, traces

from crbc_envs.errors import install_extra
from crbc_envs.vector.workers import WorkerError

SOON = 3.0
"""The timeout of tests in which an actor hangs."""


def test_without_ray_the_error_names_the_command(run_python):
    code = """
import sys
sys.modules["ray"] = None
from crbc_envs import GroupVectorEnv
from crbc_envs.errors import RequirementError
try:
    GroupVectorEnv("CRBC-Sokoban-v0", backend="ray")
except RequirementError as error:
    print(error)
"""
    said = run_python(code)
    assert said.startswith('backend="ray" needs Ray, which is not installed: ')
    assert said.endswith(install_extra("ray"))


@pytest.fixture(scope="module")
def _cluster():
    """Two actors' worth of Ray on this machine, whose actors find what the tests import."""
    ray = pytest.importorskip("ray", reason="the extra [ray] brings Ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(SUPPORT)]))
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        yield
        ray.shutdown()


full = pytest.mark.full


@full
@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize(
    ("env_id", "options"),
    [("FaultyCorridor-v0", {}), ("CRBC-Sokoban-v0", {"observation": "rgb", "max_steps": 4})],
    ids=["corridor", "sokoban-rgb"],
)
@pytest.mark.parametrize(("num_groups", "group_size", "num_workers"), [(3, 1, 2), (1, 64, None)])
def test_actors_give_the_same_bytes(env_id, options, num_groups, group_size, num_workers):
    given = {"env_id": env_id, "num_groups": num_groups, "group_size": group_size, **options}
    assert traces(**given, backend="ray", num_workers=num_workers) == traces(**given)


@full
@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize("fault", ["SIGKILL", "SIGSTOP", "raise", "hang", "exit"])
def test_a_lost_actor_is_replaced_and_nothing_differs(fault, tmp_path):
    with closing(corridors()) as envs:
        expected = play(envs, 3)
    with closing(corridors(backend="ray", num_workers=2, faults=str(tmp_path), timeout=SOON)) as envs:
        steps = iter(range(100))

        def inflict():
            if next(steps) == 4:
                if fault in ("SIGKILL", "SIGSTOP"):
                    os.kill(min(processes(tmp_path) - {os.getpid()}), getattr(signal, fault))
                else:
                    (tmp_path / fault).touch()

        assert play(envs, 3, before_step=inflict) == expected
        assert envs.restarts == 1
        (lost,) = sorted(processes(tmp_path) - {os.getpid()})[:-2]
    deadline = time.monotonic() + 30
    while Path(f"/proc/{lost}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{lost}").exists(), "a stopped or hanging actor is seen gone as well"


@full
@pytest.mark.usefixtures("_cluster")
def test_an_actor_that_always_fails_names_the_member(tmp_path):
    with closing(corridors(backend="ray", num_workers=2, poison="right")) as envs:
        envs.reset(seed=0, options={"task": [0, 1, 2]})
        with pytest.raises(WorkerError, match="member 5, task 2, 0 steps played, action 'right': .*KeyError: 'poison'"):
            envs.step(["?", "?", "left", "?", "?", "right"])
        with pytest.raises(gymnasium.error.ResetNeeded):
            envs.step(["?"] * 6)


@full
@pytest.mark.usefixtures("_cluster")
def test_closing_ends_actors_and_closes_their_environments(tmp_path):
    envs = corridors(backend="ray", num_workers=2, faults=str(tmp_path))
    assert len(processes(tmp_path)) == 3  # this process makes one, to know its spaces
    envs.close()
    envs.close()
    assert processes(tmp_path, "closed") == processes(tmp_path)
