"""Measures Sokoban where users are: whole updates through `GroupVectorEnv.step`, beside the bare batch and gym-sokoban.

An update is the reset with its proof, every step of every member until all have ended, the merged counts and the
table for credit. Only steps of members that still play count. Rooms were drawn before, in one row not. The batch of
members below plays the same updates by itself: it gives observations, anchors and all infos. `SokobanBatch` below that
steps its boards without end and draws frames; it knows no episodes, anchors and texts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from statistics import median

import numpy as np

from benchmarks import peers
from benchmarks.credit import table
from benchmarks.sokoban import BASE, SIZE, collecting, loaded, print_missing
from crbc_envs import GroupVectorEnv
from crbc_envs.sokoban.rules import MOVES
from crbc_envs.vector.members import make_members

UPDATES = 8
"""Different tasks of an engine, in turn."""
UNSEEN = count(UPDATES)
"""Updates of the player of rooms not seen before: a process keeps the rooms that it has drawn."""

FRESH, ALONE = ", rooms not seen before", ", its members alone"

Play = Callable[[], int]
"""Plays for a while and returns the number of steps."""


def rates(players: dict[str, Play], seconds: float, rounds: int) -> dict[str, float]:
    """Steps per CPU-second of each: the median of `rounds` turns of at least `seconds` each."""
    found: dict[str, list[float]] = {name: [] for name in players}
    for play in players.values():
        play()
    for _ in range(rounds):
        for name, play in players.items():
            start, steps, until = time.process_time(), 0, time.process_time() + seconds
            while time.process_time() < until:
                steps += play()
            found[name].append(steps / (time.process_time() - start))
    return {name: median(turns) for name, turns in found.items()}


def moves(members: int) -> list[list[str]]:
    """Random moves for 64 steps of all members."""
    rng = np.random.default_rng(0)
    return [[MOVES[i] for i in rng.integers(4, size=members)] for _ in range(64)]


def updates(groups: int, size: int, observation: str, fresh: bool = False) -> Play:
    """Plays one update of random moves."""
    envs = GroupVectorEnv("CRBC-Sokoban-v0", groups, size, observation=observation)
    replies = moves(envs.num_envs)
    played = 0

    def play() -> int:
        nonlocal played
        first = (next(UNSEEN) if fresh else played % UPDATES) * groups
        played += 1
        steps, turn = 0, played
        tasks = range(first, first + groups)
        observations, _ = envs.reset(options={"task": tasks, "group_seed": tasks})
        while live := int(np.count_nonzero(envs.active)):
            observations, *_ = envs.step(replies[turn % 64])  # held during the next step, as callers do
            steps, turn = steps + live, turn + 1
        envs.transition_counts(), envs.interned()
        del observations
        return steps

    for _ in range(0 if fresh else UPDATES):
        play()
    return play


def bare_batch(members: int, into: bool) -> Play:
    """Steps the batch and draws its frames, into one array or into a new one."""
    batch = loaded(members)
    actions = np.random.default_rng(0).integers(4, size=(64, members))
    out = batch.frames() if into else None
    turn = 0

    def play() -> int:
        nonlocal turn
        turn += 1
        batch.step(actions[turn % 64])
        batch.frames(out)
        return members

    return play


def bare_members(groups: int, size: int, observation: str) -> Play:
    """Plays the same updates with the batch of members alone: no proof, no record, no batch of those that ended."""
    members, count = list(range(groups * size)), groups * size
    batch = make_members("CRBC-Sokoban-v0", {"observation": observation}, count)
    replies = moves(count)
    played = 0

    def play() -> int:
        nonlocal played
        first = played % UPDATES * groups
        played += 1
        steps, turn, live = 0, played, members
        outcome = batch.reset(members, [first + m // size for m in members], members)
        while live:
            steps += len(live)
            outcome = batch.step(live, [replies[turn % 64][m] for m in live])
            over = (outcome.terminated | outcome.truncated).tolist()
            live, turn = [m for m, ended in zip(live, over, strict=True) if not ended], turn + 1
        return steps

    return play


def gym_sokoban(frames: bool) -> Play:
    """One gym-sokoban that steps without end, which is faster than with its resets."""
    env = peers.GymSokoban(*SIZE, frames)
    actions = np.random.default_rng(0).integers(1, 5, size=64).tolist()

    def play() -> int:
        for action in actions:
            env.step(action)
        return len(actions)

    return play


def players(observation: str, shapes: Sequence[tuple[int, int]]) -> Iterator[tuple[str, Play]]:
    for groups, size in shapes:
        members, name = groups * size, f"{groups:,} x {size:,}"
        yield name, updates(groups, size, observation)
        if observation == "rgb":
            yield f"batch of {members:,}", bare_batch(members, into=False)
            yield f"batch of {members:,}, one array reused", bare_batch(members, into=True)
        yield f"{name}{ALONE}", bare_members(groups, size, observation)
    groups, size = max(shapes)  # the one with most groups
    yield f"{groups:,} x {size:,}{FRESH}", updates(groups, size, observation, fresh=True)


def measure(seconds: float, shapes: Sequence[tuple[int, int]], rounds: int = 5) -> None:
    """Print the rates of all shapes, for frames and text, as ratios to gym-sokoban and to the bare batch."""
    missing: list[str] = []
    for observation, title in (("rgb", "96x96 RGB frames"), ("text", "text")):
        found: dict[str, Play] = {}
        with collecting(missing):
            found[BASE] = gym_sokoban(observation == "rgb")
        found |= players(observation, shapes)
        speed = rates(found, seconds, rounds)
        rows = [(name, told(name, speed, observation)) for name in speed]
        table(f"Sokoban through GroupVectorEnv, {title}: steps per CPU-second, resets and counts included", rows)
    print_missing(missing)


def told(name: str, speed: dict[str, float], observation: str) -> str:
    """The rate of an engine, as ratio to gym-sokoban, and for a group's as share of the bare ones."""
    parts = [f"{speed[name]:>12,.0f}"]
    if BASE in speed:
        drawing = "" if observation == "rgb" else " that draws nothing"
        parts.append(f"{speed[name] / speed[BASE]:>9,.1f} times {BASE}{drawing}")
    shape = name.removesuffix(FRESH)
    if f"{shape}{ALONE}" in speed:
        groups, size = shape.replace(",", "").split(" x ")
        batch = f"batch of {int(groups) * int(size):,}"
        shares = {"its members": speed[f"{shape}{ALONE}"], "the batch": speed.get(batch)}
        parts += [f"{speed[name] / bare:.2f} of {what}" for what, bare in shares.items() if bare]
    return ", ".join(parts)
