"""The tables of a comparison, as Markdown, made of what is kept of its trainings and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crbc_lab.statistics import Comparison, Estimate, Outcomes, area, compare, estimate, paired, power
from crbc_lab.statistics.intervals import ALPHA, crossed_error, interval
from crbc_lab.studies.comparison.definition import MOST_SEEDS, Scale, Study
from crbc_lab.studies.comparison.kept import Kept, all_tried, best_candidates, best_of, find, validated
from crbc_lab.studies.comparison.plan import plan_file
from crbc_lab.studies.comparison.trainings import EARLY, key_of, trainings, tunings
from crbc_rl.rollout.panel import repeats_of

Found = Mapping[str, Sequence[Kept]]
"""The finished trainings of each variant that has any."""
UNFINISHED = "Not run yet."
SCORES = {"score": "task score, %", "reward": "return", "reward_by_step": "return by step"}

LABELS = {"0": "K = 0", "1": "K = 1", "3": "K = 3", "full": "full closure"}
CREDIT = ("group_advantage", "step_credit")
PHASES = ("generate", "environments", "reset", *CREDIT, "tensors", "train", "reference", "figures", "save", "other")


@dataclass(frozen=True, slots=True)
class Row:
    """A variant with at least two finished seeds. `beside` is its comparison with `reference`, the label of another
    row; the study's reference has neither."""

    name: str
    label: str
    kept: tuple[Kept, ...]
    start: float
    success: Estimate
    area: float
    reference: str
    beside: Comparison | None


def rows(study: Study, found: Found) -> list[Row]:
    """The variants with two finished seeds or more, compared on the seeds that all of them have; empty where these are
    fewer than two, or there are fewer than two variants, or one that others are compared with is missing."""
    named = {name: kept for name, kept in found.items() if len(kept) > 1}
    reference = {name: study.reference_of(name) for name in named if name != study.reference}
    if not reference or not named.keys() >= set(reference.values()):
        return []
    seeds = set.intersection(*({kept.seed for kept in own} for own in named.values()))
    if len(seeds) < 2:
        return []
    shared = {name: [kept for kept in own if kept.seed in seeds] for name, own in named.items()}
    outcomes = {name: outcomes_of(own) for name, own in shared.items()}
    beside = {one.name: one for one in compare(outcomes, reference)}
    return [
        Row(
            name=name,
            label=study.variants[name].label,
            kept=tuple(own),
            start=float(np.mean([kept.start["success"] for kept in own])),
            success=estimate(outcomes[name]),
            area=float(np.mean([area(one.validation["update"], one.validation["success"]) for one in own])),
            reference=study.variants[reference[name]].label if name in reference else "",
            beside=beside.get(name),
        )
        for name, own in shared.items()
    ]


def outcomes_of(kept: Sequence[Kept]) -> Outcomes:
    """The successes of several seeds on one panel, in its clusters. A task that comes twice there counts as two."""
    return Outcomes.of(
        np.concatenate([np.full(len(one.success), one.seed) for one in kept]),
        np.concatenate([np.array(one.panel["task"]) * 2**20 + repeats_of(one.panel["task"]) for one in kept]),
        np.concatenate([np.array(one.panel["cluster"]) for one in kept]),
        np.concatenate([one.success for one in kept]),
    )


def missing(study: Study, scale: Scale, env: str, results: Path, found: Found) -> str:
    """What a setting lacks of which so much is `found`, in words; empty where it has all seeds that were asked for."""
    seeds = {*study.setting(scale, env).numbers}
    counts = {name: len(seeds & {one.seed for one in found.get(name, ())}) for name in study.rows(scale, env)}
    if min(counts.values()) == len(seeds):
        return ""
    if found:
        trained = ", ".join(f"{study.variants[name].label} {count}" for name, count in counts.items())
        return f"Not finished, so without verdicts. Of {len(seeds)} seeds are trained: {trained}."
    tried = [find(training, results) is not None for _, _, training in tunings(study, scale, env)]
    return f"Not finished: {sum(tried)} of {len(tried)} candidates are tried." if any(tried) else UNFINISHED


