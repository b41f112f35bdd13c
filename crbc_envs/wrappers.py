"""Wrappers for agents with discrete actions and array observations, such as those of Stable-Baselines3."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from anchors import INVALID, InternedRollouts, RolloutGroup, TransitionCounts
from crbc_envs.actions import MAX_ACTION_LENGTH, Replies, normalise, requested_action, tagged
from crbc_envs.spaces import holds_text
from crbc_envs.vector.contract import attribute, replies_of
from crbc_envs.vector.group import GroupVectorEnv
from crbc_envs.vector.members import member_info

if TYPE_CHECKING:
    GroupWrapper = VectorWrapper[Any, ArrayLike, Any, Any, Any]
else:
    GroupWrapper = VectorWrapper  # it is generic from Gymnasium 1.3 on

Queries = Sequence[str] | Callable[[dict[str, Any]], Sequence[str]]
"""Texts in place of a placeholder: always the same ones, or those for an info, such as words of `info["task"]`."""


class Sizes(NamedTuple):
    """The most that was met: actions in one situation, and bytes in one observation (1 if it is no text)."""

    num_actions: int
    length: int


class Choices:
    """Turns an info into the texts that an agent chooses from by number, and an observation into an array.

    The texts are those of `info["admissible_actions"]`, in their order. One that contains `placeholder` becomes
    one text per query, at its place and in the order of the queries. Nothing is cut: what exceeds `num_actions`
    or `length` raises `ValueError`, and so does a query that makes no action.
    """

    def __init__(
        self, num_actions: int, length: int, queries: Queries | None, placeholder: str, replies: Replies
    ) -> None:
        for name, value in (("num_actions", num_actions), ("length", length)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if placeholder and queries is None:
            raise ValueError(
                f"some actions contain {placeholder!r}, which the agent replaces by its own words; "
                'pass queries: a sequence of texts, or a function of the info, such as lambda info: [info["task"]]'
            )
        if queries is not None and not placeholder:
            raise ValueError("no action has a placeholder for the queries; leave them out, or pass placeholder=...")
        self.num_actions, self.length = num_actions, length
        self.placeholder, self.replies = placeholder, replies
        self.queries = queries if queries is None or callable(queries) else _texts(queries, "queries")

    def texts(self, info: dict[str, Any]) -> tuple[str, ...]:
        """The texts of the actions in the situation of `info`, at most `num_actions`."""
        texts = self.expanded(info)
        if len(texts) > self.num_actions:
            raise ValueError(
                f"{len(texts)} actions are admissible at {_where(info)}, and num_actions is {self.num_actions}; "
                f"pass num_actions={len(texts)} at least. DiscreteActions.measure(env) tells the most of random play"
            )
        return texts

    def expanded(self, info: dict[str, Any]) -> tuple[str, ...]:
        """The texts of the actions in the situation of `info`, however many."""
        if "admissible_actions" not in info:
            raise TypeError("the environment's info has no 'admissible_actions' to number")
        actions = tuple(info["admissible_actions"])
        if not self.placeholder or not any(self.placeholder in action for action in actions):
            return actions
        queries = self.queries
        if callable(queries):
            queries = _texts(queries(info), f"queries at {_where(info)}")
        return tuple(
            text
            for action in actions
            for text in (self._filled(action, queries or (), info) if self.placeholder in action else (action,))
        )

    def text(self, texts: Sequence[str], action: int) -> str:
        """The text of number `action`; `INVALID` past the end of `texts`."""
        return texts[action] if 0 <= action < len(texts) else INVALID

    def reply(self, text: str) -> str:
        """What the environment is stepped with."""
        return tagged(text) if self.replies == "tags" else text

    def check_executed(self, text: str, info: Mapping[str, Any]) -> None:
        """Raises `ValueError` if the environment has refused an action made of a query. Only it knows how it reads."""
        if self.queries is not None and text != INVALID and not info.get("valid", True):
            raise ValueError(
                f"the environment refused {text!r} at {_where(info)}; leave out of the queries "
                "what its actions are written with, such as brackets"
            )

    def mask(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask of the numbers of `texts`, (num_actions,) bool. Without texts all True: a softmax needs one."""
        return np.arange(self.num_actions) < (len(texts) or self.num_actions)

    def space(self, space: Space[Any]) -> Space[Any]:
        """The space of encoded observations, for observations of `space`."""
        return Box(0, 255, (self.length,), np.uint8) if holds_text(space) else space

    def encoded(self, observation: Any, info: Mapping[str, Any]) -> Any:
        """The UTF-8 bytes of a text, (length,) uint8, padded with zeros; any other observation as it is."""
        if not isinstance(observation, str):
            return observation
        text = _utf8(observation)
        if len(text) > self.length:
            raise ValueError(
                f"the observation at {_where(info)} has {len(text)} bytes, and length is {self.length}; "
                f"pass length={len(text)} at least. DiscreteActions.measure(env) tells the most of random play"
            )
        return np.frombuffer(text.ljust(self.length, b"\0"), dtype=np.uint8).copy()

    def _filled(self, action: str, queries: Sequence[str], info: Mapping[str, Any]) -> list[str]:
        """The texts of an action with a placeholder, one per query."""
        texts = [action.replace(self.placeholder, query) for query in queries]
        for query, text in zip(queries, texts, strict=True):
            if not query.strip():
                why = "is empty"
            elif len(text) > MAX_ACTION_LENGTH:
                why = f"makes an action of {len(text)} characters; at most {MAX_ACTION_LENGTH} are read"
            elif requested_action(self.reply(text), self.replies) != normalise(text):
                why = "contains a tag of a reply, such as <action>"
            else:
                continue
            raise ValueError(f"queries at {_where(info)}: {query[:60]!r} {why}")
        return texts


