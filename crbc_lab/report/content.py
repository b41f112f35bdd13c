"""The content of a report, as the template's variables."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crbc_envs.actions import CAUSES
from crbc_lab.report import charts
from crbc_lab.report.diagnostics import certified, diversity
from crbc_lab.report.estimators import Named, discount_of, told
from crbc_lab.report.failures import failures
from crbc_lab.report.group import CREDIT_COLOURS, VALUE_COLOURS, Part, ramp, view_group
from crbc_lab.report.scenes import Entry, Scene, Texts, scenes_of
from crbc_lab.report.tokens import MOST
from crbc_lab.statistics.curves import smooth, smoothing
from crbc_rl.rollout.invalid import metric_key
from crbc_rl.runs.folder import Run
from crbc_rl.runs.lines import Record
from crbc_rl.runs.metric_table import METRICS, metric_of
from crbc_rl.runs.metrics import evaluated
from crbc_rl.runs.versions import read_versions

CHART = (760.0, 376.0)
SMALL = (280.0, 168.0)
LINES = ("first", "second", "third", "fourth")
"""Styles of the lines of a chart."""
CREDIT_PANELS = {
    "Gate-open share": {"gate open": "gate_open"},
    "Evidence coverage": {
        "depth 0": "coverage/0",
        "1": "coverage/1",
        "3": "coverage/3",
        "full closure": "coverage/full",
    },
    "Revisit share": {"revisited": "revisit_share"},
    "Size of the two terms": {"group": "group_term", "step": "step_term"},
    "Steps turned against the group": {"turned": "turned"},
    "Calibration slope, 1 expected": {"all visits": "calibration", "others'": "calibration_upper"},
    "Certified anchors": {"depth 0": "certified/0", "1": "certified/1", "3": "certified/3"},
    "Mean size of an advantage": {"size": "advantage_abs"},
    "Anchors per group": {"anchors": "anchors_per_group"},
}
"""The lines of the charts of credit, by their names: metrics."""


def content(run: Run, records: Sequence[Record]) -> dict[str, Any]:
    """The variables of `report.html.j2`, from an open run and its records, of which there must be at least one."""
    config = run.config
    done = int(records[-1]["update"])
    # A resumed run may have more updates than its config file states.
    planned = max(config.updates, done)
    left_out: list[str] = []
    versions, scenes = read_versions(run.folder), scenes_of(run, left_out=left_out)
    return {
        "config": config,
        "model": versions.get("model") or Path(config.model).name,  # the run's own copy has no name of its own
        "done": done,
        "planned": planned,
        "credit": told(config.credit),
        "beta": discount_of(config.credit),
        "intervals": charts.intervals(records, 560.0),
        "gain": _gain(records),
        "facts": _facts(records),
        "curves": charts.line_chart("Success", _success(records, planned), planned, CHART, ticks=6),
        "panels": _panels(records, planned),
        "credit_panels": _credit_panels(records, planned) + panel("Distance of replies", diversity(scenes), planned),
        "smoothing": smoothing(planned),
        "phases": charts.phase_chart(records, planned, (CHART[0], 290.0)),
        "tested": evaluated(records, "test"),
        "totals": charts.phase_totals(records),
        "invalid": _invalid(run.invalid.kept, records),
        "certified": certified(records, config.credit.method),
        "mixed": charts.column(records, "mixed_groups")[1],
        **shown(scenes, left_out),
        "config_text": (run.folder / "config.yaml").read_text(errors="replace"),
        "versions": versions,
    }


def shown(scenes: Sequence[Scene], left_out: Sequence[str]) -> Part:
    """The part of the page about rollouts, which are `scenes`, and about files that were left out."""
    return {
        "scenes": scenes,
        "index": [scene.entry for scene in scenes],
        "failures": failures(scenes),
        "left_out": left_out,
    }


def drawn(scenes: Iterable[Scene], asked: Sequence[Named] = (), tokens: int = MOST) -> Part:
    """The graphs of `scenes`, and the texts and frames that all of them share. `asked` are more estimators. So many
    `tokens` are told at most."""
    texts = Texts(tokens=tokens)
    groups = [view_group(scene, texts, asked) for scene in scenes]
    frames = [b64encode(png).decode() for png in texts.frames]
    return {"groups": groups, "pieces": list(texts.pieces), "frames": frames}


def first_of(index: Sequence[Entry]) -> str:
    """The group that a page begins with: the last one of mixed outcomes, else of failures; "" where there is none."""
    ranks = [(0 < entry.rate < 1, entry.rate < 1, i) for i, entry in enumerate(index)]
    return index[max(ranks)[-1]].key if index else ""


def ramps() -> dict[str, list[str]]:
    """Colours of the legends' gradients, by name."""
    named = {"value": VALUE_COLOURS, "credit": CREDIT_COLOURS}
    return {name: [ramp(colours, i / 8) for i in range(9)] for name, colours in named.items()}


