"""AnchorWrapper: any Gymnasium environment with text actions, tasks and the anchors that a function gives it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from numpy.typing import NDArray

from anchors import INVALID, anchor_key
from anchors.key import OWN, AnchorKind
from crbc_envs.actions import Replies, normalise, requested_action
from crbc_envs.core import AnchorEnv, brief, plain_actions, plain_reward, present
from crbc_envs.errors import EnvError
from crbc_envs.noise import expect_np_random, seed_noise
from crbc_envs.prompts import is_frame
from crbc_envs.spaces import UnicodeText, holds_text
from crbc_envs.tasks import SPLITS, Task, TaskPanel

Inner = gymnasium.Env[Any, Any]
Phi = Callable[[Inner, Any], Any]
"""Of an environment and its observation, the payload of an anchor."""

MAX_STEPS = 100
"""The default of `max_steps` for an environment whose spec sets no limit."""
TRIES = 200
"""How many seeds are tried for a task. One in three begins in the right split, unless there are few beginnings."""
PAYLOADS = "return text, bytes, an array, a number or a tuple of these: tuple(list), tuple(sorted(set))"
WRITTEN_OUT = 1_000
"""The label of an array has all its numbers up to this many; beyond, its key."""


@cache
def known_tasks(*kind: object) -> dict[int, Task[int]]:
    """The tasks found so far by all environments of a kind, for the argument `known` of each."""
    return {}


class AnchorWrapper(AnchorEnv[Any, int]):
    """Any Gymnasium environment as an `AnchorEnv`.

    `env` is an environment, or a callable that makes the environment of a task from its seed: give a callable where
    the level is an argument of the constructor, as FrozenLake's map is. The environment of the previous task is
    closed. All levels have the same actions and, if the agent reads arrays, the same shape.

    `phi(env, observation)` gives the payload of the anchor: everything that matters for the future, and nothing else.
    It is text, bytes, an array, a number, or a tuple of these and None. The anchor is its key. The label is the payload
    in a readable form, equal exactly if the payload is; an array of more than `WRITTEN_OUT` numbers shows its key.
    Where there is a choice of kinds, `phi` maps kinds of anchor to such functions, and `anchor` names the one to use.

    `success(reward, terminated, info)` says whether a step has reached the goal. Success terminates the episode.
    Termination without success is a failure. Where the environment truncates by itself, the episode is truncated.

    `actions` has one text per action of a `Discrete` space, or maps texts to actions of any space. The default is
    "0", "1" and so on. `admissible(env)` gives the texts that are admissible now; the default is all of them. Instead
    it may be a name, under which the environment's `info` has them. An environment that takes text needs no `actions`:
    what is admissible stands for itself. An invalid reply takes no step inside and has reward 0.

    `show(env, observation)` gives what the agent reads, text or an array. The default is the observation if it is
    text or a frame, uint8 (H, W, 3), and otherwise its text, with arrays in full.

    Tasks are told apart by how they begin. Task i of `split`, "train", "validation" or "test", is a seed, drawn from
    (split, i) alone, whose initial anchor falls into this split's third of all anchors. So no two splits share a
    beginning, and two seeds that begin alike are one task, with one `task_id`. The seed resets the environment. A split
    has `tasks` of them; `tasks=1` is one that all splits have, for environments that always begin alike. With
    several kinds, the initial anchor is that of "state", if there is one, so that tasks are the same under every kind.

    `layout(env, observation)` gives the payload that decides the split instead, such as the map without the agent: no
    layout is in two splits, and so nothing that keeps its layout can be met in two. It is a trait of its tasks.

    With `stochastic`, the task's seed decides how the environment begins. Once it is reset, its `np_random` is replaced
    by that of this environment, so that what happens later follows the seed given to `reset`. An environment must draw
    its noise from `np_random` for this, as Gymnasium asks. Without `stochastic` the noise belongs to the task: it is
    the same in every episode. A group with `dynamics="independent"` gives each copy its own noise in either case.

    `max_steps` defaults to the `max_episode_steps` of the inner spec, or to `MAX_STEPS`. `domain` defaults to that of
    the class, and to the inner id's name. `text` is the task's text, or `text(env, observation)` gives it at the start.
    `render` shows the inner environment in its render mode, which is the only one named in `metadata`: make `env` with
    the mode that is wanted. A subclass may name in `metadata` those that it makes. `replies` is as in `AnchorEnv`.

    The tasks are found with a copy of `env`, so a running episode is left alone. `known` keeps those found so far, by
    index: environments that play the same tasks find each of them once if they are given the same dictionary.

    Raises `TypeError` or `ValueError` for an argument of the wrong kind, and `EnvError` where `phi`, `show`, `layout`
    or the environment returned one. Rewards are finite numbers, or arrays of one.
    """

    def __init__(
        self,
        env: Inner | Callable[[int], Inner],
        phi: Phi | Mapping[AnchorKind, Phi],
        *,
        success: Callable[[float, bool, dict[str, Any]], bool],
        actions: Sequence[str] | Mapping[str, Any] | None = None,
        show: Callable[[Inner, Any], str | NDArray[Any]] | None = None,
        text: str | Callable[[Inner, Any], str] = "",
        tasks: int = 1_000,
        split: str = "train",
        max_steps: int | None = None,
        replies: Replies = "thought",
        admissible: Callable[[Inner], Sequence[str]] | str | None = None,
        stochastic: bool = False,
        domain: str | None = None,
        anchor: str = OWN,
        layout: Phi | None = None,
        known: dict[int, Task[int]] | None = None,
    ) -> None:
        if not isinstance(env, gymnasium.Env) and not callable(env):
            raise TypeError(f"env must be a gymnasium.Env, or make one from a seed; got {type(env).__name__}")
        self._make = None if isinstance(env, gymnasium.Env) else env
        self._scout: Inner | None = None  # resets to find tasks, if there is one environment for all of them
        self._kinds: dict[str, Phi] = dict(phi.items()) if isinstance(phi, Mapping) else {OWN: phi}
        if anchor not in self._kinds:
            raise ValueError(f"anchor must be one of {', '.join(self._kinds)}; got {anchor!r}")
        self.anchor, self._phi = anchor, self._kinds[anchor]
        self._success_of, self._show, self._admissible_of = success, show or _shown, admissible
        self._text, self._layout = text, layout
        self.env = env if isinstance(env, gymnasium.Env) else self._made(0)
        spec = self.env.spec
        named = getattr(type(self), "domain", None) or (spec.name if spec else type(self.env.unwrapped).__name__)
        self.domain = domain or named
        self.stochastic = stochastic
        if max_steps is None:
            max_steps = (spec and spec.max_episode_steps) or MAX_STEPS
        super().__init__(Starts(split, tasks, self.domain, self._start, known), max_steps, replies)
        # Other modes need another inner environment, which only who made this one can make.
        mode = self.env.render_mode
        modes = type(self).metadata.get("render_modes") or ([mode] if mode else [])
        self.metadata, self.render_mode = {**self.env.metadata, "render_modes": modes}, mode
        self._speaks = actions is None and holds_text(self.env.action_space)
        if self._speaks and admissible is None:
            raise ValueError(f"{self.domain} takes text: admissible must give the actions of now, or actions name all")
        self._actions = {} if self._speaks else named_actions(actions, self.env.action_space)
        self._terminated = self._truncated = False
        self._arrive(*self.env.reset(seed=0), 0)
        self._anchor()  # phi is tried at once, so that its errors come from here
        self.action_space = UnicodeText(examples=self._admissible() if self._speaks else tuple(self._actions))
        self.observation_space = _space_of(self._observation())

    # ---- tasks --------------------------------------------------------------------------------

    def _made(self, seed: int) -> Inner:
        assert self._make is not None
        env = self._make(seed)
        if not isinstance(env, gymnasium.Env):
            raise TypeError(f"env({seed}) must return a gymnasium.Env, got {type(env).__name__}")
        return env

    def _start(self, seed: int) -> Start:
        """How a seed begins, found without touching the environment that is played."""
        if self._make is None and self._scout is None:
            try:
                self._scout = deepcopy(self.env)
            except TypeError as error:
                raise EnvError(f"{self.domain}: cannot be copied ({error}); pass a function of a seed") from error
        env = self._made(seed) if self._scout is None else self._scout
        observation, _ = env.reset(seed=seed)
        where = f"{self.domain}, seed {seed}"
        digest = self._key(self._kinds.get("state", self._phi)(env, observation), where)
        layout = digest if self._layout is None else self._key(self._layout(env, observation), where)
        text = self._text if isinstance(self._text, str) else self._text(env, observation)
        if self._make is not None:
            env.close()
        return Start(digest, layout, text)

    # ---- hooks --------------------------------------------------------------------------------

    def _begin(self, task: int) -> None:
        if self._make is not None:
            self.env.close()
            self.env = self._made(task)
        self._arrive(*self.env.reset(seed=task), 0)
        if self.stochastic:
            expect_np_random(self.env)
            self.env.np_random = self.np_random
        self._won = self._terminated = self._truncated = False

    def _arrive(self, observation: Any, info: dict[str, Any], step: int) -> None:
        """Keep what the environment returned. All that was found out about the situation before is forgotten."""
        self._seen = present(observation, self.env.observation_space, self.domain, step)
        self._told = info
        self._listed: tuple[str, ...] | None = None
        self._payload: Any = None

    def _execute(self, action: str) -> float:
        if action == INVALID:
            return 0.0
        taken = action if self._speaks else self._actions[action]
        observation, reward, terminated, truncated, info = self.env.step(taken)
        self._arrive(observation, info, self._steps + 1)
        gained = plain_reward(reward, self.domain, self._steps + 1)
        self._won = bool(self._success_of(gained, bool(terminated), info))
        self._terminated, self._truncated = bool(terminated), bool(truncated)
        return gained

    def _observation(self) -> str | NDArray[Any]:
        shown = self._show(self.env, self._seen)
        if isinstance(shown, np.ndarray):
            return shown.copy()  # the environment may write on it later
        if not isinstance(shown, str):
            raise EnvError(f"{self._where}: show must return text or an array, got {brief(shown)}")
        return shown

    def _anchor(self) -> str:
        self._payload = self._phi(self.env, self._seen)  # always a new look; the label, asked next, shows the same one
        return self._key(self._payload, self._where)

    def _key(self, payload: Any, where: str) -> str:
        """The anchor of what phi or layout returned."""
        if payload is None:  # most likely, a return was forgotten
            raise EnvError(f"{where}: phi returned None; {PAYLOADS}")
        try:
            return anchor_of(payload)
        except TypeError as error:
            raise EnvError(f"{where}: {error}") from error

    def anchor_as(self, kind: str) -> str:
        """The current situation's anchor of another `kind`. Raises `ValueError` unless `phi` maps it to a function."""
        if kind not in self._kinds:
            raise ValueError(f"{self.domain} has anchors of the kind {', '.join(self._kinds)}, and not {kind!r}")
        return self._key(self._kinds[kind](self.env, self._seen), self._where)

    def traits(self) -> Mapping[str, str]:
        """The layout of the current task, if that decides its split."""
        return {} if self._layout is None or self._task is None else {"layout": self._start(self._task.content).layout}

    def _label(self) -> str:
        payload = self._phi(self.env, self._seen) if self._payload is None else self._payload
        return payload if isinstance(payload, str) else written(payload)

    def _admissible(self) -> tuple[str, ...]:
        if self._listed is None:
            self._listed = tuple(self._actions) if self._admissible_of is None else self._asked()
        return self._listed

    def _asked(self) -> tuple[str, ...]:
        """What is admissible now, as the environment says."""
        of, at_the_end = self._admissible_of, () if self._terminated or self._truncated else None
        given = self._told.get(of, at_the_end) if isinstance(of, str) else of and of(self.env)
        given = plain_actions(given, self.domain, self._steps)
        if self._speaks:
            return tuple(named_actions(tuple(dict.fromkeys(given)), self.env.action_space))
        unknown = [action for action in given if action not in self._actions]
        if unknown:
            raise ValueError(f"admissible gave {unknown[0]!r}, which is none of the actions {', '.join(self._actions)}")
        return given

    def _success(self) -> bool:
        return self._won

    def _ended(self) -> bool:
        return self._won or self._terminated

    def _cut(self) -> bool:
        return self._truncated

    def seed_noise(self, seed: int) -> None:
        """Make the noise of the environment inside follow `seed`, as `AnchorEnv.seed_noise`."""
        seed_noise(self.env, seed)

    # ---- Gymnasium ----------------------------------------------------------------------------

    def render(self) -> Any:
        return None if self.render_mode is None else self.env.render()

    def close(self) -> None:
        self.env.close()
        if self._scout is not None:
            self._scout.close()
            self._scout = None


