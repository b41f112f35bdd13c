"""Lessons of an expert: what reaches the environment, what it says, and where an episode ends."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest

from crbc_envs.demonstrations import expert_steps
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.solver import best_moves, distances


def _lessons(count: int, **options: float) -> list[tuple[int, bool, str, str]]:
    """Step, whether a dead end, the action that led there, and the expert's action, of some lessons."""
    env = SokobanEnv(observation="text", split="train")
    found = []
    for _, info, reply in islice(expert_steps(env, np.random.default_rng(0), **options), count):
        dead = env.state not in distances(env.room)
        action = reply.partition("<action>")[2].removesuffix("</action>")
        if not dead and not options.get("hasty"):
            assert action in best_moves(env.room, env.state, distances(env.room))
        found.append((info["step"], dead, info.get("action", ""), action))
    return found


def test_an_expert_that_errs_nowhere_is_followed() -> None:
    steps = _lessons(200)
    assert all(after[2] == before[3] for before, after in pairwise(steps) if after[0])


def test_strays_are_random_actions_and_the_lessons_are_still_the_expert_s() -> None:
    steps = [(before, after) for before, after in pairwise(_lessons(900, strays=0.4)) if after[0]]
    others = np.mean([after[2] != before[3] for before, after in steps])
    assert 0.2 < others < 0.4  # three of four random moves are others than its own


def test_an_episode_ends_where_the_expert_knows_no_way() -> None:
    assert not any(dead for _, dead, _, _ in _lessons(900, strays=0.4, gives_up=True))
    assert np.mean([dead for _, dead, _, _ in _lessons(900, strays=0.4)]) > 0.02  # unless it goes on in any case


def test_an_expert_that_never_knows_a_way_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(observation: object, info: object) -> str:
        raise ValueError("no way")

    env = SokobanEnv(observation="text", split="train")
    monkeypatch.setattr(env, "expert", lambda rng: lost)
    with pytest.raises(ValueError, match="no way"):
        next(expert_steps(env, np.random.default_rng(0)))
