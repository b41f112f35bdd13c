"""Runs an environment for the checks: records every step and reports each fault by check, task and step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import TracebackType
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from anchors import INVALID, anchor_key
from crbc_envs import actions
from crbc_envs.actions import normalise
from crbc_envs.vector.contract import AFTER_STEP, AT_RESET, attribute, broken_rule, panel_of, replies_of
from crbc_envs.vector.members import begin

MAX_STEPS = 10_000
"""A longer episode counts as one that never ends."""

Env = gymnasium.Env[Any, str]

Fields = dict[str, str]
"""Everything that `reset` or `step` returned, by name, as text. Texts are equal exactly if the data are equal."""


class AnchorEnvError(AssertionError):
    """An environment failed a check. `check` is its name, `what` the fault; `task` and `step` say where it failed."""

    def __init__(self, check: str, task: str, step: int | None, what: str) -> None:
        where = "".join((f", {task}" if task else "", "" if step is None else f", step {step}"))
        super().__init__(f"check {check!r}{where}: {what}")
        self.check, self.task, self.step = check, task, step


class Location:
    """Context manager: the check, task and step that are running.

    Any exception inside becomes an `AnchorEnvError` that names them, because an unknown environment may raise
    anything.
    """

    def __init__(self, check: str, task: str = "") -> None:
        self.check, self.task = check, task
        self.step = 0
        self.reply: str | None = None

    def __enter__(self) -> Location:
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
    """One task: its name, the arguments of `reset` that begin it, and the seed of its own noise, if any."""

    name: str
    seed: int
    options: dict[str, Any] | None
    noise: int | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """The values that `reset` or `step` returned."""

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


Choose = Callable[[StepResult], str | None]
"""Chooses the next reply; None ends the episode."""


@dataclass(frozen=True, slots=True)
class Walk:
    """One episode: its T replies and its T + 1 step results, the first from `reset`."""

    start: Start
    replies: list[str]
    results: list[Fields]
    success: bool


NO_SPEC = "the environment has no spec; make it by a registered id"


def usable_spec(env: Env) -> tuple[EnvSpec | None, str]:
    """The spec that makes environments like this one, wrappers included. Otherwise None, and the reason."""
    spec = env.spec
    if spec is None:
        return None, NO_SPEC
    if any(wrapper.kwargs is None for wrapper in spec.additional_wrappers):
        with closing(replace(spec, additional_wrappers=()).make()) as made:
            # Those that the entry point adds by itself need no record.
            own = len(made.spec.additional_wrappers) if made.spec is not None else 0
        lost = [wrapper.name for wrapper in spec.additional_wrappers[own:] if wrapper.kwargs is None]
        if lost:
            return None, (
                f"the wrapper {lost[0]} does not record its arguments, so no copy can be made; derive it from "
                "gymnasium.utils.RecordConstructorArgs too"
            )
    return spec, ""


def require_least(**named: tuple[int, int]) -> None:
    """Raise `ValueError` for a value below its least: name=(value, least)."""
    for name, (value, least) in named.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def starts_of(env: Env, rng: np.random.Generator, tasks: int) -> list[Start]:
    """Tasks of the panel, drawn without replacement. Seeds if the environment has no panel."""
    seeds = rng.integers(2**31, size=tasks).tolist()
    panel = panel_of(env)
    if panel is None:
        return [Start(f"seed {seed}", seed, None) for seed in seeds]
    chosen = rng.choice(len(panel), size=min(tasks, len(panel)), replace=False).tolist()
    return [Start(f"task {index}", seed, {"task": index}) for index, seed in zip(chosen, seeds, strict=False)]


def episode(env: Env, start: Start, choose: Choose, at: Location) -> Iterator[StepResult]:
    """Play one episode and yield each step result, until it is over or `choose` returns None."""
    at.step, at.reply = 0, None
    options = None if start.options is None else dict(start.options)
    observation, info = begin(env, start.seed, options, start.noise)
    result = StepResult(observation, 0.0, False, False, info)
    yield result
    while not result.over and (reply := choose(result)) is not None:
        at.step, at.reply = at.step + 1, reply
        at.expect(at.step <= MAX_STEPS, f"the episode has not ended in {MAX_STEPS} steps")
        result = StepResult(*env.step(reply))
        yield result


def random_walk(env: Env, start: Start, rng: np.random.Generator) -> Walk:
    """Play random admissible actions to the end, and check the contract at every step."""
    replies: list[str] = []
    results: list[Fields] = []

    def choose(result: StepResult) -> str:
        actions = result.info["admissible_actions"]
        replies.append(tagged(env, actions[int(rng.integers(len(actions)))]))
        return replies[-1]

    with Location("contract", start.name) as at:
        for result in episode(env, start, choose, at):
            expect_contract(at, result, results[0] if results else None)
            at.expect(result.info.get("valid", True), "an admissible action was refused")
            at.expect(result.observation in env.observation_space, "the observation is not in the observation_space")
            results.append(result.fields())
    return Walk(start, replies, results, result.info["success"])


def tagged(env: Env, action: str) -> str:
    """The action as a reply that this environment accepts."""
    return actions.tagged(action, "check") if replies_of(env) == "tags" else action


def replay(replies: Iterable[str]) -> Choose:
    """A `choose` function that returns the replies one after the other."""
    remaining = iter(replies)
    return lambda _: next(remaining, None)


def expect_replay(
    env: Env, walk: Walk, at: Location, context: str, disturb: Callable[[StepResult], object] = lambda _: None
) -> None:
    """Play a walk again and compare everything. `disturb` is called on each step result once it is recorded."""
    results = []
    for result in episode(env, walk.start, replay(walk.replies), at):
        results.append(result.fields())
        disturb(result)
    expect_equal(walk, results, at, context)


def expect_same_start(env: Env, walk: Walk, at: Location) -> None:
    """Reset a task with another seed: its situation must be that of the walk's start, whatever noise is in what it
    shows."""
    result = next(episode(env, replace(walk.start, seed=walk.start.seed + 1), lambda _: None, at))
    for name in (*SITUATION, "info['task']", "info['task_id']"):
        was, now = (fields.get(name, "missing") for fields in (walk.results[0], result.fields()))
        at.expect(was == now, f"{name} is {short(now)} after a reset with another seed; it was {short(was)}")


def expect_equal(walk: Walk, results: list[Fields], at: Location, context: str) -> None:
    """Step results recorded elsewhere must equal those of the walk."""
    for t, (expected, actual) in enumerate(zip_longest(walk.results, results, fillvalue=Fields())):
        at.step, at.reply = t, walk.replies[t - 1] if t else None
        for name in sorted(expected.keys() | actual.keys()):
            there, here = expected.get(name, "missing"), actual.get(name, "missing")
            at.expect(there == here, f"{name} is {short(here)} {context}; it was {short(there)}")


def expect_contract(at: Location, result: StepResult, first: Fields | None) -> None:
    """`info` has the right keys and types, and consistent values. `first` is the result of the episode's reset."""
    info = result.info
    fault = broken_rule(info, AT_RESET if first is None else AFTER_STEP)
    at.expect(fault is None, fault or "")
    form = re.fullmatch("[0-9a-f]{32}", info["anchor"])
    at.expect(form is not None, f"an anchor is 32 hex digits, as anchor_key makes them, not {short(info['anchor'])!r}")
    at.expect(info["step"] == at.step, f"info['step'] is {info['step']} after {at.step} steps")
    actions = info["admissible_actions"]
    at.expect(not isinstance(actions, str), "info['admissible_actions'] is one text, not a sequence of them")
    at.expect(all(isinstance(action, str) for action in actions), "an admissible action is text")
    at.expect(len({*map(normalise, actions)}) == len(actions), "two actions are one, apart from case and spacing")
    at.expect(result.over or len(actions) > 0, "no action is admissible, and the episode is not over")
    if first is None:
        return
    for key in ("task", "task_id"):
        at.expect(plain(info[key]) == first[f"info[{key!r}]"], f"info[{key!r}] has changed within the episode")
    at.expect(info["valid"] == (info["action"] != INVALID), f"valid is {info['valid']}, action {info['action']!r}")
    at.expect(0 <= info["score"] <= 1, f"the score {info['score']} is not between 0 and 1")
    at.expect(not info["success"] or bool(result.terminated), "a success does not terminate the episode")