class DiscreteActions(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """An action is an index into `texts`, the actions that are admissible now, below `num_actions`.

    `texts` are those of `info["admissible_actions"]`, in their order. If the environment has a `placeholder`, such
    as WebShop's "<your query>", `queries` are needed: texts, or a function of the info that gives them. An action
    with the placeholder becomes one action per query, at its place. An index past the end is the malformed action
    `anchors.INVALID`: a step that costs and changes nothing. `action_masks` tells sb3-contrib's MaskablePPO which
    are not past the end.

    A text becomes its UTF-8 bytes, shape (`length`,) uint8, padded with zeros. Other observations stay as they
    are; so a `gymnasium.wrappers.TransformObservation` below this one gives a text features of your own.

    The environment `env` takes text actions, and its infos have `admissible_actions`. `placeholder` and `replies`
    are attributes of an `AnchorEnv`; for another environment, pass `placeholder` if it has one.

    Nothing is cut. Raises `TypeError` for an environment without such actions, and `ValueError` for a size below 1,
    for a placeholder without queries, for more actions than `num_actions`, for a text of more than `length` bytes,
    and for a query that makes no action of the environment. `measure` tells which sizes random play needs.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, str],
        num_actions: int,
        length: int = 1024,
        queries: Queries | None = None,
        placeholder: str | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(
            self, num_actions=num_actions, length=length, queries=queries, placeholder=placeholder
        )
        gymnasium.Wrapper.__init__(self, env)
        self._choices = _choices(env, num_actions, length, queries, placeholder)
        self.texts: tuple[str, ...] = ()
        self.action_space = Discrete(num_actions)
        self.observation_space = self._choices.space(env.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset `env` with `seed` and `options`. Returns the observation as bytes, if it is text, and the info."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.texts = self._choices.texts(info)
        return self._choices.encoded(observation, info), info

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step `env` with text number `action`. Returns observation, reward, terminated, truncated and info."""
        text = self._choices.text(self.texts, operator.index(action))
        observation, reward, terminated, truncated, info = self.env.step(self._choices.reply(text))
        self._choices.check_executed(text, info)
        self.texts = () if terminated or truncated else self._choices.texts(info)
        return self._choices.encoded(observation, info), float(reward), terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Mask of the indices of `texts`, (num_actions,) bool. All True where nothing is admissible."""
        return self._choices.mask(self.texts)

    @staticmethod
    def measure(
        env: gymnasium.Env[Any, str],
        episodes: int = 100,
        seed: int = 0,
        queries: Queries | None = None,
        placeholder: str | None = None,
    ) -> Sizes:
        """The sizes that `episodes` episodes of random admissible actions need: `DiscreteActions(env, *measure(env))`.

        All draws follow `seed`; `queries` and `placeholder` are the wrapper's. Returns (`num_actions`, `length`).
        A trained agent gets to places where random play does not, so leave a margin.
        """
        choices = _choices(env, 1, 1, queries, placeholder)
        rng = np.random.default_rng(seed)
        num_actions = length = 1
        for episode in range(episodes):
            observation, info = env.reset(seed=seed if episode == 0 else None)
            over = False
            while True:
                if isinstance(observation, str):
                    length = max(length, len(_utf8(observation)))
                if over:
                    break
                texts = choices.expanded(info)
                num_actions = max(num_actions, len(texts))
                text = texts[rng.integers(len(texts))] if texts else INVALID
                observation, _, terminated, truncated, info = env.step(choices.reply(text))
                over = terminated or truncated
        return Sizes(num_actions, length)


class VectorDiscreteActions(GroupWrapper):
    """`DiscreteActions` for every member of `envs`, a `GroupVectorEnv`, with equal results.

    `num_actions`, `length`, `queries` and `placeholder` are as there. Actions are (num_envs,) integers, and
    observations arrays (num_envs, ...). `texts` has the texts of every member. A member that has ended is ignored: its
    action has no effect and its texts are empty. Raises as `DiscreteActions`, and `TypeError` for another `envs`.
    """

    env: GroupVectorEnv

    def __init__(
        self,
        envs: GroupVectorEnv,
        num_actions: int,
        length: int = 1024,
        queries: Queries | None = None,
        placeholder: str | None = None,
    ) -> None:
        if not isinstance(envs, GroupVectorEnv):
            raise TypeError(f"{envs} is not a GroupVectorEnv; wrap one directly, and others around this")
        super().__init__(envs)
        _check_takes_text(envs, envs.single_action_space)
        placeholder = envs.placeholder if placeholder is None else placeholder
        self._choices = Choices(num_actions, length, queries, placeholder, envs.replies)
        self.texts: list[tuple[str, ...]] = [()] * envs.num_envs
        self.single_action_space = Discrete(num_actions)
        self.action_space = batch_space(self.single_action_space, envs.num_envs)
        self.single_observation_space = self._choices.space(envs.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, envs.num_envs)
        self._reads_text = holds_text(envs.single_observation_space)
        self._bytes = np.zeros((envs.num_envs, length), dtype=np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset `envs` with `seed` and `options`, as `GroupVectorEnv.reset`. Returns observations and infos."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self._read(_members_told(infos), observations)
        return self._encoded(observations), infos

    def step(
        self, actions: ArrayLike
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step the active members by `actions`, (num_envs,) int; another shape raises `ValueError`. Returns
        observations, rewards, terminated and truncated, (num_envs,) each, and infos."""
        if np.shape(actions) != (self.num_envs,):
            raise ValueError(f"step: the actions have shape {np.shape(actions)}, there are {self.num_envs} members")
        numbers = map(operator.index, np.asarray(actions).tolist())
        chosen = [self._choices.text(texts, number) for texts, number in zip(self.texts, numbers, strict=True)]
        observations, rewards, terminated, truncated, infos = self.env.step([self._choices.reply(t) for t in chosen])
        by_member = _members_told(infos)
        for m, info in by_member.items():
            self._choices.check_executed(chosen[m], info)
        self._read(by_member, observations)
        return self._encoded(observations), rewards, terminated, truncated, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """Mask of the indices of each member's texts, (num_envs, num_actions) bool.

        The row of a member that has ended is all True: its action is ignored, and a softmax needs one.
        """
        return np.stack([self._choices.mask(texts) for texts in self.texts])

    @property
    def active(self) -> NDArray[np.bool_]:
        """Mask of the members whose episode has not ended, (num_envs,) bool."""
        return self.env.active

    def transition_counts(self) -> list[TransitionCounts]:
        """As `GroupVectorEnv.transition_counts`."""
        return self.env.transition_counts()

    def interned(self) -> InternedRollouts:
        """As `GroupVectorEnv.interned`."""
        return self.env.interned()

    def groups(self) -> list[RolloutGroup]:
        """As `GroupVectorEnv.groups`."""
        return self.env.groups()

    def _read(self, by_member: Mapping[int, dict[str, Any]], observations: Any) -> None:
        """Keep the texts and the bytes of the members that were reset or stepped, by their infos."""
        active = self.env.active
        for m, info in by_member.items():
            self.texts[m] = self._choices.texts(info) if active[m] else ()
            if self._reads_text:
                self._bytes[m] = self._choices.encoded(observations[m], info)

    def _encoded(self, observations: Any) -> Any:
        return self._bytes.copy() if self._reads_text else observations


def _choices(
    env: gymnasium.Env[Any, str], num_actions: int, length: int, queries: Queries | None, placeholder: str | None
) -> Choices:
    """The choices in one environment, with what it declares."""
    _check_takes_text(env, env.action_space)
    if placeholder is None:
        placeholder = attribute(env, "placeholder", "")
    return Choices(num_actions, length, queries, placeholder, replies_of(env))


def _check_takes_text(env: object, space: Space[Any]) -> None:
    if not holds_text(space):
        raise TypeError(f"{env} takes {space}, not text, so it has no admissible actions to number")


def _members_told(infos: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The infos of the members that have one, by member."""
    present = np.flatnonzero(infos.get("_admissible_actions", ()))
    return {m: member_info(infos, m) for m in present.tolist()}


def _texts(queries: Sequence[str], name: str) -> tuple[str, ...]:
    texts = () if isinstance(queries, str) else tuple(queries)
    if isinstance(queries, str) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{name} must be a sequence of texts, got {queries!r}")
    if not texts:
        raise ValueError(f"{name} must have at least one text")
    return texts


def _where(info: Mapping[str, Any]) -> str:
    return f"task {info.get('task_id', 'unknown')}, step {info.get('step', 'unknown')}"


def _utf8(text: str) -> bytes:
    """The bytes of a text. Half a surrogate pair, which has no bytes, is "?"."""
    return text.encode("utf-8", errors="replace")
