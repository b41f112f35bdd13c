"""Agents without a language model, several runs at once: tables over anchors, and small networks that read a board."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from anchors.columns import Floats, Ints
from crbc_lab.studies.learning.processes import Played, Processes, play
from crbc_rl.config import LossConfig
from crbc_rl.training.loss import clipped_surrogate

LOSS = LossConfig()
"""The learner's clipped objective with its defaults."""
EPOCHS = 4
"""Steps that a table takes on the rollouts of an update."""
MINIBATCH = 256
"""Steps of the environment that a network takes a step on, once each in an update."""


class Agents(Protocol):
    """S runs that learn side by side, with weights and random numbers of their own. None depends on another."""

    processes: Processes
    """Those that are played."""
    generators: Sequence[np.random.Generator]
    """One for each run."""

    def play(self, group_size: int) -> Played:
        """The rollouts of an update."""

    def learn(self, played: Played, advantages: Floats, rate: float) -> None:
        """An update by the learner's clipped objective, with an advantage for each step (n,)."""

    def chances(self, run: Ints, state: Ints) -> Floats:
        """The chance of each action in states of `processes` by the policies of runs, both (m,): (m, A)."""

    def success(self) -> Floats:
        """The exact success in each process that is tested, (S, I)."""


def surrogate(logprob: Tensor, old: Tensor, advantages: Tensor) -> Tensor:
    """The sum of the clipped objective over steps; `logprob`, `old` and `advantages` are (n,)."""
    return clipped_surrogate((logprob - old).exp(), advantages, LOSS).sum()


class Tables:
    """A softmax over actions for each anchor: every run plays all processes in each update, and is tested in them."""

    def __init__(self, processes: Processes, logits: Floats, generators: Sequence[np.random.Generator]) -> None:
        """`logits` (O, A) are those that all runs begin with."""
        self.processes, self.generators = processes, generators
        self.logits = torch.from_numpy(logits).repeat(len(generators), 1, 1)
        self._admissible = torch.from_numpy(processes.admissible)
        self._anchor = torch.from_numpy(processes.anchor)
        self._tasks = np.tile(np.arange(len(processes.each)), (len(generators), 1))

    def play(self, group_size: int) -> Played:
        return play(self.processes, self._tasks, group_size, self.chances, self.generators)

    def learn(self, played: Played, advantages: Floats, rate: float) -> None:
        # Rows that no rollout came to keep their logits: only the others are read.
        place = played.run * self.processes.num_anchors + self.processes.anchor[played.state]
        seen, row = (torch.from_numpy(found) for found in np.unique(place, return_inverse=True))
        action, signal = torch.from_numpy(played.action), torch.from_numpy(advantages)
        barred = ~self._admissible[played.state]
        table, old = self.logits.view(-1, self.logits.shape[2]), None
        logits = table[seen]
        for _ in range(EPOCHS):
            logits.requires_grad_()
            chances = logits[row].masked_fill(barred, -torch.inf).log_softmax(dim=1)
            taken = chances.gather(1, action[:, None])[:, 0]
            old = taken.detach() if old is None else old
            (gradient,) = torch.autograd.grad(surrogate(taken, old, signal) / played.group_size, logits)
            logits = logits.detach() + rate * gradient
        table[seen] = logits

    def success(self) -> Floats:
        everywhere = np.arange(len(self.processes))
        runs = (np.full(len(everywhere), run) for run in range(len(self.generators)))
        return np.stack([self.processes.success(self.chances(run, everywhere)) for run in runs])

    def chances(self, run: Ints, state: Ints) -> Floats:
        logits = self.logits[run, self._anchor[state]].masked_fill(~self._admissible[state], -torch.inf)
        chances: Floats = logits.log_softmax(dim=1).exp().numpy()
        return chances


class Networks:
    """Two hidden layers that read `features` of a state. Each run plays processes that it draws, and is tested in
    others."""

    def __init__(
        self,
        network: torch.nn.Module,
        trained: tuple[Processes, Tensor],
        tested: tuple[Processes, Tensor],
        tasks: int,
        generators: Sequence[np.random.Generator],
    ) -> None:
        """All runs begin as `network`. `trained` and `tested` are processes and the features of their states, (N, D).
        `tasks` processes are drawn in an update."""
        (self.processes, self._features), (self._tested, features) = trained, tested
        far = np.concatenate([process.distance for process in self._tested.each])
        self._open = np.flatnonzero(far <= self._tested.horizon)  # in most states of boards no chance matters any more
        self._seen = features[self._open]
        self.generators, self._tasks = generators, tasks
        self._networks = [deepcopy(network) for _ in generators]
        self._optimizers = [torch.optim.Adam(one.parameters()) for one in self._networks]

    def play(self, group_size: int) -> Played:
        count = len(self.processes.each)
        tasks = np.stack([rng.integers(count, size=self._tasks) for rng in self.generators])
        return play(self.processes, tasks, group_size, self.chances, self.generators)

    def learn(self, played: Played, advantages: Floats, rate: float) -> None:
        for run, rng in enumerate(self.generators):
            rows = rng.permutation(np.flatnonzero(played.run == run))
            network, optimizer = self._networks[run], self._optimizers[run]
            for group in optimizer.param_groups:
                group["lr"] = rate
            states, actions = (torch.from_numpy(column[rows]) for column in (played.state, played.action))
            signal = torch.from_numpy(advantages[rows]).float()
            with torch.no_grad():
                old = self._taken(network, states, actions)
            for part in torch.arange(len(rows)).split(MINIBATCH):
                taken = self._taken(network, states[part], actions[part])
                loss = -surrogate(taken, old[part], signal[part]) / len(part)
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()

    def success(self) -> Floats:
        policies = np.zeros((len(self.generators), len(self._tested), self._tested.num_actions))
        for run, policy in enumerate(policies):
            policy[self._open] = self._everywhere(run, self._seen)
        return np.stack([self._tested.success(policy) for policy in policies])

    def _taken(self, network: torch.nn.Module, states: Tensor, actions: Tensor) -> Tensor:
        logits: Tensor = network(self._features[states])
        return logits.log_softmax(dim=1).gather(1, actions[:, None])[:, 0]

    def _everywhere(self, run: int, features: Tensor) -> Floats:
        with torch.no_grad():
            chances: Floats = self._networks[run](features).softmax(dim=1).double().numpy()
        return chances

    def chances(self, run: Ints, state: Ints) -> Floats:
        """The runs come one after the other."""
        ends = np.searchsorted(run, np.arange(len(self.generators) + 1))
        parts = [
            self._everywhere(one, self._features[state[low:high]]) for one, (low, high) in enumerate(pairwise(ends))
        ]
        return np.concatenate(parts)
