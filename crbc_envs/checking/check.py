"""check_anchor_env: runs an environment and checks that its anchors and infos are right.

Step credit is only as good as the anchors it merges. A key that depends on a process, a clock or a shared
buffer raises no error; it gives wrong credit. Each check here finds one such silent fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, cycle, islice, repeat
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from anchors import INVALID, RolloutGroup
from crbc_envs.checking.fuzz import MALFORMED, fuzzed_reply
from crbc_envs.checking.group import check_group, check_noise, check_prompts
from crbc_envs.checking.probe import (
    AnchorEnvError,
    Choose,
    Env,
    Fields,
    Location,
    Start,
    StepResult,
    Walk,
    episode,
    expect_contract,
    expect_equal,
    expect_replay,
    expect_same_start,
    expect_situation,
    random_walk,
    replay,
    require_least,
    short,
    starts_of,
    usable_spec,
)
from crbc_envs.checking.splits import SplitReport, compare_splits
from crbc_envs.checking.subprocess import make_request, replay_in_subprocess
from crbc_envs.demonstrations import played_groups
from crbc_envs.vector.contract import attribute, bare, unwrapped_member

__all__ = ["AnchorEnvError", "AnchorReport", "check_anchor_env"]

HASH_SEEDS = ("1", "2")
"""PYTHONHASHSEED of the other processes. This process has a third one."""

NO_ANCHOR_ENV = "the environment is not an AnchorEnv, or has wrappers of its own"
NOT_PORTABLE = "its class cannot be imported elsewhere (__main__ or a function), or its arguments are not JSON"


@dataclass(frozen=True, slots=True)
class AnchorReport:
    """The figures of an environment that passed `check_anchor_env`.

    `episodes`, `steps`, `mean_length` and `success_rate` are those of random admissible actions. `anchors` is the
    number of anchors visited, counted per task. `shared` is the fraction of them that at least two walks of one task
    visited. `aliasing` is the fraction with more than one observation. `label_collisions` counts labels that have
    another anchor in another task. `noise` is the fraction of walks that came out otherwise under other noise, None
    for an environment that does not declare itself stochastic. `invalid` is the fraction of the `fuzzed` replies that
    the environment refused. `splits` compares the splits, None where the environment takes no `split`.
    `skipped` maps each check that could not run to the reason. `groups` are play on the tasks of an `AnchorEnv` for
    `crbc_rl.credit.calibration`: whether anchors hide state.
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
    noise: float | None = None
    splits: SplitReport | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    groups: list[RolloutGroup] = field(default_factory=list, repr=False)

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
        if self.noise is not None:
            lines.append(f"  noise           {self.noise:.1%} of the walks came out otherwise under other noise")
        if self.splits is not None:
            lines += [f"  splits          {line}" for line in self.splits.summary()]
        lines += [f"  skipped         {part}: {reason}" for part, reason in self.skipped.items()]
        return "\n".join(lines)


def check_anchor_env(
    env: Env, *, seed: int = 0, tasks: int = 4, episodes: int = 32, fuzz: int = 1_000, split_tasks: int = 32
) -> AnchorReport:
    """Check an environment with anchors, and report figures about its anchors.

    `env` is an `AnchorEnv`, or any environment whose `info` has the same keys. Tasks are drawn from its `panel`, a
    `TaskPanel`; without a panel they are seeds. `episodes` random walks are distributed over `tasks` tasks, and
    `fuzz` hostile replies are tried. `split_tasks` tasks of each split are compared, with one random walk in each of
    the training tasks; `measure_splits` compares more. All random draws depend on `seed` alone.

    An environment made by a registered id is also compared with fresh copies, wrappers included: in this process,
    in a group and in other processes. For any other, the report lists these checks as skipped. Reset the environment
    before using it again.

    A task's situation begins alike whatever the seed. A stochastic environment must be a function of its seeds too: it
    begins alike under any noise, and the same seed gives the same episode twice. Noise that is not declared is told.

    Raises `AnchorEnvError` at the first fault, `ValueError` for a number that is too small, and `TypeError`
    for anything but one Gymnasium environment.
    """
    if not isinstance(env, gymnasium.Env):
        raise TypeError(f"check_anchor_env takes a gymnasium.Env, got {type(env).__name__}")
    require_least(tasks=(tasks, 1), episodes=(episodes, tasks), fuzz=(fuzz, 0), split_tasks=(split_tasks, 0))
    with Location("gymnasium"):
        check_env(env.unwrapped)
    rng = np.random.default_rng(seed)
    starts = starts_of(env, rng, tasks)
    walks = [random_walk(env, start, rng) for start in islice(cycle(starts), episodes)]
    first_walks = walks[: len(starts)]  # one per task
    skipped: dict[str, str] = {}
    spec, no_spec = usable_spec(env)
    if spec is None:
        skipped.update(dict.fromkeys(("a fresh instance", "rendering", "a group", "other processes"), no_spec))
    _check_determinism(env, spec, first_walks)
    _check_stability(env, spec, first_walks, skipped)
    check_prompts(env, first_walks[0])
    _check_identity(walks)
    _check_sharing(env, first_walks)
    stochastic = bool(attribute(env, "stochastic", False))
    _check_invalid(env, first_walks, stochastic)
    noise = check_noise(env, spec, first_walks, skipped)
    refused = _check_fuzz(env, starts, rng, fuzz)
    if spec is not None:
        check_group(env, spec, starts[0], rng)
        _check_processes(spec, first_walks, skipped)
    splits = None if spec is None or not split_tasks else compare_splits(spec, split_tasks, seed, skipped)
    if splits is not None:
        with Location("splits") as at:
            at.expect(not splits.shared_tasks(), splits.shared_tasks())
    name = type(env.unwrapped).__name__ if env.spec is None else env.spec.id
    anchor_env, chosen = unwrapped_member(env), [start.options["task"] for start in starts if start.options is not None]
    with Location("expert"):
        groups = [] if anchor_env is None else list(played_groups(anchor_env, chosen))
    figures = {"noise": noise, "splits": splits, "skipped": skipped, "groups": groups}
    return _report(name, seed, walks, fuzzed=fuzz, invalid=refused / max(fuzz, 1), **figures)


