"""What a refused reply costs under each method of the studies "fair" and "fair_households".

    python -m benchmarks.refused_steps

All of them have the same `invalid_penalty`, but not in the same place: GiGPO and GraphGPO have it in the group's term
and in that of the step, where it is divided by the deviation at an anchor. AdamW divides by the gradient's size, so a
cost counts beside the method's own credit: the second of two figures is in units of its root mean square. Where all of
a group won, or all lost, penalties alone deviate, so they are as large as any credit.

The groups are of small households, played by the expert with errors and with replies without an action.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anchors import Rollout, RolloutGroup, Step
from benchmarks.anchor_kinds import MALFORMED, random_reply
from crbc_envs.demonstrations import advice
from crbc_envs.tasks import rng
from crbc_envs.vector.contract import Member
from crbc_envs.vector.members import make_member
from crbc_rl import credit

METHODS: Mapping[str, dict[str, Any]] = {
    "grpo": {},
    "gigpo": {},
    "graphgpo": {},
    "crbc": {"beta": 0.98, "w_step": 5.0},
}
"""With the options of the studies."""
CHARGE = 0.3
"""What `alfworld-charged` takes off the credit of a refused step."""
EXPERT, REFUSED = 0.8, 0.04
"""The shares of the steps that the expert decides, and of those without an action."""


def groups(number: int, size: int, seed: int) -> list[RolloutGroup]:
    """`number` groups of `size` rollouts."""
    with closing(make_member("CRBC-ALFWorld-v0", {"rooms": "small", "max_steps": 10})) as env:
        tasks = rng("refused", seed).integers(len(env.panel), size=number).tolist()
        return [
            RolloutGroup([_rollout(env, task, rng("refused", seed, n, member)) for member in range(size)])
            for n, task in enumerate(tasks)
        ]


def _rollout(env: Member, task: int, draws: np.random.Generator) -> Rollout:
    observation, info = env.reset(seed=task, options={"task": task})
    expert, steps, over = env.expert(draws), list[Step](), False
    assert expert is not None
    while not over:
        anchor, advised = env.anchor_as("situation"), advice(expert, observation, info)
        reply = random_reply(env, info, draws) if advised is None or draws.random() >= EXPERT else advised
        reply = MALFORMED if draws.random() < REFUSED else reply
        observation, _, terminated, truncated, info = env.step(reply)
        steps.append(Step(anchor, str(info["action"])))
        over = terminated or truncated
    won = bool(info["success"])
    return Rollout(steps, success=won, truncated=not won, final_anchor=None if won else env.anchor_as("situation"))


def credits(played: list[RolloutGroup], method: str, **options: Any) -> NDArray[np.float64]:
    """The credit of every step."""
    by_group = credit.advantages_batch(played, method, **METHODS[method], **options)
    return np.concatenate([np.concatenate(group) for group in by_group])


def report(console: Console, number: int, size: int, seed: int) -> None:
    played = groups(number, size, seed)
    refused = np.array([not step.valid for group in played for one in group.rollouts for step in one.steps])
    mixed = np.array([0 < group.success_rate < 1 for group in played for one in group.rollouts for _ in one.steps])
    table = Table("method", "credit, rms", "penalty in mixed groups", "in others", "charge of .3", box=SIMPLE_HEAD)
    for method in METHODS:
        own = credits(played, method, invalid_penalty=0.0)
        penalty, rms = credits(played, method) - own, float(np.sqrt(np.square(own).mean()))
        parts = [penalty[refused & part] for part in (mixed, ~mixed)]
        shown = [f"{one.mean():+.2f}, {one.mean() / rms:+.2f}" if len(one) else "-" for one in parts]
        table.add_row(method, f"{rms:.2f}", *shown, f"{-CHARGE / rms:+.2f}")
    console.print(table)
    won = sum(one.success for group in played for one in group.rollouts)
    at = f"{(refused & mixed).sum()} in groups that won and lost"
    console.print(f"{won} of {number * size} rollouts won; {refused.sum()} of {len(refused)} steps refused, {at}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=16, help="groups, each of a task; default 16, as in an update")
    parser.add_argument("--group-size", type=int, default=8, help="rollouts of a group; default 8")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    report(Console(width=120), given.groups, given.group_size, given.seed)


if __name__ == "__main__":
    main()
