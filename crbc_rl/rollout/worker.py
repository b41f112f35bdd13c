"""Who plays: the environments of this process, and the engine that samples in them."""

from __future__ import annotations

import torch

from crbc_rl.config import TrainConfig
from crbc_rl.distributed import World
from crbc_rl.policies.api import Generator
from crbc_rl.policies.load import load_policy
from crbc_rl.rollout.collect import Sample, collect, open_groups, rng, stream
from crbc_rl.rollout.evaluate import Evaluation, play_panel, summarise
from crbc_rl.training.actor import Trainer


class Players:
    """Plays groups and held-out tasks with the policy that `trainer` trains.

    Every process plays its share of the groups, whole ones, and knows those of all. Processes that hold one
    copy of the weights together (`tensor_parallel`) play the same.
    """

    def __init__(self, config: TrainConfig, world: World, trainer: Trainer) -> None:
        self.config, self.world, self.trainer = config, world, trainer
        together = config.generator.tensor_parallel
        self.shares = World(world.rank // together, max(1, world.size // together))
        mine = self.shares.share_of(config.rollout.num_groups, "groups (rollout.num_groups)")
        self.first, self.num_groups = mine.start, len(mine)
        self.engine = self._engine()
        self.exact = self.engine is trainer.policy
        """Whether the model that is trained itself samples: their log-probabilities are then the same."""
        self.envs = open_groups(config, "train", self.num_groups, config.rollout.group_size)

    def _engine(self) -> Generator:
        trainer = self.trainer
        if self.config.generator.engine == "vllm":
            from crbc_rl.policies.vllm import VllmPolicy

            engine: Generator = VllmPolicy.colocated(self.config, trainer.policy)
        elif not trainer.sharded:
            return trainer.policy
        else:
            whole = load_policy(self.config.model, self.world.device, self.config.rollout.max_prompt_tokens)
            whole.model.to(getattr(torch, self.config.policy.precision)).requires_grad_(False)
            engine = whole
        engine.load_weights(trainer.policy.weights())
        return engine

    def sample(self, update: int) -> Sample:
        """One update's groups. Everything drawn is a function of the seed, the update and the group."""
        rollout = self.config.rollout
        found = Sample([], [])
        for attempt in range(rollout.rounds):
            found = found.joined(self._play(update, attempt))
            mixed = [g for g, group in enumerate(found.groups) if 0 < group.success_rate < 1]
            if len(mixed) >= rollout.num_groups:
                break
        self.engine.sleep()
        if len(found.groups) == rollout.num_groups:
            return found
        rest = [g for g in range(len(found.groups)) if g not in mixed]
        return found.chosen(sorted([*mixed, *rest][: rollout.num_groups]))

    def _play(self, update: int, attempt: int) -> Sample:
        rollout, seed = self.config.rollout, self.config.seed
        tasks = rng("tasks", seed, update, attempt).integers(len(self.envs.panel), size=rollout.num_groups).tolist()
        mine = range(self.first, self.first + self.num_groups)
        sample = collect(
            self.envs,
            self.engine,
            [tasks[g] for g in mine],
            [stream("group", seed, update, attempt, g) for g in mine],
            prompt=self.config.env.prompt,
            temperature=rollout.temperature,
            max_new_tokens=rollout.max_new_tokens,
            waves=rollout.waves,
        )
        if self.world.size == 1:
            return sample
        parts = self.world.gather((sample.groups, sample.turns))[:: self.config.generator.tensor_parallel]
        groups, turns = ([one for part in column for one in part] for column in zip(*parts, strict=True))
        return Sample(groups, turns, waited=sample.waited)

    def evaluate(self, split: str, episodes: int) -> Evaluation:
        """The first `episodes` tasks of `split`, shared out over the processes."""
        tasks = range(episodes)[self.shares.rank :: self.shares.size]
        played = play_panel(self.engine, self.config, split, tasks, self.config.seed)
        parts = self.world.gather(played)[:: self.config.generator.tensor_parallel]
        return summarise(split, dict(sorted(item for part in parts for item in part.items())))

    def refresh(self) -> None:
        """The engine takes over what was learned."""
        if not self.exact:
            self.engine.wake()
            self.engine.load_weights(self.trainer.policy.weights())

    def close(self) -> None:
        self.envs.close()
