"""The page of several runs: which method is better, how sure that is, and where they act differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np

from anchors import Rollout
from crbc_lab.report import charts
from crbc_lab.report.content import CHART, SMALL, shown
from crbc_lab.report.group import Part
from crbc_lab.report.methods import Method, Trained, difference, methods_of, outcomes
from crbc_lab.report.scenes import Scene, ending, shortened, sound_scenes
from crbc_lab.statistics import Estimate, Outcomes, band, compare, estimate
from crbc_lab.statistics.comparison import Comparison
from crbc_lab.statistics.curves import smooth, smoothing
from crbc_lab.statistics.outcomes import Floats
from crbc_rl.errors import ConfigError
from crbc_rl.runs.metric_table import METRICS
from crbc_rl.runs.metrics import evaluated
from crbc_rl.runs.transcripts import kept

STYLES = ("m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8")
"""Of the methods' lines; more methods begin again."""
PARTED = 8
"""The most tasks of two methods that are put side by side."""


@dataclass(frozen=True, slots=True)
class Row:
    """A method's test success, or that before its training, and beside the reference's what `crbc study` would say.
    `beside` is None of the reference itself, and of what is not compared with it."""

    name: str
    seeds: int
    success: Estimate
    beside: Comparison | None = None
    minutes: float | None = None

    @property
    def cells(self) -> list[str]:
        """As the table has them, percentages as points. What comes before training is of no family."""
        told = [self.name, str(self.seeds), self.success.percent()]
        if (one := self.beside) is not None:
            told.append(one.difference.percent("+.1f"))
        if one is not None and self.minutes is not None:
            told += ["separated" if one.separated else "not separated"]
            told += ["< 0.001" if one.corrected < 0.001 else f"{one.corrected:.3f}", f"{100 * one.smallest:.1f}"]
        return [*told, *[""] * (7 - len(told)), "" if self.minutes is None else f"{self.minutes:.1f}"]


@dataclass(frozen=True, slots=True)
class Parting:
    """A task that two methods played with one seed: the step of their first other action, from 0 as in the viewer, or
    None, and what each did there. `links` lead to both."""

    task: str
    seed: int
    names: tuple[str, str]
    step: int | None
    actions: tuple[str, str]
    endings: tuple[str, str]
    links: tuple[str, str]

    @property
    def each(self) -> Iterator[tuple[str, str, str, str]]:
        return zip(self.names, self.actions, self.endings, self.links, strict=True)


def compared(title: str, folders: Sequence[Path]) -> Part:
    """The variables of `report.html.j2` for several runs. The reference is the first method with a tested policy.
    Raises `ConfigError` where no run can be read."""
    left_out: list[str] = []
    methods = methods_of(folders, left_out)
    reference = next((method for method in methods if method.ended), methods[0])
    rows, notes = _table(methods, reference)
    keys = {method.name: f"m{number}" for number, method in enumerate(methods, 1)}
    last = {method.name: _last(method, keys[method.name], left_out) for method in methods}
    others = (method for method in methods if method is not reference)
    partings = [parting for other in others for parting in _partings(reference, other, last)]
    linked = {link.partition("/")[0] for parting in partings for link in parting.links}
    training = [scene for method in methods for scene in _training(method, keys[method.name], left_out)]
    played = [scene for own in last.values() for scene in own.values() if scene.key in linked]
    return {
        "title": title,
        "methods": methods,
        "styles": {method.name: STYLES[i % len(STYLES)] for i, method in enumerate(methods)},
        "reference": reference.name,
        "rows": rows,
        "notes": notes,
        "curves_of": list(_curves(methods)),
        "panels_of": list(_panels(methods)),
        "difference": difference(methods),
        "partings": partings,
        **shown(training + played, left_out),
    }


# ---- the table ------------------------------------------------------------------------------------------


def _table(methods: Sequence[Method], reference: Method) -> tuple[list[Row], list[str]]:
    """The reference before training, a row for each method with a tested policy, and what is left out of it."""
    notes = [
        f"{method.name}, seed {one.seed}: its last policy is not tested yet, so it is in no table."
        for method in methods
        for one in method.runs
        if not one.tested
    ]
    tests = {method: found for method in methods if (found := method.tests(-1))}
    if reference not in tests:
        return [], notes
    seeds, alike = _alike(tests, reference, notes)
    own, success = dict[Method, Outcomes](), dict[Method, Estimate]()
    for method, found in tests.items():
        try:
            values = outcomes(found, seeds if method in alike else sorted(found))
            success[method] = estimate(values)
            own[method] = values
        except ConfigError as error:
            notes.append(f"{method.name}: not in the table, since {error}.")
    if reference not in own:
        return [], notes
    beside = _beside({method.name: own[method] for method in alike if method in own}, reference.name, notes)
    start = f"{reference.name}, before training"
    first = outcomes(reference.tests(0), seeds)
    before = _beside({start: first, reference.name: own[reference]}, reference.name, [])
    rows = [Row(start, len(seeds), estimate(first), before.get(start))]
    for method, values in own.items():
        rows.append(Row(method.name, len(values.seeds), success[method], beside.get(method.name), method.minutes))
    return rows, notes


