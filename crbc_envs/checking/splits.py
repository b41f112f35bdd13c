"""measure_splits: what of the held-out splits of an environment is also in its training split.

Splits with different tasks may still share situations: a start of the test split may lie inside a training task, one
move from its start. So random walks are played in training tasks, and their anchors are compared with the held-out
starts. An environment may name coarser forms of its situations (`AnchorEnv.canonical_forms`); they are compared too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec

from crbc_envs.checking.probe import MAX_STEPS, Location, plain, require_least, tagged
from crbc_envs.vector.contract import ForeignEnv, Member
from crbc_envs.vector.members import make_member, name_of

HELD_OUT = ("validation", "test")
CONTENT, TEXT, OBSERVATION, ANCHOR = "content", "text", "first observation", "anchor"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What of a held-out split is also in training. Every figure is a number of its first `tasks` tasks, by name.

    The names are content, text, first observation, anchor, and those of the environment's canonical forms and traits.
    `different` counts different ones. `other` counts the tasks whose own the other held-out split has too, `train`
    those whose own a training task has, `near` those to which a training task's is near, and `visited` those whose
    start a random walk in a training task came to (by anchor, and by canonical form).
    """

    split: str
    tasks: int
    different: dict[str, int]
    other: dict[str, int]
    train: dict[str, int]
    near: dict[str, int]
    visited: dict[str, int]

    @property
    def worst(self) -> tuple[int, str]:
        """The largest of the `visited` figures, and its name. Names by which all starts are alike tell nothing."""
        return max(((n, name) for name, n in self.visited.items() if self.different[name] > 1), default=(0, ANCHOR))


@dataclass(frozen=True, slots=True)
class SplitReport:
    """The figures of `measure_splits`. `anchors` counts the different anchors that `steps` random steps came to."""

    environment: str
    seed: int
    train_tasks: int
    walks: int
    steps: int
    anchors: int
    held_out: tuple[HeldOut, ...]

    @property
    def leaks(self) -> bool:
        """Whether a held-out task is a training task, or at least 1 % of the starts were visited in training."""
        return any(part.train.get(CONTENT, 0) or part.worst[0] >= 0.01 * part.tasks for part in self.held_out)

    def shared_tasks(self) -> str:
        """Which tasks are in two splits, in words; "" where none is, or where each has one task, as it may."""
        for part in self.held_out:
            for count, other in ((part.train.get(CONTENT, 0), "train"), (part.other.get(CONTENT, 0), "other held-out")):
                if count and part.tasks > 1:
                    return f"{count} of {part.tasks} {part.split} tasks are tasks of the {other} split too"
        return ""

    def rows(self) -> list[tuple[str, ...]]:
        """A table: the name of a figure, and its value for each held-out split."""
        parts = self.held_out
        table = [("tasks compared", *(f"{part.tasks:,}" for part in parts))]
        for title, figures in (
            ("different", [part.different for part in parts]),
            ("also in the other split", [part.other for part in parts]),
            ("also in train", [part.train for part in parts]),
            ("nearly in train", [part.near for part in parts]),
            ("visited in train", [part.visited for part in parts]),
        ):
            for name in figures[0]:
                cells = (
                    f"{counts[name]:,} ({counts[name] / part.tasks:.1%})"
                    for counts, part in zip(figures, parts, strict=True)
                )
                table.append((f"{title}: {name}", *cells))
        return table

    def __str__(self) -> str:
        rows = [("", *(part.split for part in self.held_out)), *self.rows()]
        wide = max(len(row[0]) for row in rows)
        lines = [f"  {row[0]:{wide}}" + "".join(f"{cell:>18}" for cell in row[1:]) for row in rows]
        return "\n".join([self.heading, *lines])

    def summary(self) -> list[str]:
        """What decides, on one line for each held-out split."""
        return [
            f"of {part.tasks} {part.split} tasks, {part.train.get(CONTENT, 0)} are among the train tasks compared, and "
            f"{part.worst[0]} starts were visited in train"
            for part in self.held_out
        ]

    @property
    def heading(self) -> str:
        return (
            f"{self.environment}, seed {self.seed}: {self.train_tasks:,} train tasks, {self.walks} random walks in "
            f"each, {self.steps:,} steps, {self.anchors:,} different anchors"
        )


