"""The loss of single tokens, counted by hand, with its gradient: every bound, sign, weight and mask has a case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tables import table, weighed

from crbc_rl.batches import Turn, collate, token_weights
from crbc_rl.config import LossConfig
from crbc_rl.training.loss import policy_loss


class Told(NamedTuple):
    loss: float
    gradient: list[list[float]]
    figures: dict[str, float]


def told(
    ratios: Sequence[Sequence[float]],
    advantages: Sequence[float | list[float]],
    entropy: float = 0.0,
    reference: float | None = None,
    correction: Sequence[Sequence[float]] | None = None,
    groups: Sequence[int] | None = None,
    **config: Any,
) -> Told:
    """The loss of rows of tokens whose log-probability was -2 and whose ratios are now `ratios`, and its gradient by
    the log-probabilities. `entropy` is that of every token; `reference` is added to its log-probability to make that
    under the reference. Behind shorter rows stands padding of large numbers."""
    settings = LossConfig(**{"kl": 0.0, **config})
    columns: dict[str, Any] = {"old": [[-2.0] * len(ratio) for ratio in ratios]}
    columns["token_advantage" if isinstance(advantages[0], list) else "advantage"] = advantages
    if correction:
        columns["correction"] = correction
    rows = table([Turn([1 + i], [7] * len(ratio), []) for i, ratio in enumerate(ratios)], **columns)
    weights = token_weights(rows.response_length, np.array(groups or [0] * len(rows)), settings.aggregation)
    batch = collate(rows, 0, weights)
    width = batch.response_length
    logprobs = torch.full((len(rows), width), 3.0)
    for k, row in enumerate(batch.rows):
        logprobs[k, : len(ratios[row])] = torch.tensor([-2.0 + math.log(r) for r in ratios[row]])
    logprobs.requires_grad_()
    near = None if reference is None else logprobs.detach() + reference
    loss, figures = policy_loss(logprobs, torch.full_like(logprobs, entropy), near, batch, settings)
    loss.backward()
    assert figures["loss"] == pytest.approx(loss.item())
    order = sorted(range(len(rows)), key=lambda k: batch.rows[k])
    gradient = [logprobs.grad[k].tolist() for k in order]
    for i, ratio in enumerate(ratios):
        assert gradient[i][len(ratio) :] == [0.0] * (width - len(ratio)), "padding has no gradient"
    return Told(loss.item(), [g[: len(r)] for g, r in zip(gradient, ratios, strict=True)], figures)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.0, -2.0, 2.0, 2.0),
        (1.19, 2.0, -2.38, -2.38),
        (1.5, 2.0, -2.4, 0.0),  # above 1 + clip a gain stops growing
        (0.5, 2.0, -1.0, -1.0),  # below 1 - clip it does not stop shrinking
        (0.81, -2.0, 1.62, 1.62),
        (0.5, -2.0, 1.6, 0.0),  # below 1 - clip a loss stops shrinking
        (1.5, -2.0, 3.0, 3.0),  # above 1 + clip it does not stop growing
        (2.9, -2.0, 5.8, 5.8),
        (5.0, -2.0, 6.0, 0.0),  # but at the dual clip it does
        (5.0, 2.0, -2.4, 0.0),  # which says nothing of a gain
        (0.01, 2.0, -0.02, -0.02),
        (1.0, 0.0, 0.0, 0.0),
    ],
)
def test_a_token_s_loss_and_slope(ratio: float, advantage: float, loss: float, slope: float) -> None:
    found = told([[ratio]], [advantage])
    assert found.loss == pytest.approx(loss, rel=1e-5, abs=1e-7)
    assert found.gradient[0] == pytest.approx([slope], rel=1e-5, abs=1e-7)
    clipped = float(abs(slope) < 1e-9 and advantage != 0.0)
    assert found.figures["clip_share"] == clipped
    assert found.figures["clip_share_low"] == clipped * (advantage < 0)
    assert found.figures["clip_share_high"] == clipped * (advantage > 0)
    assert found.figures["ratio_max"] == pytest.approx(ratio, rel=1e-6)
    assert found.figures["drift"] == pytest.approx(abs(math.log(ratio)), abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "ratio", "advantage", "loss"),
    [
        ({"clip": 0.1}, 1.5, 2.0, -2.2),
        ({"clip": 0.1}, 0.5, -2.0, 1.8),
        ({"clip": 0.4}, 1.39, 2.0, -2.78),
        ({"clip": 0.4}, 1.5, 2.0, -2.8),
        ({"clip_high": 0.3}, 1.5, 2.0, -2.6),
        ({"clip_high": 0.3}, 0.5, -2.0, 1.6),
        ({"clip_high": 0.1, "clip": 0.5}, 1.3, 2.0, -2.2),
        ({"dual_clip": 1.5}, 1.6, -2.0, 3.0),
        ({"dual_clip": 10.0}, 9.0, -2.0, 18.0),
    ],
)
def test_the_bounds_are_those_of_the_config(
    settings: dict[str, float], ratio: float, advantage: float, loss: float
) -> None:
    assert told([[ratio]], [advantage], **settings).loss == pytest.approx(loss, rel=1e-5)


def test_a_ratio_is_of_the_token_or_the_product_of_the_reply() -> None:
    ratios, advantage = [[1.1, 1.05], [0.7]], [2.0, 2.0]
    by_token = told(ratios, advantage)
    assert by_token.loss == pytest.approx(-(2.2 + 2.1 + 1.4) / 3, rel=1e-5)
    assert by_token.gradient[0] == pytest.approx([-2.2 / 3, -2.1 / 3], rel=1e-5)
    assert by_token.figures["drift"] == pytest.approx((math.log(1.1) + math.log(1.05) - math.log(0.7)) / 3, rel=1e-4)
    assert by_token.figures["ratio_max"] == pytest.approx(1.1, rel=1e-4)
    product = told(ratios, advantage, ratio="response")
    assert product.loss == pytest.approx(-(2 * 2 * 1.155 + 1.4) / 3, rel=1e-5)
    assert product.figures["drift"] == by_token.figures["drift"]  # of a token, however long the reply
    assert product.gradient[0] == pytest.approx([-2 * 2 * 1.155 / 3] * 2, rel=1e-5), "each token moves both"
    assert told([[1.1, 1.1]], [2.0], ratio="response").loss == pytest.approx(-2.4, rel=1e-5)  # 1.21 is cut at 1.2
    assert told([[1.1, 1.1]], [2.0], ratio="response").figures["clip_share"] == pytest.approx(1.0)
    far = told([[1e30, 1e30], [0.7]], advantage, ratio="response")  # whose product no float32 holds
    assert far.gradient[0] == [0.0, 0.0] and far.gradient[1] == pytest.approx([-1.4 / 3], rel=1e-5)


@pytest.mark.parametrize(
    ("aggregation", "weights"),
    [("token", [1 / 7, 1 / 7, 1 / 7]), ("step", [1 / 3, 1 / 6, 1 / 12]), ("group", [1 / 4, 1 / 8, 1 / 8])],
)
def test_tokens_are_weighed_by_the_aggregation(aggregation: str, weights: list[float]) -> None:
    """Replies of 1, 2 and 4 tokens, the first two of one group: a token of each weighs so much."""
    ones = [[1.0], [1.0, 1.0], [1.0] * 4]
    found = told(ones, [10.0, -20.0, 30.0], groups=[4, 4, 9], aggregation=aggregation)
    assert [g[0] for g in found.gradient] == pytest.approx(
        [-a * w for a, w in zip([10.0, -20.0, 30.0], weights, strict=True)], rel=1e-5
    )
    for gradient in found.gradient:
        assert gradient == pytest.approx([gradient[0]] * len(gradient))
    assert found.loss == pytest.approx(sum(sum(g) for g in found.gradient), rel=1e-5)


def test_entropy_is_rewarded_by_its_weight() -> None:
    found = told([[1.0, 1.0], [1.0]], [0.0, 0.0], entropy=1.5)
    assert found.figures["entropy"] == pytest.approx(1.5) and found.loss == 0.0
    settings = LossConfig(kl=0.0, entropy=0.1)
    batch = weighed(table([Turn([1], [2, 3], [0.0, 0.0])]))
    entropy = torch.tensor([[1.0, 3.0]], requires_grad=True)
    loss, _ = policy_loss(torch.zeros(1, 2), entropy, None, batch, settings)
    assert loss.item() == pytest.approx(-0.1 * 2.0)
    loss.backward()
    assert entropy.grad.tolist() == [pytest.approx([-0.05, -0.05])]


@pytest.mark.parametrize(
    ("beyond", "kl", "slope"),
    [
        (0.0, 0.0, 0.0),
        (-math.log(2), 0.5 + math.log(2) - 1, 0.5),  # likelier than under the reference: pushed down
        (math.log(2), 2 - math.log(2) - 1, -1.0),  # less likely: pulled up, and harder
        (5.0, 10.0, 0.0),  # exp(5) - 6 is beyond what is counted
        (-30.0, 10.0, 0.0),
    ],
)
def test_the_kl_is_to_the_reference_and_never_negative(beyond: float, kl: float, slope: float) -> None:
    found = told([[1.0, 1.3]], [0.0], reference=beyond)
    assert found.figures["kl"] == pytest.approx(kl, abs=1e-6) and found.loss == pytest.approx(0.0)
    weighed = told([[1.0, 1.3]], [0.0], reference=beyond, kl=0.5)
    assert weighed.figures["kl"] == pytest.approx(kl, abs=1e-6)
    assert weighed.loss == pytest.approx(0.5 * kl, abs=1e-6)
    assert weighed.gradient[0] == pytest.approx([0.25 * slope] * 2, abs=1e-6)


def test_without_a_reference_there_is_no_kl() -> None:
    assert "kl" not in told([[1.0]], [1.0], kl=0.5).figures


def test_a_correction_multiplies_the_gain_of_its_token_alone() -> None:
    """And neither the entropy, the KL nor what counts as clipped."""
    ratios, factors = [[1.0, 1.5], [1.0]], [[0.5, 2.0], [0.25]]
    found = told(ratios, [2.0, -4.0], correction=factors)
    assert found.loss == pytest.approx((-0.5 * 2 - 2.0 * 2.4 + 0.25 * 4) / 3, rel=1e-5)
    assert found.gradient[0] == pytest.approx([-0.5 * 2 / 3, 0.0], abs=1e-6)
    assert found.gradient[1] == pytest.approx([0.25 * 4 / 3], rel=1e-5)
    assert found.figures["clip_share"] == pytest.approx(1 / 3)
    apart = {"entropy": 0.7, "reference": math.log(2)}
    one, other = (told(ratios, [0.0, 0.0], correction=c, kl=0.5, **apart) for c in (factors, None))
    assert one.loss == pytest.approx(other.loss) and one.gradient == other.gradient


def test_an_advantage_per_token_is_that_token_s() -> None:
    found = told([[1.0, 1.0], [1.0]], [[3.0, -6.0], [9.0]])
    assert found.gradient[0] == pytest.approx([-1.0, 2.0]) and found.gradient[1] == pytest.approx([-3.0])


def test_figures_count_no_padding() -> None:
    found = told([[1.0], [1.0, 1.0, 1.0]], [1.0, 1.0], entropy=2.0, reference=0.0)
    assert found.figures["drift"] == found.figures["clip_share"] == 0.0
    assert found.figures["ratio_max"] == 1.0
    assert found.figures["entropy"] == pytest.approx(2.0)
    below = told([[0.5], [0.5, 0.25, 0.5]], [1.0, 1.0])
    assert below.figures["ratio_max"] == pytest.approx(0.5), "padding has the ratio 1"
