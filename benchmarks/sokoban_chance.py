"""How often random moves solve Sokoban's rooms, exactly: `python -m benchmarks.sokoban_chance smollm2-sokoban-short`.

A weak agent is told from chance by this. Moves are drawn from all four, or from those that change the board: one who
avoids walls and knows nothing else.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np

from crbc_envs.sokoban.rules import MOVES, Room, State
from crbc_envs.sokoban.solver import distances
from crbc_rl.config import load_config
from crbc_rl.rollout.evaluate import eval_panel


def chance(room: Room, steps: int, avoids_walls: bool) -> float:
    """The probability that `steps` random moves solve the room."""
    at, solved = {room.start: 1.0}, 0.0
    for _ in range(steps):
        after = defaultdict[State, float](float)
        for state, share in at.items():
            reached = [room.move(state, move) for move in MOVES]
            reached = [one for one in reached if one != state] if avoids_walls else reached
            for one in reached:
                after[one] += share / len(reached)
        solved += sum(after.pop(state) for state in [*after] if room.solved(state))
        at = dict(after)
    return solved


def main(name: str) -> None:
    config = load_config(name)
    tasks = eval_panel(config, "test", config.eval.test_episodes).tasks
    options: dict[str, Any] = {**config.env.kwargs, "split": "test"}
    with closing(gym.make(config.env.id, **options)) as env:
        own: Any = env.unwrapped
        rooms, steps = [own.panel[task].content for task in tasks], own.max_steps
    length = np.array([distances(room)[room.start] for room in rooms])
    pairs = (length + 1) // 2
    for avoids_walls, who in ((False, "all four moves"), (True, "moves that change the board")):
        won = 100 * np.array([chance(room, steps, avoids_walls) for room in rooms])
        parts = ", ".join(f"{2 * k - 1}-{2 * k} moves {won[pairs == k].mean():.1f}" for k in np.unique(pairs))
        print(f"{who}: {won.mean():.1f} % of {len(rooms)} test tasks; {parts}")


if __name__ == "__main__":
    main(*sys.argv[1:])
