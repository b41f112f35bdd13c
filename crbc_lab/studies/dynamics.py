"""What groups lose whose copies share one stream of noise, on slippery FrozenLake, where the truth is exact.

On a slippery lake a step goes the wanted way in one case of three, and to either side in the others. A map has sixteen
cells, so success and credit under a known behaviour solve small linear systems. The study plays the same groups with
`dynamics="shared"` and with "independent", and compares success and step credit of each group with the truth.

Shared noise makes rollouts of one group alike. More of them then add less, and a pair (anchor, action) looks as if it
always led to the same cell. `crbc study dynamics` runs it; docs/your_own_environment.md has the figures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anchors import EmpiricalProcess, RolloutGroup
from crbc_envs import AnchorWrapper, GroupVectorEnv
from crbc_envs.actions import Replies
from crbc_envs.frozenlake.env import transitions_of
from crbc_envs.tasks import rng, stream
from crbc_rl import credit

Floats = NDArray[np.float64]

WAYS = ("left", "down", "right", "up")
SIZE = 4
CELLS = SIZE * SIZE
MAX_STEPS = 100
SETTLED = 3
"""A pair taken this often with one successor only looks deterministic."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`groups` groups of the largest size, on a map and with a behaviour each; smaller ones are their first members.

    A behaviour is softmax(`skill` x the true value of the best play + N(0, `spread`^2)). In each cell it takes mostly
    one action, as a trained policy does. `beta` is that of CRBC.
    """

    groups: int = 300
    group_sizes: tuple[int, ...] = (2, 4, 8, 16, 32)
    skill: float = 8.0
    spread: float = 4.0
    beta: float = 0.98
    seed: int = 0


QUICK = Settings(groups=60, group_sizes=(2, 4, 8))


ERRORS = ("success", "value", "credit")
"""Squared errors of a group: of its success rate, and of V and of Q - V as means over its steps."""


@dataclass(frozen=True, slots=True)
class SizeErrors:
    """The errors of one group size under one `dynamics`.

    `errors` has the mean over groups and its standard error for each of `ERRORS`. `flat` is the share of groups whose
    rollouts all won or all lost. `settled` is the share of the pairs taken at least `SETTLED` times that led to one
    place only; hardly any pair of the lake does.
    """

    dynamics: str
    group_size: int
    errors: dict[str, tuple[float, float]]
    flat: float
    settled: float


# ---- the lake and its truth -----------------------------------------------------------------------


def _level(seed: int) -> gymnasium.Env[Any, Any]:
    board = generate_random_map(SIZE, seed=seed)
    return gymnasium.make("FrozenLake-v1", desc=board, is_slippery=True, disable_env_checker=True)


def _situation(env: Any, cell: int) -> bytes:
    return b"".join(env.unwrapped.desc.ravel()) + b" %d" % cell


def lake(split: str = "train", max_steps: int = MAX_STEPS, replies: Replies = "thought") -> AnchorWrapper:
    """Slippery FrozenLake: every task is a map of its own, and the agent reads the number of its cell."""

    return AnchorWrapper(
        _level,
        _situation,
        success=lambda reward, terminated, info: reward > 0,
        actions=WAYS,
        show=lambda env, cell: str(cell),
        text="Walk on the ice from cell 0 to the goal.",
        split=split,
        max_steps=max_steps,
        replies=replies,
        stochastic=True,
    )


SPEC = EnvSpec("SlipperyLake-v0", entry_point=f"{__name__}:lake")


@dataclass(frozen=True, eq=False)
class Truth:
    """One map with P (cells, 4, cells + 2), whose last two columns are the goal and a hole, and a behaviour on it."""

    P: Floats
    behaviour: Floats
    beta: float

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any], settings: Settings, draws: np.random.Generator) -> Truth:
        """The truth of the map in `env`, a FrozenLake, and a behaviour drawn from `draws`."""
        P = np.zeros((CELLS, len(WAYS), CELLS + 2))
        for cell, actions in transitions_of(env).items():
            for action, outcomes in actions.items():
                for probability, after, reward, over in outcomes:
                    P[cell, action, (CELLS if reward else CELLS + 1) if over else after] += probability
        V = np.zeros(CELLS)
        for _ in range(500):  # the best play, nearly without a limit of steps
            V = _ahead(P, V).max(axis=1)
        logits = settings.skill * _ahead(P, V) + settings.spread * draws.standard_normal((CELLS, len(WAYS)))
        weight = np.exp(logits - logits.max(axis=1, keepdims=True))
        return cls(P, weight / weight.sum(axis=1, keepdims=True), settings.beta)

    @cached_property
    def success(self) -> float:
        """The probability of success within `MAX_STEPS` steps from cell 0."""
        V = np.zeros(CELLS)
        for _ in range(MAX_STEPS):
            V = (self.behaviour * _ahead(self.P, V)).sum(axis=1)
        return float(V[0])

    @cached_property
    def V(self) -> Floats:
        """V of the closure's equation with the true probabilities, (cells,)."""
        M = np.einsum("sa,sax->sx", self.behaviour, self.P)
        V: Floats = np.linalg.solve(np.eye(CELLS) - self.beta * M[:, :CELLS], self.beta * M[:, CELLS])
        return V

    @cached_property
    def A(self) -> Floats:
        """Q - V in the same way, (cells, 4)."""
        A: Floats = self.beta * _ahead(self.P, self.V) - self.V[:, None]
        return A


