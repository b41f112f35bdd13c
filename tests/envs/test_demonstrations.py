"""Lessons of an expert: what reaches the environment, what it says, and where an episode ends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np
import pytest
from toy_env import CorridorEnv

from crbc_envs.demonstrations import Demonstration, advice, corrected_steps, expert_steps
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.solver import best_moves, distances, solve
from crbc_envs.vector.members import make_member


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


def test_a_dead_end_of_a_large_room_is_one_where_it_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crbc_envs.sokoban.expert.distances", lambda room: distances(room, max_states=1))
    env, rng = SokobanEnv(observation="text", max_steps=200), np.random.default_rng(0)
    for task in range(20):
        observation, info = env.reset(options={"task": task})
        expert, over = env.expert(np.random.default_rng(0), gives_up=True), False
        while not over and (solve(env.room, env.state) is not None):
            assert "<action>" in expert(observation, info)
            observation, _, terminated, truncated, info = env.step(["up", "down", "left", "right"][rng.integers(4)])
            over = terminated or truncated
        if not over:
            with pytest.raises(ValueError, match="a dead end"):
                expert(observation, info)
            return
    raise AssertionError("no dead end was found")


def test_an_expert_that_never_knows_a_way_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(observation: object, info: object) -> str:
        raise ValueError("no way")

    env = SokobanEnv(observation="text", split="train")
    monkeypatch.setattr(env, "expert", lambda rng: lost)
    with pytest.raises(ValueError, match="no way"):
        next(expert_steps(env, np.random.default_rng(0)))


def test_corrections_are_the_expert_s_replies_along_another_s_way() -> None:
    env, other = (SokobanEnv(observation="text", split="train") for _ in range(2))
    rng = np.random.default_rng(5)
    for task in range(30):
        board, info = other.reset(options={"task": task})
        shown, replies, over = [], [], False
        while not over:
            move = f"<action>{rng.choice(info['admissible_actions'])}</action>"
            replies.append("no action" if rng.random() < 0.2 else move)
            shown.append((board, info["action"] if shown else ""))
            board, _, terminated, truncated, info = other.step(replies[-1])
            over = terminated or truncated
        found = list(corrected_steps(env, np.random.default_rng(0), task, replies))
        assert [(board, info.get("action", "")) for board, info, _ in found] == shown
        best = [best_moves(env.room, env.state, distances(env.room)) for _ in careful(env, task, replies)]
        said = [reply.partition("<action>")[2].removesuffix("</action>") for *_, reply in careful(env, task, replies)]
        assert said and all(move in moves for move, moves in zip(said, best, strict=True))
        assert len(list(corrected_steps(env, np.random.default_rng(0), task, replies[:3]))) == min(3, len(replies))


def careful(env: SokobanEnv, task: int, replies: list[str]) -> Iterator[Demonstration]:
    return corrected_steps(env, np.random.default_rng(0), task, replies, gives_up=True)


def test_without_an_expert_there_is_nobody_to_correct() -> None:
    with pytest.raises(ValueError, match="corridor has no expert to correct the replies"):
        next(corrected_steps(CorridorEnv(), np.random.default_rng(0), 0, ["left"]))


def taken_over(env_id: str, task: int, others: int, **options: object) -> float:
    """The score of an expert that watches somebody else's `others` steps, and plays on."""
    env, rng = make_member(env_id, options), np.random.default_rng(task)
    observation, info = env.reset(seed=100 + task, options={"task": task})
    expert, over, done = env.expert(np.random.default_rng(0)), False, 0
    while not over:
        reply = advice(expert, observation, info)
        if done < others:
            shop = [a for a in info["admissible_actions"] if a.startswith("click[b0")] or ["search[lamp]"]
            reply = shop[0] if "WebShop" in env_id else str(rng.choice(info["admissible_actions"]))
        assert reply is not None
        observation, _, terminated, truncated, info = env.step(reply)
        over, done = terminated or truncated, done + 1
    return float(info["score"])


def test_an_expert_wins_a_household_wherever_somebody_else_has_got_to() -> None:
    assert all(taken_over("CRBC-ALFWorld-v0", task, 8, rooms="small") == 1.0 for task in range(12))


def test_an_expert_shops_on_from_somebody_else_s_search() -> None:
    assert sum(taken_over("CRBC-WebShop-v0", task, 2) == 1.0 for task in range(12)) >= 6