@dataclass(slots=True)
class _Starts:
    """What the tasks of a split start with: for each task in turn, the keys of what is compared."""

    split: str
    keys: dict[str, list[str]] = field(default_factory=dict)
    near: dict[str, list[Collection[str]]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    def add(self, env: Member, index: int) -> None:
        """Raises `AnchorEnvError` where the task cannot begin, or has the id of another one."""
        with Location("splits", f"{self.split} task {index}") as at:
            self._add(env, index, at)

    def _add(self, env: Member, index: int, at: Location) -> None:
        observation, info = env.reset(seed=index, options={"task": index})
        compared = {TEXT: info["task"], OBSERVATION: plain(observation), ANCHOR: info["anchor"]}
        compared.update({**env.canonical_forms(), **env.traits()})
        if not isinstance(env, ForeignEnv) or env.has_panel:
            compared = {CONTENT: env.panel[index].digest, **compared}
            first = self.digests.setdefault(info["task_id"], compared[CONTENT])
            at.expect(first == compared[CONTENT], f"its task_id {info['task_id']!r} is that of another task")
        for name, key in compared.items():
            self.keys.setdefault(name, []).append(key)
        for name, near in env.near_traits().items():
            self.near.setdefault(name, []).append(near)


def measure_splits(
    env: str | EnvSpec,
    *,
    train_tasks: int = 1_000,
    held_out_tasks: int = 2_000,
    walks: int = 8,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **env_kwargs: Any,
) -> SplitReport:
    """Compare the first `held_out_tasks` validation and test tasks with `train_tasks` random training tasks.

    `walks` random walks are played in each training task, to its end. All draws depend on `seed` alone. `env` is a
    registered id or a spec, `env_kwargs` are its arguments, without `split`. `progress` is called with tasks done and
    their number. Returns the figures, as numbers of tasks; `print` shows them as a table.

    Raises `ValueError` for a number that is too small, `TypeError` for an environment that takes no `split`, and
    `AnchorEnvError` for a task that cannot be played.
    """
    require_least(train_tasks=(train_tasks, 1), held_out_tasks=(held_out_tasks, 1), walks=(walks, 0))
    rng = np.random.default_rng(seed)
    train, visits = _Starts("train"), _Visits()
    with closing(make_member(env, {**env_kwargs, "split": "train"})) as member:
        tasks = rng.choice(len(member.panel), min(train_tasks, len(member.panel)), replace=False).tolist()
        for done, task in enumerate(tasks):
            train.add(member, task)
            for _ in range(walks):
                visits.walk(member, task, rng)
            progress(done + 1, len(tasks) + 2 * held_out_tasks)
        if CONTENT in train.keys:  # a split that is the train split has its first tasks first, too
            firsts = range(min(held_out_tasks, len(member.panel)))
            train.keys[CONTENT] += [member.panel[task].digest for task in firsts]
    held_out = []
    for split in HELD_OUT:
        held_out.append(_Starts(split))
        with closing(make_member(env, {**env_kwargs, "split": split})) as member:
            for task in range(min(held_out_tasks, len(member.panel))):
                held_out[-1].add(member, task)
                progress(len(tasks) + (len(held_out) - 1) * held_out_tasks + task + 1, len(tasks) + 2 * held_out_tasks)
    parts = tuple(
        _compare(split, starts, other, train, visits)
        for split, starts, other in zip(HELD_OUT, held_out, reversed(held_out), strict=True)
    )
    return SplitReport(name_of(env), seed, len(tasks), walks, visits.steps, len(visits.seen[ANCHOR]), parts)


class _Visits:
    """What random walks came to: the different anchors, and the different forms of their situations."""

    def __init__(self) -> None:
        self.steps = 0
        self.seen: dict[str, set[str]] = {ANCHOR: set()}

    def walk(self, env: Member, task: int, rng: np.random.Generator) -> None:
        with Location("splits", f"train task {task}") as at:
            _, info = env.reset(seed=task, options={"task": task})
            self._note(env, info)
            over = False
            while not over:
                at.step += 1
                at.expect(at.step <= MAX_STEPS, f"the episode has not ended in {MAX_STEPS} steps")
                actions = info["admissible_actions"]
                at.expect(len(actions) > 0, "no action is admissible")
                _, _, terminated, truncated, info = env.step(tagged(env, actions[int(rng.integers(len(actions)))]))
                over = terminated or truncated
                self._note(env, info)
        self.steps += at.step

    def _note(self, env: Member, info: dict[str, Any]) -> None:
        if info["anchor"] not in self.seen[ANCHOR]:
            self.seen[ANCHOR].add(info["anchor"])
            for name, key in env.canonical_forms().items():
                self.seen.setdefault(name, set()).add(key)


def _compare(split: str, starts: _Starts, other: _Starts, train: _Starts, visits: _Visits) -> HeldOut:
    trained = {name: set(keys) for name, keys in train.keys.items() if name != TEXT or len(set(keys)) > 1}
    tasks = len(starts.keys[ANCHOR])
    named = {name: keys for name, keys in starts.keys.items() if name not in (TEXT, OBSERVATION)}
    others = {name: set(other.keys[name]) for name in named}
    return HeldOut(
        split,
        tasks,
        different={name: len(set(keys)) for name, keys in named.items()},
        other={name: sum(key in others[name] for key in keys) for name, keys in named.items()},
        train={name: sum(key in known for key in starts.keys[name]) for name, known in trained.items()},
        near={name: sum(not trained[name].isdisjoint(keys) for keys in near) for name, near in starts.near.items()},
        visited={name: sum(key in seen for key in starts.keys[name]) for name, seen in visits.seen.items()},
    )


def compare_splits(spec: EnvSpec, tasks: int, seed: int, skipped: dict[str, str]) -> SplitReport | None:
    """The comparison of `tasks` tasks of each split, one walk in each. None if there are no such splits.

    `skipped` gets the reason where the environment takes other splits. Raises `AnchorEnvError` where a task fails.
    """
    try:
        for split in ("train", *HELD_OUT):
            make_member(spec, {"split": split}).close()
    except TypeError:
        return None
    except ValueError as error:
        skipped["splits"] = str(error)
        return None
    with Location("splits"):
        return measure_splits(spec, train_tasks=tasks, held_out_tasks=tasks, walks=1, seed=seed)
