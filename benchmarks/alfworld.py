"""Measures ALFWorld's exact engine and the original engine: `python -m benchmarks.envs --env alfworld`.

Both run the same commands in the same games, in turns. All times are CPU time, also in "steps a second". The original
is used as in trainers: one process per member of a group, each with its own game. Its memory is what such a process
adds to one that has only imported the packages, which favours the original.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from benchmarks.children import memory_of
from benchmarks.credit import table
from crbc_envs import GroupVectorEnv
from crbc_envs.alfworld.engine import backends
from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.conformance import game_folders
from crbc_envs.alfworld.engine.game import GameFile, parse, read_game_file
from crbc_envs.alfworld.engine.state import Game, State
from crbc_envs.alfworld.engine.textworld import game_data, original_env, restored_globals
from crbc_envs.alfworld.games.panels import AlfworldPanel

NUM_GROUPS, GROUP_SIZE = 16, 8

Spent = dict[str, list[float]]


def benchmark(games: Path | None, count: int, steps: int) -> None:
    """Print the cost of `count` games, from the folder `games` or generated, and of an update's groups."""
    rng = np.random.default_rng(0)
    files = _files(games, count, rng)
    # First, while this process is small: the memory that a member needs in the original.
    original_env()  # imports the packages here, so that they do not count for the children
    private = [memory_of(partial(_load_and_step, file)) for file in files[:8]]
    shared = memory_of(partial(_play_groups, rng, shared=True))
    ours: Spent = {what: [] for what in ("load", "reset", "step")}
    theirs: Spent = {what: [] for what in ours}
    for file in files:
        compare(file, steps, rng, ours, theirs)
    rows = []
    for what, name in (("load", "load a game"), ("reset", "begin an episode"), ("step", "a step")):
        here, there = median(ours[what]), median(theirs[what])
        rows += [
            (f"{name}: exact, median", f"{here:.3f} ms"),
            (f"{name}: TextWorld, median", f"{there:.1f} ms"),
            ("TextWorld / exact", f"{there / here:,.0f} times"),
        ]
    table(f"ALFWorld, {len(files)} {'published' if games else 'generated'} games, {len(ours['step']):,} steps", rows)
    _groups(rng, fmean(theirs["step"]), shared, fmean(private))


def compare(file: GameFile, steps: int, rng: np.random.Generator, ours: Spent, theirs: Spent) -> None:
    """Load, begin and play one game in both engines. The milliseconds are added to `ours` and `theirs`."""
    game = _timed(partial(parse, file), ours["load"])
    with restored_globals():
        env = original_env()
        _timed(partial(env.load, game_data(file)), theirs["load"])
        _timed(env.reset, theirs["reset"])
    state = _timed(partial(_begin, game), ours["reset"])
    for _ in range(steps):
        commands = engine.admissible(game, state)
        command = commands[rng.integers(len(commands))]
        state = _timed(partial(_step, game, state, command), ours["step"])
        real, _, _ = _timed(partial(env.step, command), theirs["step"])
        if tuple(real["admissible_commands"]) != engine.admissible(game, state):
            raise AssertionError(f"{file.name}: the engines differ after {command!r}; see crbc bench conformance")


def _timed(call: Callable[[], Any], into: list[float]) -> Any:
    start = time.process_time()
    result = call()
    into.append(1e3 * (time.process_time() - start))
    return result


def _begin(game: Game) -> State:
    engine.intro(game)
    engine.admissible(game, game.start)
    return game.start


def _step(game: Game, state: State, command: str) -> State:
    """A step with all that the original computes in a step: admissible commands, and whether the game is won."""
    after, _ = engine.step(game, state, command)
    engine.admissible(game, after)
    engine.won(game, after)
    return after


# ---- groups ----------------------------------------------------------------------------------------


def _groups(rng: np.random.Generator, their_step: float, our_memory: float, their_memory: float) -> None:
    members = NUM_GROUPS * GROUP_SIZE
    rates = {shared: _play_groups(rng, shared) for shared in (True, False)}
    theirs = 1e3 / their_step
    rows = [
        ("members that share their game: steps a second", f"{rates[True]:,.0f}"),
        ("members with a game each: steps a second", f"{rates[False]:,.0f}"),
        ("one TextWorld process per member: steps a second", f"{theirs:,.1f}"),
        ("shared / TextWorld", f"{rates[True] / theirs:,.0f} times"),
        (f"memory of {members} members that share", f"{our_memory / 1e6:,.0f} MB"),
        (f"memory of {members} TextWorld processes", f"{members * their_memory / 1e6:,.0f} MB"),
        ("TextWorld / shared", f"{members * their_memory / our_memory:,.0f} times"),
    ]
    title = "generated games, the whole environment with loading; TextWorld's steps alone, in the games above"
    table(f"ALFWorld, {NUM_GROUPS} groups of {GROUP_SIZE}, {title}", rows)


def _play_groups(rng: np.random.Generator, shared: bool) -> float:
    """Play an update's groups to the end with random commands. Returns the steps per CPU second, with loading."""
    original: Any = backends.shared_parse
    backends.shared_parse = original if shared else parse  # type: ignore[assignment]  # a parser without a cache
    try:
        envs = GroupVectorEnv("CRBC-ALFWorld-v0", num_groups=NUM_GROUPS, group_size=GROUP_SIZE)
        start, steps = time.process_time(), 0
        _, infos = envs.reset(seed=0, options={"task": list(range(NUM_GROUPS))})
        while envs.active.any():
            actions: list[str | None] = [None] * envs.num_envs
            for m in np.flatnonzero(envs.active):
                commands = infos["admissible_actions"][m]
                actions[m] = commands[rng.integers(len(commands))]
                steps += 1
            *_, infos = envs.step(actions)
        return steps / (time.process_time() - start)
    finally:
        backends.shared_parse = original


def _load_and_step(file: GameFile) -> None:
    env = original_env()
    env.load(game_data(file))
    state = env.reset()
    for _ in range(5):
        state, _, _ = env.step(state["admissible_commands"][0])


def _files(games: Path | None, count: int, rng: np.random.Generator) -> Sequence[GameFile]:
    if games is None:
        panel = AlfworldPanel("train")
        return [panel[index].content for index in range(count)]
    folders = game_folders(games)
    chosen = rng.choice(len(folders), size=min(count, len(folders)), replace=False)
    return [read_game_file(folders[i]) for i in chosen.tolist()]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envs --env alfworld", description=__doc__)
    parser.add_argument("--games", type=Path, help="a folder of published games; default: generated games")
    parser.add_argument("--count", type=int, default=12, help="number of games")
    parser.add_argument("--steps", type=int, default=40, help="steps in each game")
    given = parser.parse_args(arguments)
    for name in ("count", "steps"):
        if getattr(given, name) <= 0:
            parser.error(f"--{name} must be positive, got {getattr(given, name)}")
    benchmark(given.games, given.count, given.steps)


if __name__ == "__main__":
    main()
