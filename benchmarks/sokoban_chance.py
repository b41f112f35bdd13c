"""How often random moves solve Sokoban's rooms, exactly: `python -m benchmarks.sokoban_chance smollm2-sokoban-short`.

A weak agent is told from chance by this. Moves are drawn from all four, or from those that change the board: one who
avoids walls and knows nothing else. With `--wasted`, such shares of the moves change nothing, as those of the agent do.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np

from crbc_envs.sokoban.rules import MOVES, Room, State
from crbc_envs.sokoban.solver import distances
from crbc_rl.config import load_config
from crbc_rl.rollout.evaluate import eval_panel


def chance(room: Room, steps: int, wasted: float | None = None) -> float:
    """The probability that `steps` random moves solve the room. Of these the share `wasted` changes nothing; None: as
    many as it happens."""
    at, solved = {room.start: 1.0}, 0.0
    for _ in range(steps):
        after = defaultdict[State, float](float)
        for state, share in at.items():
            reached = [room.move(state, move) for move in MOVES]
            if wasted is not None:
                reached = [one for one in reached if one != state]
                after[state] += share * wasted
            for one in reached:
                after[one] += share * (1.0 - (wasted or 0.0)) / len(reached)
        solved += sum(after.pop(state) for state in [*after] if room.solved(state))
        at = dict(after)
    return solved


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sokoban_chance", description=__doc__)
    parser.add_argument("config")
    parser.add_argument("--wasted", type=float, nargs="*", default=[], metavar="SHARE")
    given = parser.parse_args(arguments)
    config = load_config(given.config)
    tasks = eval_panel(config, "test", config.eval.test_episodes).tasks
    options: dict[str, Any] = {**config.env.kwargs, "split": "test"}
    with closing(gym.make(config.env.id, **options)) as env:
        own: Any = env.unwrapped
        rooms, steps = [own.panel[task].content for task in tasks], own.max_steps
    length = np.array([distances(room)[room.start] for room in rooms])
    pairs = (length + 1) // 2
    named = [(None, "all four moves"), (0.0, "moves that change the board")]
    for wasted, who in [*named, *((one, f"{one:.0%} of them wasted") for one in given.wasted)]:
        won = 100 * np.array([chance(room, steps, wasted) for room in rooms])
        parts = ", ".join(f"{2 * k - 1}-{2 * k} moves {won[pairs == k].mean():.1f}" for k in np.unique(pairs))
        print(f"{who}: {won.mean():.1f} % of {len(rooms)} test tasks; {parts}")


if __name__ == "__main__":
    main()
