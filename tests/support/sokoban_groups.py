"""Groups of Sokoban, played at random or to a win, for tests of the vector environment."""

from __future__ import annotations

import gymnasium
import numpy as np

from crbc_envs import GroupVectorEnv
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.rules import MOVES
from crbc_envs.sokoban.solver import best_moves, distances

ID = "CRBC-Sokoban-v0"

ONE_BY_ONE = "tests/Sokoban-one-by-one-v0"
"""The same members with no batch of their own, so that a test can look at one, or tamper with it."""


class OneByOne(SokobanEnv):
    def batch(self, num_envs):
        return None


gymnasium.register(ONE_BY_ONE, entry_point=OneByOne)


def make(num_groups=2, group_size=3, **options):
    return GroupVectorEnv(ONE_BY_ONE, num_groups, group_size, observation="text", **options)


def solve(member):
    """The next move of a shortest solution."""
    return best_moves(member.room, member.state, distances(member.room))[0]


def random_actions(envs, rng):
    """A random reply per live member, some of them malformed; None for those that ended."""
    replies = [*MOVES, "jump", "<think>a</think><action>left</action>"]
    return [replies[rng.integers(len(replies))] if live else None for live in envs.active]


def play(envs, seed=0, reset=True, **options):
    """Random moves until every member has ended; what each step returned."""
    rng = np.random.default_rng(seed)
    trace = [envs.reset(seed=seed, **options)] if reset else []
    while envs.active.any():
        trace.append(envs.step(random_actions(envs, rng)))
    return trace


def win_one(envs, m):
    """Member m solves its room while the others make malformed replies, and dodge no end."""
    while envs.active[m]:
        envs.step([solve(envs.members.envs[m]) if i == m else "?" for i in range(envs.num_envs)])
