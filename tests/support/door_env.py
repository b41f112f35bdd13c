"""A row of doors, and a policy that says what the test wants and remembers what it was asked.

"open" ends the episode in success, "knock" goes on. The prompt, of the style "all", holds everything a template may
use, so that a test can read back what was shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
from learner_fixtures import small

from anchors import anchor_key
from crbc_envs import AnchorEnv
from crbc_envs.actions import tagged
from crbc_envs.prompts import View
from crbc_envs.spaces import UnicodeText
from crbc_envs.tasks import SPLITS, Task, TaskPanel
from crbc_rl.batches import Turn
from crbc_rl.config import TrainConfig
from crbc_rl.distributed import Distributed
from crbc_rl.rollout.worker import RolloutWorker

REWARDS = {"open": 1.0, "knock": -0.25}


class Doors(TaskPanel[int]):
    def _task(self, index: int) -> Task[int]:
        number = 3 * index + SPLITS.index(self.split)
        return Task(f"door/{self.split}/{index}", f"Open door {number}.", number, f"{number:06x}")


def everything(view: View) -> str:
    records = "".join(f"[{seen} -> {action}]" for seen, action in view.history)
    return f"{view.task}|step {view.step}|{view.observation}|{records}"


class DoorEnv(AnchorEnv[str, int]):
    domain = "door"
    templates = {"all": everything}  # noqa: RUF012
    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, split="train", max_steps=9, replies="thought", render_mode=None):
        super().__init__(Doors(split, size=100_000), max_steps, replies)
        self.render_mode = render_mode
        self.action_space = UnicodeText(examples=("open", "knock"))
        self.observation_space = UnicodeText(max_length=100)

    def _begin(self, task):
        self.door, self.knocks, self.open, self.ticket = task, 0, False, int(self.np_random.integers(10**9))

    def _execute(self, action):
        self.knocks += action == "knock"
        self.open = action == "open"
        return REWARDS.get(action, -0.5)

    def _admissible(self):
        return ("open", "knock")

    def _observation(self):
        return f"knocks {self.knocks}, ticket {self.ticket}"

    def _label(self):
        return f"door {self.door}, knocks {self.knocks}, open {self.open}"

    def _anchor(self):
        return anchor_key(self._label())

    def _success(self):
        return self.open

    def render(self):
        return self._label()


gymnasium.register("Door-v0", entry_point=f"{__name__}:DoorEnv")


@dataclass(frozen=True)
class Asked:
    """One prompt as the policy got it; `call` counts the batches."""

    text: str
    seed: int
    temperature: float
    max_new_tokens: int
    call: int

    @property
    def ticket(self) -> int:
        return int(re.search(r"ticket (\d+)", self.text)[1])

    @property
    def step(self) -> int:
        return int(re.search(r"step (\d+)", self.text)[1])

    @property
    def door(self) -> int:
        return int(re.search(r"door (\d+)", self.text)[1])


class Clerk:
    """Answers as `say` decides; `asked` has every prompt in order, `calls` what else was done to it."""

    def __init__(self, say: Callable[[Asked], str] = lambda asked: tagged("knock")) -> None:
        self.say, self.asked, self.calls, self.batches = say, [], [], 0

    def generate(self, prompts, seeds, temperature, max_new_tokens) -> list[Turn]:
        new = [Asked(p.text, s, temperature, max_new_tokens, self.batches) for p, s in zip(prompts, seeds, strict=True)]
        self.batches += 1
        self.asked += new
        return [Turn([asked.step], [1], [0.0], self.say(asked)) for asked in new]

    def weights(self) -> list[Any]:
        return []

    def load_weights(self, weights: Any) -> None:
        self.calls.append("load")

    def sleep(self) -> None:
        self.calls.append("sleep")

    def wake(self) -> None:
        self.calls.append("wake")


def door_config(model: Path = Path("unused"), **changes: Any) -> TrainConfig:
    env = {"id": "Door-v0", "prompt": "all", "kwargs": {"max_steps": 3}, **changes.pop("env", {})}
    rollout = {"num_groups": 3, "group_size": 4, "temperature": 0.9, "max_new_tokens": 7}
    rollout |= changes.pop("rollout", {})
    return small(model, env=env, rollout=rollout, **changes)


def worker_of(clerk: Clerk, config: TrainConfig, distributed: Distributed | None = None) -> RolloutWorker:
    """As the learner has it, with `clerk` in the place of the model that is trained."""
    return RolloutWorker(config, distributed or Distributed(), SimpleNamespace(policy=clerk, sharded=False))
