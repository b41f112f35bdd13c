"""check_anchor_env: what any anchor-aware environment must satisfy, tried out on the environment itself.

Step credit is only as good as the anchors it merges. A key that depends on a process, a clock or a
shared buffer raises nothing: it gives wrong credit. Each check here stands for one such silent fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, cycle, islice, repeat
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from anchors import INVALID, TransitionCounts
from crbc_envs.checking.fuzz import MALFORMED, fuzzed_reply
from crbc_envs.checking.probe import (
    MAX_STEPS,
    AnchorEnvError,
    At,
    Env,
    Fields,
    Moment,
    Start,
    Walk,
    episode,
    expect_contract,
    expect_equal,
    expect_replay,
    random_walk,
    replay,
    short,
    starts_of,
    tagged,
)
from crbc_envs.checking.subprocess import replay_elsewhere, request_of
from crbc_envs.core import AnchorEnv
from crbc_envs.vector.group import GroupVectorEnv

__all__ = ["AnchorEnvError", "AnchorReport", "check_anchor_env"]

HASH_SEEDS = ("1", "2")
"""PYTHONHASHSEED of the other processes; this one's own is the third."""

GROUP_SIZE = 3

SITUATION = ("info['anchor']", "info['label']", "info['admissible_actions']")
"""What an invalid reply may not change. The observation may: "Nothing happens." is one."""

NO_SPEC = "the environment has no spec; make it by a registered id"
NO_ANCHOR_ENV = "the environment is not an AnchorEnv"
NOT_PORTABLE = (
    "its class cannot be imported elsewhere (it is in __main__ or in a function), or its arguments are not JSON"
)


@dataclass(frozen=True, slots=True)
class AnchorReport:
    """What `check_anchor_env` saw of an environment that passed.

    `episodes`, `steps`, `mean_length` and `success_rate` are those of random admissible play. Of the
    `anchors` met in it, counted per task, `shared` is the share that two walks or more of one task
    came to, and `aliasing` the share that stands for more than one observation. `label_collisions`
    counts labels that mean another anchor in another task. `invalid` is the share of the `fuzzed`
    replies the environment refused. `skipped` gives each part that could not be run its reason.
    """

    environment: str
    seed: int
    tasks: int
    episodes: int
    steps: int
    mean_length: float
    success_rate: float
    anchors: int
    shared: float
    aliasing: float
    label_collisions: int
    fuzzed: int
    invalid: float
    skipped: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{self.environment}, seed {self.seed}: passed" + (", as far as it could be checked" * bool(self.skipped)),
            f"  random play     {self.episodes} episodes of {self.tasks} tasks, {self.steps} steps, "
            f"mean length {self.mean_length:.1f}, success {self.success_rate:.1%}",
            f"  anchors         {self.anchors}, {self.shared:.1%} of them met by two walks or more of their task",
            f"  aliasing        {self.aliasing:.1%} of the anchors stand for more than one observation",
            f"  labels          {self.label_collisions} mean another anchor in another task",
            f"  fuzzed replies  {self.fuzzed}, {self.invalid:.1%} of them invalid",
        ]
        lines += [f"  skipped         {part}: {reason}" for part, reason in self.skipped.items()]
        return "\n".join(lines)


