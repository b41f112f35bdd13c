"""One update of a training with a tiny random model: whether it runs, and nothing about what it learns.

A random model writes no action and wins nothing, so no estimator would give credit. So its replies are taken for drawn
actions, and by a coin an episode of three steps is won.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import gymnasium
import torch
from vision_fixtures import build_vision

from crbc_envs.actions import tagged
from crbc_envs.core import AnchorEnv
from crbc_envs.prompts import PromptWindow
from crbc_envs.vector.members import creator, make_member
from crbc_lab import tiny
from crbc_rl.config.sections import TrainConfig
from crbc_rl.learner import Learner
from crbc_rl.rollout.prompts import prompt_options
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics

SMALL: Mapping[str, Mapping[str, Any]] = {
    "policy": {"precision": "float32", "gradient_checkpointing": False},
    "generator": {"engine": "transformers", "tensor_parallel": 1},
    "rollout": {"num_groups": 2, "group_size": 4, "max_new_tokens": 8, "backend": "sync", "num_workers": None},
    "optim": {"minibatch": 8, "microbatch": None, "score_microbatch": None},
    "eval": {"every": 1, "episodes": 2, "test_episodes": 2},
}
"""What replaces a config's own values. Estimator, loss, protocol, prompts and environment stay as they are."""
STEPS = 3
VOCABULARY = 2_000
"""Of the random model: the more, the fewer tokens in the long prompts of the shop."""


def tiny_config(config: TrainConfig, model: Path) -> TrainConfig:
    """The config for one update on embedded data, with the model in a folder: 2 x 4 rollouts of at most three steps."""
    data = config.model_dump()
    for section, values in SMALL.items():
        data[section] |= values
    data["env"] |= {"kwargs": {**_embedded(config), "max_steps": STEPS}, "revision": None, "id": _by_chance(config)}
    return TrainConfig.model_validate({**data, "model": str(model), "revision": None, "updates": 1, "threads": 1})


def one_update(config: TrainConfig) -> dict[str, Any]:
    """The record of one update of `tiny_config`, in a folder that is removed again. Raises what the training raises."""
    with TemporaryDirectory(prefix="crbc-") as place:
        model = Path(place, "model")
        _random_model(config, model)
        small = tiny_config(config, model)
        Learner(small, Run.start(Path(place, "run"), small, resume=False)).train()
        return read_metrics(Path(place, "run"))[-1]


def _random_model(config: TrainConfig, folder: Path) -> None:
    """Write a model of the config's kind, for frames or for text, whose tokenizer has read some of its prompts."""
    env = make_member(config.registered_id(), {**_embedded(config), "split": "train"})
    with closing(env):
        frames, texts = False, []
        for text, images in _prompts(config, env):
            frames = frames or images
            texts.append(text)
    tokenizer = tiny.train_tokenizer(texts * 20, VOCABULARY)
    generator = torch.Generator().manual_seed(0)
    policy = build_vision(tokenizer, generator) if frames else tiny.build(tokenizer, generator)
    policy.save(folder)


def _by_chance(config: TrainConfig) -> str:
    """The id of the config's environment as `ByChance` plays it."""
    kind = creator(config.registered_id())
    name = f"{kind.__name__}ByChance-v0"
    if name not in gymnasium.registry:
        gymnasium.register(name, entry_point=by_chance(kind), disable_env_checker=True, order_enforce=False)
    return name


@cache
def by_chance(kind: type[AnchorEnv[Any, Any]]) -> Callable[..., AnchorEnv[Any, Any]]:
    """The environment with every reply taken for an admissible action, and a coin tossed at its last step. Both follow
    from the replies alone."""

    class ByChance(kind):  # type: ignore[valid-type, misc]  # a base class known at run time only
        replies, lucky = 0, False

        def _begin(self, task: Any) -> None:
            self.replies, self.lucky = 0, False
            super()._begin(task)

        def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.replies = crc32(action.encode(), self.replies)
            self.lucky = self._steps + 1 == self.max_steps and self.replies & 1 == 0
            possible = self._admissible()
            return super().step(tagged(possible[self.replies // 2 % len(possible)]))

        def _success(self) -> bool:
            return self.lucky or super()._success()

        def _ended(self) -> bool:
            return self.lucky or super()._ended()

        def batch(self, num_envs: int) -> None:
            return None  # one by one, by `step`

    return ByChance


def _embedded(config: TrainConfig) -> dict[str, Any]:
    return {key: value for key, value in config.env.kwargs.items() if key not in ("data", "data_dir")}


def _prompts(config: TrainConfig, env: Any) -> Iterator[tuple[str, bool]]:
    """The first prompts of a few tasks, and whether each has images."""
    for task in range(4):
        observation, info = env.reset(seed=0, options={"task": task})
        prompt = PromptWindow.of(env, **prompt_options(config)).ask(observation, info)
        yield prompt.text, bool(prompt.images)
