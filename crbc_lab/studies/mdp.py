"""Finite Markov decision processes with a horizon: the worlds in which the true credit is known.

`evaluate` has the exact credit and the exact policy gradient of a behaviour, `sample` draws rollout groups as columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anchors import InternedRollouts, sum_by
from anchors.columns import Bools, Floats, Ints, places

TINY = 1e-9
"""A true advantage below this counts as zero, such as that of every action at a dead end."""
_BY_DEFAULT: Any = None
"""A field that `TabularMDP` fills in where it is not given."""


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """n states, A actions, at most B outcomes of an action. State 0 is the start; n is success and n + 1 failure.

    `successor` (n, A, B) and `probability` (n, A, B): the outcomes of each action and their chances; a chance of zero
    fills up. `horizon`: the steps after which an episode is cut. `anchor` (n,): what the agent sees of each state, by
    default the state itself; two states with one anchor are aliased. `admissible` (n, A): which actions exist.
    `distance` (n,): the least number of steps to success, inf where there is none; behaviours use it. `marks` names
    steps of interest as (state, action) masks, such as "bad" and "repair".

    Raises `ValueError` for chances that do not add up to one, and for anchors with gaps between their numbers.
    """

    successor: Ints
    probability: Floats
    horizon: int
    anchor: Ints = _BY_DEFAULT
    admissible: Bools = _BY_DEFAULT
    distance: Floats = _BY_DEFAULT
    marks: dict[str, Bools] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, actions = self.successor.shape[:2]
        for name, value in (
            ("anchor", np.arange(n)),
            ("admissible", np.ones((n, actions), dtype=np.bool_)),
            ("distance", np.full(n, np.inf)),
        ):
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        off = np.abs(self.probability.sum(axis=2) - 1.0) > TINY
        if self.probability.min() < 0.0 or off[self.admissible].any():
            raise ValueError("probability: the chances of each admissible action are not negative and add up to 1")
        if not np.array_equal(np.unique(self.anchor), np.arange(self.num_anchors)):
            raise ValueError("anchor: anchors are numbered 0, 1, ... without gaps")

    def __len__(self) -> int:
        return len(self.successor)

    @property
    def num_anchors(self) -> int:
        return int(self.anchor.max()) + 1

    @property
    def num_actions(self) -> int:
        return self.successor.shape[1]


# ---- the truth of one behaviour ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """The true values of a behaviour, with O anchors and H the horizon.

    `success`: J, the probability of success. `credit` (O, A): Q_t - V_t at an anchor, averaged over the times and the
    states that the anchor may stand for, each weighted by how often the behaviour is there; zero where it never is.
    `gradient` (O, A): the derivative of J by the logits of a softmax policy over actions at each anchor. `idle` (H, n):
    the times and states at which no admissible action changes the value.
    """

    success: float
    credit: Floats
    gradient: Floats
    idle: Bools


def visits(mdp: TabularMDP, policy: Floats) -> Floats:
    """d_t(s), the probability of being at state s at step t, (H, n)."""
    n = len(mdp)
    d = np.zeros((mdp.horizon, n))
    d[0, 0] = 1.0
    step = policy[..., None] * mdp.probability
    for t in range(1, mdp.horizon):
        d[t] = sum_by(mdp.successor.ravel(), (d[t - 1][:, None, None] * step).ravel(), n + 2)[:n]
    return d


def evaluate(mdp: TabularMDP, policy: Floats) -> Truth:
    """The truth of a policy (n, A), by a forward recursion for d_t and a backward one for Q_t and V_t.

    The states of one anchor may differ in their policy only where they differ in their admissible actions: the logits
    belong to the anchor.
    """
    n, d = len(mdp), visits(mdp, policy)
    V = np.zeros(n + 2)
    V[n] = 1.0
    total = np.zeros((n, mdp.num_actions))
    idle = np.empty((mdp.horizon, n), dtype=np.bool_)
    for t in reversed(range(mdp.horizon)):
        Q = (mdp.probability * V[mdp.successor]).sum(axis=2)
        value = (policy * Q).sum(axis=1)
        effect = np.where(mdp.admissible, Q - value[:, None], 0.0)
        total += d[t][:, None] * effect
        idle[t] = np.abs(effect).max(axis=1) < TINY
        V[:n] = value
    mass = sum_by(mdp.anchor, d.sum(axis=0), mdp.num_anchors)
    credit = by_anchor(mdp, total) / np.where(mass > 0.0, mass, 1.0)[:, None]
    return Truth(float(V[0]), credit, by_anchor(mdp, policy * total), idle)


def by_anchor(mdp: TabularMDP, values: Floats) -> Floats:
    """The sum of `values` (n, A) over the states of each anchor, (O, A)."""
    total = np.zeros((mdp.num_anchors, mdp.num_actions))
    np.add.at(total, mdp.anchor, values)
    return total


# ---- rollouts ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The rollouts of many groups, and per step what the agent does not see or know: the `state` (n,), and `anchor` and
    `action` (n,) by their numbers in the process they were drawn from."""

    rollouts: InternedRollouts
    state: Ints
    anchor: Ints
    action: Ints


