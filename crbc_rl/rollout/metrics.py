"""Metrics of an update's rollouts: of all that were sampled, also where only a part of them is trained on."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
import torch

from crbc_rl.batches import RolloutBatch
from crbc_rl.rollout.invalid import metric_key


def rollout_metrics(batch: RolloutBatch, kinds: Mapping[str, str], ends: Collection[int]) -> dict[str, float]:
    """The metrics of all that was played for `batch`. `kinds` maps ids of tasks to their kinds; a reply that does not
    end with one of the tokens `ends` was cut."""
    played = _played(batch)
    rollouts, rates = played.rollouts, played.rollouts.success_rate
    steps, members = len(played), len(rollouts.length)
    prompts = np.array([len(turn.prompt) for turn in played.turns])
    causes = Counter(turn.cause for turn in played.turns if turn.cause)
    return {
        "success": int(rollouts.success.sum()) / members,
        "score": sum(rollouts.score.tolist()) / members,
        "reward": sum(rollouts.returns.tolist()) / members,
        "length": steps / members,
        "invalid": int((~rollouts.valid).sum()) / steps,
        "mixed_groups": int(((rates > 0) & (rates < 1)).sum()) / len(rates),
        "steps": steps,
        "groups_played": len(rates),
        "groups_kept": batch.rollouts.num_groups,
        "response_length": float(played.response_length.mean()),
        "response_max": int(played.response_length.max()),
        "response_cut": float(played.cut(ends).mean()),
        "prompt_length": float(prompts.mean()),
        "prompt_max": int(prompts.max()),
        "prompt_cut": sum(turn.shortened for turn in played.turns) / steps,
        **({"thought_cut": closed / steps} if (closed := sum(turn.forced[1] > 0 for turn in played.turns)) else {}),
        **_by_kind(played, kinds),
        **{metric_key(cause): n / steps for cause, n in sorted(causes.items())},
    }


def _played(batch: RolloutBatch) -> RolloutBatch:
    return batch if batch.all_groups is None else batch.all_groups


def _by_kind(played: RolloutBatch, kinds: Mapping[str, str]) -> dict[str, float]:
    """The success rate of the groups of each kind of task that was played."""
    of_group = np.array([kinds.get(task, "") for task in played.rollouts.tasks or ()])
    rates = played.rollouts.success_rate
    return {f"success/{kind}": float(rates[of_group == kind].mean()) for kind in sorted({*of_group.tolist()} - {""})}


def speeds(batch: RolloutBatch, epochs: int, seconds: Mapping[str, float]) -> dict[str, float]:
    """Tokens per second of sampling and of training, from the seconds of their phases.

    Generated are the tokens of all replies played. Trained are those of the prompts and replies of the rows trained on,
    in all `epochs`. Equal rows are read once and count each.
    """
    played = _played(batch)
    trained = epochs * (sum(len(turn.prompt) for turn in batch.turns) + int(batch.response_length.sum()))
    spent = {
        "generated": (int(played.response_length.sum()), ("generate", "environments")),
        "trained": (trained, ("tensors", "reference", "train")),
    }
    per_second = {}
    for name, (tokens, phases) in spent.items():
        whole = sum(seconds.get(phase, 0.0) for phase in phases)
        if whole > 0.0:
            per_second[f"tokens_per_second/{name}"] = tokens / whole
    return per_second


def peak_memory(device: torch.device) -> float:
    """The most memory that was in use at once, in GiB: on a GPU what torch held of it since the last call, on a CPU
    what the process ever had."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
    else:
        import resource  # Windows has none

        unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
        peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**30
