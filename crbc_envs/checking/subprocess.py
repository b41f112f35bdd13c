"""Walks played again by another interpreter, which shares nothing with this one but the code."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

from gymnasium.envs.registration import EnvSpec

from crbc_envs.checking.probe import At, Env, Fields, Start, Walk, episode, replay

CODE = "from crbc_envs.checking.subprocess import answer; answer()"


def request_of(env: Env, walks: list[Walk]) -> str | None:
    """What another process needs to make the environment and play the walks, as JSON; None if it could not:
    there is no spec, the class cannot be imported by name, or an argument is no plain data."""
    spec = env.spec
    if spec is None or spec.entry_point is None:
        return None
    entry = spec.entry_point
    if not isinstance(entry, str):
        entry = f"{entry.__module__}:{getattr(entry, '__qualname__', '<unnamed>')}"
    if entry.startswith("__main__:") or "<" in entry:
        return None
    spec = dataclasses.replace(spec, entry_point=entry, vector_entry_point=None)
    plays = [{"start": dataclasses.asdict(walk.start), "replies": walk.replies} for walk in walks]
    try:
        return json.dumps({"spec": spec.to_json(), "plays": plays})
    except (TypeError, ValueError):
        return None


def replay_elsewhere(request: str, hash_seed: str) -> list[list[Fields]]:
    """The moments of every walk of a request, as a process under that PYTHONHASHSEED sees them.

    Raises `RuntimeError` with what that process had to say if it failed.
    """
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    variables = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", CODE], input=request, env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"another process could not play it: {done.stderr.strip()[-2_000:]}")
    moments: list[list[Fields]] = json.loads(done.stdout.splitlines()[-1])
    return moments


def answer() -> None:
    """What the other process runs: a request from stdin, the moments of its walks as the last line of stdout."""
    request = json.loads(sys.stdin.read())
    env = EnvSpec.from_json(request["spec"]).make()
    moments = []
    for play in request["plays"]:
        start = Start(**play["start"])
        with At("processes", start.name) as at:
            moments.append([moment.fields() for moment in episode(env, start, replay(play["replies"]), at)])
    print(f"\n{json.dumps(moments)}")
