"""What one line of a config, `protocol: verl-agent` or `protocol: paper`, says about the keys that it does not name.

"paper" is the paper's text, its eqs. 2, 3 and 15 to the letter. "verl-agent" is the public trainer of that name, whose
example scripts have the paper's remaining numbers. The paper names no code: that its runs came from this trainer is our
inference. docs/learner.md has both beside each other, and what still deviates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from crbc_rl.config.sections import EnvConfig, TrainConfig


class Choice(NamedTuple):
    """A value for a key, "section.key", and where it comes from."""

    key: str
    value: Any
    why: str


_ENVIRONMENT = Choice("credit.reward", "environment", "its reward manager sums the environment's own rewards")

PROTOCOLS: dict[str, tuple[Choice, ...]] = {
    "verl-agent": (
        Choice("credit.reward", "outcome", "its ALFWorld and WebShop give 10 for a success and 0 otherwise"),
        Choice("credit.weighting", "step", "its mean and deviation are over rows; the penalty is the malformed row's"),
        Choice("loss.ratio", "token", "its default policy loss"),
        Choice("loss.aggregation", "token", "its default, token-mean"),
        Choice("loss.clip", 0.2, "its default"),
        Choice("loss.clip_high", None, "its default: as far above 1 as below"),
        Choice("loss.dual_clip", 3.0, "its default"),
        Choice("loss.kl", 0.01, "its scripts, and the paper"),
        Choice("loss.entropy", 0.001, "its default, which no script changes"),
        Choice("loss.correction", "none", "it has no importance sampling between engine and trainer"),
        Choice("loss.mask_truncated", False, "it learns from truncated replies"),
        Choice("optim.order", "ranks", "its rows are balanced over eight GPUs, and each cuts its own"),
        Choice("optim.epochs", 1, "its default"),
        Choice("optim.weight_decay", 0.01, "its default"),
        Choice("optim.grad_clip", 1.0, "its default"),
        Choice("optim.schedule", "constant", "its default"),
        Choice("optim.warmup", 0, "its default"),
        Choice("rollout.truncation", "error", "its scripts: a prompt that is too long ends the run"),
        Choice("rollout.rounds", 1, "dynamic sampling is off in these scripts"),
    ),
    "paper": (
        Choice("credit.reward", "outcome", "section 3: R is 0 or 1"),
        Choice("credit.weighting", "rollout", "eq. 3: mean and deviation are over rollouts"),
        Choice("loss.ratio", "response", "eq. 2: the ratio of whole replies"),
        Choice("loss.aggregation", "group", "eqs. 2 and 15: groups weigh the same, and in a group its steps"),
        Choice("loss.clip_high", None, "eq. 2: 1 - e and 1 + e"),
        Choice("loss.dual_clip", None, "eq. 15 has no such bound"),
        Choice("loss.kl", 0.01, "Details of Training"),
        Choice("loss.entropy", 0.0, "eq. 15 has no such term"),
        Choice("loss.correction", "none", "eq. 15 has no such factor"),
        Choice("loss.mask_truncated", False, "eq. 15 is over all steps"),
        Choice("optim.order", "spread", "ours: the paper does not say which steps meet in a mini-batch"),
        Choice("rollout.rounds", 1, "Algorithm 1 samples once"),
    ),
}
"""Every key that a protocol sets, by the protocol's name."""


def choices(protocol: str | None, env_id: str) -> tuple[Choice, ...]:
    """What `protocol` says for an environment: in Sokoban verl-agent's rewards are the environment's own."""
    chosen = PROTOCOLS.get(protocol or "", ())
    if protocol == "verl-agent" and "Sokoban" in env_id:
        chosen = tuple(_ENVIRONMENT if choice.key == _ENVIRONMENT.key else choice for choice in chosen)
    return chosen


def fill(data: dict[str, Any]) -> dict[str, Any]:
    """Plain data of a config with its protocol's values where it names none."""
    env, protocol = data.get("env"), data.get("protocol")
    named = env.get("id") if isinstance(env, dict) else None
    filled = dict(data)
    for choice in choices(str(protocol), str(named or EnvConfig().id)):
        section, key = choice.key.split(".")
        given = filled.get(section, {})
        if isinstance(given, dict):
            filled[section] = {**given, key: given.get(key, choice.value)}
    return filled


def deviations(config: TrainConfig) -> list[tuple[Choice, Any]]:
    """The choices of its protocol that `config` does otherwise, each with the config's own value."""
    values = [(choice, _value(config, choice.key)) for choice in choices(config.protocol, config.env.id)]
    return [(choice, value) for choice, value in values if value != choice.value]


def _value(config: TrainConfig, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(config, section), name)