# ---- reproducibility ------------------------------------------------------------------------------


def _check_determinism(env: Env, spec: EnvSpec | None, walks: list[Walk]) -> None:
    """The same seed and replies give the same results, from this instance and from a fresh one. A panel's task begins
    alike whatever the seed."""
    for walk in walks:
        with Location("determinism", walk.start.name) as at:
            if walk.start.options is not None:
                expect_same_start(env, walk, at)
            expect_replay(env, walk, at, "when played again")
    if spec is None:
        return
    with closing(spec.make()) as fresh:
        for walk in walks:
            with Location("determinism", walk.start.name) as at:
                expect_replay(fresh, walk, at, "from a fresh instance")


def _check_stability(env: Env, spec: EnvSpec | None, walks: list[Walk], skipped: dict[str, str]) -> None:
    """An anchor is the same when computed again, and rendering changes nothing."""
    anchor_env = bare(env)
    if anchor_env is not None:
        for walk in walks:
            with Location("stability", walk.start.name) as at:
                for result in episode(env, walk.start, replay(walk.replies), at):
                    anchor = result.info["anchor"]
                    for again in (anchor_env._anchor(), anchor_env._anchor()):
                        at.expect(again == anchor, f"the anchor {anchor}, asked for again, is {again}")
    else:
        skipped["anchors asked for again"] = NO_ANCHOR_ENV
    if spec is None:
        return
    modes = [mode for mode in env.metadata.get("render_modes", ()) if mode != "human"]
    if not modes:
        skipped["rendering"] = "there is no render mode without a window"
    for mode in modes:
        with closing(spec.make(render_mode=mode)) as renderer:
            for walk in walks:
                with Location("stability", walk.start.name) as at:
                    expect_replay(renderer, walk, at, f"while rendering {mode}", disturb=partial(_render, renderer))


def _render(renderer: Env, _: StepResult) -> None:
    renderer.render()


def _check_processes(spec: EnvSpec, walks: list[Walk], skipped: dict[str, str]) -> None:
    """The walks give the same results in fresh interpreters, each with another PYTHONHASHSEED."""
    request = make_request(spec, walks)
    if request is None:
        skipped["other processes"] = NOT_PORTABLE
        return
    for hash_seed in HASH_SEEDS:
        with Location("processes"):
            results = replay_in_subprocess(request, hash_seed)
        for walk, replayed in zip(walks, results, strict=True):
            with Location("processes", walk.start.name) as at:
                expect_equal(walk, replayed, at, f"in a process with PYTHONHASHSEED={hash_seed}")


# ---- anchors and situations -----------------------------------------------------------------------


def _check_identity(walks: list[Walk]) -> None:
    """Within a task, two anchors are equal exactly when the situations are equal."""
    anchor_of: dict[tuple[str, str], str] = {}
    situation_of: dict[tuple[str, str], str] = {}
    for walk in walks:
        with Location("identity", walk.start.name) as at:
            for t, result in enumerate(walk.results):
                at.step, at.reply = t, walk.replies[t - 1] if t else None
                anchor, (what, situation) = result["info['anchor']"], _situation(result)
                known = situation_of.setdefault((walk.start.name, anchor), situation)
                at.expect(
                    known == situation,
                    f"the anchor {anchor} stands for two {what}s, {short(known)} and {short(situation)}",
                )
                known = anchor_of.setdefault((walk.start.name, situation), anchor)
                at.expect(known == anchor, f"the {what} {short(situation)} has two anchors, {known} and {anchor}")


def _situation(result: Fields) -> tuple[str, str]:
    """The situation that an anchor is the key of: the label, or the observation if there is no label."""
    label = result.get("info['label']")
    return ("observation", result["observation"]) if label is None else ("label", label)


