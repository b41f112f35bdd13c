"""What each kind of anchor merges: aliasing, and sharing within a group.

    python -m benchmarks.anchor_kinds CRBC-ALFWorld-v0 --set rooms=small

A group's credit is computed as if everything behind an anchor were one state. An anchor that stands for several states
gives them one value. A state under several anchors is evidence that does not meet. The benchmark plays groups of one
task and keys every visit in all four ways at once; the environments' pages in docs/ have the metrics.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anchors.key import ANCHOR_KINDS
from crbc_envs.actions import tagged
from crbc_envs.core import Infos
from crbc_envs.demonstrations import advice
from crbc_envs.tasks import rng
from crbc_envs.vector.contract import Member
from crbc_envs.vector.members import make_member

STATE = "state"
MALFORMED = "no action"
WORDS = 4
"""The number of the task's words in a random query."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`groups` random tasks of the training split, each played `group_size` times with each of `BEHAVIOURS`.

    A behaviour follows the expert in `expert` of the steps and is random in the others. In `invalid` of all steps the
    reply is malformed.
    """

    groups: int = 100
    group_size: int = 8
    invalid: float = 0.1
    seed: int = 0


QUICK = Settings(groups=4)

BEHAVIOURS: Mapping[str, float] = {"random": 0.0, "half expert": 0.5}
"""The share of the expert's steps."""

METRICS = {
    "anchors": "different anchors of a group, mean",
    "aliased": "share of the anchors that stand for several exact states",
    "aliased_visits": "share of the visits at those",
    "unequal": "share of the anchors whose states are at different distances from success",
    "unequal_visits": "share of the visits at those",
    "split": "share of the exact states with several anchors",
    "shared": "share of the anchors that at least two rollouts of the group met",
    "shared_visits": "share of the visits at those",
}
"""The metrics of a kind. A visit is a step, at the anchor where it was taken."""


@dataclass(frozen=True, slots=True)
class KindMetrics:
    """The `METRICS` of one kind under one behaviour. Shares are those of all groups together.

    `unequal` and `unequal_visits` are None where the environment does not tell distances.
    """

    behaviour: str
    kind: str
    success: float
    visits: int
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Visit:
    """One step of one rollout: the keys of all kinds where it was taken, and the distance from there to success."""

    rollout: int
    keys: dict[str, str]
    distance: float | None


# ---- play -----------------------------------------------------------------------------------------


def run(env_id: str, settings: Settings, **env_kwargs: Any) -> list[KindMetrics]:
    """Every kind under every behaviour. `env_kwargs` are arguments of the environment.

    Raises `ValueError` for an environment that has one kind of anchor, or no expert.
    """
    results: list[KindMetrics] = []
    with closing(make_member(env_id, env_kwargs)) as env:
        tasks = rng("anchors", settings.seed).integers(len(env.panel), size=settings.groups).tolist()
        for name, share in BEHAVIOURS.items():
            won, groups = 0, []
            for number, task in enumerate(tasks):
                group: list[Visit] = []
                for member in range(settings.group_size):
                    draws = rng(name, settings.seed, number, member)
                    won += _rollout(env, task, member, share, settings.invalid, draws, group)
                groups.append(group)
            success = won / (len(tasks) * settings.group_size)
            results += [_metrics(name, kind, success, groups) for kind in ANCHOR_KINDS]
    return results


def _rollout(
    env: Member, task: int, member: int, share: float, invalid: float, draws: np.random.Generator, group: list[Visit]
) -> bool:
    """Play one rollout, append its visits to `group`, and return its success."""
    observation, info = env.reset(seed=task, options={"task": task})
    _keys(env)  # the first reason to refuse an environment is that it has one kind
    expert = env.expert(draws)
    if expert is None:
        raise ValueError(f"{env.domain} has no expert, which the study mixes with random play")
    over = False
    while not over:
        group.append(Visit(member, _keys(env), env.distance()))
        advised = advice(expert, observation, info)  # asked at every step, because it learns from what it sees
        reply = random_reply(env, info, draws) if advised is None or draws.random() >= share else advised
        reply = MALFORMED if draws.random() < invalid else reply
        observation, _, terminated, truncated, info = env.step(reply)
        over = terminated or truncated
    return bool(info["success"])


def _keys(env: Member) -> dict[str, str]:
    return {kind: env.anchor_as(kind) for kind in ANCHOR_KINDS}


