"""Exact values of FrozenLake: the expected sum of rewards, from the environment's own table of transitions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Table = Mapping[int, Mapping[int, list[tuple[float, int, float, bool]]]]
"""Gymnasium's `P`: of a cell and an action, (probability, next cell, reward, whether it ends) of each outcome."""

STILL = 1e-12
"""Actions whose values differ by less count as equally good."""


def model(P: Table) -> tuple[Floats, Floats]:
    """P as arrays: (cells, actions, cells), the way on without an end, and (cells, actions), the expected reward."""
    onward, reward = np.zeros((len(P), len(P[0]), len(P))), np.zeros((len(P), len(P[0])))
    for cell, actions in P.items():
        for action, outcomes in actions.items():
            for probability, after, gain, over in outcomes:
                reward[cell, action] += probability * gain
                onward[cell, action, after] += 0.0 if over else probability
    return onward, reward


def exact_q(P: Table, beta: float = 1.0, steps: int | None = None) -> Floats:
    """Q of the best play, (cells, actions). With `beta` 1 and a reward of 1 for the goal alone, it is the probability
    that the goal is reached.

    With `steps`, the episode ends after so many, and the best play knows how many are left: see `q_by_steps`. Without,
    they are unlimited: policies are improved until none is better, each evaluated by one linear system.

    Raises `ValueError` for a `beta` outside (0, 1], for negative `steps`, and for `beta` 1 without `steps` where a
    reward is below 0 or is given for ice: the values may then have no bound.
    """
    if not 0 < beta <= 1:
        raise ValueError(f"beta must be in (0, 1], got {beta}")
    if steps is not None:
        last: Floats = q_by_steps(P, steps, beta)[-1]
        return last
    outcomes = (outcome for actions in P.values() for listed in actions.values() for outcome in listed)
    if beta == 1 and any(gain < 0 or (gain > 0 and not over) for _, _, gain, over in outcomes):
        raise ValueError("with rewards below 0 or for ice, exact_q needs steps=, or a beta below 1")
    onward, reward = model(P)
    cells, policy = np.arange(len(reward)), np.zeros(len(reward), dtype=np.intp)
    while True:
        Q = reward + beta * (onward @ _value(onward, reward, policy, beta))
        better = Q.max(axis=1) > Q[cells, policy] + STILL
        if not better.any():
            return Q
        policy = np.where(better, Q.argmax(axis=1), policy)


def q_by_steps(P: Table, steps: int, beta: float = 1.0) -> Floats:
    """Q of the best play with 0, 1, ... `steps` steps left, (steps + 1, cells, actions). Raises `ValueError`."""
    if steps < 0:
        raise ValueError(f"steps must be at least 0, got {steps}")
    onward, reward = model(P)
    Q = np.zeros((steps + 1, *reward.shape))
    for left in range(steps):
        Q[left + 1] = reward + beta * (onward @ Q[left].max(axis=1))
    return Q


def _value(onward: Floats, reward: Floats, policy: NDArray[np.intp], beta: float) -> Floats:
    """V of a policy, (cells,). Cells from which it never gains or loses have 0, also where it goes on forever."""
    cells = np.arange(len(policy))
    M, r = onward[cells, policy], reward[cells, policy]
    gains = r != 0
    for _ in cells:
        gains |= (M @ gains) > 0
    V = np.zeros(len(policy))
    V[gains] = np.linalg.solve(np.eye(int(gains.sum())) - beta * M[np.ix_(gains, gains)], r[gains])
    return V
