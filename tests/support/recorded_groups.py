"""The recorded groups that every adapter is tested with: tests/data/recorded_groups.json.

    PYTHONPATH=tests/support python -m recorded_groups    # writes the file again

Three groups of four rollouts: some succeed, some are truncated, some have malformed replies, and some rows are equal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from paths import ROOT

from anchors import Rollout, RolloutGroup, Step
from crbc_envs import ChatEpisode
from crbc_envs.sokoban.rules import MOVES
from crbc_envs.sokoban.solver import best_moves, distances
from crbc_rl import credit

PATH = ROOT / "tests/data/recorded_groups.json"
ENV_ID = "CRBC-Sokoban-v0"
KWARGS: dict[str, Any] = {"observation": "text", "max_steps": 8}
SIZE = 4
TASKS = (4, 6, 7)  # 5, 7 and 8 moves from a solution

Row = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """A rollout: its replies, and the records of `ChatEpisode`, one for each."""

    replies: list[str]
    rows: list[Row]

    def rollout(self) -> Rollout:
        steps = [Step(row["anchor"], row["action"], row["reward"]) for row in self.rows]
        names = ("success", "truncated", "final_anchor", "score")
        return Rollout(steps, **{name: self.rows[-1][name] for name in names})


@dataclass(frozen=True)
class Group:
    task: int
    seed: int
    rollouts: list[Recorded]


def read() -> list[Group]:
    """The recorded groups. `group` of their rows is the group's number, `rollout` the member's."""
    groups = json.loads(PATH.read_text())
    return [Group(g["task"], g["seed"], [Recorded(**rollout) for rollout in g["rollouts"]]) for g in groups]


def advantages(groups: list[Group], method: str, **options: Any) -> list[NDArray[np.float64]]:
    """The advantages of `credit.advantages`, one array for each rollout of each group; "scores" are the judge's."""
    found = []
    for group in groups:
        own = {"scores": [list(map(score, r.replies)) for r in group.rollouts]} if method == "scores" else {}
        played = RolloutGroup([r.rollout() for r in group.rollouts])
        found += credit.advantages(played, method, **own, **options)
    return found


def score(reply: str) -> float:
    return len(reply) % 7 / 4


def judge(episode: ChatEpisode) -> list[float]:
    """Scores each step by its reply."""
    return [score(reply) for _, reply in episode.turns]


KINDS: list[tuple[str, dict[str, Any]]] = [
    ("crbc", {}),
    ("grpo", {}),
    ("crbc_plus", {}),
    ("crbc", {"reward": "score", "truncation": "successor"}),
    ("crbc", {"reward": "step", "horizon": 8}),
    ("graft", {"reward": "step", "lam": 0.5}),
    ("gagpo", {"reward": "step"}),
]
"""Estimators with options that every adapter hands over."""


def record() -> list[dict[str, Any]]:
    rng = np.random.default_rng(16)
    episode = ChatEpisode(ENV_ID, **KWARGS)
    return [
        {
            "task": task,
            "seed": 100 + number,
            "rollouts": [_play(episode, task, number, member, rng) for member in range(SIZE)],
        }
        for number, task in enumerate(TASKS)
    ]


def _play(episode: ChatEpisode, task: int, group: int, member: int, rng: np.random.Generator) -> dict[str, Any]:
    """The first two members of a group mostly solve their room, the others wander."""
    episode.begin(task, 100 + group, group=group, rollout=member)
    replies: list[str] = []
    while not episode.over:
        room = episode.env
        best = best_moves(room.room, room.state, distances(room.room))
        draw = rng.random()
        move = best[0] if best and draw > (0.05, 0.15, 0.6, 0.7)[member] else MOVES[rng.integers(len(MOVES))]
        replies.append("I do not know" if draw < 0.05 else f"<think></think><action>{move}</action>")
        episode.reply(replies[-1])
    return {"replies": replies, "rows": episode.rows}


if __name__ == "__main__":
    PATH.write_text(json.dumps(record(), indent=1) + "\n")
