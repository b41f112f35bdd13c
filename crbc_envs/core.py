"""AnchorEnv: a Gymnasium environment that takes text and tells, at every step, which anchor it is at."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from anchors import INVALID
from crbc_envs.actions import normalise, requested_action
from crbc_envs.prompts import Template
from crbc_envs.tasks import Task, TaskPanel

Obs = TypeVar("Obs")
T = TypeVar("T")

Infos = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What k members answered, in the order they were asked.

    `observations` is a list of k, or an array whose first axis is k; `rewards` (k,) float64,
    `terminated` and `truncated` (k,) bool; `infos` as Gymnasium packs those of k environments: a
    column of k values under each name and under "_name" who has it.
    """

    observations: Any
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: Infos


class Members(Protocol):
    """Numbered copies of one environment. Only those named in a call are touched."""

    def reset(self, members: Sequence[int], tasks: Sequence[int], seeds: Sequence[int]) -> Outcome:
        """Begin `tasks[i]` at `members[i]` under `seeds[i]`; rewards are 0 and flags False."""

    def step(self, members: Sequence[int], actions: Sequence[str]) -> Outcome:
        """Give `actions[i]` to `members[i]`, which have all begun and not ended."""

    def render(self) -> tuple[Any, ...]:
        """What every member shows, by its render mode."""

    def close(self) -> None: ...


class AnchorEnv(gymnasium.Env[Obs, str], Generic[Obs, T]):
    """Base of every environment of the suite.

    `reset(seed=..., options={"task": index})` begins task `index` of the panel, or one drawn from
    `np_random`. `step(text)` takes a semantic action ("up") or a model's whole reply
    ("<think>...</think><action>up</action>"); with `require_tags` only the latter. What cannot be
    read, or is not admissible, is the one action `anchors.INVALID`: it costs a step and leaves the
    state alone.

    `info` holds `anchor` (key of the current situation), `label` (a readable form of it),
    `admissible_actions`, `task` (text), `task_id`, `data` (where the task comes from) and `step`;
    after a step also `action` (as executed), `valid`, `success` and `score`. Success terminates the
    episode, and so may a failure that is final; `max_steps` steps without either truncate it.

    A subclass sets `domain`, `data`, `templates` and the spaces, and fills in the seven hooks below.
    """

    domain: str
    """The name reports know this environment by."""
    templates: Mapping[str, Template] = MappingProxyType({})
    """What a policy may be shown, by style (`crbc_envs.prompts`)."""
    data = "generated"
    """Where the tasks come from: "generated" (embedded) or "official"."""

    def __init__(self, panel: TaskPanel[T], max_steps: int, require_tags: bool) -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, got {max_steps}")
        self.panel = panel
        self.max_steps = max_steps
        self.require_tags = require_tags
        self._task: Task[T] | None = None
        self._steps = 0
        self._over = True

    # ---- hooks --------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, task: T) -> None:
        """Put the environment at the start of `task`."""

    @abstractmethod
    def _execute(self, action: str) -> float:
        """Execute an admissible action, or `INVALID` (no change of state); the reward of the step."""

    @abstractmethod
    def _observation(self) -> Obs: ...

    @abstractmethod
    def _anchor(self) -> str:
        """The key of the current situation."""

    @abstractmethod
    def _label(self) -> str:
        """The current situation as people read it."""

    @abstractmethod
    def _admissible(self) -> tuple[str, ...]: ...

    @abstractmethod
    def _success(self) -> bool: ...

    def _score(self) -> float:
        """The task score in [0, 1]; the success itself unless a benchmark has a finer one."""
        return float(self._success())

    def _ended(self) -> bool:
        """Whether the episode is over; the success itself unless an episode can also end in failure."""
        return self._success()

    def batch(self, num_envs: int) -> Members | None:
        """`num_envs` members like this one that are played together, where that is faster than one by
        one; what they answer must be the same to the last byte. None, the default, is one by one."""
        return None

    # ---- Gymnasium ----------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        options = options or {}
        unknown = set(options) - {"task"}
        if unknown:
            raise ValueError(f"reset: unknown option {sorted(unknown)[0]!r}; the only option is 'task'")
        index = options.get("task")
        if index is None:
            index = int(self.np_random.integers(len(self.panel)))
        self._task = self.panel[index]
        self._begin(self._task.content)
        self._steps = 0
        self._over = False
        return self._observation(), self._info()

    def step(self, action: str) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise gymnasium.error.ResetNeeded("step: the episode is over; call reset() first")
        if not isinstance(action, str):
            raise TypeError(f"step: an action is text, got {type(action).__name__}")
        executed = self._executable(requested_action(action, self.require_tags))
        reward = self._execute(executed)
        self._steps += 1
        success, ended = self._success(), self._ended()
        truncated = not ended and self._steps >= self.max_steps
        self._over = ended or truncated
        info = self._info()
        info.update(action=executed, valid=executed != INVALID, success=success, score=self._score())
        return self._observation(), reward, ended, truncated, info

    def _executable(self, wanted: str | None) -> str:
        """The admissible action that was asked for, capitals and spacing aside, else `INVALID`."""
        admissible = self._admissible()
        if wanted is None or wanted in admissible:
            return wanted or INVALID
        return next((action for action in admissible if normalise(action) == wanted), INVALID)

    def _info(self) -> dict[str, Any]:
        assert self._task is not None
        return {
            "anchor": self._anchor(),
            "label": self._label(),
            "admissible_actions": self._admissible(),
            "task": self._task.text,
            "task_id": self._task.id,
            "data": self.data,
            "step": self._steps,
        }
