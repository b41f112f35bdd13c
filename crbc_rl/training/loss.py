"""The policy's loss: the clipped objective with a KL penalty to a frozen reference (paper, eqs. 2 and 15), or another
that a config names."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crbc_rl.batches import Floats, RolloutBatch, TokenBatch
from crbc_rl.config import CLIPPED, LossConfig, TrainConfig
from crbc_rl.config.extensions import load
from crbc_rl.errors import ConfigError

Objective = Callable[[Tensor, Tensor, Tensor | None, TokenBatch, LossConfig], tuple[Tensor, dict[str, float]]]
"""(logprobs, entropy, reference, batch, config) -> the loss to minimise, a scalar, and its metrics; `policy_loss` is
one. All are summed over tokens with `batch.weights`, so that passes add up to their mini-batch."""


def objective_of(config: TrainConfig, taken: Set[str] = frozenset()) -> Objective:
    """The policy's loss that `loss.objective` names. Raises `ConfigError` where a module of one's own has none such, or
    its metrics have names of a record that are `taken`."""
    name = config.loss.objective
    if name == CLIPPED:
        return policy_loss
    return check_objective(load(name, config.modules, "loss.objective"), name, config.loss, taken)


def check_objective(objective: Any, name: str, config: LossConfig, taken: Set[str] = frozenset()) -> Objective:
    """The objective itself, after a trial. Raises `ConfigError` unless it gives a loss with a gradient, and metrics."""
    if not callable(objective):
        raise ConfigError(f"loss.objective: {name} is no function, but {type(objective).__name__}")
    ones, advantages = torch.ones(2, 3), torch.tensor([[1.0], [-1.0]]).expand(2, 3)
    row, ids = torch.arange(2), torch.ones(2, 4, dtype=torch.long)
    places = (row.repeat_interleave(3), torch.tensor([1, 2, 3, 1, 2, 3]), torch.tensor([0, 1, 2, 0, 1, 2]))
    batch = TokenBatch(ids, 1 + 0 * row, ones.bool(), *places, row, ones, -ones, advantages, ones[:, 0] / 6)
    result = objective((-ones).requires_grad_(), ones, -ones if config.kl else None, batch, config)
    loss, metrics = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    trains = isinstance(loss, Tensor) and loss.shape == () and loss.requires_grad
    if not trains or not isinstance(metrics, dict) or not all(isinstance(value, float) for value in metrics.values()):
        raise ConfigError(
            f"loss.objective: {name} must return a scalar tensor with a gradient and a dict of numbers (float), "
            "as crbc_rl.training.loss.policy_loss does"
        )
    if twice := taken & metrics.keys():
        raise ConfigError(f"loss.objective: {name}: its metric {min(twice)!r} is one of the run's own; rename it")
    return objective


def policy_loss(
    logprobs: Tensor, entropy: Tensor, reference: Tensor | None, batch: TokenBatch, config: LossConfig
) -> tuple[Tensor, dict[str, float]]:
    """The loss to minimise and its metrics. `logprobs`, `entropy` and `reference` are (B, R).

    Tokens are summed with `batch.weights`. So losses, gradients and metrics of micro-batches add up to those of the
    mini-batch (`ratio_max` is a maximum).

    With ratio "token", rho = exp(log pi - log pi_old) for each token, and all tokens of a step have its advantage.
    Public trainers use this. With ratio "response", one rho holds for the whole reply, the product of its
    tokens' ratios, as eq. 2 writes it. Its gradient is larger by the reply's length, and it leaves the clip range
    sooner.

    KL is k3, exp(d) - d - 1 with d = log pi_ref - log pi, per token: never negative, low variance.
    """
    mask = batch.response_mask
    weights = batch.weights[:, None] * mask
    log_ratio = (logprobs - batch.old_logprobs) * mask
    if config.ratio == "response":
        log_ratio = log_ratio.sum(dim=1, keepdim=True).clamp(-20.0, 20.0).expand_as(mask)  # exp(89) is infinite
    ratio = log_ratio.exp()
    surrogate = clipped_surrogate(ratio, batch.advantages, config)
    clipped = surrogate.detach() != ratio.detach() * batch.advantages
    positive = batch.advantages > 0
    if batch.correction is not None:  # the tokens were sampled from another distribution than pi_old
        surrogate = surrogate * batch.correction

    def total(per_token: Tensor) -> Tensor:
        return (per_token * weights).sum()

    loss = -total(surrogate) - config.entropy * total(entropy)
    metrics = {
        "entropy": total(entropy),
        "ratio_max": (ratio * mask).max(),
        "clip_share": total(clipped),
        "clip_share_low": total(clipped & ~positive),
        "clip_share_high": total(clipped & positive),
        "drift": total((logprobs - batch.old_logprobs).abs()),
    }
    if reference is not None:
        d = (reference - logprobs).clamp(-20.0, 20.0)
        kl = total((d.exp() - d - 1.0).clamp(max=10.0))
        loss = loss + config.kl * kl
        metrics["kl"] = kl
    metrics = {"loss": loss, **metrics}
    values = torch.stack([value.detach() for value in metrics.values()]).tolist()  # a GPU is waited for once
    return loss, dict(zip(metrics, values, strict=True))


def seen(batch: RolloutBatch, trained: Floats, config: LossConfig) -> Floats:
    """What the objective made of each response token, (4, T): its log-probability `trained` (T,), its ratio, its
    advantage, and 1 where the clip took its gradient, which is known of the paper's objective alone. NaN where it was
    not read, or is masked."""
    if batch.masked is not None:
        trained = np.where(np.repeat(batch.masked, batch.response_length), np.nan, trained)
    log_ratio = trained - batch.old
    if config.ratio == "response":
        log_ratio = np.repeat(np.add.reduceat(log_ratio, batch.ends - batch.response_length), batch.response_length)
    ratio = np.exp(log_ratio.clip(-20.0, 20.0))
    given = batch.token_advantage
    advantage = np.repeat(batch.advantage, batch.response_length) if given is None else given
    surrogate = clipped_surrogate(torch.from_numpy(ratio), torch.from_numpy(advantage), config)
    clipped = (surrogate.numpy() != ratio * advantage) & (config.objective == CLIPPED)
    told = np.stack([trained, ratio, advantage, clipped])
    told[:, ~np.isfinite(trained)] = np.nan
    return told.astype(np.float32).astype(np.float64)


def clipped_surrogate(ratio: Tensor, advantages: Tensor, config: LossConfig) -> Tensor:
    """min(rho A, clip(rho) A), as in eq. 15, and at least `dual_clip` A where A < 0, unless that is None. Without this
    bound a ratio far above 1 makes the objective arbitrarily negative."""
    above = config.clip if config.clip_high is None else config.clip_high
    clipped = ratio.clamp(1.0 - config.clip, 1.0 + above)
    surrogate = (ratio * advantages).minimum(clipped * advantages)
    if config.dual_clip is None:
        return surrogate
    return surrogate.where(advantages >= 0, surrogate.maximum(config.dual_clip * advantages))
