"""What limits an agent: one measurement for each possible limit, from episodes that were played.

`crbc study agent RUN` plays them. Everything here is a function of episodes; nothing here plays or prints.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from crbc_rl.rollout.intervals import independent_tasks, wilson

T = TypeVar("T")

CAUSES = {
    "cut": "reached the limit of new tokens without an end",
    "form": "no action in its tags",
    "repeated": "the same invalid action as the reply before",
    "unknown word": "has a word that its prompt does not have: a copying error",
    "not possible here": "all its words are in the prompt, and the action is not admissible",
}
"""Why a reply is invalid. The first that fits counts."""

REPEATED = "repeated"
OF_ACTIONS = ("unknown word", "not possible here")
"""The causes of replies with an action."""

GLUE = frozenset({"at", "from", "in", "of", "on", "the", "to", "with"})
"""Words that join the parts of an action. None of them is copied from a prompt."""

MOST_DISTANCES = 6
"""So many distances have a row each. More are put into that many ranges of about as many tasks."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. `action` is what it asks for, or None; `cut` tells that it ended at the limit of new tokens.

    `words` are those of the prompt. They are needed where the reply is invalid. `tokens` counts the prompt's tokens,
    `shortened` tells that the prompt was too long.
    """

    valid: bool
    action: str | None
    cut: bool = False
    words: frozenset[str] = frozenset()
    tokens: int = 0
    shortened: bool = False


@dataclass(frozen=True, slots=True)
class Episode:
    """One task as the agent played it.

    `distance` is the least number of steps to success at the start: `math.inf` where there is no way, None where it is
    not known. `teacher` is the success of the environment's expert, None where there is none. `content` is the digest
    of the task. `open_forms` has the beginnings of actions that take words of one's own, such as "search[".
    """

    task: int
    success: bool
    replies: Sequence[Reply]
    kind: str = ""
    content: str = ""
    truncated: bool = False
    distance: float | None = None
    teacher: bool | None = None
    open_forms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rate:
    """A success rate with its 95 % interval, which is over different tasks."""

    won: int
    tasks: int
    low: float
    high: float

    @classmethod
    def of(cls, success: ArrayLike, content: Sequence[str]) -> Rate:
        """The rate of m outcomes (m,) of tasks with these digests, m > 0."""
        won = np.asarray(success, dtype=np.bool_)
        n = independent_tasks(won, content)
        return cls(int(won.sum()), len(won), *wilson(float(won.mean()) * n, n))

    @property
    def rate(self) -> float:
        return self.won / self.tasks


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the tasks: the agent's success and the teacher's. `name` is their kind or their distance."""

    name: str
    agent: Rate
    teacher: Rate | None


@dataclass(frozen=True, slots=True)
class Recovery:
    """What invalid replies lead to. Shares are None where there is nothing to share.

    `followed` is the share of invalid replies before the last step that a valid one follows. `some` and `none` are the
    success of the episodes with an invalid reply, and without one.
    """

    followed: float | None
    some: Rate | None
    none: Rate | None


@dataclass(frozen=True, slots=True)
class Context:
    """The lengths of prompts, in tokens, and what comes with them.

    `shortened` is the share of prompts that were too long, `first_shortened` the number of tasks whose first prompt
    was. The others are thirds by length, from short to long, each with its range; equal lengths are in one part.
    `by_first` and `by_longest` are success by an episode's first and longest prompt, `invalid` the share of invalid
    replies by their own prompt. Long episodes have longer prompts, so `by_longest` is no cause.
    """

    median: float
    most_95: float
    longest: int
    shortened: float
    first_shortened: int
    by_first: Sequence[Part]
    by_longest: Sequence[Part]
    invalid: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Exploration:
    """Groups of `samples` rollouts of one task at the training temperature.

    `success` is the mean, `best_of` the share of tasks that at least one of k rollouts solves, by k. `mixed` is the
    share of groups with both outcomes. Only they have a group advantage.
    """

    tasks: int
    samples: int
    success: float
    best_of: Mapping[int, float]
    mixed: float
    all_lost: float
    best: Rate


