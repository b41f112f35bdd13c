"""An environment played under observation: every moment noted, and every fault named by check, task and step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import zip_longest
from types import TracebackType
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from anchors import INVALID, anchor_key
from crbc_envs import actions

MAX_STEPS = 10_000
"""An episode that is longer counts as one that never ends."""

AT_RESET: dict[str, type | tuple[type, ...]] = {
    "anchor": str,
    "admissible_actions": Sequence,
    "task": str,
    "task_id": str,
    "step": int,
}
AFTER_STEP = {**AT_RESET, "action": str, "valid": bool, "success": bool, "score": (int, float)}
"""What `info` holds, by type."""

Env = gymnasium.Env[Any, str]

Fields = dict[str, str]
"""Everything `reset` or `step` returned, as text that is equal exactly where the data are."""


class AnchorEnvError(AssertionError):
    """An environment failed a check: `check` names it, `task` and `step` say where it was noticed."""

    def __init__(self, check: str, task: str, step: int | None, what: str) -> None:
        where = "".join((f", {task}" if task else "", "" if step is None else f", step {step}"))
        super().__init__(f"check {check!r}{where}: {what}")
        self.check, self.task, self.step = check, task, step


class At:
    """Where a check is. Whatever goes wrong inside becomes an `AnchorEnvError` that says so: an
    environment of unknown make may raise anything."""

    def __init__(self, check: str, task: str = "") -> None:
        self.check, self.task = check, task
        self.step = 0
        self.reply: str | None = None

    def __enter__(self) -> At:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, AnchorEnvError):
            raise self.error(f"{type(error).__name__}: {error}") from error

    def error(self, what: str) -> AnchorEnvError:
        after = "" if self.reply is None else f", after the reply {short(repr(self.reply[:200]))}"
        return AnchorEnvError(self.check, self.task, self.step if self.task else None, what + after)

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            raise self.error(what)


@dataclass(frozen=True, slots=True)
class Start:
    """One task, and the arguments of `reset` that begin it."""

    name: str
    seed: int
    options: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Moment:
    """What `reset` or `step` has just returned."""

    observation: Any
    reward: SupportsFloat
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def over(self) -> bool:
        return bool(self.terminated or self.truncated)

    def fields(self) -> Fields:
        flags = {"reward": float(self.reward), "terminated": bool(self.terminated), "truncated": bool(self.truncated)}
        values = {"observation": self.observation, **flags}
        values.update((f"info[{key!r}]", value) for key, value in self.info.items())
        return {name: plain(value) for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class Walk:
    """The replies of one episode, T of them, and the T + 1 moments before, between and after them."""

    start: Start
    replies: list[str]
    moments: list[Fields]
    success: bool


def starts_of(env: Env, rng: np.random.Generator, tasks: int) -> list[Start]:
    """Tasks of the panel, drawn without repetition; seeds where the environment has no panel."""
    seeds = rng.integers(2**31, size=tasks).tolist()
    panel = getattr(env.unwrapped, "panel", None)
    if not isinstance(panel, Sized):
        return [Start(f"seed {seed}", seed, None) for seed in seeds]
    chosen = rng.choice(len(panel), size=min(tasks, len(panel)), replace=False).tolist()
    return [Start(f"task {index}", seed, {"task": index}) for index, seed in zip(chosen, seeds, strict=False)]


def episode(env: Env, start: Start, choose: Callable[[Moment], str | None], at: At) -> Iterator[Moment]:
    """One episode, moment by moment, until it is over or `choose` has no reply to give."""
    at.step, at.reply = 0, None
    observation, info = env.reset(seed=start.seed, options=None if start.options is None else dict(start.options))
    moment = Moment(observation, 0.0, False, False, info)
    yield moment
    while not moment.over and (reply := choose(moment)) is not None:
        at.step, at.reply = at.step + 1, reply
        at.expect(at.step <= MAX_STEPS, f"the episode has not ended in {MAX_STEPS} steps")
        moment = Moment(*env.step(reply))
        yield moment


def random_walk(env: Env, start: Start, rng: np.random.Generator) -> Walk:
    """Random admissible play to the end, held against the contract at every step."""
    replies: list[str] = []
    moments: list[Fields] = []

    def choose(moment: Moment) -> str:
        actions = moment.info["admissible_actions"]
        replies.append(tagged(env, actions[int(rng.integers(len(actions)))]))
        return replies[-1]

    with At("contract", start.name) as at:
        for moment in episode(env, start, choose, at):
            expect_contract(at, moment, moments[0] if moments else None)
            at.expect(moment.info.get("valid", True), "an admissible action was refused")
            moments.append(moment.fields())
    return Walk(start, replies, moments, moment.info["success"])


def tagged(env: Env, action: str) -> str:
    """The action as a reply this environment reads."""
    return actions.tagged(action, "check") if getattr(env.unwrapped, "require_tags", False) else action


def replay(replies: Iterable[str]) -> Callable[[Moment], str | None]:
    """Gives one reply after the other, whatever happens."""
    left = iter(replies)
    return lambda _: next(left, None)


def expect_replay(env: Env, walk: Walk, at: At, who: str, disturb: Callable[[Moment], object] = lambda _: None) -> None:
    """Play a walk again, `disturb` each moment once it is noted, and compare everything."""
    moments = []
    for moment in episode(env, walk.start, replay(walk.replies), at):
        moments.append(moment.fields())
        disturb(moment)
    expect_equal(walk, moments, at, who)


def expect_equal(walk: Walk, moments: list[Fields], at: At, who: str) -> None:
    """Moments noted elsewhere must be those of the walk."""
    for t, (expected, found) in enumerate(zip_longest(walk.moments, moments, fillvalue=Fields())):
        at.step, at.reply = t, walk.replies[t - 1] if t else None
        for name in sorted(expected.keys() | found.keys()):
            there, here = expected.get(name, "missing"), found.get(name, "missing")
            at.expect(there == here, f"{name} is {short(here)} {who}; it was {short(there)}")


def expect_contract(at: At, moment: Moment, first: Fields | None) -> None:
    """`info` has its keys, of their types, and they agree with each other; `first` is the episode's reset."""
    info = moment.info
    for key, kind in (AT_RESET if first is None else AFTER_STEP).items():
        at.expect(key in info, f"info has no {key!r}")
        at.expect(isinstance(info[key], kind), f"info[{key!r}] is of type {type(info[key]).__name__}")
    form = re.fullmatch("[0-9a-f]{32}", info["anchor"])
    at.expect(form is not None, f"an anchor is 32 hex digits, as anchor_key makes them, not {short(info['anchor'])!r}")
    at.expect(info["step"] == at.step, f"info['step'] is {info['step']} after {at.step} steps")
    actions = info["admissible_actions"]
    at.expect(not isinstance(actions, str), "info['admissible_actions'] is one text, not a sequence of them")
    at.expect(all(isinstance(action, str) for action in actions), "an admissible action is text")
    at.expect(moment.over or len(actions) > 0, "no action is admissible, and the episode is not over")
    if first is None:
        return
    for key in ("task", "task_id"):
        at.expect(plain(info[key]) == first[f"info[{key!r}]"], f"info[{key!r}] has changed within the episode")
    at.expect(info["valid"] == (info["action"] != INVALID), f"valid is {info['valid']}, action {info['action']!r}")
    at.expect(0 <= info["score"] <= 1, f"the score {info['score']} is not between 0 and 1")
    at.expect(not info["success"] or bool(moment.terminated), "a success does not terminate the episode")


def plain(data: Any) -> str:
    """Text that is equal exactly for equal plain data, in any process; of other objects it tells the type."""
    if isinstance(data, dict):
        return "{" + ", ".join(sorted(f"{plain(key)}: {plain(value)}" for key, value in data.items())) + "}"
    if isinstance(data, set | frozenset):
        return "{" + ", ".join(sorted(map(plain, data))) + "}"
    if isinstance(data, list | tuple):
        return f"{type(data).__name__}({', '.join(map(plain, data))})"
    if isinstance(data, np.ndarray):
        return f"array {anchor_key(data)}" if data.dtype.kind in "biufcSU" else plain(data.tolist())
    if data is None or isinstance(data, str | bytes | int | float | complex | np.generic):
        return repr(data)
    return type(data).__qualname__


def short(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:150]}..."
