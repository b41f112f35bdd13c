"""The table of a run's metrics: the meaning of each.

`METRICS` is the single table: TensorBoard's groups, the report's panels and docs/metrics.md come from it
(`python -m crbc_rl.runs.metric_table > docs/metrics.md`), and a test fails for a metric without an entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crbc_rl.runs.credit_metrics import CREDIT
from crbc_rl.runs.metric import Metric
from crbc_rl.runs.phases import SECONDS

METRICS = (
    Metric("reward", "rollout", "Mean reward", "reward", "return of a rollout, mean over rollouts", panel=True),
    Metric(
        "length", "rollout", "Episode length", "steps", "environment steps of a rollout, mean over rollouts", panel=True
    ),
    Metric(
        "kl",
        "loss",
        "KL to the reference",
        "nats per token",
        "k3 estimate of KL(policy || reference), mean over response tokens",
        "above 0.1: the policy leaves its reference; above 1: it has collapsed or the learning rate is too high",
        panel=True,
    ),
    Metric(
        "entropy",
        "loss",
        "Token entropy",
        "nats per token",
        "entropy of the next token at the sampling temperature, mean over response tokens",
        "near 0: sampling no longer explores, and groups become flat",
        panel=True,
    ),
    Metric(
        "clip_share",
        "loss",
        "Clip share",
        "share",
        "share of response tokens whose objective was clipped",
        "above 20 %: the policy moves too far in one update",
        panel=True,
    ),
    Metric("clip_share_low", "loss", "Clip share below", "share", "the part of it with an advantage below 0"),
    Metric("clip_share_high", "loss", "Clip share above", "share", "the part of it with an advantage above 0"),
    Metric(
        "grad_norm",
        "optimizer",
        "Gradient norm",
        "",
        "norm of the gradient before it is clipped to `optim.grad_clip`, mean over optimizer steps",
        "ten times its usual size, or 0 for many updates",
        panel=True,
    ),
    Metric(
        "advantage_abs",
        "credit",
        "Mean size of an advantage",
        "",
        "absolute advantage of a step, mean over steps",
        "0: every group is flat and nothing is learned",
    ),
    Metric("advantage_min", "credit", "Smallest advantage", "", "smallest advantage of a step"),
    Metric(
        "advantage_mean",
        "credit",
        "Mean advantage",
        "",
        "mean advantage over steps, as the loss gets it",
        "far from 0 beside its mean size: all replies are made likelier, or all less likely",
    ),
    Metric("advantage_max", "credit", "Largest advantage", "", "largest advantage of a step"),
    Metric(
        "ratio_max",
        "loss",
        "Largest importance ratio",
        "ratio",
        "largest importance ratio of any response token of the update",
        "above 10: a few tokens decide the step",
        panel=True,
    ),
    Metric(
        "invalid",
        "rollout",
        "Invalid share",
        "share",
        "share of steps whose reply was malformed or not admissible",
        "rising, or near 100 %: replies no longer have the form that the environment reads",
        panel=True,
    ),
    Metric(
        "prompt_cut",
        "rollout",
        "Shortened prompts",
        "share",
        "share of steps whose prompt was longer than `rollout.max_prompt_tokens` and lost records or lines",
        "above 5 %: the policy does not see what it should",
    ),
    Metric(
        "mixed_groups",
        "rollout",
        "Groups of mixed outcome",
        "share",
        "share of groups with both successes and failures; only these have a group advantage",
        "below 10 %: tasks are too easy or too hard",
        panel=True,
    ),
    Metric(
        "success",
        "rollout",
        "Success",
        "share",
        "share of rollouts that succeed, at the training temperature; like all of this section over all groups played, "
        "also those that are not trained on (`rollout.rounds`)",
    ),
    Metric("groups_played", "rollout", "Groups played", "count", "groups that were played for the update"),
    Metric("groups_kept", "rollout", "Groups kept", "count", "groups of them that are trained on"),
    Metric("score", "rollout", "Score", "in [0, 1]", "task score of a rollout, mean over rollouts"),
    Metric("steps", "rollout", "Environment steps", "steps", "environment steps of the update, over all rollouts"),
    Metric(
        "response_length",
        "rollout",
        "Reply length",
        "tokens",
        "tokens of a reply with its end token, mean over replies",
        "at `rollout.max_new_tokens`, or falling to a few",
        panel=True,
    ),
    Metric("response_max", "rollout", "Longest reply", "tokens", "tokens of the longest reply"),
    Metric(
        "response_cut",
        "rollout",
        "Replies cut",
        "share",
        "share of replies that reached `rollout.max_new_tokens` and have no end token",
        "above 5 %: what is cut is mostly malformed",
    ),
    Metric("prompt_length", "rollout", "Prompt length", "tokens", "tokens of a prompt as the model reads it, mean"),
    Metric(
        "prompt_max",
        "rollout",
        "Longest prompt",
        "tokens",
        "tokens of the longest prompt",
        "at `rollout.max_prompt_tokens`: longer prompts are shortened to it",
    ),
    *CREDIT,
    Metric(
        "tokens_per_second/generated",
        "machine",
        "Tokens generated per second",
        "tokens/s",
        "tokens of all replies played, by the seconds of `generate` and `environments`",
    ),
    Metric(
        "tokens_per_second/trained",
        "machine",
        "Tokens trained per second",
        "tokens/s",
        "tokens of the prompts and replies trained on, in every epoch, by the seconds of `tensors`, `reference` and "
        "`train`; equal rows are read once and count each",
    ),
    Metric(
        "memory_peak",
        "machine",
        "Peak memory",
        "GiB",
        "most memory in use at once, on the first rank: on a GPU what torch held of it since the record before, on a "
        "CPU what the process ever had",
        "near the size of the device",
    ),
    Metric("loss", "loss", "Loss", "", "what is minimised, mean over optimizer steps"),
    Metric(
        "drift",
        "loss",
        "Drift before learning",
        "nats per token",
        "|log-probability in training - log-probability that ratios start from| at the first optimizer step",
        "above 0.001 in float32: sampling and training are not the same function",
    ),
    Metric(
        "empty_steps",
        "optimizer",
        "Empty optimizer steps",
        "share",
        "share of optimizer steps none of whose rows has an advantage: they follow KL and entropy alone",
        "above 5 %: groups are flat, or `optim.order` is not spread",
    ),
    Metric("lr", "optimizer", "Learning rate", "", "learning rate of the policy in this update"),
    Metric(
        "skipped_steps",
        "optimizer",
        "Skipped steps",
        "count",
        "optimizer steps left out because the loss or the gradient was not finite; three in a row stop the run",
        "above 0",
    ),
    Metric(
        "mismatch",
        "engine",
        "Mismatch of the engine",
        "nats per token",
        "|log-probability of the trained model - that of the engine that sampled|, mean over response tokens",
        "above 0.05 with bfloat16, above 0.001 with float32",
    ),
    Metric(
        "mismatch_max",
        "engine",
        "Largest mismatch of the engine",
        "nats",
        "the same, of the token where it is largest",
        "above 5",
    ),
    Metric("value_loss", "critic", "Value loss", "reward squared", "half the squared error of PPO's critic, clipped"),
    Metric(
        "value_grad_norm",
        "critic",
        "Gradient norm of the critic",
        "",
        "norm of the critic's gradient before clipping, mean over optimizer steps",
    ),
    Metric(
        "value_skipped_steps",
        "critic",
        "Skipped steps of the critic",
        "count",
        "its optimizer steps left out because the loss or the gradient was not finite",
        "above 0",
    ),
    Metric("update", "run", "Update", "count", "number of the update; 0 is the policy before training"),
)

EVALUATION = (
    Metric("success", "", "Success", "share", "share of held-out tasks solved, at the evaluation temperature"),
    Metric("low", "", "Success, lower end", "share", "lower end of the 95 % interval of success (Wilson)"),
    Metric("high", "", "Success, upper end", "share", "upper end of that interval"),
    Metric("successes", "", "Successes", "count", "tasks solved"),
    Metric("episodes", "", "Episodes", "count", "tasks played, once each"),
    Metric("different", "", "Different tasks", "count", "tasks of different content; a panel may repeat some"),
    Metric("independent", "", "Independent tasks", "tasks", "independent tasks that would give the same interval"),
    Metric("score", "", "Score", "in [0, 1]", "task score, mean over tasks"),
    Metric("reward", "", "Reward", "reward", "return of a rollout, mean over tasks"),
    Metric("reward_by_step", "", "Reward by step", "reward", "return of the rollout a step is in, mean over all steps"),
    Metric("length", "", "Episode length", "steps", "environment steps of a rollout, mean over tasks"),
    Metric("truncated_share", "", "Truncated share", "share", "share of tasks whose rollout ran out of steps"),
    Metric("invalid_share", "", "Invalid share", "share", "share of steps whose reply was malformed or not admissible"),
    Metric("prompt_cut_share", "", "Shortened prompts", "share", "share of steps whose prompt was too long"),
)
"""Metrics of validation/ and test/. `success/KIND` is the success on the tasks of one kind."""

_BY_KEY = {metric.key: metric for metric in METRICS}
_BY_PREFIX = {
    "validation": {metric.key: metric for metric in EVALUATION},
    "test": {metric.key: metric for metric in EVALUATION},
    "seconds": {metric.key: metric for metric in SECONDS},
}


def metric_of(key: str) -> Metric:
    """The entry of a record's key. Raises `KeyError` for an unknown key."""
    if key in _BY_KEY:
        return _BY_KEY[key]
    prefix, _, name = key.partition("/")
    if prefix == "success" and name:
        return _BY_KEY["success"]
    kind = name.startswith("success/") and prefix != "seconds"
    return _BY_PREFIX[prefix]["success" if kind else name]


