"""Rollout groups of tabular processes, drawn as columns of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchors import InternedRollouts
from anchors.columns import places
from crbc_lab.studies.mdp import TabularMDP

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The rollouts of many groups, and per step what the agent does not see or know: the `state` (n,), and `anchor` and
    `action` (n,) by their numbers in the process they were drawn from."""

    rollouts: InternedRollouts
    state: Ints
    anchor: Ints
    action: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """m rollouts: `states` (m, H + 1), with the ends n and n + 1 repeated, and `actions` (m, H)."""

    states: Ints
    actions: Ints


def sample(plays: Sequence[tuple[TabularMDP, Floats, np.random.Generator]], groups: int, group_size: int) -> Sample:
    """Draw `groups` x `group_size` rollouts of each process under its policy, one process after the other.

    A rollout that reaches neither success nor failure within the horizon is truncated, and its final anchor is known.
    The draws of a process depend on its own generator only.
    """
    columns: dict[str, list[Ints]] = {name: [] for name in ("state", "own", "anchor", "action", *_PER_ROLLOUT)}
    offset = 0
    for mdp, policy, rng in plays:
        drawn = _draw(mdp, policy, groups * group_size, rng)
        n, horizon = len(mdp), mdp.horizon
        inside = drawn.states[:, :horizon] < n
        final = drawn.states[:, horizon]
        state = drawn.states[:, :horizon][inside]
        # Anchors never match across groups.
        first = offset + mdp.num_anchors * (np.arange(groups * group_size) // group_size)
        cut = final < n
        columns["state"].append(state)
        columns["own"].append(mdp.anchor[state])
        columns["anchor"].append(mdp.anchor[state] + np.repeat(first, inside.sum(axis=1)))
        columns["action"].append(drawn.actions[inside])
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


def _draw(mdp: TabularMDP, policy: Floats, count: int, rng: np.random.Generator) -> _Drawn:
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
    return _Drawn(states, actions)


def _bounds(chances: Floats) -> Floats:
    """Cumulated chances that end with exactly 1: a uniform draw below 1 never picks a chance of zero."""
    total = np.cumsum(chances, axis=-1)
    return total / np.where(total[..., -1:] > 0.0, total[..., -1:], 1.0)