def _report(name: str, seed: int, walks: list[Walk], **figures: Any) -> AnchorReport:
    met: dict[tuple[str, str], set[int]] = {}
    seen: dict[tuple[str, str], set[str]] = {}
    meanings: dict[str, set[str]] = {}
    for i, walk in enumerate(walks):
        for result in walk.results:
            anchor = result["info['anchor']"]
            met.setdefault((walk.start.name, anchor), set()).add(i)
            seen.setdefault((walk.start.name, anchor), set()).add(result["observation"])
            meanings.setdefault(_situation(result)[1], set()).add(anchor)
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
        shared=sum(len(walkers) > 1 for walkers in met.values()) / len(met),
        aliasing=sum(len(observations) > 1 for observations in seen.values()) / len(seen),
        label_collisions=sum(len(anchors) > 1 for anchors in meanings.values()),
        **figures,
    )


# ---- returned data is not shared ------------------------------------------------------------------


def _check_sharing(env: Env, walks: list[Walk]) -> None:
    """No two steps return the same list, dictionary, set or array, and the environment does not use them again."""
    for walk in walks:
        with Location("sharing", walk.start.name) as at:
            kept = list(episode(env, walk.start, replay(walk.replies), at))
            expect_equal(walk, [result.fields() for result in kept], at, "once later steps were taken")
            _expect_no_sharing(at, kept)
            expect_replay(env, walk, at, "once the data of earlier steps are overwritten", disturb=_overwrite)


def _expect_no_sharing(at: Location, kept: list[StepResult]) -> None:
    holders: dict[int, list[tuple[int, Any]]] = {}
    for at.step, result in enumerate(kept):
        for part in _mutable((result.observation, result.info)):
            others = holders.setdefault(id(_owner(part)), [])
            for step, other in others:
                arrays = isinstance(part, np.ndarray) and isinstance(other, np.ndarray)
                shared = not arrays or np.may_share_memory(part, other)
                at.expect(step == at.step or not shared, f"data of step {step} is handed out again")
            others.append((at.step, part))


def _mutable(data: Any) -> Iterator[Any]:
    """All dictionaries, lists, sets and arrays in `data`."""
    if isinstance(data, dict | list | set | bytearray | np.ndarray):
        yield data
    if isinstance(data, dict | list | tuple):
        for part in data.values() if isinstance(data, dict) else data:
            yield from _mutable(part)


def _owner(part: Any) -> Any:
    """The owner of the memory: for a view, the array it is a view of."""
    while isinstance(part, np.ndarray) and part.base is not None:
        part = part.base
    return part


def _overwrite(result: StepResult) -> None:
    for part in list(_mutable((result.observation, result.info))):
        if not isinstance(part, np.ndarray):
            part.clear()
        elif part.flags.writeable:
            part.fill(0)


# ---- invalid replies -------------------------------------------------------------------------------


def _check_invalid(env: Env, walks: list[Walk], stochastic: bool) -> None:
    """A malformed reply is the action `INVALID`. It costs a step and changes neither this situation nor later ones.

    In a stochastic environment it may draw noise, so that later situations are others.
    """
    for walk in walks:
        with Location("invalid", walk.start.name) as at:
            # Insert one malformed reply before each reply of the walk. The situations must still be those of the walk.
            mixed = [reply for pair in zip(cycle(MALFORMED), walk.replies, strict=False) for reply in pair]
            before: Fields = {}
            for result in _checked_episode(env, walk.start, replay(mixed), at):
                if at.step % 2:
                    _expect_refused(at, result)
                if not result.over and not stochastic:
                    expect_situation(env, at, result, walk.results[at.step // 2])
                elif not result.over and at.step % 2:
                    expect_situation(env, at, result, before)
                before = result.fields()
            for result in _checked_episode(env, walk.start, replay(chain(MALFORMED, repeat(""))), at):
                if at.step:
                    _expect_refused(at, result)
                if not result.over:
                    expect_situation(env, at, result, walk.results[0])


def _checked_episode(env: Env, start: Start, choose: Choose, at: Location) -> Iterator[StepResult]:
    first: Fields | None = None
    for result in episode(env, start, choose, at):
        expect_contract(at, result, first)
        first = first or result.fields()
        yield result


def _expect_refused(at: Location, result: StepResult) -> None:
    action = result.info["action"]
    at.expect(action == INVALID, f"a malformed reply is the action {INVALID!r}, not {short(action)!r}")
    at.expect(not result.info["success"] and not result.terminated, "a malformed reply has ended the episode")


def _check_fuzz(env: Env, starts: list[Start], rng: np.random.Generator, count: int) -> int:
    """Hostile replies raise no error and, if invalid, change nothing. Returns how many were invalid."""
    budget = iter(range(count))
    refused = played = 0

    def choose(result: StepResult) -> str | None:
        return None if next(budget, None) is None else fuzzed_reply(rng, result.info["admissible_actions"])

    for start in cycle(starts):
        if played == count:
            return refused
        before: Fields = {}
        with Location("fuzz", start.name) as at:
            for result in _checked_episode(env, start, choose, at):
                played += at.step > 0
                if at.step and not result.info["valid"]:
                    refused += 1
                    _expect_refused(at, result)
                    if not result.over:
                        expect_situation(env, at, result, before)
                before = result.fields()
    return refused
