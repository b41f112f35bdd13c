"""Which tasks of a split an evaluation plays, in which order, and how often each.

"first": tasks 0 to n - 1. It is the default where the order of a split has nothing to do with what its tasks are, as
in all that is generated.

"even": as many tasks of every kind. Kinds take turns, in the order of their first tasks, until n tasks are chosen. A
kind that has no task left is passed over. Within a kind, tasks come in the order of the split, or in a fixed shuffled
order where the split is `TaskPanel.listed`. It is the default there: the first 128 of ALFWorld's games, in the order of
their paths, hold 12 of the 24 with two objects. A larger n keeps the tasks of a smaller one. Where tasks have no kinds,
it is "first".

"paper": n draws in the proportions of the paper's evaluation (`TaskPanel.drawn_in_paper`), rounded by largest
remainders. ALFWorld's have repeats: the public trainer's 128 environments each shuffle the games by themselves. A
WebShop goal and a Sokoban room are drawn once at most: the trainer draws goals without replacement, and Sokoban's seeds
from four billion. The paper's panel is of the validation split, and with official data; the draws are ours, since the
paper does not publish its own. No other environment has such a panel.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeVar

from crbc_envs.tasks import TaskPanel, stream
from crbc_rl.config import TrainConfig
from crbc_rl.errors import ConfigError

T = TypeVar("T")

PANEL_VERSION = 1
"""It is raised whenever the same name, split and number of episodes come to choose other tasks."""

Name = Literal["first", "even", "paper"]
CHOSEN: Literal["chosen"] = "chosen"
"""The name of a panel whose tasks somebody has chosen one by one."""


@dataclass(frozen=True, slots=True)
class EvalPanel:
    """The tasks of `split` that an evaluation plays, in order. `repeats` counts how often each was there before."""

    name: Name | Literal["chosen"]
    split: str
    tasks: tuple[int, ...]
    repeats: tuple[int, ...]
    version: int = PANEL_VERSION

    def digest(self, source: TaskPanel[Any]) -> str:
        """One hash (hex) over the contents of the tasks in order, and their repeats. `source` is the split."""
        digests = {task: source[task].digest for task in sorted(set(self.tasks))}
        return digest_of([digests[task] for task in self.tasks], self.repeats)


def digest_of(contents: Sequence[str], repeats: Sequence[int]) -> str:
    """The digest of a panel whose tasks have these digests of their contents, in order."""
    lines = (f"{content} {repeat}\n" for content, repeat in zip(contents, repeats, strict=True))
    return hashlib.sha256("".join(lines).encode(errors="surrogatepass")).hexdigest()


def eval_panel(config: TrainConfig, split: str, episodes: int) -> EvalPanel:
    """The panel of `episodes` tasks that `config.eval.panel` names. Raises `ConfigError` where there is none."""
    with closing(config.member(split)) as env:
        return choose(env.panel, split, episodes, config.eval.panel)


def choose(source: TaskPanel[Any], split: str, episodes: int, name: Name | None = None) -> EvalPanel:
    """Choose `episodes` tasks of `source`, a split called `split`. None: the default of its kind of split.

    Raises `ConfigError` where there are not so many, or no such panel.
    """
    name = name or ("even" if source.listed else "first")
    if (wrong := why_not(source, split, episodes, name)) is not None:
        raise ConfigError(wrong)
    chosen: Iterable[int] = range(episodes)
    if name == "even" and (source.has_kinds or source.listed):
        chosen = islice(in_turns(_by_kind(source)), episodes)
    elif name == "paper":
        chosen = in_turns(_drawn(source, apportioned(source.drawn_in_paper, episodes)))
    tasks = tuple(chosen)
    return EvalPanel(name, split, tasks, repeats_of(tasks))


def why_not(source: TaskPanel[Any], split: str, episodes: int, name: Name | None) -> str | None:
    """Why a split has no such panel, and what to change; None where it has one."""
    if episodes < 1:
        return f"{episodes} episodes; play at least one"
    if name == "paper" and not source.drawn_in_paper:
        return "eval.panel: the paper has no evaluation on these tasks: use even or first"
    if name == "paper" and source.repeats_in_paper:
        have = {kind for kind, tasks in _by_kind(source).items() if tasks}
        lacking = [kind for kind, n in apportioned(source.drawn_in_paper, episodes).items() if n and kind not in have]
        return f"eval.panel: paper, and the {split} panel has no task of kind {lacking[0]}" if lacking else None
    if episodes > len(source):
        return f"{episodes} episodes, and the {split} panel has {len(source):,} tasks"
    return None


def apportioned(weights: Mapping[str, int], n: int) -> dict[str, int]:
    """`n` in the proportions of `weights`, rounded by largest remainders; of equal ones the first goes up."""
    total = sum(weights.values())
    counts = {kind: n * weight // total for kind, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda kind: -(n * weights[kind] % total))
    for kind in by_remainder[: n - sum(counts.values())]:
        counts[kind] += 1
    return counts


def _by_kind(source: TaskPanel[Any]) -> dict[str, list[int]]:
    """The tasks of each kind, in the order of the split, or shuffled where that is an order of names."""
    by_kind: defaultdict[str, list[int]] = defaultdict(list)
    for task in range(len(source)):
        by_kind[source.kind(task)].append(task)
    return {kind: _shuffled("even", kind, tasks) for kind, tasks in by_kind.items()} if source.listed else dict(by_kind)


def _drawn(source: TaskPanel[Any], counts: Mapping[str, int]) -> dict[str, list[int]]:
    """The draws of each kind. More draws of a kind begin with those of fewer."""
    if not source.repeats_in_paper:
        (n,) = counts.values()
        return {"": _shuffled("paper", "", range(len(source)))[:n]}
    tasks = {kind: sorted(tasks) for kind, tasks in _by_kind(source).items()}
    return {
        kind: [tasks[kind][stream(f"panel/paper/{PANEL_VERSION}/{kind}", i) % len(tasks[kind])] for i in range(n)]
        for kind, n in counts.items()
        if n
    }


def _shuffled(name: Name, kind: str, tasks: Sequence[int]) -> list[int]:
    # Sorted by hash rather than shuffled by NumPy, whose permutations may change with its version.
    return sorted(tasks, key=lambda task: (stream(f"panel/{name}/{PANEL_VERSION}/{kind}", task), task))


def in_turns(lists: Mapping[str, Sequence[T]]) -> Iterator[T]:
    """The first of every list, then the second of every list that has one, and so on."""
    for turn in range(max(map(len, lists.values()), default=0)):
        yield from (tasks[turn] for tasks in lists.values() if turn < len(tasks))


def repeats_of(tasks: Sequence[int]) -> tuple[int, ...]:
    """How often each task was there before."""
    seen: Counter[int] = Counter()
    repeats = []
    for task in tasks:
        repeats.append(seen[task])
        seen[task] += 1
    return tuple(repeats)
