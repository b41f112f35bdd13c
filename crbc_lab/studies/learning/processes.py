"""Many finite processes side by side: their rollouts under many policies at once, and the exact success of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from anchors import InternedRollouts
from anchors.columns import Bools, Floats, Ints, places
from crbc_lab.studies.mdp import TabularMDP

Chances = Callable[[Ints, Ints], Floats]
"""(run, state), each (m,) -> the chance of each action there, (m, A)."""


@dataclass(frozen=True, slots=True, eq=False)
class Processes:
    """I processes of one horizon with N states and O anchors together. State N is success and N + 1 failure.

    `successor` and `probability` (N, A, B), `admissible` (N, A) and `anchor` (N,) are as in `TabularMDP`; `start` (I,)
    has the first state of each process. `each` are the processes themselves.
    """

    each: Sequence[TabularMDP]
    successor: Ints
    probability: Floats
    admissible: Bools
    anchor: Ints
    start: Ints
    horizon: int

    @classmethod
    def of(cls, each: Sequence[TabularMDP]) -> Processes:
        """Raises `ValueError` for processes of several horizons."""
        if len({mdp.horizon for mdp in each}) != 1:
            raise ValueError("processes that are played side by side have one horizon")
        sizes = np.array([mdp.successor.shape for mdp in each])
        n, (actions, width) = int(sizes[:, 0].sum()), sizes[:, 1:].max(axis=0)
        successor = np.full((n, actions, width), n + 1)
        probability, admissible = np.zeros(successor.shape), np.zeros((n, actions), dtype=np.bool_)
        first = np.append(0, np.cumsum(sizes[:, 0]))
        seen = np.append(0, np.cumsum([mdp.num_anchors for mdp in each]))
        for mdp, low, high in zip(each, first, first[1:], strict=False):
            box = np.s_[low:high, : mdp.num_actions, : mdp.successor.shape[2]]
            inside = mdp.successor < len(mdp)
            successor[box] = np.where(inside, mdp.successor + low, mdp.successor - len(mdp) + n)
            probability[box] = mdp.probability
            admissible[low:high, : mdp.num_actions] = mdp.admissible
        anchor = np.concatenate([mdp.anchor + begin for mdp, begin in zip(each, seen, strict=False)])
        return cls(each, successor, probability, admissible, anchor, first[:-1], each[0].horizon)

    def __len__(self) -> int:
        return len(self.anchor)

    @property
    def num_anchors(self) -> int:
        return int(self.anchor.max()) + 1

    @property
    def num_actions(self) -> int:
        return self.admissible.shape[1]

    def beside(self, state: Ints) -> Ints:
        """All states of the processes that these states are of."""
        process = np.repeat(np.arange(len(self.each)), np.diff(np.append(self.start, len(self))))
        return np.flatnonzero(np.isin(process, process[state]))

    def success(self, policy: Floats) -> Floats:
        """The exact success of a policy (N, A) in each process, (I,)."""
        for V in self._backwards(policy):
            success: Floats = V[self.start]
        return success

    def advantages(self, policy: Floats, state: Ints, action: Ints, step: Ints) -> Floats:
        """The exact Q_t - V_t of every visit (n,), at step t of its episode, under a policy (N, A)."""
        found = np.empty(len(state))
        after = np.append(np.zeros(len(self)), [1.0, 0.0])
        for left, V in enumerate(self._backwards(policy), 1):
            here = np.flatnonzero(step == self.horizon - left)
            s, a = state[here], action[here]
            found[here] = (self.probability[s, a] * after[self.successor[s, a]]).sum(axis=1) - V[s]
            after = V
        return found

    def _backwards(self, policy: Floats) -> Iterator[Floats]:
        """The value of every state with 1, 2, ... steps left, (N + 2,)."""
        n = len(self)
        ways = np.flatnonzero(self.probability)
        first = np.append(0, np.count_nonzero(self.probability, axis=(1, 2)).cumsum())
        chance = (policy[..., None] * self.probability).ravel()[ways]
        steps = csr_array((chance, self.successor.ravel()[ways], first), shape=(n, n + 2))
        V = np.append(np.zeros(n), [1.0, 0.0])
        for _ in range(self.horizon):
            V = np.append(steps @ V, [1.0, 0.0])
            yield V


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """One update of S runs: the `rollouts` of each, in groups of `group_size`, and per step (n,) of all runs, one after
    the other, its `run`, `state`, `action` and `step` of the episode."""

    rollouts: tuple[InternedRollouts, ...]
    group_size: int
    run: Ints
    state: Ints
    action: Ints
    step: Ints


def play(
    processes: Processes, tasks: Ints, group_size: int, chances: Chances, generators: Sequence[np.random.Generator]
) -> Played:
    """A group of `group_size` rollouts of each of `tasks` (S, T), the processes that each of S runs plays.

    The draws of a run are its own generator's, so they do not depend on the runs beside it.
    """
    runs, each = tasks.shape
    count, horizon, n = each * group_size, processes.horizon, len(processes)
    bounds, lead = np.cumsum(processes.probability, axis=2), np.empty((2, horizon, runs * count))
    for one, rng in enumerate(generators):
        lead[:, :, one * count : (one + 1) * count] = rng.random((2, horizon, count))
    run = np.repeat(np.arange(runs), count)
    states = np.empty((runs * count, horizon + 1), dtype=np.int64)
    actions = np.zeros((runs * count, horizon), dtype=np.int64)
    states[:, 0] = np.repeat(processes.start[tasks.ravel()], group_size)
    for t in range(horizon):
        live = np.flatnonzero(states[:, t] < n)
        here = states[live, t]
        action = picked(np.cumsum(chances(run[live], here), axis=1), lead[0, t, live])
        actions[live, t] = action
        states[:, t + 1] = states[:, t]
        outcome = picked(bounds[here, action], lead[1, t, live])
        states[live, t + 1] = processes.successor[here, action, outcome]
    inside = states[:, :horizon] < n
    rollouts = tuple(_interned(processes, states[run == one], actions[run == one], group_size) for one in range(runs))
    step = np.broadcast_to(np.arange(horizon), inside.shape)[inside]
    return Played(
        rollouts, group_size, run.repeat(inside.sum(axis=1)), states[:, :horizon][inside], actions[inside], step
    )


def _interned(processes: Processes, states: Ints, actions: Ints, group_size: int) -> InternedRollouts:
    """The rollouts of one run, from their states (m, H + 1) with the ends repeated, and actions (m, H)."""
    n, horizon = len(processes), processes.horizon
    inside, final = states[:, :horizon] < n, states[:, horizon]
    group = np.arange(len(states)) // group_size
    cut = final < n
    at = places(inside.sum(axis=1))
    # Anchors never match across groups, of which two may be of one process.
    first = group * processes.num_anchors
    return InternedRollouts(
        **at,
        anchor=processes.anchor[states[:, :horizon][inside]] + first[at["rollout"]],
        action=actions[inside],
        group=group,
        success=final == n,
        truncated=cut,
        final_anchor=np.where(cut, processes.anchor[np.where(cut, final, 0)] + first, -1),
    )


def picked(bounds: Floats, lead: Floats) -> Ints:
    """The numbers that uniform draws `lead` (m,) pick from cumulated chances (m, A), of which the last is about 1."""
    total = bounds[:, -1:]
    choice: Ints = (lead[:, None] * total >= bounds).sum(axis=1)
    return choice
