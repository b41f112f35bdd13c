"""The page of several runs: which method is better, how sure that is, and where they act differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from anchors import Rollout
from crbc_lab.report import charts
from crbc_lab.report.content import CHART, SMALL, shown
from crbc_lab.report.group import Part
from crbc_lab.report.methods import Method, difference, methods_of, outcomes
from crbc_lab.report.scenes import Numbers, Scene, ending, scenes_of, shortened
from crbc_lab.statistics import Estimate, Outcomes, band, compare, estimate
from crbc_lab.statistics.comparison import Comparison
from crbc_lab.statistics.curves import smooth, smoothing
from crbc_lab.statistics.outcomes import Floats
from crbc_rl.errors import ConfigError
from crbc_rl.runs.metric_table import METRICS
from crbc_rl.runs.metrics import evaluated

STYLES = ("m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8")
"""Of the methods' lines; more methods begin again."""
PARTED = 8
"""The most tasks of two methods that are put side by side."""
START = "before training"


@dataclass(frozen=True, slots=True)
class Row:
    """A method's test success, and beside that of the reference what `crbc study` would say; of the reference, and with
    one seed, `beside` is None."""

    name: str
    seeds: int
    success: Estimate
    beside: Comparison | None
    minutes: float = 0.0

    @property
    def cells(self) -> list[str]:
        """As the table has them, percentages as points. What comes before training is of no family."""
        told = [self.name, str(self.seeds), _points_of(self.success, "")]
        if (one := self.beside) is not None:
            told.append(_points_of(one.difference, "+"))
        if one is not None and self.name != START:
            told += ["separated" if one.separated else "not separated"]
            told += ["< 0.001" if one.corrected < 0.001 else f"{one.corrected:.3f}", f"{100 * one.smallest:.1f}"]
        return [*told, *[""] * (7 - len(told)), f"{self.minutes:.1f}" if self.minutes else ""]


@dataclass(frozen=True, slots=True)
class Parting:
    """A task that two methods played: the step at which they part, from 1, or 0 where they do not, and what each did
    there. `links` lead to both."""

    task: str
    names: tuple[str, str]
    step: int
    actions: tuple[str, str]
    endings: tuple[str, str]
    links: tuple[str, str]

    @property
    def each(self) -> Iterator[tuple[str, str, str, str]]:
        return zip(self.names, self.actions, self.endings, self.links, strict=True)


def compared(title: str, folders: Sequence[Path], numbers: Numbers | None = None) -> Part:
    """The variables of `report.html.j2` for several runs, the first's method being the reference. `numbers` are as in
    `content`."""
    left_out: list[str] = []
    methods = methods_of(folders, left_out)
    rows, notes = _table(methods)
    scenes = {method.name: _scenes(method, left_out) for method in methods}
    if numbers:
        scenes = {name: list(map(numbers, own)) for name, own in scenes.items()}
    partings = [parting for other in methods[1:] for parting in _partings(methods[0], other, scenes)]
    linked = {link.partition("/")[0] for parting in partings for link in parting.links}
    some = [scene for own in scenes.values() for scene in own]
    training = [scene for own in scenes.values() for scene in [one for one in own if one.kind == "training"][-2:]]
    return {
        "title": title,
        "methods": methods,
        "styles": {method.name: STYLES[i % len(STYLES)] for i, method in enumerate(methods)},
        "reference": rows[1].name if rows else "",
        "rows": rows,
        "notes": notes,
        "curves_of": list(_curves(methods)),
        "panels": list(_panels(methods)),
        "difference": [pair for pair in difference(methods) if not numbers or pair[0] != "env.template"],
        "partings": partings,
        **shown(training + [scene for scene in some if scene.key in linked], left_out),
    }


# ---- the table ------------------------------------------------------------------------------------------


def _table(methods: Sequence[Method]) -> tuple[list[Row], list[str]]:
    """A row before training, one for each method with a tested policy, and what stands in the way of more."""
    last = {method.name: tests for method in methods if (tests := method.tests(-1))}
    notes = [f"{method.name}: its last policy is not tested yet." for method in methods if method.name not in last]
    if not last:
        return [], notes
    of = {method.name: method for method in methods}
    reference = next(iter(last))
    shared = sorted(set.intersection(*(set(tests) for tests in last.values())))
    if not shared:
        notes.append("The methods have no seed together, so they cannot be compared.")
    dropped = sum(len(tests) for tests in last.values()) - len(shared) * len(last)
    if shared and dropped:
        notes.append(f"Left out of the table: {dropped} runs with a seed that not every method has.")
    own = {name: outcomes(tests, shared or sorted(tests)) for name, tests in last.items()}
    start = outcomes(of[reference].tests(0), shared or sorted(last[reference]))
    beside = {one.name: one for one in _beside(own, reference, notes)} if shared else {}
    before = _beside({START: start, reference: own[reference]}, reference, []) if shared else []
    rows = [Row(START, len(start.seeds), estimate(start), before[0] if before else None)]
    for name, found in own.items():
        rows.append(Row(name, len(found.seeds), estimate(found), beside.get(name), of[name].minutes))
    return rows, notes


