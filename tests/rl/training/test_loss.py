"""The loss against a plain implementation that loops over rows and tokens."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from crbc_rl.batches import TokenBatch, token_weights
from crbc_rl.config import LossConfig
from crbc_rl.training.loss import policy_loss

GROUPS = [0, 0, 2, 2, 2]


def _case(
    seed: int, aggregation: str = "token", rows: int = 5, width: int = 4
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, TokenBatch]:
    g = torch.Generator().manual_seed(seed)
    draw = lambda scale: torch.randn(rows, width, generator=g, dtype=torch.float64) * scale  # noqa: E731
    lengths = torch.randint(1, width + 1, (rows,), generator=g)
    mask = (torch.arange(width) < lengths[:, None]).double()
    logprobs = -draw(1.0).abs()
    batch = TokenBatch(
        ids=torch.zeros(rows, width, dtype=torch.long),
        mask=None,
        turn=torch.arange(rows),
        response_mask=mask,
        old_logprobs=logprobs + draw(0.4),
        advantages=torch.randn(rows, 1, generator=g, dtype=torch.float64).expand(rows, width) * 3,
        weights=torch.from_numpy(token_weights(lengths.numpy(), np.array(GROUPS), aggregation)),
        correction=torch.rand(rows, width, generator=g, dtype=torch.float64) * 2,
    )
    return logprobs.requires_grad_(), draw(1.0).abs(), logprobs.detach() + draw(0.5), batch


def _plain(logprobs, entropy, reference, batch, config) -> float:
    rows = []
    for i, advantage in enumerate(batch.advantages[:, 0].tolist()):
        n = int(batch.response_mask[i].sum())
        d = [(logprobs[i, k] - batch.old_logprobs[i, k]).item() for k in range(n)]
        tokens = []
        for k in range(n):
            ratio = math.exp(sum(d) if config.ratio == "response" else d[k])
            gain = min(ratio * advantage, min(max(ratio, 1 - config.clip), 1 + config.clip) * advantage)
            if advantage < 0:
                gain = max(gain, config.dual_clip * advantage)
            r = (reference[i, k] - logprobs[i, k]).item()
            kl = math.exp(r) - r - 1
            tokens.append(
                -gain * batch.correction[i, k].item() - config.entropy * entropy[i, k].item() + config.kl * kl
            )
        rows.append(tokens)
    if config.aggregation == "token":
        flat = [value for row in rows for value in row]
        return sum(flat) / len(flat)
    steps = [sum(row) / len(row) for row in rows]
    if config.aggregation == "step":
        return sum(steps) / len(steps)
    return (sum(steps[:2]) / 2 + sum(steps[2:]) / 3) / 2  # GROUPS


@pytest.mark.parametrize("ratio", ["token", "response"])
@pytest.mark.parametrize("aggregation", ["token", "step", "group"])
def test_the_loss_is_the_plain_one(ratio: str, aggregation: str) -> None:
    config = LossConfig(ratio=ratio, aggregation=aggregation, entropy=0.01, kl=0.05, dual_clip=1.5)
    for seed in range(50):
        logprobs, entropy, reference, batch = _case(seed, aggregation)
        loss, figures = policy_loss(logprobs, entropy, reference, batch, config)
        assert loss.item() == pytest.approx(_plain(logprobs, entropy, reference, batch, config), abs=1e-9)
        assert figures["kl"] >= 0 and 0 <= figures["clip_share"] <= 1


def test_padding_tokens_get_no_gradient() -> None:
    logprobs, entropy, reference, batch = _case(0)
    policy_loss(logprobs, entropy, reference, batch, LossConfig())[0].backward()
    assert logprobs.grad is not None
    assert (logprobs.grad[batch.response_mask == 0] == 0).all()
    assert (logprobs.grad[batch.response_mask == 1] != 0).any()


def test_at_ratio_one_the_gradient_is_the_policy_gradient() -> None:
    logprobs, entropy, _, batch = _case(1)
    on_policy = replace(batch, old_logprobs=logprobs.detach().clone(), correction=None)
    policy_loss(logprobs, entropy, None, on_policy, LossConfig(kl=0.0))[0].backward()
    expected = -batch.advantages * batch.response_mask / batch.response_mask.sum()
    assert torch.allclose(logprobs.grad, expected)


def test_losses_and_figures_of_parts_add_up_to_those_of_the_whole() -> None:
    config = LossConfig(kl=0.1, entropy=0.02)
    logprobs, entropy, reference, batch = _case(2)
    whole, figures = policy_loss(logprobs, entropy, reference, batch, config)
    parts = []
    for rows in (slice(0, 2), slice(2, 5), slice(5, 5)):
        names = ("turn", "response_mask", "old_logprobs", "advantages", "weights", "correction")
        part = replace(batch, **{name: getattr(batch, name)[rows] for name in names})
        parts.append(policy_loss(logprobs[rows], entropy[rows], reference[rows], part, config))
    assert sum(loss.item() for loss, _ in parts) == pytest.approx(whole.item(), abs=1e-12)
    for name, value in figures.items():
        add = max if name == "ratio_max" else sum
        assert add(found[name] for _, found in parts) == pytest.approx(value, abs=1e-12), name
