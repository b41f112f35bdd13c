"""The table of a run's metrics: the meaning of each.

`METRICS` is the single table: TensorBoard's groups, the report's panels and docs/metrics.md come from it
(`python scripts/metrics_page.py > docs/metrics.md`), and a test fails for a metric without an entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its key in metrics.jsonl, its group, unit and meaning, and the values that indicate a problem
    (`worry`). The report draws its curve under `title`, if it has one."""

    key: str
    group: str
    unit: str
    meaning: str
    worry: str = ""
    title: str = ""


_COVERAGE = (
    "share of a group's rollouts whose evidence reaches a visit {}, mean over the visits at anchors "
    'with two or more actions (paper, appendix "Closure Depth and Evidence Coverage")'
)
_FULL_ACCESS = "share of those visits that the evidence of every rollout of the group reaches {}"
_CERTIFIED = (
    "share of the anchors with sigma > 0 at which the closure {} is certain to point where the full one "
    "does (Corollary 3 of the paper; at depth 0 with the residual of pairs added)"
)


def _by_depth(name: str, meaning: str, worry: str = "") -> list[Metric]:
    """The metrics of a name at each depth. `worry` is that of the full closure."""
    depths = [Metric(f"{name}/{depth}", "credit", "share", meaning.format(f"at depth {depth}")) for depth in (0, 1, 3)]
    return [*depths, Metric(f"{name}/full", "credit", "share", meaning.format("under the full closure"), worry)]


CREDIT = (
    Metric(
        "gate_open",
        "credit",
        "share",
        "share of steps at anchors with two or more observed actions, the only ones with a step credit",
        "near 0: anchors are hardly ever met twice, or the policy always does the same",
    ),
    *_by_depth("coverage", _COVERAGE, "no higher than at depth 0: nothing is propagated"),
    *_by_depth("full_access", _FULL_ACCESS),
    Metric("anchors_per_group", "credit", "anchors", "distinct anchors of a group, mean"),
    Metric(
        "revisit_share",
        "credit",
        "share",
        "share of steps at an anchor that another rollout of the group visits too",
        "near 0: rollouts share nothing, and step credit is that of single rollouts",
    ),
    Metric("step_term", "credit", "", "|w_step A_S| of a step, mean over steps"),
    Metric(
        "group_term",
        "credit",
        "",
        "|w_group A_G| of a step, mean over steps",
        "many times the step term, or a small part of it: one of the two decides alone",
    ),
    Metric(
        "turned",
        "credit",
        "share",
        "share of steps whose final advantage has the other sign than their group advantage",
        "0: the step term changes nothing but sizes",
    ),
    *_by_depth("certified", _CERTIFIED)[:3],
    Metric(
        "calibration",
        "credit",
        "",
        "slope of own returns on the closure's credit: 1 where anchors hide no state, in small groups a little below",
        "with `calibration_upper` below 0.95 for many updates: docs/credit/hidden_state.md",
    ),
    Metric("calibration_upper", "credit", "", "the same against other rollouts alone, which errs to the other side"),
    Metric("calibration_error", "credit", "", "its standard error, with groups as clusters"),
)
"""Metrics of credit: those of anchors for every method, of two terms where a method has two, of certified depths for
CRBC. An update without a visit or an anchor that a share is of has no such figure."""