@dataclass(frozen=True, slots=True)
class Findings:
    """All measurements. `invalid` is the share of all replies by cause; `with_repeats` counts a repeated reply under
    the cause that it has by itself. `out_of_steps` is a share of the episodes.
    """

    success: Part
    by_kind: Sequence[Part]
    by_distance: Sequence[Part]
    out_of_steps: float
    replies: int
    invalid: Mapping[str, float]
    with_repeats: Mapping[str, float]
    recovery: Recovery
    context: Context
    exploration: Exploration | None = field(default=None)


def analyse(episodes: Sequence[Episode], exploration: Exploration | None = None) -> Findings:
    """Everything that these episodes tell. There is at least one, and each has a reply."""
    verbs = command_words(episodes)
    causes, alone = (
        Counter(cause for episode in episodes for cause in causes_of(episode, verbs, repeats))
        for repeats in (True, False)
    )
    replies = causes.total()
    return Findings(
        success=_part("all", episodes),
        by_kind=[_part(name, some) for name, some in _grouped(episodes, lambda e: e.kind).items() if name],
        by_distance=by_distance(episodes),
        out_of_steps=sum(e.truncated for e in episodes) / len(episodes),
        replies=replies,
        invalid={cause: causes[cause] / replies for cause in CAUSES},
        with_repeats={cause: alone[cause] / replies for cause in CAUSES if cause != REPEATED},
        recovery=recovery(episodes),
        context=context(episodes),
        exploration=exploration,
    )


# ---- replies --------------------------------------------------------------------------------------


def words_of(text: str) -> frozenset[str]:
    """The words of a text in lower case: its runs of letters and digits."""
    return frozenset(_spaced(text.lower()).split())


def command_words(episodes: Iterable[Episode]) -> frozenset[str]:
    """The words that an agent need not read in its prompt: the first one of every action that was valid, and `GLUE`.

    "open" in "open drawer 1" belongs to the environment's commands. Where no drawer can be opened, no prompt has it.
    """
    actions = {reply.action for e in episodes for reply in e.replies if reply.valid and reply.action}
    firsts = (_spaced(action).split() for action in actions)
    return GLUE.union(*(words[:1] for words in firsts))


def _spaced(text: str) -> str:
    return "".join(c if c.isalnum() else " " for c in text.lower())


def causes_of(episode: Episode, verbs: frozenset[str] = GLUE, repeats: bool = True) -> list[str | None]:
    """The cause of each reply, in order; None for a valid one. `verbs` need not be in a prompt.

    Without `repeats` none is "repeated": each has the cause that it has by itself.
    """
    causes: list[str | None] = []
    before: Reply | None = None
    for reply in episode.replies:
        cause = _cause(reply, verbs, episode.open_forms)
        again = before is not None and not before.valid and before.action == reply.action
        causes.append(REPEATED if repeats and again and cause in OF_ACTIONS else cause)
        before = reply
    return causes


def _cause(reply: Reply, verbs: frozenset[str], open_forms: tuple[str, ...]) -> str | None:
    if reply.valid:
        return None
    if reply.cut:
        return "cut"
    if reply.action is None:
        return "form"
    copied = reply.action.startswith(open_forms) or words_of(reply.action) <= reply.words | verbs
    return "not possible here" if copied else "unknown word"


def recovery(episodes: Sequence[Episode]) -> Recovery:
    after = [
        following.valid
        for e in episodes
        for reply, following in zip(e.replies, e.replies[1:], strict=False)
        if not reply.valid
    ]
    some = [e for e in episodes if not all(reply.valid for reply in e.replies)]
    none = [e for e in episodes if all(reply.valid for reply in e.replies)]
    return Recovery(sum(after) / len(after) if after else None, _rate(some), _rate(none))