def random_reply(env: Member, info: Infos, draws: np.random.Generator) -> str:
    """A random admissible action. Words of the task take the place of a placeholder."""
    action = str(draws.choice(np.array(info["admissible_actions"], dtype=object)))
    if env.placeholder and env.placeholder in action:
        words = "".join(c if c.isalnum() else " " for c in info["task"]).split() or ["thing"]
        action = action.replace(env.placeholder, " ".join(map(str, draws.choice(words, WORDS))))
    return tagged(action)


# ---- metrics --------------------------------------------------------------------------------------


def _metrics(behaviour: str, kind: str, success: float, groups: Sequence[Sequence[Visit]]) -> KindMetrics:
    sums = Counter[str]()
    for group in groups:
        sums.update(_counts(kind, group))

    def share(name: str, of: str) -> float:
        return sums[name] / max(1, sums[of])

    known = all(visit.distance is not None for group in groups for visit in group)
    metrics: dict[str, float | None] = {
        "anchors": sums["anchors"] / len(groups),
        "aliased": share("aliased", "anchors"),
        "aliased_visits": share("aliased_visits", "visits"),
        "unequal": share("unequal", "anchors") if known else None,
        "unequal_visits": share("unequal_visits", "visits") if known else None,
        "split": share("split", "states"),
        "shared": share("shared", "anchors"),
        "shared_visits": share("shared_visits", "visits"),
    }
    return KindMetrics(behaviour, kind, success, sums["visits"], metrics)


def _counts(kind: str, group: Sequence[Visit]) -> Counter[str]:
    """One group's counts of anchors, states and visits."""
    at: dict[str, list[Visit]] = {}
    anchors_of: dict[str, set[str]] = {}
    for visit in group:
        at.setdefault(visit.keys[kind], []).append(visit)
        anchors_of.setdefault(visit.keys[STATE], set()).add(visit.keys[kind])
    counts = Counter(anchors=len(at), states=len(anchors_of), visits=len(group))
    counts["split"] = sum(map(_several, anchors_of.values()))
    for visits in at.values():
        for name, values in (
            ("aliased", [visit.keys[STATE] for visit in visits]),
            ("unequal", [visit.distance for visit in visits]),
            ("shared", [visit.rollout for visit in visits]),
        ):
            several = _several(values)
            counts.update({name: several, f"{name}_visits": several * len(visits)})
    return counts


def _several(values: Iterable[object]) -> bool:
    return len(set(values)) > 1


# ---- output ---------------------------------------------------------------------------------------


LEGEND = (
    "aliased: anchors that stand for several exact states; unequal: those whose states are at different distances from "
    "success; split: states with several anchors; shared: anchors that two rollouts of a group met; in brackets: of "
    "the visits"
)


def print_tables(results: Sequence[KindMetrics], env_id: str, settings: Settings, console: Console) -> None:
    """Print one table for each behaviour, with a row for each kind."""
    console.print(
        f"{env_id}: {settings.groups} groups of {settings.group_size}, {settings.invalid:.0%} of the replies invalid\n"
        f"{LEGEND}",
        highlight=False,
        markup=False,
    )
    for behaviour in BEHAVIOURS:
        rows = [result for result in results if result.behaviour == behaviour]
        title = f"{behaviour}: success {rows[0].success:.1%}, {rows[0].visits:,} visits"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
        for head in ("anchor", "anchors", "aliased", "unequal", "split", "shared"):
            table.add_column(head, justify="left" if head == "anchor" else "right")
        for result in rows:
            pairs = [f"{_percent(result, name)} ({_percent(result, f'{name}_visits', 0)})" for name in WITH_VISITS]
            count = f"{result.metrics['anchors']:.1f}"
            table.add_row(result.kind, count, *pairs[:2], _percent(result, "split"), pairs[2])
        console.print(table)


WITH_VISITS = ("aliased", "unequal", "shared")


def _percent(result: KindMetrics, name: str, digits: int = 1) -> str:
    share = result.metrics[name]
    return "-" if share is None else f"{share:.{digits}%}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.anchor_kinds", description="What anchors merge.")
    parser.add_argument("env", help="an environment id such as CRBC-ALFWorld-v0")
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of half a minute")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=(), help="the environment's arguments, each as key=value")
    given = parser.parse_args(arguments)
    settings = replace(QUICK if given.quick else Settings(), seed=given.seed)
    env_kwargs = {key: yaml.safe_load(value) for key, _, value in (each.partition("=") for each in given.set)}
    print_tables(run(given.env, settings, **env_kwargs), given.env, settings, Console())


if __name__ == "__main__":
    main()