def _alike(
    tests: Mapping[Method, Mapping[int, Mapping[str, object]]], reference: Method, notes: list[str]
) -> tuple[list[int], list[Method]]:
    """The methods that can be compared with the reference, and the seeds that all of these have: those on its tasks, in
    the order of their seeds, as long as two seeds remain. The others are said."""
    seeds, alike = set(tests[reference]), [reference]
    for method in sorted(tests, key=lambda method: -len(set(tests[method]) & set(tests[reference]))):
        if method is reference:
            continue
        shared = seeds & set(tests[method])
        one, other = next(iter(tests[method].values())), next(iter(tests[reference].values()))
        if any(one.get(name) != other.get(name) for name in ("task", "content", "cluster")):
            notes.append(f"{method.name}: not compared with {reference.name}, since its test has other tasks.")
        elif len(shared) < 2:
            notes.append(
                f"{method.name}: not compared with {reference.name}, since fewer than two seeds would be left; "
                "train more, such as crbc train CONFIG --seeds 0-4."
            )
        else:
            seeds, alike = shared, [*alike, method]
    dropped = sum(len(set(tests[method]) - seeds) for method in alike)
    if dropped:
        notes.append(f"The table leaves out {dropped} runs with seeds that not every compared method has.")
    return sorted(seeds), [method for method in tests if method in alike]


def _beside(own: Mapping[str, Outcomes], reference: str, notes: list[str]) -> dict[str, Comparison]:
    try:
        return {one.name: one for one in compare(own, reference)} if len(own) > 1 else {}
    except ConfigError as error:
        notes.append(f"Not compared: {error}.")
        return {}


# ---- curves ---------------------------------------------------------------------------------------------


def _curves(methods: Sequence[Method]) -> Iterator[charts.Chart]:
    """Success in training and on validation tasks, by updates and by rollouts."""
    for unit, by in (("update", ""), ("rollouts", ", by rollouts")):
        for title, key in (("Success in training, smoothed", "success"), ("Validation success", "validation/success")):
            chart = _chart(methods, title + by, key, True, CHART, unit)
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
    series, end = [], 1.0
    for number, method in enumerate(methods):
        points = [(x, y) for one in method.drawn for x, y in [_points(one, key, unit)] if len(x)]
        start, last = max((x[0] for x, _ in points), default=1.0), min((x[-1] for x, _ in points), default=0.0)
        if start > last:  # nothing was measured, or never at the same time
            continue
        found = band(points)
        low = found.low.clip(0.0) if min(y.min() for _, y in points) >= 0 else found.low
        ends = low, found.high.clip(max=1.0) if percent else found.high
        wide = ends if len(points) > 2 else None  # that of two is wider than the axis
        style, dots = STYLES[number % len(STYLES)], key.startswith("validation")
        series.append(charts.Series(method.name, found.updates, found.centre, style, percent, dots, wide))
        end = max(end, float(found.updates[-1]))
    return charts.line_chart(title, series, round(end), size, unit=unit)


def _points(one: Trained, key: str, unit: str) -> tuple[Floats, Floats]:
    validation = key.startswith("validation")
    x, y = charts.column(evaluated(one.records, "validation") if validation else one.records, key)
    at = one.rollouts[x.astype(np.int64)] if unit == "rollouts" else x
    return at, y if validation else smooth(y, smoothing(one.updates))


# ---- where they act differently -------------------------------------------------------------------------


def _training(method: Method, key: str, left_out: list[str]) -> list[Scene]:
    """The last group of training that one of its runs kept."""
    for one in method.runs:
        files = [path for _, kind, path in kept(one.run.folder) if kind == "training"]
        if files:
            found = sound_scenes(files[-1], left_out, "training", f"{key}-{one.seed}-", one.run.config.credit)
            return [replace(scene, of=f"{method.name}, seed {one.seed}") for scene in found[:1]]
    return []


def _last(method: Method, key: str, left_out: list[str]) -> dict[tuple[int, str], Scene]:
    """What each run kept of its last policy, by seed and task."""
    found: dict[tuple[int, str], Scene] = {}
    for one in method.ended:
        files = [path for update, kind, path in kept(one.run.folder) if kind == "test" and update]
        for path in files[-1:]:
            for scene in sound_scenes(path, left_out, "last", f"{key}-{one.seed}-", one.run.config.credit):
                found[one.seed, scene.group.task] = replace(scene, of=f"{method.name}, seed {one.seed}")
    return found


def _partings(one: Method, other: Method, last: Mapping[str, Mapping[tuple[int, str], Scene]]) -> Iterator[Parting]:
    """Tasks of which both methods kept how they were played with one seed, those first that one of them alone won."""
    first, second = last[one.name], last[other.name]
    both = [place for place in first if place in second]
    both.sort(key=lambda place: first[place].group.success_rate == second[place].group.success_rate)
    for place in both[:PARTED]:
        yield _parting(place[0], (one.name, other.name), first[place], second[place])


def _parting(seed: int, names: tuple[str, str], one: Scene, other: Scene) -> Parting:
    a, b = one.group.rollouts[0], other.group.rollouts[0]
    pairs = enumerate(zip_longest(a.steps, b.steps))
    at = next((t for t, (x, y) in pairs if not x or not y or x.action != y.action), None)
    here = at or 0
    return Parting(
        shortened(one.group.task, 90),
        seed,
        names,
        at,
        (_did(a, here), _did(b, here)),
        (f"{ending(a)}, {len(a)} steps", f"{ending(b)}, {len(b)} steps"),
        (f"{one.key}/0/{min(here, len(a) - 1)}", f"{other.key}/0/{min(here, len(b) - 1)}"),
    )


def _did(rollout: Rollout, step: int) -> str:
    return rollout.steps[step].action if step < len(rollout) else "nothing more"
