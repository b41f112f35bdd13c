"""An update of recorded rows for the tests of protocols: groups, their turns, a policy and another reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from learner_fixtures import fresh_policy, small
from torch import Tensor

from anchors import INVALID, InternedRollouts, Rollout, RolloutGroup, Step
from crbc_envs.prompts import Prompt
from crbc_rl import credit
from crbc_rl.batches import RolloutBatch, Turn
from crbc_rl.config import TrainConfig
from crbc_rl.distributed import Distributed
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.training.actor import Actor

PENALTY, SUCCESS = 0.1, 10.0


@dataclass(frozen=True)
class Row:
    """One environment step as a trainer of rows has it."""

    group: int
    rollout: int
    anchor: str
    action: str
    reward: float
    success: bool
    valid: bool
    turn: Turn
    old: list[float]


@dataclass(frozen=True)
class Update:
    """What one update has collected, its rows in the order of the rollouts, and the two models."""

    groups: list[RolloutGroup]
    rows: list[Row]
    policy: TransformersPolicy
    reference: TransformersPolicy
    folder: Path
    """Where the reference is saved."""


def played(folder: Path, rollouts: int = 4) -> Update:
    """Five groups: three mixed ones, one of failures, one of successes; about one reply in six is malformed."""
    policy, reference, noise = fresh_policy(), fresh_policy(), torch.Generator().manual_seed(7)
    with torch.no_grad():
        for mine, theirs in zip(policy.model.parameters(), reference.model.parameters(), strict=True):
            mine.mul_(3.0 if mine.dim() > 1 else 1.0)  # sharp, so that a wrong row or coefficient shows
            theirs.copy_(mine + 0.01 * torch.randn(mine.shape, generator=noise))
    reference.save(folder)
    dice = np.random.default_rng(5)
    groups = [_group(dice, rollouts, won) for won in (0.5, 0.4, 0.0, 1.0, 0.6)]
    rows: list[Row] = []
    for number, group in enumerate(groups):
        for member, rollout in enumerate(group.rollouts):
            for place, step in enumerate(rollout.steps):
                prompt = Prompt(f"Sokoban\n{'# _ ' * (1 + (number + place) % 4)}\nYour move?")
                turn = policy.generate([prompt], [int(dice.integers(99))], 1.0, int(dice.integers(1, 7)))[0]
                old = [x + float(dice.normal(0.0, 0.4)) - 1.5 * (dice.random() < 0.1) for x in turn.logprobs]
                where = (number, len(groups[0]) * number + member, step.anchor, step.action, step.reward)
                rows.append(Row(*where, rollout.success, step.valid, turn, old))
    return Update(groups, rows, policy, reference, folder)


def _group(dice: np.random.Generator, rollouts: int, won: float) -> RolloutGroup:
    members = []
    for member in range(rollouts):
        length = int(dice.integers(1, 7))
        names = ["start", *(f"s{dice.integers(3)}" for _ in range(length - 1))]
        acts = [INVALID if dice.random() < 0.17 else str(dice.choice(["up", "down", "left"])) for _ in names]
        steps = [Step(name, act, reward=float(dice.normal())) for name, act in zip(names, acts, strict=True)]
        members.append(Rollout(steps, success=(member + 0.5) / rollouts < won))
    return RolloutGroup(members)


def config_of(update: Update, protocol: str, **changes: Any) -> TrainConfig:
    """A config of one line for everything that the protocol decides."""
    return small(update.folder, protocol=protocol, **changes)


def batch_of(update: Update, config: TrainConfig) -> RolloutBatch:
    """The table that the learner makes of the update, with its advantages."""
    table = RolloutBatch.of(InternedRollouts.from_groups(update.groups), [row.turn for row in update.rows])
    advantage = credit.advantages_interned(table.rollouts, config.method(), **config.credit_options())
    return replace(table, advantage=advantage, old=np.array([x for row in update.rows for x in row.old]))


def gradients(update: Update, config: TrainConfig, batch: RolloutBatch, seed: int) -> list[Tensor]:
    """The gradient of each optimizer step of the actor, after the norm was clipped. The weights hardly move."""
    actor = Actor(config, Distributed())
    actor.policy.model.load_state_dict(update.policy.model.state_dict())
    found: list[Tensor] = []

    def keep(*_: Any) -> None:
        found.append(torch.cat([p.grad.flatten().clone() for _, p in actor.named]).cpu())

    actor.optimizer.register_step_pre_hook(keep)
    actor.optimise(batch, np.random.default_rng(seed))
    return found


Loss = Callable[[int, Row, Tensor, Tensor], Tensor]
"""A row's loss: of its number, itself, and log pi of all words at each place, (L, V), under policy and reference."""


def gradient(update: Update, parts: list[tuple[float, int]], loss: Loss) -> Tensor:
    """The gradient of the weighted sum of the losses of rows, (weight, row), each read alone and without padding."""
    total = torch.zeros((), dtype=torch.float64)
    for weight, i in parts:
        row = update.rows[i]
        with torch.no_grad():
            anchored = log_softmax(update.reference, row)
        total = total + weight * loss(i, row, log_softmax(update.policy, row), anchored)
    found = torch.autograd.grad(total, list(update.policy.model.parameters()))
    return torch.cat([g.flatten() for g in found])


def log_softmax(policy: TransformersPolicy, row: Row) -> Tensor:
    """log pi of every word at each place of the reply, in float64 from float32 logits."""
    ids = torch.tensor([[*row.turn.prompt, *row.turn.response]])
    logits = policy.model(input_ids=ids).logits[0, len(row.turn.prompt) - 1 : -1]
    return torch.log_softmax(logits.double(), dim=-1)