METRICS = (
    Metric("reward", "rollout", "reward", "return of a rollout, mean over rollouts", title="Mean reward"),
    Metric("length", "rollout", "steps", "environment steps of a rollout, mean over rollouts", title="Episode length"),
    Metric(
        "kl",
        "loss",
        "nats per token",
        "k3 estimate of KL(policy || reference), mean over response tokens",
        "above 0.1: the policy leaves its reference; above 1: it has collapsed or the learning rate is too high",
        title="KL to the reference",
    ),
    Metric(
        "entropy",
        "loss",
        "nats per token",
        "entropy of the next token at the sampling temperature, mean over response tokens",
        "near 0: sampling no longer explores, and groups become flat",
        title="Token entropy",
    ),
    Metric(
        "clip_share",
        "loss",
        "share",
        "share of response tokens whose objective was clipped",
        "above 20 %: the policy moves too far in one update",
        title="Clip share",
    ),
    Metric("clip_share_low", "loss", "share", "the part of it with an advantage below 0"),
    Metric("clip_share_high", "loss", "share", "the part of it with an advantage above 0"),
    Metric(
        "grad_norm",
        "optimizer",
        "",
        "norm of the gradient before it is clipped to `optim.grad_clip`, mean over optimizer steps",
        "ten times its usual size, or 0 for many updates",
        title="Gradient norm",
    ),
    Metric(
        "advantage_abs",
        "credit",
        "",
        "absolute advantage of a step, mean over steps",
        "0: every group is flat and nothing is learned",
    ),
    Metric("advantage_min", "credit", "", "smallest advantage of a step"),
    Metric(
        "advantage_mean",
        "credit",
        "",
        "mean advantage over steps, as the loss gets it",
        "far from 0 beside its mean size: all replies are made likelier, or all less likely",
    ),
    Metric("advantage_max", "credit", "", "largest advantage of a step"),
    Metric(
        "ratio_max",
        "loss",
        "ratio",
        "largest importance ratio of any response token of the update",
        "above 10: a few tokens decide the step",
        title="Largest importance ratio",
    ),
    Metric(
        "invalid",
        "rollout",
        "share",
        "share of steps whose reply was malformed or not admissible",
        "rising, or near 100 %: replies no longer have the form that the environment reads",
        title="Invalid share",
    ),
    Metric(
        "prompt_cut",
        "rollout",
        "share",
        "share of steps whose prompt was longer than `rollout.max_prompt_tokens` and lost records or lines",
        "above 5 %: the policy does not see what it should",
    ),
    Metric(
        "rollout/prefill_tokens",
        "rollout",
        "tokens",
        "tokens of prompts that the model of rank 0 read; what prompts have in common is read once an update",
        "far above the distinct prefixes: raise `generator.prefix_cache`",
    ),
    Metric("rollout/prefill_found", "rollout", "share", "share of the prompts' tokens that had been read before"),
    Metric("rollout/prefill_padding", "rollout", "share", "share of what these passes computed that was padding"),
    Metric(
        "rollout/prefix_bytes", "rollout", "bytes", "keys and values that were kept, `generator.prefix_cache` at most"
    ),
    Metric(
        "mixed_groups",
        "rollout",
        "share",
        "share of groups with both successes and failures; only these have a group advantage by their outcomes",
        "below 10 %: tasks are too easy or too hard",
        title="Groups of mixed outcome",
    ),
    Metric(
        "success",
        "rollout",
        "share",
        "share of rollouts that succeed, at the training temperature; like all of this section over all groups played, "
        "also those that are not trained on (`rollout.rounds`)",
    ),
    Metric("groups_played", "rollout", "count", "groups that were played for the update"),
    Metric("groups_kept", "rollout", "count", "groups of them that are trained on"),
    Metric("score", "rollout", "in [0, 1]", "task score of a rollout, mean over rollouts"),
    Metric("steps", "rollout", "steps", "environment steps of the update, over all rollouts"),
    Metric(
        "response_length",
        "rollout",
        "tokens",
        "tokens of a reply with its end token, mean over replies",
        "at `rollout.max_new_tokens`, or falling to a few",
        title="Reply length",
    ),
    Metric("response_max", "rollout", "tokens", "tokens of the longest reply"),
    Metric(
        "response_cut",
        "rollout",
        "share",
        "share of replies that reached `rollout.max_new_tokens` and have no end token",
        "above 5 %: what is cut is mostly malformed",
    ),
    Metric(
        "thought_cut",
        "rollout",
        "share",
        "share of replies whose thought was closed at `rollout.max_thought_tokens`; written where there are any",
        "above 20 %: the thoughts have too little room",
    ),
    Metric("prompt_length", "rollout", "tokens", "tokens of a prompt as the model reads it, mean"),
    Metric(
        "prompt_max",
        "rollout",
        "tokens",
        "tokens of the longest prompt",
        "at `rollout.max_prompt_tokens`: longer prompts are shortened to it",
    ),
    *CREDIT,
    Metric(
        "tokens_per_second/generated",
        "machine",
        "tokens/s",
        "tokens of all replies played, by the seconds of `generate` and `environments`",
    ),
    Metric(
        "tokens_per_second/trained",
        "machine",
        "tokens/s",
        "tokens of the prompts and replies trained on, in every epoch, by the seconds of `tensors`, `reference` and "
        "`train`; equal rows are read once and count each",
    ),
    Metric(
        "memory_peak",
        "machine",
        "GiB",
        "most memory in use at once, on the first rank: on a GPU what torch held of it since the record before, on a "
        "CPU what the process ever had",
        "near the size of the device",
    ),
    Metric("loss", "loss", "", "what is minimised, mean over optimizer steps"),
    Metric(
        "drift",
        "loss",
        "nats per token",
        "|log-probability in training - log-probability that ratios start from| at the first optimizer step",
        "above 0.001 in float32: sampling and training are not the same function",
    ),
    Metric(
        "empty_steps",
        "optimizer",
        "share",
        "share of optimizer steps none of whose rows has an advantage: they follow KL and entropy alone",
        "above 5 %: groups are flat, or `optim.order` is not spread",
    ),
    Metric("lr", "optimizer", "", "learning rate of the policy in this update"),
    Metric(
        "skipped_steps",
        "optimizer",
        "count",
        "optimizer steps left out because the loss or the gradient was not finite; three in a row stop the run",
        "above 0",
    ),
    Metric(
        "mismatch",
        "engine",
        "nats per token",
        "|log-probability of the trained model - that of the engine that sampled|, mean over response tokens",
        "above 0.05 with bfloat16, above 0.001 with float32",
    ),
    Metric("mismatch_max", "engine", "nats", "the same, of the token where it is largest", "above 5"),
    Metric("value_loss", "critic", "reward squared", "half the squared error of PPO's critic, clipped"),
    Metric("value_grad_norm", "critic", "", "norm of the critic's gradient before clipping, mean over optimizer steps"),
    Metric(
        "value_skipped_steps",
        "critic",
        "count",
        "its optimizer steps left out because the loss or the gradient was not finite",
        "above 0",
    ),
    Metric("update", "run", "count", "number of the update; 0 is the policy before training"),
)

