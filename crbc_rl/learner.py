"""The learner: Algorithm 1 of the paper, one update at a time.

Read `Learner.step` beside the algorithm; the rest of this file is what makes it a run one can stop,
resume and look at.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crbc_rl import credit
from crbc_rl.batches import Row
from crbc_rl.config import CRITIC, TrainConfig
from crbc_rl.distributed import World
from crbc_rl.rollout.collect import Sample, rng
from crbc_rl.rollout.worker import Players
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import Metrics
from crbc_rl.training.actor import Trainer
from crbc_rl.training.checkpoint import KEEP, publish, read_state
from crbc_rl.training.critic import Critic

Record = dict[str, Any]


class Watch:
    """What looks on while a run goes: override either."""

    def phase(self, name: str) -> None:
        """A phase of an update begins: "rollout", "credit", "train" or "eval"."""

    def record(self, record: Record) -> None:
        """An update has ended with these figures."""


class Learner:
    """Trains as `config` says, writing into `run`.

    The policy starts as the run's last checkpoint where there is one, else as the config's model, which
    also is the frozen reference pi_ref. In a `world` of several processes each has its own learner.
    """

    def __init__(self, config: TrainConfig, run: Run, watch: Watch | None = None, world: World | None = None) -> None:
        torch.set_num_threads(config.threads)
        self.config, self.run = config, run
        self.watch = watch or Watch()
        self.world = world or World()
        self.stopping = False
        """Set to end the run after the current update, with everything saved."""

        checkpoint = run.last_checkpoint()
        self.trainer = Trainer(config, self.world, checkpoint)
        self.players = Players(config, self.world, self.trainer)
        self.critic: Critic | None = None
        if config.credit.method == CRITIC:
            self.critic = Critic(config, self.world, checkpoint)
        state = read_state(checkpoint) if checkpoint else {"update": 0, "best": -math.inf}
        self.update, self.best = state["update"], state["best"]
        self.metrics = Metrics(run.folder, upto=self.update if checkpoint else -1) if self.world.main else None
        self.seconds: dict[str, float] = {}

    # ---- Algorithm 1 --------------------------------------------------------------------------

    def step(self) -> Record:
        """One update: group rollouts, the Bellman closure and its credit, the clipped objective."""
        # Lines 2 to 6: sample tasks, start G environments of each alike, collect complete rollouts.
        with self._timed("rollout"):
            sample = self.players.sample(self.update)
        self.seconds["environments"] = sample.waited  # the part of it that was waiting for them

        # Lines 7 to 16: anchors into an empirical process, its closure, and the credit of every step.
        with self._timed("credit"):
            groups = self._rows(sample)

        # Line 19: with the advantages held fixed, maximise the clipped objective.
        with self._timed("train"):
            figures = self._optimise(groups, sample)
            self.players.refresh()

        if self.world.main:
            self.run.keep_group(self.update, _most_telling(sample))
            if self.config.record_every and self.update % self.config.record_every == 0:
                self.run.keep_rollouts(self.update, sample, self.trainer.policy)
        return {**_rollout_figures(sample), **figures}

    def _rows(self, sample: Sample) -> list[list[Row]]:
        """Each group's steps as rows with their advantages, which a critic gives later."""
        method, options = self.config.credit.method, self.config.credit.options
        if self.critic is None:
            advantages = credit.advantages_batch(sample.interned, method, **options)
        else:
            advantages = [[np.zeros(len(turns)) for turns in group] for group in sample.turns]
        return [
            [
                Row(turn, g, float(a), turn.logprobs)
                for turns, values in zip(sample.turns[g], advantages[g], strict=True)
                for turn, a in zip(turns, values, strict=True)
            ]
            for g in range(len(sample.groups))
        ]

    def _optimise(self, groups: list[list[Row]], sample: Sample) -> Record:
        figures: Record = {}
        if not self.players.exact:
            # Ratios start from the trained model's own log-probabilities, and the engine's are compared with them.
            groups, figures = rescored(groups, self.trainer, self.config)
        shuffle = ("shuffle", self.config.seed, self.update)
        if self.critic is not None:
            groups, lessons = self.critic.credit(groups, sample.interned)
            figures |= self.critic.optimise(lessons, rng(*shuffle))
        return {**self.trainer.optimise(groups, rng(*shuffle)), **figures}

    # ---- the run around it --------------------------------------------------------------------

    def train(self) -> None:
        """Updates until `config.updates`, validating and saving on the way; picks up where it stood.

        Update 0 is the untrained policy's record: its validation and its test figures.
        """
        if self.update == 0 and self.run.last_checkpoint() is None:
            self._finish_update({**self._evaluate("validation"), **self._evaluate("test")})
        while self.update < self.config.updates and not any(self.world.gather(self.stopping)):
            self.update += 1
            record = self.step()
            last = self.update == self.config.updates
            if last or self.update % self.config.eval.every == 0:
                record |= self._evaluate("validation")
            if last:
                record |= self._evaluate("test")
            self._finish_update(record)
        if self.metrics is not None:
            self.metrics.close()
        self.players.close()

    def _finish_update(self, record: Record) -> None:
        """Write the record, then the checkpoint it belongs to: a crash between the two costs the record,
        which the resumed run writes again."""
        record = {"update": self.update, **record, **{f"seconds/{k}": round(s, 4) for k, s in self.seconds.items()}}
        self.seconds = {}
        if self.metrics is not None:
            self.metrics.write(record)
        if record.get("validation/success", -math.inf) > self.best:
            self.best = record["validation/success"]
            self.run.keep_best(self.update, self.trainer.policy, self.world)
        due = self.update % self.config.save_every == 0
        if due or any(self.world.gather(self.stopping)) or self.update == self.config.updates:
            publish(self.run.checkpoints, self.update, self._save, keep=KEEP, world=self.world)
        if self.world.main:
            self.watch.record(record)

    def _save(self, place: Path) -> None:
        self.trainer.save(place, {"update": self.update, "best": self.best})
        if self.critic is not None:
            self.critic.save(place)

    def _evaluate(self, split: str) -> Record:
        settings = self.config.eval
        with self._timed("eval"):
            episodes = settings.episodes if split == "validation" else settings.test_episodes
            result = self.players.evaluate(split, episodes)
        return {f"{split}/{name}": value for name, value in result.to_dict().items() if name != "split"}

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        if self.world.main:
            self.watch.phase(phase)
        begun = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begun


def rescored(groups: list[list[Row]], trainer: Trainer, config: TrainConfig) -> tuple[list[list[Row]], Record]:
    """The rows with log-probabilities of the trained model to start from, and factors that make up for the
    engine's (truncated importance sampling, Yao et al. 2025) where `config` asks for them; how far the two
    are apart."""
    rows = [row for group in groups for row in group]
    loss, old = config.loss, trainer.score(rows)
    gaps = [np.subtract(mine, row.turn.logprobs) for mine, row in zip(old, rows, strict=True)]
    factors = [np.exp(gap.clip(-20.0, 20.0)).clip(max=loss.correction_cap).tolist() for gap in gaps]
    wanted = loss.correction == "truncate" or (loss.correction == "auto" and config.generator.engine == "vllm")
    renewed = iter(
        [
            replace(row, old=mine, correction=factor if wanted else None)
            for row, mine, factor in zip(rows, old, factors, strict=True)
        ]
    )
    every = np.concatenate(gaps)
    figures = {"mismatch": float(np.abs(every).mean()), "mismatch_max": float(np.abs(every).max())}
    return [[next(renewed) for _ in group] for group in groups], figures


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