def _success(records: Sequence[Record], planned: int) -> list[charts.Series]:
    x, y = charts.column(records, "success")
    validated = evaluated(records, "validation")
    at, success = charts.column(validated, "validation/success")
    low, high = (charts.column(validated, f"validation/{end}")[1] for end in ("low", "high"))
    return [
        charts.Series("training", x, y, "raw", percent=True),
        charts.Series("training, smoothed", x, smooth(y, smoothing(planned)), "smooth", percent=True),
        charts.Series("validation", at, success, "validation", percent=True, dots=True, band=(low, high)),
    ]


def _panels(records: Sequence[Record], planned: int) -> list[charts.Chart]:
    panels = []
    for metric in (metric for metric in METRICS if metric.title):
        percent = metric.unit == "share"
        x, y = charts.column(records, metric.key)
        smoothed = smooth(y, smoothing(planned))
        series = [
            charts.Series("this update", x, y, "raw", percent),
            charts.Series("smoothed", x, smoothed, "smooth", percent),
        ]
        panels.append(charts.line_chart(metric.title, series, planned, SMALL))
    return [panel for panel in panels if panel]


def panel(
    title: str, series: Sequence[charts.Series], planned: int, size: tuple[float, float] = SMALL
) -> list[tuple[charts.Chart, list[tuple[str, str]]]]:
    """A chart, with the style and the name of its lines where there are several; nothing where no line has a point."""
    drawn = [one for one in series if len(one.x)]
    chart = charts.line_chart(title, drawn, planned, size)
    return [(chart, [(one.style, one.name) for one in drawn] if len(drawn) > 1 else [])] if chart else []


def _credit_panels(records: Sequence[Record], planned: int) -> list[tuple[charts.Chart, list[tuple[str, str]]]]:
    panels = []
    for title, keys in CREDIT_PANELS.items():
        series = []
        for style, (name, key) in zip(LINES, keys.items(), strict=False):
            x, y = charts.column(records, key)
            y = smooth(y, smoothing(planned))
            series.append(charts.Series(name, x, y, style, metric_of(key).unit == "share"))
        panels += panel(title, series, planned)
    return panels


def _gain(records: Sequence[Record]) -> str | None:
    """The change of test success in percentage points; None before a trained policy was tested."""
    tested = evaluated(records, "test")
    if len(tested) < 2 or tested[0]["update"] != 0:
        return None
    return f"{100 * (tested[-1]['test/success'] - tested[0]['test/success']):+.1f}".replace("-", "−")


def _invalid(replies: Mapping[str, list[str]], records: Sequence[Record]) -> list[tuple[str, str, str, list[str]]]:
    """Each cause of invalid replies: its shares of the first and of the last update, and raw replies."""
    trained = [record for record in records if "invalid" in record]
    shares = {
        cause: [record.get(metric_key(cause), 0.0) for record in (trained[:1] + trained[-1:])]
        for cause in CAUSES
        if any(record.get(metric_key(cause)) for record in trained)
    }
    return [(cause, f"{first:.1%}", f"{last:.1%}", replies.get(cause, [])) for cause, (first, last) in shares.items()]


def _facts(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Key figures of the run as (name, value), without those that are not available yet."""
    facts = []
    validated = evaluated(records, "validation")
    if validated:
        best = max(validated, key=lambda r: r["validation/success"])
        facts.append(("best validation success", f"{best['validation/success']:.1%}, update {best['update']}"))
    steps = charts.column(records, "steps")[1]
    if len(steps):
        facts.append(("environment steps played", f"{int(steps.sum()):,}"))
    credit = [row for row in charts.phase_totals(records) if row[0] == "credit"]
    if credit:
        facts.append(("credit block per update", f"{credit[0][3]}, {credit[0][2]} of all time"))
    skipped = charts.column(records, "skipped_steps")[1]
    if skipped.any():
        facts.append(("mini-batches skipped, gradient not finite", f"{int(skipped.sum()):,}"))
    return facts
