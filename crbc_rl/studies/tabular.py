"""Sokoban rooms as finite Markov decision processes: exact values, and fast sampling of rollout groups.

A one-box room has at most a few hundred reachable states. So the true action values of any behaviour policy are a
backward recursion, without estimation. States and moves are integers here; the rules are those of `crbc_envs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from anchors import Rollout, RolloutGroup, Step, sum_by
from crbc_envs.sokoban.rules import MOVES, Room, State
from crbc_envs.sokoban.solver import distances

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HORIZON = 15
"""The longest episode in steps, as in CRBC-Sokoban-v0."""

FAR = 6
"""The largest loss of a move in steps: larger losses and dead ends count as this (soft policies)."""


@dataclass(frozen=True, eq=False)
class TabularRoom:
    """One room with n reachable unsolved states; state 0 is the start, n is "solved".

    `successor` (n, 4): the state after each of `MOVES`. `distance` (n + 1,): moves to a solution, inf at
    a dead end, 0 at n.
    """

    successor: Ints
    distance: Floats

    @classmethod
    def of(cls, room: Room) -> TabularRoom:
        found: dict[State, int] = {room.start: 0}
        rows: list[list[State]] = []
        queue = [room.start]
        for state in queue:  # breadth first: the queue grows during the loop
            rows.append([room.move(state, move) for move in MOVES])
            for after in rows[-1]:
                if after not in found and not room.solved(after):
                    found[after] = len(queue)
                    queue.append(after)
        solved = len(queue)
        known = distances(room)
        return cls(
            np.array([[found.get(after, solved) for after in row] for row in rows], dtype=np.int64),
            np.array([*(known.get(state, np.inf) for state in queue), 0.0]),
        )

    def __len__(self) -> int:
        return len(self.successor)

    @cached_property
    def gap(self) -> Floats:
        """The number of steps that each move loses compared with the best one, at most `FAR`, shape (n, 4)."""
        after = self.distance[self.successor]
        best = after.min(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):  # inf - inf: at a dead end no move is better than another
            lost = np.where(np.isinf(best), 0.0, after - best)
        return np.minimum(lost, FAR)

    @cached_property
    def steps(self) -> list[list[Step]]:
        """The `Step` of every state and move; the anchor's key is the state's number."""
        return [[Step(str(state), move) for move in MOVES] for state in range(len(self))]


def mixture(room: TabularRoom, optimal: float) -> Floats:
    """Behaviour (n, 4): a best move with probability `optimal`, any move at random otherwise."""
    best = (room.gap == 0.0).astype(np.float64)
    policy: Floats = (1.0 - optimal) / len(MOVES) + optimal * best / best.sum(axis=1, keepdims=True)
    return policy


def soft(room: TabularRoom, skill: float, rng: np.random.Generator) -> Floats:
    """Behaviour (n, 4): softmax(-skill gap + N(0, 1)); the noise is drawn once per state and move."""
    logits = -skill * room.gap + rng.standard_normal(room.gap.shape)
    weight: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    return weight


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """The true values of a behaviour.

    `success` is J, the probability of success within `HORIZON` steps from the start. `A` (n, 4) is the advantage
    Q_t - V_t, averaged over the times t at which the behaviour is at the state; zero at states it never reaches.
    """

    success: float
    A: Floats


def evaluate(room: TabularRoom, behaviour: Floats) -> Truth:
    """Backward recursion for Q_t and V_t, forward recursion for the visit distribution d_t(s)."""
    size = len(room)
    V = np.zeros((HORIZON + 1, size + 1))  # by steps left
    V[:, size] = 1.0
    A = np.empty((HORIZON, size, len(MOVES)))
    for left in range(1, HORIZON + 1):
        Q = V[left - 1][room.successor]
        V[left, :size] = (behaviour * Q).sum(axis=1)
        A[left - 1] = Q - V[left, :size, None]
    here = np.zeros(size)
    here[0] = 1.0
    weighted, mass = np.zeros((size, len(MOVES))), np.zeros(size)
    for left in range(HORIZON, 0, -1):
        weighted += here[:, None] * A[left - 1]
        mass += here
        flow = here[:, None] * behaviour
        here = sum_by(room.successor.ravel(), flow.ravel(), size + 1)[:size]
    return Truth(float(V[HORIZON, 0]), weighted / np.where(mass > 0.0, mass, 1.0)[:, None])


def success_rates(room: TabularRoom, behaviours: Floats) -> Floats:
    """J of many behaviours at once: (E, n, 4) to (E,)."""
    V = np.zeros((len(behaviours), len(room) + 1))
    V[:, -1] = 1.0
    for _ in range(HORIZON):
        V[:, :-1] = (behaviours * V[:, room.successor]).sum(axis=2)
    return V[:, 0]


def sample_groups(
    room: TabularRoom, behaviour: Floats, groups: int, group_size: int, rng: np.random.Generator
) -> list[RolloutGroup]:
    """Sample `groups` x `group_size` rollouts in parallel from the start, at most `HORIZON` steps each."""
    count = groups * group_size
    bound = np.cumsum(behaviour, axis=1)[:, :-1]
    states = np.full((count, HORIZON + 1), len(room), dtype=np.int64)
    moves = np.zeros((count, HORIZON), dtype=np.int64)
    states[:, 0] = 0
    for t, draw in enumerate(rng.random((HORIZON, count))):
        live = np.flatnonzero(states[:, t] < len(room))
        here = states[live, t]
        moves[live, t] = (draw[live, None] > bound[here]).sum(axis=1)
        states[live, t + 1] = room.successor[here, moves[live, t]]
    length = (states[:, :HORIZON] < len(room)).sum(axis=1)
    success = states[:, HORIZON] == len(room)
    rollouts = [
        Rollout(
            [room.steps[s][a] for s, a in zip(visited[:n], taken[:n], strict=True)],
            success=won,
            truncated=not won,
            final_anchor=None if won else str(visited[HORIZON]),
        )
        for visited, taken, n, won in zip(
            states.tolist(), moves.tolist(), length.tolist(), success.tolist(), strict=True
        )
    ]
    return [RolloutGroup(rollouts[i : i + group_size]) for i in range(0, count, group_size)]
