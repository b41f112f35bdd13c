"""The checks of copies: those of a group behave as each does alone, and other noise gives other play."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
from gymnasium.envs.registration import EnvSpec

from anchors import INVALID, TransitionCounts
from crbc_envs.checking.probe import (
    MAX_STEPS,
    AnchorEnvError,
    Env,
    Location,
    Start,
    Walk,
    episode,
    expect_equal,
    replay,
    short,
    tagged,
)
from crbc_envs.prompts import GENERIC, PromptWindow
from crbc_envs.vector.contract import attribute, bare
from crbc_envs.vector.group import GroupVectorEnv
from crbc_envs.vector.members import INDEPENDENT, noise_seed

GROUP_SIZE = 3


def check_group(env: Env, spec: EnvSpec, start: Start, rng: np.random.Generator) -> None:
    """Play a group of one task, and each member's replies again alone. `spec` makes environments like `env`."""
    with Location("group", start.name) as at:
        with closing(GroupVectorEnv(spec, 1, GROUP_SIZE)) as envs:
            replies = _play_group(env, envs, start, rng, at)
            (group,), (counts,) = envs.groups(), envs.transition_counts()
            own_noise = envs.dynamics == INDEPENDENT
        at.expect(counts == TransitionCounts.from_rollouts(group.rollouts), "its counts are not those of its rollouts")
        for m, rollout in enumerate(group.rollouts):
            begun = replace(start, noise=noise_seed(start.seed, m)) if own_noise else start
            alone = [result.info["anchor"] for result in episode(env, begun, replay(replies[m]), at)]
            together = [*(step.anchor for step in rollout.steps), rollout.final_anchor]
            for at.step, (one, other) in enumerate(zip(together, alone, strict=True)):
                at.expect(one == other, f"member {m} is at anchor {one}; alone it would be at {other}")


def check_prompts(env: Env, walk: Walk) -> None:
    """Every style of prompts that an `AnchorEnv` has makes a text of each step of the walk."""
    if (anchor_env := bare(env)) is None:
        return
    windows = {style: PromptWindow.of(anchor_env, style) for style in {**GENERIC, **anchor_env.templates}}
    for style, window in windows.items():
        with Location(f"prompt {style!r}", walk.start.name) as at:
            seen: object = None
            for result in episode(env, walk.start, replay(walk.replies), at):
                if at.step:
                    window.record(seen, result.info["action"])
                text = window.ask(result.observation, result.info).text
                at.expect(isinstance(text, str) and bool(text.strip()), f"it is {short(text)!r}, and no text")
                seen = result.observation


def _play_group(
    env: Env, envs: GroupVectorEnv, start: Start, rng: np.random.Generator, at: Location
) -> list[list[str]]:
    """Play every member to its end with random actions, some of them malformed. Returns the replies of each member."""
    replies: list[list[str]] = [[] for _ in range(envs.num_envs)]
    at.step = 0
    task = start.seed if start.options is None else start.options["task"]
    _, info = envs.reset(options={"task": task, "group_seed": [start.seed]})
    while envs.active.any():
        at.step += 1
        at.expect(at.step <= MAX_STEPS, f"the group has not ended in {MAX_STEPS} steps")
        for m in np.flatnonzero(envs.active):
            actions = [*info["admissible_actions"][m], INVALID]
            replies[m].append(tagged(env, actions[rng.integers(len(actions))]))
        _, _, _, _, info = envs.step([of_member[-1] for of_member in replies])
    return replies


# ---- noise ----------------------------------------------------------------------------------------

NOISES = 4
"""How many streams of noise each walk is played with."""

NO_NOISE = (
    "the environment declares that it is stochastic, and no walk came out otherwise under other noise; it must draw "
    "from np_random, or define seed_noise, for copies to differ"
)


UNDECLARED = (
    "the environment draws from np_random and does not declare stochastic = True, so the copies of a group share one "
    "noise; declare it for noise of their own, without which credit is wrong"
)


def _draws(env: Env, walks: list[Walk]) -> bool:
    """Whether a walk comes out otherwise under other noise."""
    try:
        return any(_played(env, walk, 0).results != walk.results for walk in walks)
    except AnchorEnvError as error:
        if isinstance(error.__cause__, TypeError):  # it has no noise that copies could have of their own
            return False
        raise


def check_noise(env: Env, spec: EnvSpec | None, walks: list[Walk], skipped: dict[str, str]) -> float | None:
    """Play the walks' replies under noise of their own, as members of a group do, twice each.

    The start must be that of the walk, and the second time, from a fresh instance if there is a `spec`, must equal the
    first. Returns the share of plays that come out unlike the walk; `skipped` tells of none. None for an
    environment that does not declare itself stochastic; `skipped` tells where it draws all the same.
    """
    if not attribute(env, "stochastic", False):
        if _draws(env, walks):
            skipped["noise"] = UNDECLARED
        return None
    unlike = [_play_unlike(env, walk, member) for walk in walks for member in range(NOISES)]
    if spec is not None:
        with closing(spec.make()) as fresh:
            for walk in walks:
                _play_unlike(fresh, walk, 0, _played(env, walk, 0))
    if not any(unlike):
        skipped["noise"] = NO_NOISE
    return sum(unlike) / len(unlike)


def _play_unlike(env: Env, walk: Walk, member: int, expected: Walk | None = None) -> bool:
    """Whether a walk comes out otherwise under the noise of `member`. It must come out as `expected`."""
    first, again = expected or _played(env, walk, member), _played(env, walk, member)
    with Location("noise", walk.start.name) as at:
        expect_equal(first, again.results, at, "when played again under the same noise")
        start = replace(walk, replies=[], results=walk.results[:1])
        expect_equal(start, first.results[:1], at, "before any step, under other noise")
    return first.results != walk.results


def _played(env: Env, walk: Walk, member: int) -> Walk:
    """The walk's replies under the noise of `member` in a group with the walk's seed."""
    start = replace(walk.start, noise=noise_seed(walk.start.seed, member))
    with Location("noise", walk.start.name) as at:
        results = [result.fields() for result in episode(env, start, replay(walk.replies), at)]
    return Walk(start, walk.replies[: len(results) - 1], results, walk.success)