EVALUATION = (
    Metric("success", "", "share", "share of held-out tasks solved, at the evaluation temperature"),
    Metric("low", "", "share", "lower end of the 95 % interval of success (Wilson)"),
    Metric("high", "", "share", "upper end of that interval"),
    Metric("successes", "", "count", "tasks solved"),
    Metric("episodes", "", "count", "tasks played, once each"),
    Metric("different", "", "count", "tasks of different content; a panel may repeat some"),
    Metric("independent", "", "tasks", "independent tasks that would give the same interval"),
    Metric("score", "", "in [0, 1]", "task score, mean over tasks"),
    Metric("reward", "", "reward", "return of a rollout, mean over tasks"),
    Metric("reward_by_step", "", "reward", "return of the rollout a step is in, mean over all steps"),
    Metric("length", "", "steps", "environment steps of a rollout, mean over tasks"),
    Metric("truncated_share", "", "share", "share of tasks whose rollout ran out of steps"),
    Metric("invalid_share", "", "share", "share of steps whose reply was malformed or not admissible"),
    Metric("prompt_cut_share", "", "share", "share of steps whose prompt was too long"),
)
"""Metrics of validation/ and test/. `success/KIND` is the success on the tasks of one kind."""

SECONDS = (
    Metric("update", "", "seconds", "all time since the record before; the others add up to it"),
    Metric("reset", "", "seconds", "beginning the episodes, with the proof that copies begin alike"),
    Metric("generate", "", "seconds", "sampling replies; prompts, and environments that step meanwhile"),
    Metric("environments", "", "seconds", "waiting for environments while nothing is sampled"),
    Metric("group_advantage", "", "seconds", "the trajectory-level advantage A_G"),
    Metric("step_credit", "", "seconds", "empirical process, closure and step credit A_S; assembly"),
    Metric("tensors", "", "seconds", "forming mini-batches, and the tensors of every pass"),
    Metric("old", "", "seconds", "passes that give them, where another engine samples"),
    Metric("reference", "", "seconds", "passes of the frozen reference"),
    Metric("values", "", "seconds", "passes of PPO's critic for its values"),
    Metric("critic", "", "seconds", "training PPO's critic"),
    Metric("train", "", "seconds", "forward and backward passes, loss and optimizer of the policy"),
    Metric("weights", "", "seconds", "handing the trained weights to the engine that samples"),
    Metric("figures", "", "seconds", "computing the figures of the record"),
    Metric("save", "", "seconds", "recorded groups; record, best policy and checkpoint of the update before"),
    Metric("eval", "", "seconds", "validation and test"),
    Metric("other", "", "seconds", "outside of all these"),
)
"""Metrics of seconds/, wall-clock time."""

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
    if prefix in ("success", "invalid") and name:
        return _BY_KEY[prefix]
    part = name.partition("/")[0] if prefix != "seconds" and "/" in name else name
    return _BY_PREFIX[prefix]["invalid_share" if part == "invalid" else part]


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
