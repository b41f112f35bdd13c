"""Replays walks in a fresh interpreter, which has only the code in common with this one."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from contextlib import closing
from tempfile import TemporaryFile

from gymnasium.envs.registration import EnvSpec

from crbc_envs.checking.probe import Fields, Location, Start, Walk, episode, replay
from crbc_envs.vector.members import importable_spec

CODE = "from crbc_envs.checking.subprocess import serve_request; serve_request()"


def make_request(spec: EnvSpec, walks: list[Walk]) -> str | None:
    """What another process needs to make the environment and replay the walks, as JSON.

    None if it cannot: the class cannot be imported by name, or an argument is not JSON.
    """
    plays = [{"start": dataclasses.asdict(walk.start), "replies": walk.replies} for walk in walks]
    try:
        spec = importable_spec(spec)
        known = not str(spec.entry_point).startswith("__main__:")
        return json.dumps({"spec": spec.to_json(), "plays": plays}) if known else None
    except (TypeError, ValueError):
        return None


def replay_in_subprocess(request: str, hash_seed: str) -> list[list[Fields]]:
    """The step results of every walk of a request, from a process with that PYTHONHASHSEED.

    Raises `RuntimeError` with the stderr of that process if it failed.
    """
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    variables = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    with TemporaryFile("w+") as said, TemporaryFile("w+") as told:  # a pipe waits for helper processes, too
        done = subprocess.run(
            [sys.executable, "-c", CODE], input=request, env=variables, stdout=said, stderr=told, text=True, check=False
        )
        said.seek(0)
        told.seek(0)
        if done.returncode:
            raise RuntimeError(f"another process could not play it: {told.read().strip()[-2_000:]}")
        results: list[list[Fields]] = json.loads(said.read().splitlines()[-1])
    return results


def serve_request() -> None:
    """Runs in the other process: reads a request from stdin, prints the step results as the last line of stdout."""
    request = json.loads(sys.stdin.read())
    results = []
    with closing(EnvSpec.from_json(request["spec"]).make()) as env:
        for play in request["plays"]:
            start = Start(**play["start"])
            with Location("processes", start.name) as at:
                results.append([result.fields() for result in episode(env, start, replay(play["replies"]), at)])
    print(f"\n{json.dumps(results)}")
