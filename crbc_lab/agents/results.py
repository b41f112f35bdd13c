"""`agents.json`: the result of a run of a prompting agent, computed from its finished episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from crbc_lab.agents.config import AgentsConfig
from crbc_lab.agents.ledger import Ledger
from crbc_lab.agents.records import Record
from crbc_rl.errors import redacted
from crbc_rl.rollout.intervals import independent_tasks, wilson
from crbc_rl.rollout.invalid import InvalidReplies
from crbc_rl.version import __version__

FILE = "agents.json"


def success(records: Sequence[Record], within: int | None = None) -> dict[str, Any]:
    """The success rate with its 95 % interval, over independent tasks; `within` counts the first trials alone."""
    won = np.array([(n := record["solved_at"]) is not None and (within is None or n <= within) for record in records])
    contents = [record["content"] for record in records]
    rate = float(won.mean())
    n = independent_tasks(won, contents)
    low, high = wilson(rate * n, n)
    figures = {"success": rate, "low": low, "high": high, "successes": int(won.sum()), "episodes": len(records)}
    return {**figures, "different_tasks": len(set(contents))}


def result(
    config: AgentsConfig, records: Sequence[Record], ledger: Ledger, panel: dict[str, Any], stopped: str
) -> dict[str, Any]:
    """The whole result. `records` are of this run, one for each finished episode.

    An episode without an answer of the model counts as a failure. `complete` says whether every episode is finished.
    Where it is not, the finished ones are rather the short ones, and the rates are no estimate of the panel's.
    """
    episodes = config.episodes * len(config.seeds)
    summary: dict[str, Any] = {
        "crbc": __version__,
        "name": config.name,
        "agent": config.agent,
        "model": config.model.name,
        "endpoint": None if config.model.endpoint is None else redacted(config.model.endpoint),
        "temperature": config.model.temperature,
        "panel": panel,
        "seeds": list(config.seeds),
        "complete": len(records) == episodes,
        "stopped": stopped,
        "episodes": len(records),
        "episodes_wanted": episodes,
    }
    if records:
        summary |= _outcomes(config, records)
    summary["spent"] = {**ledger.spent.to_dict(config.prices), "currency": config.prices.currency}
    return summary


def _outcomes(config: AgentsConfig, records: Sequence[Record]) -> dict[str, Any]:
    kinds = sorted({record["kind"] for record in records} - {""})
    trials = [trial for record in records for trial in record["trials"]]
    steps = sum(trial["steps"] for trial in trials)
    per_seed = {seed: [record for record in records if record["seed"] == seed] for seed in config.seeds}
    return {
        "success": success(records),
        "examples": {record["kind"]: record["examples"] for record in records if record["examples"]},
        "by_kind": {kind: success([record for record in records if record["kind"] == kind]) for kind in kinds},
        "by_trial": [success(records, within) for within in range(1, config.trials + 1)],
        "by_seed": {str(seed): success(own) for seed, own in per_seed.items() if own},
        "score": sum(record["score"] for record in records) / len(records),
        "unanswered": sum(bool(record["unanswered"]) for record in records),
        "endings": dict(sorted(Counter(trial["ending"] for trial in trials).items())),
        "trials": len(trials),
        "steps": steps,
        "thoughts": sum(trial["thoughts"] for trial in trials),
        "invalid_share": sum(trial["invalid"] for trial in trials) / steps if steps else 0.0,
        **_invalid(records, steps),
        "calls_per_episode": sum(record["calls"] for record in records) / len(records),
        "tokens_in_per_episode": sum(record["tokens_in"] for record in records) / len(records),
        "tokens_out_per_episode": sum(record["tokens_out"] for record in records) / len(records),
    }


def _invalid(records: Sequence[Record], steps: int) -> dict[str, Any]:
    """The shares of steps by the cause of an invalid reply, and three raw replies of each cause."""
    invalid = InvalidReplies()
    for record in records:  # one of an earlier version has neither
        invalid.counts.update(record.get("invalid_by_cause", {}))
        for cause, texts in record.get("invalid_replies", {}).items():
            for text in texts:
                invalid.keep(cause, text)
    shares = {cause: count / steps for cause, count in invalid.counts.items()}
    return {"invalid_by_cause": shares, "invalid_replies": invalid.kept}
