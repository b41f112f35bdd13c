"""Making a `TabularMDP` from named states: numbers, chances and distances."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from anchors.columns import Floats, Ints
from crbc_lab.studies.mdp import TabularMDP

WON, LOST = "won", "lost"
"""What an outcome is called that ends the episode, with and without success."""

S = TypeVar("S", bound=Hashable)
Outcomes = Sequence[tuple[S | str, float]]
"""The outcomes of an action: a state, `WON` or `LOST`, and its chance."""


class TooManyStates(ValueError):
    """A process has more states than were asked for."""


def table(
    start: S,
    outcomes: Callable[[S], Mapping[int, Outcomes[S]]],
    horizon: int,
    seen: Callable[[S], Hashable] | None = None,
    marks: Mapping[str, Iterable[tuple[S, int]]] | None = None,
    most: int | None = None,
) -> TabularMDP:
    """The process over all states that can be reached from `start`, numbered breadth first.

    `outcomes(state)` has the outcomes of each admissible action, which is a number from 0 on. `seen(state)` is what the
    agent sees of a state, by default the state; anchors are numbered in the order of their first states. `marks` names
    steps (state, action). Raises `TooManyStates` if there are more than `most`.
    """
    number: dict[Hashable, int] = {start: 0}
    states, rows = [start], []
    for state in states:  # breadth first: the list grows during the loop
        rows.append(outcomes(state))
        for after, chance in (outcome for row in rows[-1].values() for outcome in row):
            if after not in (WON, LOST) and chance > 0.0 and after not in number:
                number[after] = len(states)
                states.append(after)  # type: ignore[arg-type]  # neither of the two ends
        if most is not None and len(states) > most:
            raise TooManyStates(f"more than {most} states can be reached")
    n, actions = len(states), 1 + max(a for each in rows for a in each)
    number |= {WON: n, LOST: n + 1}
    width = max(len(row) for each in rows for row in each.values())
    successor = np.full((n, actions, width), n + 1, dtype=np.int64)
    probability, admissible = np.zeros((n, actions, width)), np.zeros((n, actions), dtype=np.bool_)
    for s, each in enumerate(rows):
        for a, row in each.items():
            admissible[s, a] = True
            for b, (after, chance) in enumerate(row):
                successor[s, a, b], probability[s, a, b] = number[after] if chance > 0.0 else n + 1, chance
    named = {name: np.zeros(admissible.shape, dtype=np.bool_) for name in marks or {}}
    for name, mask in named.items():
        for state, action in (marks or {})[name]:
            mask[number[state], action] = True
    anchors: dict[Hashable, int] = {}
    anchor = [anchors.setdefault(seen(state) if seen else state, len(anchors)) for state in states]
    return TabularMDP(
        successor,
        probability,
        horizon,
        np.array(anchor, dtype=np.int64),
        admissible,
        steps_to_success(successor, probability, admissible),
        named,
    )


def steps_to_success(successor: Ints, probability: Floats, admissible: NDArray[np.bool_]) -> Floats:
    """The least number of steps to success of each state (n,), if every action has its likeliest outcome.

    So a lucky win is no short way. inf where no success can be had in this manner.
    """
    likely = likeliest(successor, probability)
    known = np.full(len(successor) + 2, np.inf)
    known[-2] = 0.0
    while True:
        best: Floats = 1.0 + np.where(admissible, known[likely], np.inf).min(axis=1)
        if np.array_equal(best, known[:-2]):
            return best
        known[:-2] = best


def likeliest(successor: Ints, probability: Floats) -> Ints:
    """The successor of the likeliest outcome of each action (n, A); the first one if there are several."""
    after: Ints = np.take_along_axis(successor, probability.argmax(axis=2)[..., None], axis=2)[..., 0]
    return after