def tag_of(key: str) -> str:
    """The TensorBoard tag of a metric: GROUP/KEY."""
    if key.partition("/")[0] in _BY_PREFIX:
        return key
    try:
        return f"{metric_of(key).group}/{key}"
    except KeyError:
        return f"other/{key}"


def scalars_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a record by TensorBoard's tags, without the update, which is their step."""
    return {tag_of(key): value for key, value in record.items() if key != "update" and isinstance(value, int | float)}


def page() -> str:
    """docs/metrics.md."""
    parts = [
        "# Metrics\n\nEvery update leaves one line in RUN/metrics.jsonl, and the same figures in RUN/tensorboard under "
        "GROUP/KEY. This page is made from the table in `crbc_rl/runs/metric_table.py`: "
        "`python -m crbc_rl.runs.metric_table > docs/metrics.md`.\n\n"
        "What is worth worrying about are rules of thumb, not measured limits. What is normal depends on the model, "
        "the environment and the learning rate: compare with runs that went well.\n"
    ]
    groups = dict.fromkeys(metric.group for metric in METRICS)
    parts += [_section(f"`{name}`", [metric for metric in METRICS if metric.group == name]) for name in groups]
    parts.append("`success/KIND` is the success on the groups of one kind of task.\n")
    parts.append(_section("`validation/` and `test/`", EVALUATION))
    parts.append("`success/KIND` is the success on the tasks of one kind, such as `test/success/heat`.\n")
    parts.append(_section("`seconds/`, by the wall clock", SECONDS))
    return "\n".join(parts)


def _section(title: str, metrics: Any) -> str:
    rows = (
        f"| `{metric.key}` | {_cell(metric.meaning)} | {metric.unit} | {_cell(metric.worry)} |\n" for metric in metrics
    )
    return f"## {title}\n\n| key | meaning | unit | worth worrying about |\n|---|---|---|---|\n{''.join(rows)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
