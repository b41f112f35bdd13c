"""Conformance: plays this suite's Sokoban and gym-sokoban side by side and compares every result.

Both forms of the rules here are compared: the single environment, and the batch that groups use. Each room is played
once by the expert, with replies that change nothing in between, and then by random replies, episode after episode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from crbc_envs.core import Expert
from crbc_envs.core import Outcome as Results
from crbc_envs.sokoban.batch import SokobanMembers
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.rules import MOVES
from crbc_envs.storage.outcomes import Conformance, Outcome

COMPARED = ("frame", "text", "anchor", "reward", "terminated", "truncated", "success", "action")
IDLE = ("", "sideways", "up down", "<action>up</action", "é\n")
"""Replies that are none of the actions: gym-sokoban gets its action 0."""
IDLE_SHARE = 0.15

Result = tuple[Any, ...]
"""One value for each of `COMPARED`, of which the last two are missing after a reset."""


class Engines:
    """The single environment, the batch, and gym-sokoban, which begin and step the same rooms."""

    def __init__(self, **kwargs: Any) -> None:
        frames: dict[str, Any] = {**kwargs, "observation": "rgb"}
        self.single = SokobanEnv(**frames)
        self.batch = SokobanMembers(self.single, 1)
        self.original = SokobanEnv(**frames, engine="gym")
        self.action = ""
        """What the last reply was executed as."""

    def reset(self, task: int) -> str:
        """Begin a room. Returns the first difference, or ""."""
        theirs = _first(*self.original.reset(options={"task": task}))
        single = _first(*self.single.reset(options={"task": task}))
        return _differences(theirs, single, _of_batch(self.batch.reset([0], [task], [0])))

    def step(self, reply: str) -> str:
        """Step all. Returns the first difference, or ""."""
        theirs, single = _after(*self.original.step(reply)), _after(*self.single.step(reply))
        self.action = theirs[-1]
        if self.done != (theirs[4] or theirs[5]):
            return f"done: the episode's end is {not self.done}, gym-sokoban has {self.done}"
        return _differences(theirs, single, _of_batch(self.batch.step([0], [reply])))

    @property
    def done(self) -> bool:
        """Whether the episode is over, as gym-sokoban says."""
        assert self.original.game is not None
        return self.original.game.done


def conform(engines: Engines, task: int, steps: int, seed: int) -> Outcome:
    """Play one room for `steps` steps, and its first episode to the end, in all engines, until the first difference."""
    rng = np.random.default_rng(seed)
    verbs: Counter[str] = Counter()
    difference = engines.reset(task)
    single, original = engines.single, engines.original
    expert: Expert | None = single.expert(rng)
    taken, won = 0, False
    while not difference and (taken < steps or expert is not None):
        reply = MOVES[rng.integers(len(MOVES))] if expert is None else str(expert(None, {}))
        boxes = original.state.boxes
        difference = engines.step(IDLE[rng.integers(len(IDLE))] if rng.random() < IDLE_SHARE else reply)
        taken += 1
        verbs[engines.action] += 1
        verbs["(pushes)"] += original.state.boxes != boxes
        if engines.done and not difference:
            won, expert = won or original._success(), None
            difference = engines.reset(task)
    family = f"{single.room.height}x{single.room.width} with {len(single.room.targets)}"
    where = f"step {taken}: {difference}" if difference else ""
    return Outcome(single.panel[task].id, family, seed, taken, won, where, dict(sorted(verbs.items())))


def play(count: int, steps: int, seed: int, **kwargs: Any) -> Iterator[Outcome]:
    """Play the first `count` rooms of a panel, each with its own seed."""
    engines = Engines(**kwargs)
    for task in range(min(count, len(engines.single.panel))):
        yield conform(engines, task, steps, seed + task)


CONFORMANCE = Conformance("gym-sokoban 0.0.6", COMPARED, play, tasks=100)


def _first(frame: Any, info: dict[str, Any]) -> Result:
    return frame, info["label"], info["anchor"], 0.0, False, False


def _after(frame: Any, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> Result:
    return frame, info["label"], info["anchor"], reward, terminated, truncated, info["success"], info["action"]


def _of_batch(results: Results) -> Result:
    columns = [results.infos[name] for name in ("label", "anchor")]
    columns += [results.rewards, results.terminated, results.truncated]
    columns += [results.infos[name] for name in ("success", "action") if name in results.infos]
    return results.observations[0], *(column[0] for column in columns)


def _differences(theirs: Result, single: Result, batch: Result) -> str:
    for who, ours in (("", single), ("batch: ", batch)):
        for what, there, here in zip(COMPARED, theirs, ours, strict=False):
            if what == "frame" and not np.array_equal(there, here):
                return f"{who}frame: {np.count_nonzero((there != here).any(-1))} pixels differ from gym-sokoban's"
            if what != "frame" and there != here:
                return f"{who}{what}: {here!r}, gym-sokoban has {there!r}"
    return ""