def check_anchor_env(env: Env, *, seed: int = 0, tasks: int = 4, episodes: int = 32, fuzz: int = 1_000) -> AnchorReport:
    """Check an anchor-aware environment and say what its anchors are like.

    `env` is an `AnchorEnv`, or any environment whose `info` carries the same keys. Tasks are drawn from
    its `panel`; without one they are seeds. `episodes` random walks are spread over `tasks` tasks, and
    `fuzz` hostile replies are tried. What is drawn depends on `seed` alone.

    Made by a registered id, the environment is also compared with fresh copies, here and in other
    processes; of any other the report says what was skipped. Reset the environment before using it on.

    Raises `AnchorEnvError` at the first fault, `ValueError` for a number that is too small, `TypeError`
    for anything but one Gymnasium environment.
    """
    if not isinstance(env, gymnasium.Env):
        raise TypeError(f"check_anchor_env takes a gymnasium.Env, got {type(env).__name__}")
    for name, value, least in (("tasks", tasks, 1), ("episodes", episodes, tasks), ("fuzz", fuzz, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    with At("gymnasium"):
        check_env(env.unwrapped)
    rng = np.random.default_rng(seed)
    starts = starts_of(env, rng, tasks)
    walks = [random_walk(env, start, rng) for start in islice(cycle(starts), episodes)]
    firsts = walks[: len(starts)]
    skipped: dict[str, str] = {}
    _check_determinism(env, firsts, skipped)
    _check_stability(env, firsts, skipped)
    _check_identity(walks)
    _check_sharing(env, firsts)
    _check_invalid(env, firsts)
    refused = _check_fuzz(env, starts, rng, fuzz)
    _check_group(env, starts[0], rng, skipped)
    _check_processes(env, firsts, skipped)
    name = type(env.unwrapped).__name__ if env.spec is None else env.spec.id
    return _report(name, seed, walks, fuzzed=fuzz, invalid=refused / max(fuzz, 1), skipped=skipped)


# ---- the same again -------------------------------------------------------------------------------


def _check_determinism(env: Env, walks: list[Walk], skipped: dict[str, str]) -> None:
    """The same seed and replies give the same again, from this instance and from a fresh one."""
    for walk in walks:
        with At("determinism", walk.start.name) as at:
            expect_replay(env, walk, at, "when played again")
    if env.spec is None:
        skipped["a fresh instance"] = NO_SPEC
        return
    with closing(env.spec.make()) as fresh:
        for walk in walks:
            with At("determinism", walk.start.name) as at:
                expect_replay(fresh, walk, at, "from a fresh instance")


def _check_stability(env: Env, walks: list[Walk], skipped: dict[str, str]) -> None:
    """An anchor is the same when asked for again, and rendering changes nothing."""
    if isinstance(env.unwrapped, AnchorEnv):
        for walk in walks:
            with At("stability", walk.start.name) as at:
                for moment in episode(env, walk.start, replay(walk.replies), at):
                    anchor = moment.info["anchor"]
                    for again in (env.unwrapped._anchor(), env.unwrapped._anchor()):
                        at.expect(again == anchor, f"the anchor {anchor}, asked for again, is {again}")
    else:
        skipped["anchors asked for again"] = NO_ANCHOR_ENV
    modes = [mode for mode in env.metadata.get("render_modes", ()) if mode != "human"]
    if env.spec is None or not modes:
        skipped["rendering"] = "there is no render mode without a window" if env.spec else NO_SPEC
        return
    for mode in modes:
        with closing(env.spec.make(render_mode=mode)) as painter:
            for walk in walks:
                with At("stability", walk.start.name) as at:
                    expect_replay(painter, walk, at, f"while rendering {mode}", disturb=partial(_render, painter))


def _render(painter: Env, _: Moment) -> None:
    painter.render()


def _check_processes(env: Env, walks: list[Walk], skipped: dict[str, str]) -> None:
    """The walks replayed in fresh interpreters, each under a PYTHONHASHSEED of its own."""
    request = request_of(env, walks)
    if request is None:
        skipped["other processes"] = NO_SPEC if env.spec is None else NOT_PORTABLE
        return
    for hash_seed in HASH_SEEDS:
        with At("processes"):
            moments = replay_elsewhere(request, hash_seed)
        for walk, found in zip(walks, moments, strict=True):
            with At("processes", walk.start.name) as at:
                expect_equal(walk, found, at, f"in a process with PYTHONHASHSEED={hash_seed}")


# ---- anchors and what they stand for --------------------------------------------------------------


def _check_identity(walks: list[Walk]) -> None:
    """Within a task, anchors are equal exactly when situations are."""
    anchor_of: dict[tuple[str, str], str] = {}
    situation_of: dict[tuple[str, str], str] = {}
    for walk in walks:
        with At("identity", walk.start.name) as at:
            for t, moment in enumerate(walk.moments):
                at.step, at.reply = t, walk.replies[t - 1] if t else None
                anchor, (what, situation) = moment["info['anchor']"], _situation(moment)
                known = situation_of.setdefault((walk.start.name, anchor), situation)
                at.expect(
                    known == situation,
                    f"the anchor {anchor} stands for two {what}s, {short(known)} and {short(situation)}",
                )
                known = anchor_of.setdefault((walk.start.name, situation), anchor)
                at.expect(known == anchor, f"the {what} {short(situation)} has two anchors, {known} and {anchor}")


def _situation(moment: Fields) -> tuple[str, str]:
    """What an anchor is the key of: the label, which declares it; without one the observation."""
    label = moment.get("info['label']")
    return ("observation", moment["observation"]) if label is None else ("label", label)


def _report(name: str, seed: int, walks: list[Walk], **figures: Any) -> AnchorReport:
    met: dict[tuple[str, str], set[int]] = {}
    seen: dict[tuple[str, str], set[str]] = {}
    meanings: dict[str, set[str]] = {}
    for i, walk in enumerate(walks):
        for moment in walk.moments:
            anchor = moment["info['anchor']"]
            met.setdefault((walk.start.name, anchor), set()).add(i)
            seen.setdefault((walk.start.name, anchor), set()).add(moment["observation"])
            meanings.setdefault(_situation(moment)[1], set()).add(anchor)
    steps = sum(len(walk.replies) for walk in walks)
    return AnchorReport(
        environment=name,
        seed=seed,
        tasks=len({walk.start.name for walk in walks}),
        episodes=len(walks),
        steps=steps,
        mean_length=steps / len(walks),
        success_rate=sum(walk.success for walk in walks) / len(walks),
        anchors=len(met),
        shared=sum(len(who) > 1 for who in met.values()) / len(met),
        aliasing=sum(len(observations) > 1 for observations in seen.values()) / len(seen),
        label_collisions=sum(len(anchors) > 1 for anchors in meanings.values()),
        **figures,
    )


# ---- what is handed out stays as it was -----------------------------------------------------------


def _check_sharing(env: Env, walks: list[Walk]) -> None:
    """No two steps hand out one list, dictionary, set or array, and the environment keeps none of them."""
    for walk in walks:
        with At("sharing", walk.start.name) as at:
            kept = list(episode(env, walk.start, replay(walk.replies), at))
            expect_equal(walk, [moment.fields() for moment in kept], at, "once later steps were taken")
            _expect_apart(at, kept)
            expect_replay(env, walk, at, "once the data of earlier steps are overwritten", disturb=_overwrite)


def _expect_apart(at: At, kept: list[Moment]) -> None:
    holders: dict[int, list[tuple[int, Any]]] = {}
    for at.step, moment in enumerate(kept):
        for part in _mutable((moment.observation, moment.info)):
            others = holders.setdefault(id(_owner(part)), [])
            for step, other in others:
                arrays = isinstance(part, np.ndarray) and isinstance(other, np.ndarray)
                shared = not arrays or np.may_share_memory(part, other)
                at.expect(step == at.step or not shared, f"data of step {step} is handed out again")
            others.append((at.step, part))


def _mutable(data: Any) -> Iterator[Any]:
    """Every dictionary, list, set and array in `data`."""
    if isinstance(data, dict | list | set | bytearray | np.ndarray):
        yield data
    if isinstance(data, dict | list | tuple):
        for part in data.values() if isinstance(data, dict) else data:
            yield from _mutable(part)


def _owner(part: Any) -> Any:
    """Whose memory it is: a view has that of the array it looks at."""
    while isinstance(part, np.ndarray) and part.base is not None:
        part = part.base
    return part


def _overwrite(moment: Moment) -> None:
    for part in list(_mutable((moment.observation, moment.info))):
        if not isinstance(part, np.ndarray):
            part.clear()
        elif part.flags.writeable:
            part.fill(0)


# ---- replies that are no actions ------------------------------------------------------------------


def _check_invalid(env: Env, walks: list[Walk]) -> None:
    """A malformed reply is the action `INVALID`: it costs a step, and leaves the situation and what comes after."""
    for walk in walks:
        with At("invalid", walk.start.name) as at:
            # One malformed reply before each of the walk's own: the situations in between must be the walk's.
            mixed = [reply for pair in zip(cycle(MALFORMED), walk.replies, strict=False) for reply in pair]
            for moment in _held_to_contract(env, walk.start, replay(mixed), at):
                if at.step % 2:
                    _expect_refused(at, moment)
                if not moment.over:
                    _expect_situation(at, moment, walk.moments[at.step // 2])
            for moment in _held_to_contract(env, walk.start, replay(chain(MALFORMED, repeat(""))), at):
                if at.step:
                    _expect_refused(at, moment)
                if not moment.over:
                    _expect_situation(at, moment, walk.moments[0])


def _held_to_contract(env: Env, start: Start, choose: Callable[[Moment], str | None], at: At) -> Iterator[Moment]:
    first: Fields | None = None
    for moment in episode(env, start, choose, at):
        expect_contract(at, moment, first)
        first = first or moment.fields()
        yield moment


def _expect_refused(at: At, moment: Moment) -> None:
    action = moment.info["action"]
    at.expect(action == INVALID, f"a malformed reply is the action {INVALID!r}, not {short(action)!r}")
    at.expect(not moment.info["success"] and not moment.terminated, "a malformed reply has ended the episode")


def _expect_situation(at: At, moment: Moment, before: Fields) -> None:
    found = moment.fields()
    for name in SITUATION:
        was, now = before.get(name, "missing"), found.get(name, "missing")
        at.expect(
            was == now, f"an invalid reply, this one or an earlier, made {name} {short(now)}; it was {short(was)}"
        )


def _check_fuzz(env: Env, starts: list[Start], rng: np.random.Generator, count: int) -> int:
    """Hostile replies raise nothing, and change nothing where they are invalid; how many of them were."""
    budget = iter(range(count))
    refused = played = 0

    def choose(moment: Moment) -> str | None:
        return None if next(budget, None) is None else fuzzed_reply(rng, moment.info["admissible_actions"])

    for start in cycle(starts):
        if played == count:
            return refused
        before: Fields = {}
        with At("fuzz", start.name) as at:
            for moment in _held_to_contract(env, start, choose, at):
                played += at.step > 0
                if at.step and not moment.info["valid"]:
                    refused += 1
                    _expect_refused(at, moment)
                    if not moment.over:
                        _expect_situation(at, moment, before)
                before = moment.fields()
    return refused


# ---- a group --------------------------------------------------------------------------------------


def _check_group(env: Env, start: Start, rng: np.random.Generator, skipped: dict[str, str]) -> None:
    """Copies in one group start alike, count what they did, and each does what it would do alone."""
    if env.spec is None or not isinstance(env.unwrapped, AnchorEnv):
        skipped["a group"] = NO_SPEC if env.spec is None else NO_ANCHOR_ENV
        return
    with At("group", start.name) as at:
        with closing(GroupVectorEnv(env.spec.id, 1, GROUP_SIZE, **env.spec.kwargs)) as envs:
            replies = _play_group(env, envs, start, rng, at)
            (group,), (counts,) = envs.groups(), envs.transition_counts()
        at.expect(counts == TransitionCounts.from_rollouts(group.rollouts), "its counts are not those of its rollouts")
        for m, rollout in enumerate(group.rollouts):
            # Without wrappers, as the group has it: a time limit among them would end it earlier.
            alone = [moment.info["anchor"] for moment in episode(env.unwrapped, start, replay(replies[m]), at)]
            together = [*(step.anchor for step in rollout.steps), rollout.final_anchor]
            for at.step, (one, other) in enumerate(zip(together, alone, strict=True)):
                at.expect(one == other, f"member {m} is at anchor {one}; alone it would be at {other}")


def _play_group(env: Env, envs: GroupVectorEnv, start: Start, rng: np.random.Generator, at: At) -> list[list[str]]:
    """Random play of every member to its end, a malformed reply now and then; the replies of each member."""
    replies: list[list[str]] = [[] for _ in range(envs.num_envs)]
    at.step = 0
    _, info = envs.reset(seed=start.seed, options=start.options)
    while envs.active.any():
        at.step += 1
        at.expect(at.step <= MAX_STEPS, f"the group has not ended in {MAX_STEPS} steps")
        for m in np.flatnonzero(envs.active):
            actions = [*info["admissible_actions"][m], INVALID]
            replies[m].append(tagged(env, actions[rng.integers(len(actions))]))
        _, _, _, _, info = envs.step([of_member[-1] for of_member in replies])
    return replies
