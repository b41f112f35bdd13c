"""Sampling for the learner: the environments of this rank, and the engine that samples the replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crbc_envs.tasks import rng, stream
from crbc_rl.batches import RolloutBatch
from crbc_rl.config import TrainConfig
from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError
from crbc_rl.policies.api import Generator
from crbc_rl.policies.copying import MadeUpWords
from crbc_rl.policies.engines import engine_of
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.rollout.collect import collect, open_groups
from crbc_rl.rollout.evaluate import Evaluation, OnBatch, joined, play_panel, summarise
from crbc_rl.rollout.panel import eval_panel
from crbc_rl.rollout.prompts import prompt_options
from crbc_rl.training.actor import Actor
from crbc_rl.training.clock import Clock


class RolloutWorker:
    """Plays groups and held-out tasks with the policy that `actor` trains.

    Every rank plays some of the groups, each as a whole, and gathers those of all ranks. Ranks that split one copy of
    the weights (`tensor_parallel`) play the same groups.
    """

    def __init__(self, config: TrainConfig, distributed: Distributed, actor: Actor, clock: Clock | None = None) -> None:
        self.config, self.distributed, self.actor = config, distributed, actor
        self.clock = clock or Clock()
        parallel = config.generator.tensor_parallel
        self.replicas = Distributed(distributed.rank // parallel, max(1, distributed.size // parallel))
        mine = self.replicas.part_of(config.rollout.num_groups, "groups (rollout.num_groups)")
        self.first, self.num_groups = mine.start, len(mine)
        self.engine = self._engine()
        self.prefixes = self.engine.prefixes if isinstance(self.engine, TransformersPolicy) else None
        if self.prefixes is not None:
            self.prefixes.most_bytes = int(config.generator.prefix_cache * 2**30)
        self.read: dict[str, float] = {}
        """Metrics of the prompts that this rank read in the last update, where the engine counts them."""
        self.engine_is_policy = self.engine is actor.policy
        """Whether the trained model itself samples. Its log-probabilities then need no second forward pass."""
        share = config.rollout.made_up
        self.prompts = prompt_options(config)
        self.made_up = (MadeUpWords.load(Path(config.model)), share) if share else None
        self.envs = open_groups(config, "train", self.num_groups, config.rollout.group_size)
        count = len(self.envs.panel)
        self.tasks = f"{self.envs.panel.digest(min(4, count))} of {count}"
        """Tells apart the panels that may be trained on."""
        self.kinds: dict[str, str] = {}
        """The kind of every task that was played, by the task's id; "" where tasks have no kinds."""

    def _engine(self) -> Generator:
        actor, engine = self.actor, engine_of(self.config)
        if engine.is_transformers and not actor.sharded:
            return actor.policy
        generator = engine.create(self.config, actor.policy)
        generator.load_weights(actor.policy.weights())
        return generator

    def sample(self, update: int) -> RolloutBatch:
        """The groups to train on, from all ranks; their `played` has all groups, where these are chosen from more.

        Every draw is a function of the seed, the update and the group.
        """
        rollout = self.config.rollout
        played: list[RolloutBatch] = []
        for attempt in range(rollout.rounds):
            played.append(self._play(update, attempt))
            rates = np.concatenate([batch.rollouts.success_rate for batch in played])
            mixed = np.flatnonzero((rates > 0) & (rates < 1)).tolist()
            if len(mixed) >= rollout.num_groups:
                break
        if self.prefixes is not None:
            self.read = self.prefixes.metrics()
        self.engine.sleep()
        batch = RolloutBatch.concat(played)
        if len(rates) == rollout.num_groups:
            return batch
        flat = [g for g in range(len(rates)) if g not in mixed]
        return replace(batch.select(sorted([*mixed, *flat][: rollout.num_groups])), all_groups=batch)

    def _play(self, update: int, attempt: int) -> RolloutBatch:
        rollout, seed = self.config.rollout, self.config.seed
        tasks = rng("tasks", seed, update, attempt).integers(len(self.envs.panel), size=rollout.num_groups).tolist()
        self.kinds |= {task.id: task.kind for task in (self.envs.panel[index] for index in tasks)}
        mine = range(self.first, self.first + self.num_groups)
        batch = collect(
            self.envs,
            self.engine,
            [tasks[g] for g in mine],
            [stream("group", seed, update, attempt, g) for g in mine],
            **self.prompts,
            temperature=rollout.temperature,
            max_new_tokens=rollout.max_new_tokens,
            made_up=self.made_up,
            waves=rollout.waves,
            clock=self.clock,
        )
        if self.distributed.size == 1:
            return batch
        batches, width = self.distributed.gather(batch), self.config.generator.tensor_parallel
        for number, other in enumerate(batches):
            if number % width and [t.prompt for t in other.turns] != [t.prompt for t in batches[number - 1].turns]:
                raise ConfigError(
                    f"ranks {number - 1} and {number} share one model (generator.tensor_parallel={width}) and have "
                    "played differently: environment and prompt must not depend on the process, as by hash() or a clock"
                )
        return RolloutBatch.concat(batches[::width])

    def evaluate(
        self,
        split: str,
        episodes: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
        on_batch: OnBatch = lambda columns, batch: None,
    ) -> Evaluation:
        """Evaluate on `episodes` tasks of `split`, those of the config's panel, divided among the ranks. `progress` is
        called with the number of this rank's tasks that are finished, and of all of them, `on_batch` with this rank's
        rollouts."""
        panel, mine = eval_panel(self.config, split, episodes), slice(self.replicas.rank, None, self.replicas.size)
        tasks, seed = panel.tasks[mine], self.config.seed
        options: Any = {"repeats": panel.repeats[mine], "on_batch": on_batch}
        options["progress"] = lambda done: progress(done, len(tasks))
        played = play_panel(self.engine, self.config, split, tasks, seed, **options)
        if self.prefixes is not None:
            self.prefixes.clear()  # a resumed run has not evaluated, and goes on to the same bytes
        return summarise(split, joined(self.distributed.gather(played)[:: self.config.generator.tensor_parallel]))

    def refresh(self) -> None:
        """Load the trained weights into the engine."""
        if not self.engine_is_policy:
            self.engine.wake()
            self.engine.load_weights(self.actor.policy.weights())

    def close(self) -> None:
        self.envs.close()