def table(rows: Sequence[Row], final: bool = True) -> str:
    """The comparison: success, its interval, the difference from the reference and, where it is `final`, its interval
    and whether it is separated: who looks at every number of seeds finds something by chance. Where rows have several
    references, each says which is its own."""
    heads = ["method", "test success, %", "difference", "corrected p", "smallest to be seen", "area, %"]
    several = len({row.reference for row in rows if row.beside}) > 1
    lines = [_line(heads), _line(["---"] * len(heads))]
    for row in rows:
        cells = [row.label, row.success.percent()]
        if row.beside is None:
            cells += ["reference", "", ""]
        else:
            one = row.beside
            difference = one.difference.percent("+.1f") if final else f"{100 * one.difference.value:+.1f}"
            verdict = "" if one.separated or not final else ", not separated"
            p = "< 0.001" if one.corrected < 0.001 else f"{one.corrected:.3f}"
            from_whom = f" from {row.reference}" if several else ""
            cells += [
                f"{difference}{from_whom}{verdict}",
                *((p, f"{100 * one.smallest:.1f}") if final else ("", "")),
            ]
        lines.append(_line([*cells, f"{100 * row.area:.1f}"]))
    return "\n".join(lines)


def scores(rows: Sequence[Row]) -> str:
    """Scores and success by kind of task, means over the seeds.

    "Return by step" weighs each rollout by its length; the paper's Sokoban score is of this kind. A task score of
    success alone is left out.
    """
    graded = any((one.score != one.success).any() for row in rows for one in row.kept)
    names = {name: head for name, head in SCORES.items() if name != "score" or graded}
    kinds = sorted({name for row in rows for one in row.kept for name in one.end if name.startswith("success/")})
    heads = ["method", *names.values(), *(f"{kind.removeprefix('success/')}, %" for kind in kinds)]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for row in rows:
        means = {name: float(np.mean([one.end[name] for one in row.kept])) for name in (*names, *kinds)}
        shown = [
            f"{100 * means[name]:.1f}" if name in kinds or name == "score" else f"{means[name]:.2f}" for name in means
        ]
        lines.append(_line([row.label, *shown]))
    return "\n".join(lines)


def leads(study: Study, scale: Scale, env: str, results: Path, own: Found) -> str:
    """The differences of a finished setting, whose trainings are `own`, less those in the one that it names, over the
    seeds that both have; empty where it names none, or that is not finished."""
    other = study.setting(scale, env).less
    found = finished(study, scale, other, results) if other else {}
    if not found or missing(study, scale, other, results, found):
        return ""
    seeds = set.intersection(*({kept.seed for kept in one} for each in (own, found) for one in each.values()))
    shared = [{n: [kept for kept in one if kept.seed in seeds] for n, one in each.items()} for each in (own, found)]
    here, there = ({name: outcomes_of(one) for name, one in each.items()} for each in shared)
    lines = [_line(["method", f"difference, less that in {other}"]), _line(["---", "---"])]
    for name in study.rows(scale, env):
        beside = study.reference_of(name)
        if beside and {name, beside} <= there.keys():
            paired({"here": here[name], "there": there[name]})
            values = here[name].values - here[beside].values - there[name].values + there[beside].values
            change = replace(here[name], values=values)
            shown = interval(change.mean, *crossed_error(change)).percent("+.1f")
            lines.append(_line([study.variants[name].label, shown]))
    note = f"Over the {len(seeds)} seeds that both have, each setting with the rates of its own; no verdict."
    return "\n".join([*lines, "", note])


def fine_print(rows: Sequence[Row], final: bool = True) -> str:
    """What stands behind the table: seeds, tasks, clusters, panel, versions, time, and of a `final` one the power."""
    kept = [one for row in rows for one in row.kept]
    first = kept[0]
    tasks, different, clusters = (len(set(first.panel[name])) for name in ("task", "content", "cluster"))
    minutes = np.array([one.manifest["minutes"]["training"] + one.manifest["minutes"]["evaluation"] for one in kept])
    commits = sorted({one.manifest["commit"] or "not known" for one in kept})
    spent = f"{np.median(minutes):.0f} minutes (median; at most {minutes.max():.0f})"
    beside = [row.beside for row in rows if row.beside]
    chances = sorted(round(100 * power(0.05, one.error, one.freedom, ALPHA / len(beside))) for one in beside)
    found = " to ".join(map(str, dict.fromkeys((chances[0], chances[-1]))))
    power_of_five = f" Five points would be found in {found} of 100 such studies." if final else ""
    seeds = ", ".join(str(one.seed) for one in rows[0].kept)
    return (
        f"{len(rows[0].kept)} seeds ({seeds}); {tasks} test tasks, {different} of them different, "
        f"in {clusters} clusters (panel `{first.panel['name']}`); before training {100 * rows[0].start:.1f} %; "
        f"a training took {spent}, side by side with others.{power_of_five} "
        f"Commits: {', '.join(commits)}."
    )


