"""One training of several runs by one estimator: play, credit, learn, and now and then the exact success."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from anchors import EmpiricalProcess, InternedRollouts
from anchors.columns import Floats, Ints
from crbc_lab.studies.estimators import ORACLE, Estimator
from crbc_lab.studies.learning.agents import Agents
from crbc_lab.studies.learning.processes import Played
from crbc_rl.config.extensions import load
from crbc_rl.credit.api import Method
from crbc_rl.credit.metrics import NO_SLOPE
from crbc_rl.credit.trust import pooled

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
    found, credit = [agents.success()], Credit(estimator, agents)
    for update in range(1, budget.updates + 1):
        played = agents.play(budget.group_size)
        advantages = credit(played)
        if budget.alike:
            advantages = scaled(advantages, played)
        agents.learn(played, advantages, rate * (1.0 - (update - 1) / budget.updates))
        if update % EVERY == 0 or update == budget.updates:
            found.append(agents.success())
    return np.stack(found)


def found(method: str | Method) -> str | Method:
    """A method itself, or that of "module:attribute", which worker processes look up by themselves."""
    if not isinstance(method, str) or ":" not in method:
        return method
    own: Method = load(method, {}, "--method")
    return own


class Credit:
    """What an estimator gives each step, each run by itself. With `trust` it has every run's slope in mind, as the
    learner does. `ORACLE` and `SHUFFLED` are no methods of the library."""

    def __init__(self, estimator: Estimator, agents: Agents) -> None:
        self._agents, self._mixed = agents, estimator.method == SHUFFLED
        method = "crbc" if self._mixed else found(estimator.method)
        self._estimator = replace(estimator, method=method)
        trusts = estimator.options.get("trust") is not None
        self._slopes = [NO_SLOPE if trusts else None for _ in agents.generators]

    def __call__(self, played: Played) -> Floats:
        """The advantage of every step, (n,)."""
        if self._estimator.method == ORACLE:
            return truth(self._agents, played)
        return np.concatenate([self._of(run, rollouts) for run, rollouts in enumerate(played.rollouts)])

    def _of(self, run: int, rollouts: InternedRollouts) -> Floats:
        process, estimator, slope = EmpiricalProcess.from_interned(rollouts), self._estimator, self._slopes[run]
        if slope is not None:
            estimator = replace(estimator, options={**estimator.options, "trust": slope})
            self._slopes[run] = pooled(slope, process, estimator.options)
        values = estimator.values(process, self._agents.processes.horizon)
        if not self._mixed:
            return values
        return shuffled(values, rollouts.group[rollouts.rollout], self._agents.generators[run])


def truth(agents: Agents, played: Played) -> Floats:
    """Q_t - V_t of each step under its run's own policy, of which only the processes that it played are asked."""
    processes, found = agents.processes, np.empty(len(played.run))
    for run in range(len(agents.generators)):
        own = np.flatnonzero(played.run == run)
        states = processes.beside(played.state[own])
        policy = np.zeros((len(processes), processes.num_actions))
        policy[states] = agents.chances(np.full(len(states), run), states)
        found[own] = processes.advantages(policy, played.state[own], played.action[own], played.step[own])
    return found


def shuffled(values: Floats, group: Ints, rng: np.random.Generator) -> Floats:
    """The values with those of each group in another order."""
    found = np.empty(len(values))
    found[np.argsort(group, kind="stable")] = values[np.lexsort((rng.random(len(values)), group))]
    return found


def scaled(values: Floats, played: Played) -> Floats:
    """Each run's values with a root mean square of 1."""
    count = np.maximum(np.bincount(played.run), 1)
    size = np.sqrt(np.bincount(played.run, values**2) / count)
    return values / np.where(size > 0.0, size, 1.0)[played.run]
