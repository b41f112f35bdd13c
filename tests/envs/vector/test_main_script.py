"""An environment that is defined in the script, in the script's main block or not, or in a notebook."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from paths import ROOT, SUPPORT

HEAD = """
import gymnasium
from toy_env import CorridorEnv
from crbc_envs import GroupVectorEnv

class Mine(CorridorEnv):
    pass

gymnasium.register("Mine-v0", entry_point=Mine)
print("imported", flush=True)
"""
PLAY = """
envs = GroupVectorEnv("Mine-v0", 1, 2, backend="process", num_workers=1)
envs.reset(seed=0)
print("played", envs.restarts)
envs.close()
"""
GUARDED = 'if __name__ == "__main__":' + PLAY.replace("\n", "\n    ")
IN_A_FUNCTION = "def main():" + PLAY.replace("\n", "\n    ") + "\nmain()\n"
ELSEWHERE = PLAY.replace("Mine-v0", "CRBC-Sokoban-v0")


def run(arguments, folder, code=None):
    path = os.pathsep.join([str(SUPPORT), str(ROOT), str(folder), *sys.path])
    return subprocess.run(
        [sys.executable, *arguments],
        input=code,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
    )


@pytest.mark.parametrize("how", ["script.py", "-m script"])
def test_an_environment_of_a_guarded_script_plays_in_workers(how, tmp_path):
    (tmp_path / "script.py").write_text(HEAD + GUARDED)
    done = run(how.split(), tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == "imported\nimported\nplayed 0\n"


def test_a_script_whose_environment_is_elsewhere_needs_no_guard(tmp_path):
    (tmp_path / "script.py").write_text(HEAD + ELSEWHERE)
    done = run(["script.py"], tmp_path)
    assert (done.stderr, done.stdout, done.returncode) == ("", "imported\nplayed 0\n", 0)


@pytest.mark.parametrize("code", [PLAY, IN_A_FUNCTION], ids=["plain", "in a function"])
def test_an_unguarded_script_is_told_what_to_write(code, tmp_path):
    (tmp_path / "script.py").write_text(HEAD + code)
    done = run(["script.py"], tmp_path)
    assert done.returncode == 1
    assert "played" not in done.stdout
    message = done.stderr.strip().rpartition("\n")[2]
    assert "script.py: worker processes import this script" in message
    assert 'Write `if __name__ == "__main__":` above the lines that run' in message


def test_a_notebook_is_told_what_to_write(tmp_path):
    done = run(["-"], tmp_path, HEAD + PLAY)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    message = done.stderr.strip().rpartition("\n")[2]
    assert "ValueError: a worker process cannot import what is defined in a notebook" in message
    assert "%%writefile my_env.py" in message


def test_a_script_that_makes_environments_again_in_a_worker_is_stopped_there(tmp_path):
    threaded = "import threading\ndef main():" + PLAY.replace("\n", "\n    ")
    (tmp_path / "script.py").write_text(HEAD + threaded + "\nt = threading.Thread(target=main)\nt.start()\nt.join()\n")
    done = run(["script.py"], tmp_path)
    assert "worker processes import this script" in done.stderr
    assert done.stdout == "imported\nimported\nplayed 0\n"  # not once more in the worker
