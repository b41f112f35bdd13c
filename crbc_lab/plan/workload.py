"""What an update asks of the hardware: how long episodes, prompts and replies are, and who waits for whom.

Replies end at random: after each token with the same probability, and at the limit at the latest. Of all distributions
with a given mean this one needs no further number, and it gives the longest reply of many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, sqrt

from crbc_lab.plan.lengths import Lengths
from crbc_rl.config import TrainConfig
from crbc_rl.policies.engines import engine_of


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths in tokens and turns, means over an update; costs of the environment in CPU seconds.

    A share `success` of the rollouts ends after `solved` turns, all others at the limit of steps.
    """

    prompt: float
    reply: float
    solved: float
    shared: float = 0.0
    """Tokens of a prompt that another of the update begins with, so that an engine reads them once."""
    spread: float = 0.0
    """The standard deviation of a prompt's tokens."""
    success: float = 0.5
    """Not known before a run: half of the rollouts."""
    step: float = 0.0
    reset: float = 0.0
    workers: int | None = None
    """Processes that step environments side by side; None: one for each GPU."""
    lockstep: bool = False
    """Whether a turn begins when the longest reply of the turn before has ended, for all; else for each by itself."""
    kept: bool = False
    """Whether members that have ended are sampled until the last one has."""


MEASURED = {
    ("CRBC-ALFWorld-v0", "text"): Workload(prompt=472, spread=98, reply=127, solved=8.5, step=0.08e-3, reset=4.1e-3),
    ("CRBC-WebShop-v0", "text"): Workload(prompt=775, spread=280, reply=127, solved=10.4, step=0.20e-3, reset=0.2e-3),
    ("CRBC-Sokoban-v0", "image"): Workload(prompt=411, reply=127, solved=3.8, step=0.87e-3, reset=1.6e-3),
}
"""By environment and prompt. `python -m benchmarks.lengths` measures prompts (of random play in ALFWorld, of the expert
else), the expert's turns, and the cost of our environments.

`reply`: a public log of verl-agent's family in ALFWorld (github.com/ZJU-REAL/SDAR, issue 51) counts 3,830,959 tokens in
its first update, which has at most 128 x 50 turns: 599 a turn, less the prompt. It is assumed for the others."""
WITHOUT_FRAMES = 0.02e-3, 0.05e-3
"""A step and a reset of Sokoban where it draws nothing."""


def workload_of(config: TrainConfig, lengths: Lengths | None = None) -> Workload | None:
    """The workload of a config's environment and prompt, within its limits.

    Where it is not in `MEASURED`, or replies must be shorter, it is of the expert's `lengths`; None without these.
    """
    known = MEASURED.get((config.env.id, config.env.prompt))
    if lengths is not None and (known is None or config.rollout.max_new_tokens < known.reply):
        costs = next((work for (env_id, _), work in MEASURED.items() if env_id == config.env.id), Workload(0, 0, 0))
        if config.env.kwargs.get("observation") == "text":
            costs = replace(costs, step=WITHOUT_FRAMES[0], reset=WITHOUT_FRAMES[1])
        known = replace(costs, prompt=lengths.prompt, spread=lengths.spread, shared=lengths.shared)
        known = replace(known, reply=lengths.reply, solved=lengths.turns)
    if known is None:
        return None
    rollout = config.rollout
    prompt = min(known.prompt, rollout.max_prompt_tokens or known.prompt)
    reply = min(known.reply, rollout.max_new_tokens)
    shared = known.shared * prompt / known.prompt  # a shortened prompt keeps its share
    return replace(known, prompt=prompt, shared=shared, reply=reply, lockstep=engine_of(config).is_transformers)


def going_on(mean: float, limit: int) -> float:
    """The probability that a reply goes on after a token, so that replies of at most `limit` tokens have this mean."""
    if mean >= limit:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        reached = sum(middle**k for k in range(limit)) >= mean
        low, high = (low, middle) if reached else (middle, high)
    return high


def spread(mean: float, limit: int) -> float:
    """The standard deviation of such a reply, in tokens."""
    on = going_on(mean, limit)
    tails = [on**k for k in range(limit)]  # P(length > k)
    return sqrt(max(0.0, sum((2 * k + 1) * tail for k, tail in enumerate(tails)) - sum(tails) ** 2))


def longest_chain(members: float, turns: float, reply: float, limit: int) -> float:
    """Tokens of the longest of `members` chains of `turns` replies, about: the mean and sqrt(2 ln n) deviations."""
    highest = sqrt(2 * log(members)) if members > 1 else 0.0
    return turns * min(limit, reply + highest * spread(reply, limit) / sqrt(turns))