SITUATION = ("info['anchor']", "info['label']", "info['admissible_actions']")
"""The fields that an invalid reply must not change. The observation may change, for example to "Nothing happens."."""


def expect_situation(env: Env, at: Location, result: StepResult, before: Fields) -> None:
    """The situation is that of `before`. After an invalid reply, anchor and label may differ in one that `echoes`."""
    fields = result.fields()
    echo = at.step and not result.info["valid"] and attribute(env, "echoes", False)
    for name in SITUATION[2:] if echo else SITUATION:
        was, now = before.get(name, "missing"), fields.get(name, "missing")
        at.expect(
            was == now, f"an invalid reply, this one or an earlier, made {name} {short(now)}; it was {short(was)}"
        )


def plain(data: Any) -> str:
    """Text that is equal exactly for equal plain data, in any process. For other objects it is their type."""
    if isinstance(data, dict):
        return "{" + ", ".join(sorted(f"{plain(key)}: {plain(value)}" for key, value in data.items())) + "}"
    if isinstance(data, set | frozenset):
        return "{" + ", ".join(sorted(map(plain, data))) + "}"
    if isinstance(data, list | tuple):
        return f"{type(data).__name__}({', '.join(map(plain, data))})"
    if isinstance(data, np.generic):
        data = data.item()
    if isinstance(data, np.ndarray):
        return f"array {anchor_key(data)}" if data.dtype.kind in "biufcSU" else plain(data.tolist())
    if data is None or isinstance(data, str | bytes | int | float | complex):
        return repr(data)
    return type(data).__qualname__


def short(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:150]}..."