class Start(NamedTuple):
    """How a seed begins: the key of its situation, that of what decides its split, and the task's text."""

    digest: str
    layout: str
    text: str


class Starts(TaskPanel[int]):
    """Seeds as tasks, told apart by how they begin: `start(seed)`, whose keys are of 32 hex digits."""

    has_kinds: ClassVar[bool] = False

    def __init__(
        self, split: str, size: int, domain: str, start: Callable[[int], Start], known: dict[int, Task[int]] | None
    ) -> None:
        if size < 1:
            raise ValueError(f"tasks must be at least 1, got {size}")
        super().__init__(split, size)
        self.domain, self.start = domain, start
        self._known = {} if known is None else known

    def _task(self, index: int) -> Task[int]:
        if index not in self._known:
            seed, start = self._found(index)
            name = f"{self.domain}/{self.split}/{start.digest}"
            self._known[index] = Task(name, start.text, seed, start.digest)
        return self._known[index]

    def _found(self, index: int) -> tuple[int, Start]:
        """The first seed of a task's stream that begins in this split, and how it begins."""
        if self.size == 1:
            return 0, self.start(0)
        third = SPLITS.index(self.split)
        for seed in np.random.default_rng([third, index]).integers(2**31, size=TRIES).tolist():
            start = self.start(seed)
            if int(start.layout, 16) % len(SPLITS) == third:
                return seed, start
        raise ValueError(
            f"{self.domain}: none of {TRIES} seeds begins a task of the {self.split} split. The environment begins in "
            "too few ways to be split in three: give tasks=1, for one task that is the same in every split"
        )


