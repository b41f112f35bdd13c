"""Print docs/metrics.md, the page of all metrics: `python scripts/metrics_page.py > docs/metrics.md`."""

from __future__ import annotations

from collections.abc import Iterable

from crbc_rl.runs.metric_table import EVALUATION, METRICS, SECONDS, Metric


def page() -> str:
    """docs/metrics.md."""
    parts = [
        "# Metrics\n\nEvery update leaves one line in RUN/metrics.jsonl, and the same figures in RUN/tensorboard under "
        "GROUP/KEY. This page is made from the table in `crbc_rl/runs/metric_table.py`: "
        "`python scripts/metrics_page.py > docs/metrics.md`.\n\n"
        "What is worth worrying about are rules of thumb, not measured limits. What is normal depends on the model, "
        "the environment and the learning rate: compare with runs that went well.\n\n"
        "Means and shares over response tokens weigh them as the loss does: with `loss.aggregation` step or group, "
        "as `protocol: paper` has it, tokens of short replies count more. With `loss.ratio: response` `ratio_max` is "
        "that of a whole reply.\n"
    ]
    groups = dict.fromkeys(metric.group for metric in METRICS)
    parts += [_section(f"`{name}`", [metric for metric in METRICS if metric.group == name]) for name in groups]
    parts.append(
        "`success/KIND` is the success on the groups of one kind of task, `invalid/CAUSE` the share of steps whose "
        "reply was invalid for one cause: no_tag, not_admissible, cut_in_thought, cut_in_action, empty, refused. Only "
        "causes that occurred are written; RUN/invalid.jsonl has three raw replies of each.\n"
    )
    parts.append(_section("`validation/` and `test/`", EVALUATION))
    parts.append(
        "`success/KIND` is the success on the tasks of one kind, such as `test/success/heat`, and `invalid/CAUSE` as "
        "above.\n"
    )
    parts.append(_section("`seconds/`, by the wall clock", SECONDS))
    return "\n".join(parts)


def _section(title: str, metrics: Iterable[Metric]) -> str:
    rows = (
        f"| `{metric.key}` | {_cell(metric.meaning)} | {metric.unit} | {_cell(metric.worry)} |\n" for metric in metrics
    )
    return f"## {title}\n\n| key | meaning | unit | worth worrying about |\n|---|---|---|---|\n{''.join(rows)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
