"""The check of a group: its copies start alike, its counts are right, and each copy behaves as it does alone."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
from gymnasium.envs.registration import EnvSpec

from anchors import INVALID, TransitionCounts
from crbc_envs.checking.probe import MAX_STEPS, Env, Location, Start, episode, replay, tagged
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
