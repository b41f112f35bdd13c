"""An engine whose weights are gone while it sleeps, as vLLM's are on a GPU: nothing may be sampled from it then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learner_fixtures import small
from torch import Tensor

from crbc_envs.prompts import Prompt
from crbc_rl.batches import Turn
from crbc_rl.config import TrainConfig
from crbc_rl.learner import Learner
from crbc_rl.policies import engines
from crbc_rl.policies.engines import Engine
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.runs.folder import Run
from crbc_rl.training.actor import Actor


class Poisoned:
    """A copy of the model whose weights are nan from `sleep` until they are loaded. `done` has what was asked of it."""

    def __init__(self, config: TrainConfig, policy: TransformersPolicy) -> None:
        self.copy, self.trained = load_policy(config.model, policy.device), policy
        self.asleep, self.done = False, ["made"]
        self._poison()  # as an engine whose weights must be loaded first

    def _poison(self) -> None:
        with torch.no_grad():
            for weight in self.copy.model.parameters():
                weight.fill_(torch.nan)

    def sleep(self) -> None:
        self.asleep = True
        self.done.append("sleep")
        self._poison()

    def wake(self) -> None:
        assert self.asleep
        self.asleep = False
        self.done.append("wake")

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        assert not self.asleep, "there is no memory for them"
        self.copy.load_weights(weights)
        self.done.append("load")

    def generate(self, prompts: Sequence[Prompt], seeds: Sequence[int], *limits: Any) -> list[Turn]:
        assert not self.asleep
        own = dict(self.copy.weights())
        for name, trained in self.trained.weights():  # with the factors of LoRA added
            assert torch.equal(own[name], trained), f"{name} is old, or gone"
        turns = self.copy.generate(prompts, seeds, *limits)
        assert np.isfinite([value for turn in turns for value in turn.logprobs]).all()
        self.done += ["sample"] if self.done[-1] != "sample" else []
        return turns


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[Poisoned]:
    """Every engine that learners make."""
    made: list[Poisoned] = []

    def create(config: TrainConfig, policy: TransformersPolicy) -> Poisoned:
        made.append(Poisoned(config, policy))
        return made[-1]

    monkeypatch.setitem(engines.ENGINES, "transformers", Engine(create))
    return made


@pytest.fixture
def asleep_in_training(engine: list[Poisoned], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the trainer did with the memory; the engine must sleep meanwhile."""
    done: list[str] = []
    for name in ("score", "optimise"):
        whole = getattr(Actor, name)

        def watched(self: Actor, *given: Any, name: str = name, whole: Any = whole, **more: Any) -> Any:
            assert engine[-1].asleep, f"the engine's memory is needed by {name}"
            done.append(name)
            return whole(self, *given, **more)

        monkeypatch.setattr(Actor, name, watched)
    return done


SHORT = {
    "env": {"kwargs": {"observation": "text", "max_steps": 2}},
    "eval": {"every": 1, "episodes": 1, "test_episodes": 1},
}


@pytest.mark.parametrize("changes", [{}, {"policy": {"lora_rank": 2}}])
def test_a_run_samples_only_from_weights_that_were_loaded_after_it_woke(
    model: Path, tmp_path: Path, engine: list[Poisoned], asleep_in_training: list[str], changes: dict[str, Any]
) -> None:
    config = small(model, updates=2, **SHORT, **changes)
    Learner(config, Run.start(tmp_path, config, resume=False)).train()
    update = ["sleep", "wake", "load", "sample"]
    assert engine[0].done == ["made", "load", "sample", *update, *update]
    assert asleep_in_training == ["score", "optimise"] * 2


def test_the_engine_sleeps_once_the_last_round_of_an_update_is_played(
    model: Path, tmp_path: Path, engine: list[Poisoned]
) -> None:
    rollout = {"num_groups": 2, "group_size": 3, "max_new_tokens": 4, "rounds": 3}
    config = small(model, updates=1, rollout=rollout, **SHORT)
    learner = Learner(config, Run.start(tmp_path, config, resume=False))
    learner.worker.sample(1)
    assert engine[0].done == ["made", "load", "sample", "sleep"]
    with pytest.raises(AssertionError):
        learner.worker.sample(2)  # without `refresh`
    learner.close()
