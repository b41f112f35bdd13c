"""`protocol: paper` against eqs. 2, 3, 14 and 15, written out in loops: row by row, one ratio for each whole reply.

The paper says that the KL has the low-variance form, and not over what it is averaged: here over the tokens of a reply,
and then as the objective averages, which is ours. Mini-batches are ours too; the mean of their gradients is eq. 15's.
"""

from __future__ import annotations

import math
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
import torch
from protocol_rows import PENALTY, SUCCESS, Row, Update, batch_of, config_of, gradient, gradients, played
from torch import Tensor

from anchors import EmpiricalProcess, InternedRollouts
from crbc_rl import credit

CLIP, KL = 0.2, 0.01
CLOSE = 1e-5
"""Of the largest entry of a gradient: float32 sums of some thousand terms on both sides."""
WIDE = {"grad_clip": 1e6, "lr": 1e-12, "microbatch": 16}


@pytest.fixture(scope="module")
def update(tmp_path_factory: pytest.TempPathFactory) -> Update:
    return played(tmp_path_factory.mktemp("paper") / "model")


def group_advantages(update: Update) -> list[float]:
    """Eq. 3 over the rollouts of a group, of "Details of Training"'s rewards; one value for each row."""
    found = []
    for group in update.groups:
        returns = [
            SUCCESS * rollout.success - PENALTY * sum(not step.valid for step in rollout.steps)
            for rollout in group.rollouts
        ]
        flat = len(set(returns)) == 1
        for x, rollout in zip(returns, group.rollouts, strict=True):
            value = 0.0 if flat else (x - mean(returns)) / (stdev(returns) + 1e-6)
            found += [value] * len(rollout.steps)
    return found


def final_advantages(update: Update) -> list[float]:
    """Eq. 14 with the paper's weights 1 and 5; A_S (eq. 13) from Q, V and sigma of each group's closure."""
    found = []
    for group in update.groups:
        process = EmpiricalProcess.from_interned(InternedRollouts.from_groups([group]))
        closed, (_, pairs) = credit.closure(process), process.steps()
        for pair in pairs.tolist():
            anchor = int(process.pair_anchor[pair])
            several = int((process.pair_anchor == anchor).sum()) >= 2
            found.append(several * (closed.Q[pair] - closed.V[anchor]) / max(closed.sigma[anchor], 0.1))
    return [a + 5.0 * b for a, b in zip(group_advantages(update), found, strict=True)]


def weights(update: Update) -> list[tuple[float, int]]:
    """E over groups of 1 / sum_i T_i: (weight, row) of each row."""
    steps = [sum(len(rollout.steps) for rollout in group.rollouts) for group in update.groups]
    return [(1.0 / len(steps) / steps[row.group], i) for i, row in enumerate(update.rows)]


def row_loss(advantage: float, row: Row, policy: Tensor, reference: Tensor) -> Tensor:
    """-min(rho A, clip(rho) A) of eq. 15 with the ratio of eq. 2, and lambda k3."""
    words = row.turn.response
    new = torch.stack([policy[k, word] for k, word in enumerate(words)])
    anchored = torch.stack([reference[k, word] for k, word in enumerate(words)])
    rho = torch.exp(new.sum() - math.fsum(row.old))
    gain = torch.minimum(rho * advantage, torch.clamp(rho, 1 - CLIP, 1 + CLIP) * advantage)
    d = anchored - new
    return -gain + KL * (torch.exp(d) - d - 1).mean()


def test_the_advantages_are_eq_3_s_and_eq_14_s(update: Update) -> None:
    for method, expected in (("grpo", group_advantages(update)), ("crbc", final_advantages(update))):
        config = config_of(update, "paper", credit={"method": method})
        np.testing.assert_allclose(batch_of(update, config).advantage, expected, rtol=0, atol=1e-9)
    assert any(not row.valid for row in update.rows)


@pytest.mark.parametrize(("minibatch", "steps"), [(1000, 1), (16, 5)])
def test_the_gradient_is_eq_15_s(update: Update, minibatch: int, steps: int) -> None:
    """Over all rows together, and as the mean over mini-batches: each row counts as in the whole update."""
    config = config_of(update, "paper", optim={**WIDE, "minibatch": minibatch})
    found = gradients(update, config, batch_of(update, config), seed=0)
    assert len(found) == steps
    advantage = final_advantages(update)
    expected = gradient(update, weights(update), lambda i, *said: row_loss(advantage[i], *said))
    ours = torch.stack(found).double().mean(dim=0)
    assert (ours - expected).abs().max() <= CLOSE * expected.abs().max() > 0.01 * CLOSE


def whole_gradient(update: Update, **changes: Any) -> Tensor:
    """Over all rows together."""
    config = config_of(update, "paper", optim={**WIDE, "minibatch": 1000}, **changes)
    return gradients(update, config, batch_of(update, config), seed=0)[0]


@pytest.fixture(scope="module")
def chosen(update: Update) -> Tensor:
    return whole_gradient(update)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": {"ratio": "token"}},
        {"loss": {"aggregation": "step"}},
        {"loss": {"dual_clip": 3.0}},
        {"loss": {"entropy": 0.01}},
        {"loss": {"kl": 0.1}},
        {"credit": {"weighting": "step"}},
    ],
    ids=lambda changes: next(iter(next(iter(changes.values())))),
)
def test_any_other_choice_would_show(update: Update, chosen: Tensor, changes: dict[str, Any]) -> None:
    other = whole_gradient(update, **changes)
    assert (chosen - other).abs().max() > 3 * CLOSE * chosen.abs().max()


def test_no_bound_holds_a_ratio_far_above_one(update: Update) -> None:
    """Where A < 0 and rho > 3 the dual clip would have no gradient."""
    advantage = final_advantages(update)
    ratios = [math.exp(math.fsum(row.turn.logprobs) - math.fsum(row.old)) for row in update.rows]
    assert any(a < 0 and rho > 3 for a, rho in zip(advantage, ratios, strict=True))
    assert any(a > 0 and rho > 1 + CLIP for a, rho in zip(advantage, ratios, strict=True))
