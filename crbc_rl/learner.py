"""The learner: Algorithm 1 of the paper, one update at a time.

Read `Learner.step` beside the algorithm; the rest of this file is what makes it a run one can stop,
resume and look at.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from crbc_rl import credit
from crbc_rl.checkpoint import restore_trainer, save_checkpoint
from crbc_rl.config import TrainConfig
from crbc_rl.evaluate import Evaluation, evaluate
from crbc_rl.loss import policy_loss
from crbc_rl.metrics import Metrics
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.rollout import Sample, collect, open_groups
from crbc_rl.run import Run
from crbc_rl.tokens import TokenBatch, collate

Record = dict[str, Any]


class Watch:
    """What looks on while a run goes: override either."""

    def phase(self, name: str) -> None:
        """A phase of an update begins: "rollout", "credit", "train" or "eval"."""

    def record(self, record: Record) -> None:
        """An update has ended with these figures."""


class Learner:
    """Trains `policy` in place as `config` says, writing into `run`.

    `policy` starts as the run's last checkpoint where there is one, else as the config's model, which
    also is the frozen reference pi_ref.
    """

    def __init__(self, config: TrainConfig, run: Run, watch: Watch | None = None) -> None:
        torch.set_num_threads(config.threads)
        self.config = config
        self.run = run
        self.watch = watch or Watch()
        self.stopping = False
        """Set to end the run after the current update, with everything saved."""

        checkpoint = run.last_checkpoint()
        self.policy = TransformersPolicy.load(checkpoint or config.model)
        reference = TransformersPolicy.load(config.model) if checkpoint else copy.deepcopy(self.policy)
        reference.model.requires_grad_(False)
        self.reference = reference
        self.envs = open_groups(config, "train", config.rollout.num_groups, config.rollout.group_size)
        self.optimizer = torch.optim.AdamW(
            self.policy.model.parameters(), lr=config.optim.lr, weight_decay=config.optim.weight_decay
        )
        # Two streams are all the randomness there is: which tasks are played, and every token and shuffle.
        self.tasks = np.random.default_rng([config.seed, 0])
        self.generator = torch.Generator().manual_seed(config.seed)
        self.update = 0
        self.best = -math.inf
        if checkpoint:
            state = restore_trainer(checkpoint, self.optimizer, self.generator)
            self.update, self.best = state["update"], state["best"]
            self.tasks.bit_generator.state = state["tasks"]
        self.metrics = Metrics(run.folder, upto=self.update if checkpoint else -1)
        self.seconds: dict[str, float] = {}

    # ---- Algorithm 1 --------------------------------------------------------------------------

    def step(self) -> Record:
        """One update: group rollouts, the Bellman closure and its credit, the clipped objective."""
        # Lines 2 to 6: sample tasks, start G environments of each alike, collect complete rollouts.
        with self._timed("rollout"):
            sample = self._collect()

        # Lines 7 to 15: anchors into an empirical process, its closure, and the credit of every step.
        with self._timed("credit"):
            advantages = credit.advantages_batch(
                sample.interned, self.config.credit.method, **self.config.credit.options
            )

        # Line 17: with the advantages held fixed, maximise the clipped objective.
        with self._timed("train"):
            figures = self._optimise(sample, advantages)

        self.run.keep_group(self.update, _most_telling(sample))
        if self.config.record_every and self.update % self.config.record_every == 0:
            self.run.keep_rollouts(self.update, sample, self.policy)
        return {**_rollout_figures(sample), **figures}

    def _collect(self) -> Sample:
        settings = self.config.rollout
        return collect(
            self.envs,
            self.policy,
            self.tasks.integers(len(self.envs.panel), size=settings.num_groups).tolist(),
            # A function of the update, so that a resumed run needs no state of the environments.
            seed=int(np.random.SeedSequence([self.config.seed, self.update]).generate_state(1)[0]),
            prompt=self.config.env.prompt,
            temperature=settings.temperature,
            max_new_tokens=settings.max_new_tokens,
            generator=self.generator,
        )

    def _optimise(self, sample: Sample, advantages: list[list[np.ndarray]]) -> Record:
        """`epochs` passes over the groups in shuffled order, in mini-batches; the mean of each figure.

        Groups stay in one piece: their members repeat each other's turns, which a batch reads once.
        """
        settings = self.config.optim
        figures: list[dict[str, float]] = []
        for _ in range(settings.epochs):
            order = torch.randperm(len(sample.groups), generator=self.generator).tolist()
            turns = [turn for g in order for rollout in sample.turns[g] for turn in rollout]
            values = [float(a) for g in order for rollout in advantages[g] for a in rollout]
            for i in range(0, len(turns), settings.minibatch):
                rows = slice(i, i + settings.minibatch)
                figures.append(self._descend(collate(turns[rows], values[rows], self.policy.pad)))
        return {name: float(np.mean([f[name] for f in figures])) for name in figures[0]}

    def _descend(self, batch: TokenBatch) -> dict[str, float]:
        """One optimizer step; left out where the gradient is not finite."""
        temperature = self.config.rollout.temperature
        with torch.no_grad():
            reference = self.reference.logprobs(batch, temperature)[0] if self.config.loss.kl else None
        logprobs, entropy = self.policy.logprobs(batch, temperature)
        loss, figures = policy_loss(logprobs, entropy, reference, batch, self.config.loss)
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), self.config.optim.grad_clip)
        if torch.isfinite(norm):
            self.optimizer.step()
        return {
            **figures,
            "advantage_abs": batch.advantages.abs().mean().item(),
            "grad_norm": norm.item(),
            "skipped": float(not torch.isfinite(norm)),
        }

    # ---- the run around it --------------------------------------------------------------------

    def train(self) -> None:
        """Updates until `config.updates`, validating and saving on the way; picks up where it stood.

        Update 0 is the untrained policy's record: its validation and its test figures.
        """
        if self.update == 0 and self.run.last_checkpoint() is None:
            self._finish_update({**self._validate(), **self._test()})
        while self.update < self.config.updates and not self.stopping:
            self.update += 1
            record = self.step()
            last = self.update == self.config.updates
            if last or self.update % self.config.eval.every == 0:
                record |= self._validate()
            if last:
                record |= self._test()
            self._finish_update(record)
        self.metrics.close()
        self.envs.close()

    def _finish_update(self, record: Record) -> None:
        """Write the record, then the checkpoint it belongs to: a crash between the two costs the record,
        which the resumed run writes again."""
        record = {"update": self.update, **record, **{f"seconds/{k}": round(s, 4) for k, s in self.seconds.items()}}
        self.seconds = {}
        self.metrics.write(record)
        if record.get("validation/success", -math.inf) > self.best:
            self.best = record["validation/success"]
            self.run.keep_best(self.update, self.policy)
        due = self.update % self.config.save_every == 0
        if due or self.stopping or self.update == self.config.updates:
            state = {"best": self.best, "tasks": self.tasks.bit_generator.state}
            save_checkpoint(self.run.checkpoints, self.update, self.policy, self.optimizer, self.generator, state)
        self.watch.record(record)

    def _validate(self) -> Record:
        return self._evaluate("validation", self.config.eval.episodes)

    def _test(self) -> Record:
        return self._evaluate("test", self.config.eval.test_episodes)

    def _evaluate(self, split: str, episodes: int) -> Record:
        with self._timed("eval"):
            result: Evaluation = evaluate(self.policy, self.config, split, episodes, seed=self.config.seed)
        return {f"{split}/{name}": value for name, value in result.to_dict().items() if name != "split"}

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        self.watch.phase(phase)
        begun = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begun


def _rollout_figures(sample: Sample) -> Record:
    rollouts = [rollout for group in sample.groups for rollout in group.rollouts]
    steps = sum(len(rollout) for rollout in rollouts)
    return {
        "success": sum(rollout.success for rollout in rollouts) / len(rollouts),
        "reward": sum(rollout.reward for rollout in rollouts) / len(rollouts),
        "length": steps / len(rollouts),
        "invalid": sum(rollout.invalid for rollout in rollouts) / steps,
        "mixed_groups": sum(0 < group.success_rate < 1 for group in sample.groups) / len(sample.groups),
        "steps": steps,
    }


def _most_telling(sample: Sample) -> Any:
    """The group whose outcomes are the most mixed, for the report to draw."""
    return min(sample.groups, key=lambda group: abs(group.success_rate - 0.5))
