"""AnchorEnv: a Gymnasium environment whose actions are text and whose `info` holds the anchor of every step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, KeysView, Mapping, Sequence, Set
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite, prod
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar, get_args, runtime_checkable

import gymnasium
import numpy as np
from gymnasium.spaces import Space
from numpy.typing import DTypeLike, NDArray

from anchors import INVALID
from anchors.key import OWN, anchor_name
from crbc_envs.actions import Replies, admissible_action, requested_action
from crbc_envs.errors import EnvError, RequirementError
from crbc_envs.noise import replace_np_random
from crbc_envs.prompts import Template
from crbc_envs.tasks import Task, TaskPanel

Obs = TypeVar("Obs")
T = TypeVar("T")

Infos = dict[str, Any]

Expert = Callable[[Any, Infos], str]
"""Maps an observation and its info to a reply, during one episode: best `tagged` text, since it is what is taught.

After the first step `info["action"]` is what was executed, which need not be what the expert replied: another agent may
be playing, whose steps it corrects. Where it has no advice it may raise `ValueError`.
"""

Rows = Sequence[tuple[str, ...]]
"""A page for people. A row of one cell is a paragraph. Rows of equal length one after another are a table."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a reset or step of k members, in the order of the call.

    `observations` is a list of k, or an array whose first axis is k; `rewards` (k,) float64; `terminated`
    and `truncated` (k,) bool. `infos` has Gymnasium's vector layout: under each name a column of k values,
    and under "_name" the mask of the members that have one.
    """

    observations: Any
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: Infos


class Members(Protocol):
    """Numbered copies of one environment. A call changes only the members it names."""

    def reset(
        self, members: Sequence[int], tasks: Sequence[int], seeds: Sequence[int], noise: Sequence[int] | None = None
    ) -> Outcome:
        """Begin task `tasks[i]` at `members[i]` with `seeds[i]`. Rewards are 0 and flags False.

        With `noise`, what happens after the beginning follows `noise[i]`, as by `AnchorEnv.seed_noise`.
        """

    def step(self, members: Sequence[int], actions: Sequence[str]) -> Outcome:
        """Step `members[i]` with `actions[i]`. All of them must have begun and not ended."""

    def render(self) -> tuple[Any, ...]:
        """The rendering of every member, in its render mode."""

    def close(self) -> None: ...


LINE = 64
"""The bytes of a cache line."""


def aligned_empty(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """As `np.empty`, for frames: its memory begins with a cache line.

    numpy places a large array 16 bytes after a line begins. Drawing to there takes up to half as long again.
    """
    size = prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + LINE, dtype=np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(dtype).reshape(shape)


@runtime_checkable
class ShowingMembers(Members, Protocol):
    """Members whose observations are arrays, and which show them at any time. A batch of frames is thus drawn once,
    into the array that the caller gets.
    """

    def step(self, members: Sequence[int], actions: Sequence[str], shown: bool = True) -> Outcome:
        """As `Members.step`. Unless `shown`, the outcome has no observations."""

    def show(self, out: NDArray[Any]) -> None:
        """Write the current observation of every member to `out`; that of one that has ended is its last.

        All have begun. `out` is C-contiguous and has one row per member.
        """


def plain_reward(reward: Any, domain: str, step: int) -> float:
    """A reward as a float, also from an array of one number. Raises `EnvError` for all that is no finite number."""
    if isinstance(reward, np.ndarray | np.generic) and reward.size == 1:
        reward = reward.item()
    if isinstance(reward, int | float) and isfinite(reward):
        return float(reward)
    raise EnvError(f"{domain}, step {step}: the reward is {brief(reward)}; return one finite number")


def plain_score(score: Any, domain: str, step: int) -> float:
    """A score as a float. Raises `EnvError` for all that is no number from 0 to 1, but for what rounding adds."""
    if type(score) is float and 0.0 <= score <= 1.0:
        return score  # most are
    if isinstance(score, np.ndarray | np.generic) and score.size == 1:
        score = score.item()
    if isinstance(score, int | float) and -1e-9 <= score <= 1.0 + 1e-9:
        return min(max(float(score), 0.0), 1.0)
    raise EnvError(f"{domain}, step {step}: the score is {brief(score)}; return a number from 0 to 1")


def plain_actions(actions: Any, domain: str, step: int) -> tuple[str, ...]:
    """Admissible actions. Raises `EnvError` for one text, for what has no order, and for what is no text."""
    if type(actions) is tuple and {*map(type, actions)} <= {str}:
        return actions  # most are
    ordered = (isinstance(actions, Collection) and not isinstance(actions, Set)) or isinstance(actions, KeysView)
    if isinstance(actions, str) or not ordered or not all(issubclass(kind, str) for kind in {*map(type, actions)}):
        raise EnvError(f"{domain}, step {step}: the admissible actions are {brief(actions)}; return a list of texts")
    return tuple(actions)


def present(observation: Any, space: Space[Any], domain: str, step: int) -> Any:
    """The observation. Raises `EnvError` for None, unless the space has it."""
    if observation is None and observation not in space:
        raise EnvError(f"{domain}, step {step}: the observation is None; return one of {space}")
    return observation


def brief(value: Any) -> str:
    """A value in a message: its text in one line of at most 60 characters, and its type."""
    text = " ".join(repr(value).split())
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


class AnchorEnv(gymnasium.Env[Obs, str], Generic[Obs, T]):
    """Base class of every environment of the suite. `panel` has the tasks of its split, a `TaskPanel`.

    `reset(seed=..., options={"task": index})` begins task `index` of the panel. Without a task, one is drawn
    from `np_random`. `step(text)` takes a semantic action (`up`) or a model's whole reply
    (`<think>...</think><action>up</action>`), read by the grammar `replies`, one of `crbc_envs.actions.Replies`; with
    "tags", only the latter. A reply that is malformed or not admissible counts as the action `anchors.INVALID`: it
    costs a step and does not change the state.

    `info` holds `anchor` (key of the current situation), `label` (a readable form of it),
    `admissible_actions`, `task` (text), `task_id`, `data` (where the task comes from) and `step`.
    After a step it also holds `action` (as executed), `valid`, `success` and `score`. Success terminates the
    episode; a final failure may do so too. After `max_steps` steps without either, it is truncated. Raises `ValueError`
    for `max_steps` below 1 and another grammar, and `RequirementError` where a package of `requires` is missing.

    A subclass sets `domain` and the spaces, and implements the seven abstract hooks below. Everything else that it
    brings along, it declares here: `templates`, `requires`, `stochastic`, `placeholder`, `dataset`, `conformance`,
    `data`, `expert`, for the comparison of splits `canonical_forms`, `traits` and `near_traits`, for the choice of
    anchors `anchor`, `anchor_versions`, `echoes`, `anchor_as` and `distance`, and for people who play it `legend` and
    `page`.
    """

    domain: str
    """The environment's name in reports."""
    templates: Mapping[str, Template] = MappingProxyType({})
    """Its own prompt templates, by style. The generic ones of `crbc_envs.prompts` serve any other style."""
    requires: Mapping[str, str] = MappingProxyType({})
    """The packages it needs beyond the core dependencies, each with the command that installs it."""
    stochastic = False
    """Whether the same action in the same situation may lead to different situations. Each copy in a group then has
    its own noise, unless `dynamics="shared"` is asked for."""
    placeholder = ""
    """The part of an admissible action that the agent replaces by its own words, such as `<your query>`."""
    dataset = ""
    """Its official data: "module:attribute" of the `storage.datasets.Dataset` that `crbc data` installs, or ""."""
    conformance = ""
    """How it is compared with the original: "module:attribute" of a `storage.outcomes.Conformance`, or ""."""
    data = "generated"
    """Where the tasks come from: "generated" (embedded) or "official"."""
    anchor: str = OWN
    """The kind of its anchors, one of `anchors.key.ANCHOR_KINDS`; "own" where there is no choice."""
    anchor_versions: Mapping[str, int] = MappingProxyType({})
    """The version of the keys of each kind, for kinds whose keys have ever changed. The others have version 1."""
    legend: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """What each symbol of a board means, and its colour by ANSI name: {"$": ("box", "yellow")}."""

    def __init__(self, panel: TaskPanel[T], max_steps: int, replies: Replies = "thought") -> None:
        if not isinstance(max_steps, int | np.integer) or max_steps < 1:
            raise ValueError(f"max_steps must be at least 1 and a whole number, got {max_steps}")
        for package, command in self.requires.items():
            if find_spec(package) is None:
                raise RequirementError(f"{type(self).__name__} needs {package}: {command}")
        self.panel = panel
        self.max_steps = max_steps
        if replies not in get_args(Replies):
            raise ValueError(f"replies must be one of {', '.join(get_args(Replies))}; got {replies!r}")
        self.replies: Replies = replies
        self._task: Task[T] | None = None
        self._steps = 0
        self._over = True

    # ---- hooks --------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, task: T) -> None:
        """Put the environment at the start of `task`."""

    @abstractmethod
    def _execute(self, action: str) -> float:
        """Execute an admissible action, or `INVALID` (no change of state). Returns the reward of the step."""

    @abstractmethod
    def _observation(self) -> Obs: ...

    @abstractmethod
    def _anchor(self) -> str:
        """The key of the current situation."""

    @abstractmethod
    def _label(self) -> str:
        """The current situation in a form for people."""

    @abstractmethod
    def _admissible(self) -> tuple[str, ...]: ...

    @abstractmethod
    def _success(self) -> bool: ...

    def _score(self) -> float:
        """The task score in [0, 1]. It equals the success unless a benchmark grades its outcomes."""
        return float(self._success())

    def _ended(self) -> bool:
        """Whether the episode has ended, where it can also end in failure. A success ends it in any case."""
        return self._success()

    def _cut(self) -> bool:
        """Whether the environment truncates the episode itself, before `max_steps`."""
        return False

    def expert(self, rng: np.random.Generator, **options: Any) -> Expert | None:
        """An expert for the episode that has just begun, which `crbc warmstart` imitates.

        It draws from `rng` alone. `options` are its own, such as how often it errs. None: there is no expert.
        """
        return None

    def page(self) -> Rows | None:
        """The current situation laid out for a person. None: the observation can be read as it is.

        What can be clicked stands in brackets: "[x]" for the action "click[x]".
        """
        return None

    def seed_noise(self, seed: int) -> None:
        """Make all that happens from here on follow `seed`. The situation stays as it is.

        Groups call this right after `reset` to give each copy its own noise. The default replaces `np_random`.
        Override it where noise comes from elsewhere. Raises `TypeError` where a second source of randomness is found.
        """
        replace_np_random(self, seed)

    @property
    def anchor_name(self) -> str:
        """Kind and version of the anchors, such as "situation-1". Records tell it."""
        return anchor_name(self.anchor, self.anchor_versions)

    @property
    def echoes(self) -> bool:
        """Whether an invalid reply may change the anchor, because the key holds the environment's answer to it."""
        return False

    def anchor_as(self, kind: str) -> str:
        """The anchor of the current situation under another `kind`. Raises `ValueError` where there is none."""
        if kind != self.anchor:
            raise ValueError(f"{self.domain} has anchors of one kind, {self.anchor!r}, and not {kind!r}")
        return self._anchor()

    def distance(self) -> float | None:
        """The least number of steps from here to success, as far as it can be computed.

        `math.inf`: success cannot be reached any more. None: not known.
        """
        return None

    def canonical_forms(self) -> Mapping[str, str]:
        """Coarser keys of the current situation, by name: {"board up to symmetry": key}.

        Two situations with one key are as good as the same. `measure_splits` compares splits by them too.
        """
        return {}

    def traits(self) -> Mapping[str, str]:
        """What the current task may have in common with others, by name: {"product": its number}."""
        return {}

    def near_traits(self) -> Mapping[str, Collection[str]]:
        """For names of `traits`, those of the tasks that are nearly the same as the current one."""
        return {}

    def batch(self, num_envs: int) -> Members | None:
        """`num_envs` members like this one that are stepped together, if that is faster than one by one.

        Their results must equal those of single environments to the last byte. The default, None, makes
        the caller step single environments.
        """
        return None

    # ---- Gymnasium ----------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        """Begin an episode and return its first observation and `info`. `options["task"]` is an index of the panel, and
        `seed` seeds `np_random`, which goes on with None. Raises `ValueError` for another option, and `IndexError` for
        an index that the panel does not have."""
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
        return present(self._observation(), self.observation_space, self.domain, 0), self._info()

    def step(self, action: str) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Take one step by `action`, a reply. Returns observation, reward, terminated, truncated and `info`. Raises
        `gymnasium.error.ResetNeeded` after the end, `TypeError` for an action that is no text, and `EnvError` where a
        hook returned something of the wrong kind."""
        if self._over:
            raise gymnasium.error.ResetNeeded("step: the episode is over; call reset() first")
        if not isinstance(action, str):
            raise TypeError(f"step: an action must be a str, got {type(action).__name__}")
        executed = self._executable(requested_action(action, self.replies))
        reward = plain_reward(self._execute(executed), self.domain, self._steps + 1)
        self._steps += 1
        success = self._success()
        if not isinstance(success, (int, np.bool_)):
            raise EnvError(f"{self._where}: the success is {brief(success)}; return True or False")
        ended = bool(success or self._ended())
        truncated = not ended and (self._cut() or self._steps >= self.max_steps)
        self._over = ended or truncated
        info = self._info()
        score = plain_score(self._score(), self.domain, self._steps)
        info.update(action=executed, valid=executed != INVALID, success=bool(success), score=score)
        seen = present(self._observation(), self.observation_space, self.domain, self._steps)
        return seen, reward, ended, truncated, info

    def accepts(self, reply: str) -> bool:
        """Whether `step(reply)` would execute an action now, rather than `INVALID`. It changes nothing."""
        return self._executable(requested_action(reply, self.replies)) != INVALID

    def _executable(self, requested: str | None) -> str:
        """The admissible action equal to `requested`, or `INVALID`."""
        return admissible_action(requested, self._admissible())

    @property
    def _where(self) -> str:
        """The environment and its step, for messages."""
        return f"{self.domain}, step {self._steps}"

    def _info(self) -> dict[str, Any]:
        assert self._task is not None
        anchor = self._anchor()
        if not isinstance(anchor, str):
            raise EnvError(f"{self._where}: the anchor is {brief(anchor)}; return anchors.anchor_key(payload)")
        return {
            "anchor": anchor,
            "label": self._label(),
            "admissible_actions": plain_actions(self._admissible(), self.domain, self._steps),
            "task": self._task.text,
            "task_id": self._task.id,
            "data": self.data,
            "step": self._steps,
        }