def tuning_table(study: Study, scale: Scale, env: str, results: Path) -> str:
    """Every candidate's validation success, with the chosen one in bold where all are tried; empty where none is."""
    candidates: dict[str, list[tuple[str, float | None]]] = {}
    for name, number, training in tunings(study, scale, env):
        kept = find(training, results)
        variant = study.variants[name]
        key = key_of(study, scale, env, variant, variant.candidates[number])  # without what all candidates have
        candidates.setdefault(name, []).append((key, validated(kept) if kept else None))
    if all(value is None for tried in candidates.values() for _, value in tried):
        return ""
    lines = [_line(["method", "candidates: validation success, %"]), _line(["---", "---"])]
    for name, tried in candidates.items():
        cells = [f"`{key}` {'not yet' if value is None else f'{100 * value:.1f}'}" for key, value in tried]
        values = [value for _, value in tried if value is not None]
        if len(values) == len(tried):
            cells[best_of(values)] = f"**{cells[best_of(values)]}**"
        lines.append(_line([study.variants[name].label, "; ".join(cells)]))
    return "\n".join(lines)


def finished(study: Study, scale: Scale, env: str, results: Path) -> Found:
    """The finished trainings of each variant; empty where candidates are still to be chosen."""
    if not all_tried(study, scale, env, results):
        return {}
    chosen = best_candidates(study, scale, env, results)
    names, seeds = study.rows(scale, env), study.setting(scale, env).seeds
    count = seeds if plan_file(study, scale, results).is_file() else max(seeds, MOST_SEEDS)
    found: dict[str, list[Kept]] = {}
    # Trainings come seed after seed, the variants in their order.
    for number, training in enumerate(trainings(study, scale, env, count, chosen)):
        if (kept := find(training, results)) is not None:
            found.setdefault(names[number % len(names)], []).append(kept)
    return {name: found[name] for name in names if name in found}


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


# ---- within the trainings of one method -----------------------------------------------------------


def kept_of(study: Study, scale: Scale, env: str, results: Path) -> list[Kept]:
    """The finished trainings of a study that shows one method from within."""
    needed = trainings(study, scale, env, study.setting(scale, env).seeds, {})
    return [kept for one in needed if (kept := find(one, results)) is not None]


def coverage(kept: Sequence[Kept]) -> str:
    """Means over the first updates, and the lowest and highest seed.

    Coverage is the share of a group's rollouts whose evidence reaches a visit; full access the share of visits that all
    of them reach. Only visits to anchors with two distinct actions count, as in the paper.
    """
    lines = ["| depth | rollouts reached, % | visits that all rollouts reach, % |", "| --- | --- | --- |"]
    for depth, label in LABELS.items():
        early = [[one.curve.get(f"{name}/{depth}", [])[:EARLY] for one in kept] for name in ("coverage", "full_access")]
        cells = [_spread([float(np.mean([v for v in own if v is not None])) for own in some]) for some in early]
        lines.append(f"| {label} | {cells[0]} | {cells[1]} |")
    note = f"The first {EARLY} updates of {len(kept)} seeds: mean, lowest and highest seed."
    if counted := [one.coverage["expanded"] for one in kept if one.coverage]:
        note += f" Under full closure more rollouts reach {_spread(counted)} % of the visits of update {EARLY}."
    return "\n".join([*lines, "", note])


def runtime(kept: Sequence[Kept]) -> str:
    """Median seconds of an update by phase, the mean over the seeds, and its share."""
    seconds = {name: float(np.mean([one.manifest["seconds"].get(name, 0.0) for one in kept])) for name in PHASES}
    total = sum(seconds.values())
    lines = ["| phase | seconds | share, % |", "| --- | --- | --- |"]
    lines += [f"| {name} | {spent:.4f} | {100 * spent / total:.2f} |" for name, spent in seconds.items()]
    spent = sum(seconds[name] for name in CREDIT)
    note = f"Credit of both kinds takes {spent:.4f} s of {total:.1f} s, {100 * spent / total:.3f} %."
    return "\n".join(lines) + f"\n\nMedians of {len(kept)} seeds, averaged. {note}"


def _spread(values: Sequence[float]) -> str:
    return f"{100 * float(np.mean(values)):.1f} ({100 * min(values):.1f} to {100 * max(values):.1f})"
