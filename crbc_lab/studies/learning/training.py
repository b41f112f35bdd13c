"""One training of several runs by one estimator, and the settings in which it happens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchors import EmpiricalProcess
from crbc_lab.studies.estimators import ORACLE, Estimator
from crbc_lab.studies.learning.agents import Agents
from crbc_lab.studies.learning.processes import Played

Floats = NDArray[np.float64]

SHUFFLED = "shuffled"
"""CRBC's credit, exchanged at random among the steps of its group: what remains if it says nothing of a step."""
EVERY = 5
"""Updates between two evaluations."""


@dataclass(frozen=True, slots=True)
class Budget:
    """`updates` of a training, each with groups of `group_size`. With `alike`, every run's advantages are divided by
    their root mean square in the update, so that all estimators have one scale."""

    updates: int = 40
    group_size: int = 8
    alike: bool = False


def train(agents: Agents, estimator: Estimator, rate: float, budget: Budget) -> Floats:
    """Learn at a rate that falls to 0. Returns the exact success of every run in every tested process at the start,
    after every `EVERY` updates and at the end, (E, S, I)."""
    found = [agents.success()]
    for update in range(1, budget.updates + 1):
        played = agents.play(budget.group_size)
        advantages = credit_of(estimator, agents, played)
        if budget.alike:
            advantages = scaled(advantages, played)
        agents.learn(played, advantages, rate * (1.0 - (update - 1) / budget.updates))
        if update % EVERY == 0 or update == budget.updates:
            found.append(agents.success())
    return np.stack(found)


def credit_of(estimator: Estimator, agents: Agents, played: Played) -> Floats:
    """The advantage of every step, (n,). `ORACLE` and `SHUFFLED` are no methods of the library."""
    if estimator.method == ORACLE:
        return truth(agents, played)
    process = EmpiricalProcess.from_interned(played.rollouts)
    if estimator.method == SHUFFLED:
        values = Estimator(SHUFFLED, "crbc", estimator.options).values(process, agents.processes.horizon)
        return shuffled(values, agents, played)
    return estimator.values(process, agents.processes.horizon)


def truth(agents: Agents, played: Played) -> Floats:
    """Q_t - V_t of each step under its run's own policy."""
    found = np.empty(len(played.run))
    for run in range(len(agents.generators)):
        own = np.flatnonzero(played.run == run)
        columns = (column[own] for column in (played.state, played.action, played.step))
        found[own] = agents.processes.advantages(agents.policy(run), *columns)
    return found


def shuffled(values: Floats, agents: Agents, played: Played) -> Floats:
    """The values with those of each group in another order, drawn by the group's run."""
    group = played.rollouts.group[played.rollouts.rollout]
    lead = np.empty(len(values))
    for run, rng in enumerate(agents.generators):
        own = played.run == run
        lead[own] = rng.random(int(own.sum()))
    found = np.empty(len(values))
    found[np.argsort(group, kind="stable")] = values[np.lexsort((lead, group))]
    return found


def scaled(values: Floats, played: Played) -> Floats:
    """Each run's values with a root mean square of 1."""
    count = np.maximum(np.bincount(played.run), 1)
    size = np.sqrt(np.bincount(played.run, values**2) / count)
    return values / np.where(size > 0.0, size, 1.0)[played.run]