def context(episodes: Sequence[Episode]) -> Context:
    replies = [reply for e in episodes for reply in e.replies]
    tokens = np.array([reply.tokens for reply in replies])
    return Context(
        median=float(np.median(tokens)),
        most_95=float(np.percentile(tokens, 95)),
        longest=int(tokens.max()),
        shortened=sum(reply.shortened for reply in replies) / len(replies),
        first_shortened=sum(e.replies[0].shortened for e in episodes),
        by_first=_parts(_ranges(episodes, [e.replies[0].tokens for e in episodes], 3)),
        by_longest=_parts(_ranges(episodes, [max(reply.tokens for reply in e.replies) for e in episodes], 3)),
        invalid={
            name: sum(not reply.valid for reply in some) / len(some)
            for name, some in _ranges(replies, tokens.tolist(), 3).items()
        },
    )


# ---- tasks ----------------------------------------------------------------------------------------


def by_distance(episodes: Sequence[Episode]) -> list[Part]:
    """Success by distance: near tasks first, then those without a way, then those whose distance is not known."""
    known = [e for e in episodes if e.distance is not None and math.isfinite(e.distance)]
    distances = [int(e.distance or 0) for e in known]
    ranges = len(known) if len(set(distances)) <= MOST_DISTANCES else MOST_DISTANCES
    parts = _ranges(known, distances, ranges)
    parts["no way"] = [e for e in episodes if e.distance == math.inf]
    parts["not known"] = [e for e in episodes if e.distance is None]
    return _parts(parts)


def exploration(success: ArrayLike, content: Sequence[str]) -> Exploration:
    """The figures of outcomes (tasks, samples) of tasks with these digests."""
    won = np.asarray(success, dtype=np.bool_)
    tasks, samples = won.shape
    wins = won.sum(axis=1)
    ks = sorted({*(2**i for i in range(samples.bit_length())), samples})
    return Exploration(
        tasks=tasks,
        samples=samples,
        success=float(won.mean()),
        best_of={k: float(np.mean([_one_wins(int(c), samples, k) for c in wins])) for k in ks},
        mixed=float(((wins > 0) & (wins < samples)).mean()),
        all_lost=float((wins == 0).mean()),
        best=Rate.of(wins > 0, content),
    )


def _one_wins(won: int, samples: int, k: int) -> float:
    """The probability that k of the samples, drawn without putting back, have a success."""
    return 1.0 - math.comb(samples - won, k) / math.comb(samples, k)


# ---- parts ----------------------------------------------------------------------------------------


def _rate(episodes: Sequence[Episode]) -> Rate | None:
    return Rate.of([e.success for e in episodes], [e.content for e in episodes]) if episodes else None


def _part(name: str, episodes: Sequence[Episode]) -> Part:
    content = [e.content for e in episodes]
    teacher = [e.teacher for e in episodes if e.teacher is not None]
    judged = Rate.of(teacher, content) if len(teacher) == len(episodes) else None
    return Part(name, Rate.of([e.success for e in episodes], content), judged)


def _parts(parts: Mapping[str, Sequence[Episode]]) -> list[Part]:
    return [_part(name, some) for name, some in parts.items() if some]


def _grouped(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return dict(sorted(groups.items()))


def _ranges(items: Sequence[T], values: Sequence[int], most: int) -> dict[str, list[T]]:
    """The items in at most `most` ranges of their values, of about as many items each, by the name of the range.

    Equal values are in one range. With as many ranges as items every value has its own.
    """
    if not items:
        return {}
    ordered = sorted(values)
    cuts = sorted({ordered[len(items) * i // most] for i in range(1, most)})
    places = [bisect_right(cuts, value) for value in values]
    ranges: dict[str, list[T]] = {}
    for place in sorted(set(places)):
        here = [i for i, p in enumerate(places) if p == place]
        low, high = min(values[i] for i in here), max(values[i] for i in here)
        ranges[f"{low}" if low == high else f"{low} to {high}"] = [items[i] for i in here]
    return ranges