def _ahead(P: Floats, V: Floats) -> Floats:
    """sum_x P(x | s, a) V(x), where the goal is worth 1 and a hole 0."""
    values: Floats = P @ np.append(V, (1.0, 0.0))
    return values


# ---- groups and their errors ----------------------------------------------------------------------


def run(settings: Settings) -> list[SizeErrors]:
    """Every group size under both dynamics, on the same maps and behaviours."""
    played = {dynamics: play(settings, dynamics) for dynamics in ("shared", "independent")}
    return [_errors(dynamics, size, *played[dynamics]) for size in settings.group_sizes for dynamics in played]


def play(settings: Settings, dynamics: str) -> tuple[list[Truth], list[RolloutGroup]]:
    """The groups of the largest size, and the truth of each. Every draw is a function of the seed, group and member."""
    size, seed = max(settings.group_sizes), settings.seed
    with closing(GroupVectorEnv(SPEC, settings.groups, size, dynamics=dynamics)) as envs:
        tasks = rng("lakes", seed).integers(len(envs.panel), size=settings.groups).tolist()
        truths = []
        for group, task in enumerate(tasks):
            truths.append(Truth.of(_level(envs.panel[task].content), settings, rng("behaviour", seed, group)))
        bounds = np.cumsum([truth.behaviour for truth in truths], axis=2)[:, :, :-1]
        draws = [rng("moves", seed, *divmod(m, size)) for m in range(envs.num_envs)]
        cells, _ = envs.reset(
            options={"task": tasks, "group_seed": [stream("lake", seed, g) for g in range(len(tasks))]}
        )
        while envs.active.any():
            moves = [
                WAYS[int((draws[m].random() > bounds[m // size, int(cells[m])]).sum())] if live else None
                for m, live in enumerate(envs.active)
            ]
            cells = envs.step(moves)[0]
        return truths, envs.groups()


def _errors(dynamics: str, size: int, truths: Sequence[Truth], groups: Sequence[RolloutGroup]) -> SizeErrors:
    pairs = zip(truths, groups, strict=True)
    rows = np.array([_row(truth, RolloutGroup(group.rollouts[:size])) for truth, group in pairs])
    mean, error = rows.mean(axis=0), rows.std(axis=0) / np.sqrt(len(rows))
    errors = {name: (float(mean[i]), float(error[i])) for i, name in enumerate(ERRORS)}
    return SizeErrors(dynamics, size, errors, flat=float(mean[3]), settled=float(mean[4] / max(mean[5], 1e-9)))


def _row(truth: Truth, group: RolloutGroup) -> tuple[float, ...]:
    """The `ERRORS` of one group, and whether it is flat. Then its pairs taken `SETTLED` times or more: how many led to
    one place only, and how many there are."""
    process = EmpiricalProcess.from_group(group)
    cell_of = {step.anchor: int(step.label.split()[1].rstrip("'")) for one in group.rollouts for step in one.steps}
    where = np.array([cell_of[anchor] for anchor in process.anchors])
    closed = credit.closure(process, truth.beta)
    taken = [WAYS.index(action) for _, action in process.pairs]
    value, step = closed.V - truth.V[where], closed.A - truth.A[where[process.pair_anchor], taken]
    rate = float(np.mean([rollout.success for rollout in group.rollouts]))
    often = process.pair_count >= SETTLED
    single = np.bincount(process.counts.row, minlength=len(often)) == 1
    return (
        (rate - truth.success) ** 2,
        float(np.average(value**2, weights=process.anchor_count)),
        float(np.average(step**2, weights=process.pair_count)),
        float(rate in (0.0, 1.0)),
        float((often & single).sum()),
        float(often.sum()),
    )


def print_table(results: Sequence[SizeErrors], settings: Settings, console: Console) -> None:
    """Print the errors by group size and dynamics."""
    table = Table(
        title=f"Squared errors on slippery FrozenLake, {settings.groups} groups, ± s.e.",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    for head in ("G", "dynamics", *ERRORS, "flat groups", "pairs that look settled"):
        table.add_column(head, justify="left" if head == "dynamics" else "right")
    for result in results:
        errors = [f"{mean:.5f} ± {error:.5f}" for mean, error in result.errors.values()]
        table.add_row(str(result.group_size), result.dynamics, *errors, f"{result.flat:.1%}", f"{result.settled:.1%}")
    console.print(table)


def write_json(results: Sequence[SizeErrors], settings: Settings, path: Path) -> None:
    """All errors, with the settings. Makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"settings": asdict(settings), "cells": [asdict(result) for result in results]}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