def sample(plays: Sequence[tuple[TabularMDP, Floats, np.random.Generator]], groups: int, group_size: int) -> Sample:
    """Draw `groups` x `group_size` rollouts of each process under its policy, one process after the other.

    A rollout that reaches neither success nor failure within the horizon is truncated, and its final anchor is known.
    The draws of a process depend on its own generator only.
    """
    columns: dict[str, list[Ints]] = {name: [] for name in ("state", "own", "anchor", "action", *_PER_ROLLOUT)}
    offset = 0
    for mdp, policy, rng in plays:
        states, actions = _draw(mdp, policy, groups * group_size, rng)
        n, horizon = len(mdp), mdp.horizon
        inside = states[:, :horizon] < n
        final = states[:, horizon]
        state = states[:, :horizon][inside]
        # Anchors never match across groups.
        first = offset + mdp.num_anchors * (np.arange(groups * group_size) // group_size)
        cut = final < n
        columns["state"].append(state)
        columns["own"].append(mdp.anchor[state])
        columns["anchor"].append(mdp.anchor[state] + np.repeat(first, inside.sum(axis=1)))
        columns["action"].append(actions[inside])
        columns["length"].append(inside.sum(axis=1))
        columns["success"].append((final == n).astype(np.int64))
        columns["truncated"].append(cut.astype(np.int64))
        columns["final_anchor"].append(np.where(cut, mdp.anchor[np.where(cut, final, 0)] + first, -1))
        offset += groups * mdp.num_anchors
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    return Sample(
        InternedRollouts(
            **places(joined["length"]),
            anchor=joined["anchor"],
            action=joined["action"],
            group=np.repeat(np.arange(len(plays) * groups), group_size),
            success=joined["success"],
            truncated=joined["truncated"],
            final_anchor=joined["final_anchor"],
        ),
        joined["state"],
        joined["own"],
        joined["action"],
    )


_PER_ROLLOUT = ("length", "success", "truncated", "final_anchor")


def _draw(mdp: TabularMDP, policy: Floats, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """The states (m, H + 1) of m rollouts, with the ends n and n + 1 repeated, and their actions (m, H)."""
    n = len(mdp)
    act, lead = _bounds(policy), _bounds(mdp.probability)
    states = np.empty((count, mdp.horizon + 1), dtype=np.int64)
    actions = np.zeros((count, mdp.horizon), dtype=np.int64)
    states[:, 0] = 0
    for t, (which, luck) in enumerate(rng.random((mdp.horizon, 2, count))):
        live = np.flatnonzero(states[:, t] < n)
        here = states[live, t]
        action = (which[live, None] >= act[here]).sum(axis=1)
        outcome = (luck[live, None] >= lead[here, action]).sum(axis=1)
        actions[live, t] = action
        states[:, t + 1] = states[:, t]
        states[live, t + 1] = mdp.successor[here, action, outcome]
    return states, actions


def _bounds(chances: Floats) -> Floats:
    """Cumulated chances that end with exactly 1: a uniform draw below 1 never picks a chance of zero."""
    total = np.cumsum(chances, axis=-1)
    return total / np.where(total[..., -1:] > 0.0, total[..., -1:], 1.0)
