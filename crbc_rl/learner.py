"""The learner: Algorithm 1 of the paper, one update at a time.

`Learner.step` follows the algorithm line by line. The rest of this file makes it a run that can be stopped, resumed and
inspected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchors import EmpiricalProcess
from crbc_envs.tasks import rng
from crbc_rl import credit
from crbc_rl.batches import RolloutBatch
from crbc_rl.config import CRITIC, KEEP, TrainConfig
from crbc_rl.credit.metrics import NO_SLOPE, Slope, calibration_metrics, credit_metrics, run_calibration
from crbc_rl.credit.trust import MEMORY
from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError
from crbc_rl.policies.engines import engine_of
from crbc_rl.rollout.metrics import peak_memory, rollout_metrics, speeds
from crbc_rl.rollout.worker import RolloutWorker
from crbc_rl.runs.folder import Run
from crbc_rl.runs.guard import Guard
from crbc_rl.runs.initial_eval_cache import start_like
from crbc_rl.runs.lines import last_record
from crbc_rl.runs.metrics import Metrics
from crbc_rl.runs.transcripts import Plays, Transcripts, credit_of, mixed
from crbc_rl.training.actor import Actor
from crbc_rl.training.checkpoint import read_state
from crbc_rl.training.clock import Callback, Clock, Record, finished
from crbc_rl.training.critic import Critic
from crbc_rl.training.folders import publish
from crbc_rl.training.trainable import Trainable


class Learner:
    """Trains as `config` says, writing into `run`, and tells `callback` of its progress.

    The policy starts from the run's last checkpoint if there is one, else from the config's model. The config's model
    is also the frozen reference pi_ref. Every rank of `distributed` has its own learner; None is a single process.
    Raises `ConfigError` where no model or checkpoint can be loaded, and for other tasks or anchors than the run had.
    """

    def __init__(
        self, config: TrainConfig, run: Run, callback: Callback | None = None, distributed: Distributed | None = None
    ) -> None:
        torch.set_num_threads(config.threads)
        # The run's own copy, which nobody changes, and its limit of a reply.
        config = config.model_copy(update={"model": run.config.model, "rollout": run.config.rollout})
        self.config, self.run = config, run
        self.callback = callback or Callback()
        self.distributed = distributed or Distributed()
        self.stopping = False
        self.clock = Clock(finished(self.distributed.device))

        checkpoint = run.resume_point(self.distributed)
        self.resumed = checkpoint is not None
        self.actor = Actor(config, self.distributed, checkpoint)
        # Before the engine that samples takes its memory: a critic is whole on each GPU while it is loaded.
        self.critic = Critic(config, self.distributed, checkpoint) if config.credit.method == CRITIC else None
        self.worker = RolloutWorker(config, self.distributed, self.actor, self.clock)
        try:
            run.keep_world(self.worker.envs.anchor_name, self.worker.tasks, self.distributed)
        except ConfigError:
            self.worker.close()
            raise
        self.credit_options = config.credit_options()
        self.estimator = None if self.critic is not None else credit.estimator_of(config.method())
        for model in self._models().values():
            model.clock = self.clock
        fresh = {"update": 0, "best": -math.inf, "slope": NO_SLOPE.sums}
        state: dict[str, Any] = read_state(checkpoint) if checkpoint else fresh
        self.update: int = state["update"]
        self.best: float = state["best"]
        played = {"dynamics": self.worker.envs.dynamics, "anchor": self.worker.envs.anchor_name}
        told = {"env_id": config.env.id, "credit": credit_of(config), **played}
        self.transcripts = Transcripts(run.folder, config.transcripts, self.actor.policy.decode_prompt, told)
        self.metrics: Metrics | None = None
        if self.distributed.main:
            upto = self.update if self.resumed else -1
            self.metrics = Metrics(run.folder, upto, run.trackers())
            run.cut_lines(upto)
        if self.resumed and self.distributed.gather(run.best() is None)[0]:
            self.best = -math.inf  # the newest checkpoints were damaged, and with them went the best before
        self.guard = Guard(config)
        self.slope = NO_SLOPE
        self.trusted, self._trusts = Slope(np.array(state["slope"])), self.credit_options.get("trust") is not None

    # ---- Algorithm 1 --------------------------------------------------------------------------

    def step(self) -> Record:
        """One update: group rollouts, the Bellman closure and its credit, the clipped objective. Returns metrics."""
        # Lines 2 to 6: sample tasks, start G environments of each alike, collect complete rollouts.
        with self._phase("rollout", "generate"):
            batch = self.worker.sample(self.update)

        # Lines 7 to 16: anchors into an empirical process, its closure, and the credit of every step.
        with self._phase("credit", "step_credit"):
            process = EmpiricalProcess.from_interned(batch.rollouts)
            terms = None  # with a critic: its advantages come later
            if self.estimator is not None:
                options = self.credit_options
                if self._trusts:
                    options = {**options, "trust": self.trusted}
                terms = self.estimator.terms(process, self.clock.phase, **options)
                # That of rank 0: another's processor may round otherwise, and what is 0 has no backward pass.
                batch = replace(batch, advantage=self.distributed.gather(terms.final)[0])

        # Line 19: with the advantages held fixed, maximise the clipped objective.
        with self._phase("train", "train"):
            batch, train_record = self._optimise(batch)
            with self.clock.phase("weights"):
                self.worker.refresh()

        with self.clock.phase("save"):
            self._keep(batch)
        with self.clock.phase("figures"):
            self.slope = run_calibration(process, self.config.credit.method, self.credit_options)
            if self._trusts:
                self.trusted = self.trusted.then(self.slope, MEMORY)
            return {
                **rollout_metrics(batch, self.worker.kinds, self.actor.policy.ends),
                **self.worker.read,
                **credit_metrics(process, terms, self.config.credit.method, self.credit_options),
                **calibration_metrics(self.slope),
                **train_record,
                **speeds(batch, self.config.optim.epochs, self.clock.spent),
                "memory_peak": peak_memory(self.distributed.device),
            }

    def _optimise(self, batch: RolloutBatch) -> tuple[RolloutBatch, Record]:
        for model in self._models().values():
            model.set_rate(self.update)
        record: Record = {"lr": self.actor.rate}
        if not self.worker.engine_is_policy:
            # The engine's log-probabilities differ from the trained model's. Ratios must start from the latter.
            with self.clock.phase("old"):
                batch, mismatch = rescored(batch, self.actor, self.config)
            record |= mismatch
        shuffle = ("shuffle", self.config.seed, self.update)
        if self.critic is not None:
            with self.clock.phase("values"):
                batch = self.critic.credit(batch)
            with self.clock.phase("critic"):
                record |= self.critic.optimise(batch, rng(*shuffle))
        record |= self.actor.optimise(batch, rng(*shuffle), watch=self._records or self._shows)
        return replace(batch, seen=self.actor.seen), record

    def _keep(self, batch: RolloutBatch) -> None:
        """Keep a group of the update for the report, and all of it where the config asks for that."""
        if self.distributed.main:
            number = mixed(batch.rollouts.success_rate)
            self.run.keep_group(self.update, batch.rollouts.select([number]).groups()[0])
            if self._shows:
                self.transcripts.keep_training(self.update, batch, number)
            self.run.keep_invalid(self.update, batch.turns)
            if self._records:
                self.run.keep_rollouts(self.update, batch, self.transcripts)

    # ---- the run --------------------------------------------------------------------

    def stop(self) -> None:
        """End the run after the current update, with everything saved."""
        self.stopping = True

    def train(self) -> None:
        """Run updates until `config.updates`, with validation and checkpoints. A resumed run continues.

        The record of update 0 has the validation and test metrics of the policy before training.
        """
        with closing(self):
            self.clock.take()  # what it took to begin is no part of an update
            over = self.update >= self.config.updates or self.distributed.any(self.stopping)
            if not self.resumed:
                over = self._finish_update(self._start())
            elif self.update == self.config.updates and not self.distributed.any(self.stopping):
                self._end_early()
            while not over:
                self.update += 1
                record = self.step()
                self.guard.check(self.update, record, self._models())
                self.guard.wait(self.update, self.clock.spent)
                self.guard.calibrate(self.update, self.slope, self.worker.envs.anchor_name)
                if self._validates:
                    record |= self._evaluate("validation")
                if self.update == self.config.updates:
                    record |= self._evaluate("test")
                over = self._finish_update(record)

    def _end_early(self) -> None:
        """Test a policy that is the last one by a number of updates that was lowered to those that were made."""
        last = last_record(self.run.folder / "metrics.jsonl")
        if last.get("update") == self.update and "test/success" not in last:
            told = {} if "validation/success" in last else self._evaluate("validation")
            self._finish_update({**last, **told, **self._evaluate("test"), "update": self.update})

    def close(self) -> None:
        """Close the environments and the files of the metrics."""
        self.worker.close()
        if self.metrics is not None:
            self.metrics.close()

    def _finish_update(self, record: Record) -> bool:
        """Write the record, then its checkpoint. After a crash between the two, the resumed run repeats the update
        and writes the record again. Returns whether the run ends here, which is decided with the checkpoint: a signal
        that comes later waits for the next one. So the seconds of saving are in the next record."""
        record = {
            "update": self.update,
            **record,
            **{f"seconds/{k}": round(s, 6) for k, s in self.clock.take().items()},
        }
        with self.clock.phase("save"):
            if self.metrics is not None:
                self.metrics.write(record)
            best = None
            if record.get("validation/success", -math.inf) > self.best:
                self.best = record["validation/success"]
                best = self.run.keep_best(self.update, self.actor.policy, self.distributed)
            over = self.distributed.any(self.stopping) or self.update == self.config.updates
            if over or self.update % self.config.save_every == 0:
                save = partial(self._save, written=best)
                publish(self.run.checkpoints, self.update, save, keep=KEEP, distributed=self.distributed)
                if self.distributed.main:
                    self.run.best_saved(self.update)
        if self.distributed.main:
            self.callback.record(record)
        return over

    @property
    def _validates(self) -> bool:
        """Whether this update ends with a validation."""
        return self.update == self.config.updates or self.update % self.config.eval.every == 0

    @property
    def _shows(self) -> bool:
        """Whether a group of this update is kept as a transcript."""
        return bool(self.config.transcripts) and self._validates

    @property
    def _records(self) -> bool:
        """Whether all rollouts of this update are written."""
        return bool(self.config.record_every) and self.update % self.config.record_every == 0

    def _models(self) -> dict[str, Trainable]:
        """What is trained, by the config's key of its learning rate."""
        return {"optim.lr": self.actor} if self.critic is None else {"optim.lr": self.actor, "critic.lr": self.critic}

    def _save(self, place: Path, written: Path | None) -> None:
        state = {"update": self.update, "best": self.best, "slope": self.trusted.sums.tolist()}
        self.actor.save(place, state, written)
        if self.critic is not None:
            self.critic.save(place)

    def _start(self) -> Record:
        """The evaluation of the policy before training, or that of a run that began alike."""
        like = start_like(self.run)
        if like is None:
            return {**self._evaluate("validation"), **self._evaluate("test")}
        record, outcomes, folder = like
        if self.distributed.main:
            if self.config.transcripts:
                self.transcripts.take_start(folder)
            for split, of_split in outcomes.items():
                self.run.keep_outcomes(self.update, split, of_split)
        return record

    def _evaluate(self, split: str) -> Record:
        settings = self.config.eval
        plays = Plays(
            self.config.transcripts if self.distributed.main and split == "test" else 0, self.transcripts.decode
        )
        with self._phase(split, "eval"):
            episodes = settings.episodes if split == "validation" else settings.test_episodes
            result = self.worker.evaluate(split, episodes, self.callback.episodes, plays)
        if self.distributed.main:
            self.run.keep_outcomes(self.update, split, result.outcomes)
        if plays.wanted:
            with self.clock.phase("save"):
                self.transcripts.keep_test(self.update, plays.all)
        return {f"{split}/{name}": value for name, value in result.to_dict().items() if name != "split"}

    @contextmanager
    def _phase(self, shown: str, timed: str) -> Iterator[None]:
        """Show the phase `shown`, and time what is inside as `timed`, less the phases inside of it."""
        if self.distributed.main:
            self.callback.phase(shown)
        with self.clock.phase(timed):
            yield


def rescored(batch: RolloutBatch, actor: Actor, config: TrainConfig) -> tuple[RolloutBatch, Record]:
    """The batch with old log-probabilities of the trained model, and metrics of their distance to the engine's.

    Where `config` asks for it, `correction` holds the weights of truncated importance sampling (Yao et al. 2025).
    """
    loss, old = config.loss, actor.score(batch)
    gap = old - batch.old
    factor = np.exp(gap.clip(-20.0, 20.0)).clip(max=loss.correction_cap)
    corrected = loss.correction == "truncate" or (loss.correction == "auto" and not engine_of(config).is_transformers)
    mean = np.abs(gap).sum() / batch.sampled_length.sum()
    mismatch = {"mismatch": float(mean), "mismatch_max": float(np.abs(gap).max())}
    return replace(batch, old=old, correction=factor if corrected else None), mismatch