def _beside(own: dict[str, Outcomes], reference: str, notes: list[str]) -> list[Comparison]:
    if len(own) < 2:
        return []
    try:
        return compare(own, reference)
    except ConfigError as error:
        notes.append(f"Not compared: {error}.")
        return []


# ---- curves ---------------------------------------------------------------------------------------------


def _curves(methods: Sequence[Method]) -> Iterator[charts.Chart]:
    """Success in training and on validation tasks, by updates and by rollouts."""
    for unit in ("update", "rollouts"):
        for title, key in (("Success in training, smoothed", "success"), ("Validation success", "validation/success")):
            chart = _chart(methods, title, key, True, CHART, unit)
            if chart is not None:
                yield chart


def _panels(methods: Sequence[Method]) -> Iterator[charts.Chart]:
    for metric in METRICS:
        if metric.title:
            chart = _chart(methods, f"{metric.title}, smoothed", metric.key, metric.unit == "share", SMALL, "update")
            if chart is not None:
                yield chart


def _chart(
    methods: Sequence[Method], title: str, key: str, percent: bool, size: tuple[float, float], unit: str
) -> charts.Chart | None:
    series, last = [], 1
    for number, method in enumerate(methods):
        points = list(_points(method, key))
        scale = method.rollouts if unit == "rollouts" else 1
        last = max(last, scale * method.updates)
        if points:
            found = band(points)
            low = found.low.clip(0.0) if min(y.min() for _, y in points) >= 0 else found.low
            ends = low, found.high.clip(max=1.0) if percent else found.high
            style = STYLES[number % len(STYLES)]
            wide = ends if len(points) > 2 else None  # that of two is wider than the axis
            dots = key.startswith("validation")
            series.append(charts.Series(method.name, scale * found.updates, found.centre, style, percent, dots, wide))
    return charts.line_chart(title, series, last, size, unit=unit)


def _points(method: Method, key: str) -> Iterator[tuple[Floats, Floats]]:
    for records in method.records:
        validation = key.startswith("validation")
        x, y = charts.column(evaluated(records, "validation") if validation else records, key)
        if len(x):
            yield x, y if validation else smooth(y, smoothing(method.config.updates))


# ---- where they act differently -------------------------------------------------------------------------


def _scenes(method: Method, left_out: list[str]) -> list[Scene]:
    return [
        scene
        for run in method.runs
        for scene in scenes_of(run, f"{method.name}-{run.config.seed}-".replace("/", "-"), left_out)
        if scene.kind in ("training", "last")
    ]


def _partings(one: Method, other: Method, scenes: dict[str, list[Scene]]) -> list[Parting]:
    """Tasks of which both methods kept how their last policy played, those first that one of them alone won."""
    first, second = ({s.group.task: s for s in scenes[m.name][::-1] if s.kind == "last"} for m in (one, other))
    found = [(first[task], second[task]) for task in first if task in second]
    found.sort(key=lambda pair: pair[0].group.success_rate == pair[1].group.success_rate)
    return [_parting((one.name, other.name), *pair) for pair in found[:PARTED]]


def _parting(names: tuple[str, str], one: Scene, other: Scene) -> Parting:
    a, b = one.group.rollouts[0], other.group.rollouts[0]
    pairs = list(zip_longest(a.steps, b.steps))
    apart = (t for t, (x, y) in enumerate(pairs) if not x or not y or (x.anchor, x.action) != (y.anchor, y.action))
    at = next(apart, None)
    here = at or 0
    return Parting(
        shortened(one.group.task, 90),
        names,
        0 if at is None else at + 1,
        (_did(a, here), _did(b, here)),
        (f"{ending(a)}, {len(a)} steps", f"{ending(b)}, {len(b)} steps"),
        (f"{one.key}/0/{min(here, len(a) - 1)}", f"{other.key}/0/{min(here, len(b) - 1)}"),
    )


def _did(rollout: Rollout, step: int) -> str:
    return rollout.steps[step].action if step < len(rollout) else "nothing more"


def _points_of(one: Estimate, sign: str) -> str:
    value, low, high = (f"{100 * each:{sign}.1f}" for each in (one.value, one.low, one.high))
    return f"{value} ({low} to {high})"