# ---- payloads -------------------------------------------------------------------------------------


def anchor_of(payload: Any) -> str:
    """The anchor of a payload: `anchor_key` of text, bytes and arrays as they are, and of all else as `written`."""
    return anchor_key(payload if isinstance(payload, str | bytes | np.ndarray) else written(payload))


def written(payload: Any) -> str:
    """A payload as text, equal exactly for equal payloads. Raises `TypeError` for one that is of no stable form."""
    if isinstance(payload, tuple):
        return f"({', '.join(map(written, payload))})"
    if isinstance(payload, np.ndarray):
        key = anchor_key(payload)
        form = f"{payload.dtype.name}{list(payload.shape)}"
        return f"{form} {payload.tolist() if payload.size <= WRITTEN_OUT else key}"
    plain = payload.item() if isinstance(payload, np.generic) else payload
    if plain is None or isinstance(plain, str | bytes | int | float):
        return repr(plain)
    raise TypeError(f"phi returned {brief(payload)}; {PAYLOADS}")


# ---- actions and observations ---------------------------------------------------------------------


def named_actions(actions: Sequence[str] | Mapping[str, Any] | None, space: Space[Any]) -> dict[str, Any]:
    """The action behind each text. Raises `TypeError` and `ValueError`."""
    if not isinstance(actions, Mapping):
        if holds_text(space) and actions is not None and not isinstance(actions, str):
            return named_actions({name: name for name in actions}, space)
        if not isinstance(space, Discrete):
            raise TypeError(f"actions must map texts to actions, because the action space is {space}, not Discrete")
        numbers = range(int(space.start), int(space.start + space.n))
        names = [str(number) for number in numbers] if actions is None else actions
        if isinstance(names, str) or len(names) != len(numbers):
            raise ValueError(f"actions must be {len(numbers)} texts, one for each action of {space}; got {names!r}")
        pairs = list(zip(names, numbers, strict=True))
    else:
        pairs = list(actions.items())
    taken: dict[str | None, str] = {normalise(INVALID): INVALID}
    for name, action in pairs:
        if not isinstance(name, str):
            raise TypeError(f"actions are named by texts, got {name!r}")
        plain = normalise(name)
        if plain is None or requested_action(name) != plain:
            raise ValueError(f"the action {name!r} could never be asked for: it is empty, too long or has a tag")
        if plain in taken:
            raise ValueError(f"the actions {taken[plain]!r} and {name!r} are one, apart from case and spacing")
        if action not in space:
            raise ValueError(f"the action {name!r} stands for {action!r}, which is not in {space}")
        taken[plain] = name
    return dict(pairs)


def rewarded(reward: float, terminated: bool, info: dict[str, Any]) -> bool:
    """`success` where a reward above 0 says that the goal was reached."""
    return reward > 0


def _shown(env: Inner, observation: Any) -> str | NDArray[Any]:
    """What the agent reads by default."""
    if is_frame(observation):
        return observation
    with np.printoptions(threshold=sys.maxsize, precision=8, linewidth=120, suppress=False):
        return str(observation)


def _space_of(shown: str | NDArray[Any]) -> Space[Any]:
    """The space of everything like `shown`: all text, or all arrays of this shape and dtype."""
    if isinstance(shown, str):
        return UnicodeText()
    kind = shown.dtype.type
    if issubclass(kind, np.integer):
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        return Box(low, high, shown.shape, kind)
    return Box(0, 1, shown.shape, kind) if kind is np.bool_ else Box(-np.inf, np.inf, shown.shape, kind)
