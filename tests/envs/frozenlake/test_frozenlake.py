"""CRBC-FrozenLake-v0: its maps, its exact values, its noise, its expert and its prompts."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import MAPS, FrozenLakeEnv

import crbc_envs
from anchors.key import ANCHOR_KINDS
from crbc_envs import GroupVectorEnv, PromptWindow
from crbc_envs.frozenlake.env import FrozenLake
from crbc_envs.frozenlake.expert import nearer
from crbc_envs.frozenlake.maps import SIZES, canonical, distances, draw
from crbc_envs.frozenlake.values import exact_q
from crbc_envs.tasks import SPLITS
from crbc_envs.vector.members import noise_seed

BOARD = ["SFFF", "FHFH", "FFFH", "HFFG"]


def letters(rows):
    return np.array([list(row) for row in rows])


def table(rows, slippery):
    return FrozenLakeEnv(desc=rows, is_slippery=slippery).P


# ---- maps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_maps_are_solvable_and_their_start_and_goal_apart(size):
    for seed in range(40):
        rows = draw(seed, size)
        board = letters(rows)
        assert board.shape == (size, size)
        assert set(board.ravel().tolist()) <= set("SFHG")
        assert [(board == letter).sum() for letter in "SG"] == [1, 1]
        assert size <= distances(board)[int(np.flatnonzero(board == "S")[0])] < np.inf
    assert len({draw(seed, size) for seed in range(40)}) == 40


def test_distances_are_those_worked_out_by_hand():
    found = distances(letters(["SFF", "HHF", "GFF"]))
    assert found.reshape(3, 3).tolist() == [[6, 5, 4], [np.inf, np.inf, 3], [0, 1, 2]]
    assert distances(letters(["SHF", "HHF", "GFF"]))[0] == np.inf


def test_turned_and_mirrored_maps_are_one_and_the_start_does_not_count():
    board = letters(BOARD)
    for image in (board.T, np.rot90(board), board[::-1], np.rot90(board.T, 3)):
        assert canonical(image) == canonical(board)
    moved = board.copy()
    moved[0, 0], moved[0, 1] = "F", "S"
    assert canonical(moved) == canonical(board)
    moved[3, 1] = "H"
    assert canonical(moved) != canonical(board)


def test_no_map_is_in_two_splits_also_not_turned_or_mirrored():
    layouts = {}
    for split in SPLITS:
        panel = FrozenLake(split=split).panel
        layouts[split] = {canonical(letters(draw(panel[index].content, 4))) for index in range(150)}
        assert len(layouts[split]) > 100
        assert FrozenLake(split=split, slippery=True).panel.digest(20) == panel.digest(20)
    assert not layouts["train"] & layouts["test"]
    assert not layouts["train"] & layouts["validation"]
    assert not layouts["validation"] & layouts["test"]


def test_lakes_of_two_sizes_share_no_task():
    """Also where one process plays both, in any order."""

    def task(size):
        task = FrozenLake(size=size).panel[3]
        return task.digest, task.content

    first = [task(size) for size in (4, 5)]
    assert first[0][0] != first[1][0]
    assert [task(size) for size in (5, 4)] == first[::-1]


def test_splits_share_nothing():
    report = crbc_envs.measure_splits("CRBC-FrozenLake-v0", train_tasks=60, held_out_tasks=60, walks=2)
    assert not report.leaks
    for part in report.held_out:
        assert part.train["layout"] == part.other["layout"] == part.visited["anchor"] == 0


# ---- values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slippery", [False, True])
@pytest.mark.parametrize("beta", [1.0, 0.9])
def test_the_values_are_those_of_a_long_value_iteration(slippery, beta):
    for rows in (BOARD, *(draw(seed, 5) for seed in range(6))):
        P = table(list(rows), slippery)
        V = np.zeros(len(P))
        for _ in range(20_000):
            Q = [
                [sum(p * (r + beta * V[x] * (not over)) for p, x, r, over in P[s][a]) for a in range(4)]
                for s in range(len(P))
            ]
            V, before = np.max(Q, axis=1), V
            if np.abs(V - before).max() < 1e-13:
                break
        np.testing.assert_allclose(exact_q(P, beta), Q, atol=1e-9)


def test_with_steps_the_values_are_those_of_all_that_can_be_done_in_them():
    P = table(["SFF", "FHF", "FFG"], False)
    for steps in range(7):
        V = exact_q(P, steps=steps).max(axis=1)
        far = np.array([4, 3, 2, 3, 0, 1, 2, 1, 0])
        assert V.tolist() == [float(0 < d <= steps) for d in far]
    assert exact_q(P, steps=0).shape == (9, 4)
    slippery = table(BOARD, True)
    rising = [exact_q(slippery, steps=steps).max(axis=1)[0] for steps in (5, 20, 100, 2_000)]
    assert rising == sorted(rising)
    assert rising[-1] == pytest.approx(exact_q(slippery).max(axis=1)[0], abs=1e-9)


def test_play_succeeds_as_often_as_the_values_say():
    env = FrozenLake(slippery=True, split="test", max_steps=30)
    won = []
    env.reset(seed=0, options={"task": 2})
    expected = env.exact_q(steps=30)[env.cell].max()
    assert 0.1 < expected < 0.95
    for seed in range(300):
        observation, info = env.reset(seed=seed, options={"task": 2})
        expert = env.expert(np.random.default_rng(seed))
        over = False
        while not over:
            observation, _, terminated, truncated, info = env.step(expert(observation, info))
            over = terminated or truncated
        won.append(info["success"])
    assert abs(np.mean(won) - expected) < 4 * np.sqrt(expected * (1 - expected) / len(won))


@pytest.mark.parametrize(("arguments", "message"), [((0.0,), "beta"), ((1.1,), "beta"), ((1.0, -1), "steps")])
def test_values_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        exact_q(table(BOARD, False), *arguments)


@pytest.mark.parametrize("schedule", [(1, -1, 0), (10, -2, -0.1), (0, 0, 0.5), (-1, 2, 0)], ids=str)
def test_the_values_are_right_under_other_rewards(schedule):
    """As many steps as make no difference any more are as good as unlimited ones."""
    P = FrozenLakeEnv(desc=BOARD, success_rate=0.8, reward_schedule=schedule).P
    np.testing.assert_allclose(exact_q(P, 0.9), exact_q(P, 0.9, steps=400), atol=1e-9)
    if min(schedule) < 0 or schedule[2]:
        with pytest.raises(
            ValueError, match="with rewards below 0 or for ice, exact_q needs steps=, or a beta below 1"
        ):
            exact_q(P)


# ---- play ---------------------------------------------------------------------------------------------


def test_the_map_shows_where_the_agent_is_and_ends():
    env = FrozenLake()
    env.reset(seed=0, options={"task": 0})
    env.env = env._made(0)
    env.env.unwrapped.__init__(desc=["SFH", "FFG", "FFF"], is_slippery=False)
    env._seen, _ = env.env.reset(seed=0)
    seen = [env._observation()]
    for action in ("right", "down", "right"):
        seen.append(env.step(action)[0])
    assert seen == ["@FH\nFFG\nFFF", "F@H\nFFG\nFFF", "FFH\nF@G\nFFF", "FFH\nFF+\nFFF"]
    assert env._success() and env.distance() == 0


def test_a_map_of_ones_own_is_the_one_task_of_every_split():
    board = ["SFFFH", "FHFFG"]
    for split in SPLITS:
        env = FrozenLake(split=split, desc=board)
        assert (len(env.panel), env.max_steps) == (1, 50)
        assert env.reset(seed=4)[0] == "@FFFH\nFHFFG" and env.distance() == 5
    observation, info = env.reset(seed=0)
    expert = env.expert(np.random.default_rng(0))
    for _ in range(5):
        observation, _, terminated, _, info = env.step(expert(observation, info))
    assert terminated and info["success"] and observation == "FFFFH\nFHFF+" and nearer(0, 9, 5) == [1, 2]
    for desc in (np.array(MAPS["4x4"], dtype="c"), [list(row) for row in MAPS["4x4"]]):  # Gymnasium has and takes these
        assert FrozenLake(desc=desc).panel[0].digest == FrozenLake(desc=MAPS["4x4"]).panel[0].digest
    assert FrozenLake(desc=MAPS["8x8"]).panel[0].digest != FrozenLake(desc=MAPS["4x4"]).panel[0].digest


def test_success_is_the_goal_whatever_the_rewards_are():
    env = FrozenLake(desc=["SFG", "HFF"], reward_schedule=(-3, 5, 0.5))
    env.reset(seed=0)
    assert env.step("right")[1:3] == (0.5, False)
    _, reward, terminated, _, info = env.step("right")
    assert (reward, terminated, info["success"], info["score"]) == (-3.0, True, True, 1.0)
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step("down")
    assert (reward, terminated, info["success"], info["score"]) == (5.0, True, False, 0.0)
    assert env.exact_q(steps=9)[0].tolist() == [8 * 0.5 + 5, 5.0, 8 * 0.5 + 5, 8 * 0.5 + 5]


def test_the_ice_slips_as_often_as_it_is_told_and_the_task_says_so():
    env = FrozenLake(slippery=True, success_rate=0.75)
    _, info = env.reset(seed=0, options={"task": 0})
    assert info["task"].endswith(
        "a step goes where you want with probability 0.75, and otherwise to either side of that."
    )
    P = env.env.unwrapped.P
    assert {round(p, 3) for actions in P.values() for listed in actions.values() for p, *_ in listed} == {
        0.75,
        0.125,
        1.0,
    }
    assert "one step in three" in FrozenLake(slippery=True).reset(seed=0, options={"task": 0})[1]["task"]


def test_a_hole_ends_the_episode_in_failure_and_the_border_stops():
    env = FrozenLake()
    ends = set()
    rng = np.random.default_rng(0)
    for task in range(60):
        env.reset(options={"task": task})
        over = False
        while not over:
            observation, reward, terminated, truncated, info = env.step(str(rng.choice(env._admissible())))
            over = terminated or truncated
        assert (reward == 1) == info["success"] == ("+" in observation)
        assert terminated == ("+" in observation or "X" in observation)
        ends.add((terminated, info["success"]))
    assert ends >= {(True, False), (True, True)}


def test_members_of_a_group_slip_each_on_their_own_and_as_one_where_noise_is_shared():
    def starts_and_ends(dynamics):
        with closing(GroupVectorEnv("CRBC-FrozenLake-v0", 1, 16, dynamics=dynamics, slippery=True)) as envs:
            _, info = envs.reset(seed=5, options={"task": [3]})
            assert len(set(info["anchor"])) == 1
            chosen = envs.dynamics
            while envs.active.any():
                envs.step(["right" if live else None for live in envs.active])
            return chosen, [tuple(step.anchor for step in r.steps) for r in envs.groups()[0].rollouts]

    for dynamics in (None, "independent"):
        name, walks = starts_and_ends(dynamics)
        assert name == "independent" and len(set(walks)) > 1
    name, walks = starts_and_ends("shared")
    assert name == "shared" and len(set(walks)) == 1


def test_a_member_slips_as_its_seed_says():
    env = FrozenLake(slippery=True)

    def walk(seed):
        env.reset(seed=1, options={"task": 3})
        env.seed_noise(seed)
        return env.step("right")[0]

    walks = [walk(noise_seed(1, member)) for member in range(30)]
    assert walks == [walk(noise_seed(1, member)) for member in range(30)]
    assert len(set(walks)) == 3  # the wanted way, and either side


def test_all_kinds_of_anchor_are_one():
    keys = set()
    for kind in ANCHOR_KINDS:
        env = FrozenLake(anchor=kind)
        _, info = env.reset(seed=0, options={"task": 0})
        keys |= {info["anchor"], *(env.anchor_as(other) for other in ANCHOR_KINDS)}
        assert env.anchor_name == f"{kind}-1"
    assert len(keys) == 1
    with pytest.raises(ValueError, match="frozenlake has anchors of the kind paper, .*, and not 'own'"):
        env.anchor_as("own")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 3}, "size must be 4 to 8, got 3"),
        ({"anchor": "own"}, "anchor must be one of paper"),
        ({"split": "dev"}, "split must be one of"),
        ({"render_mode": "human"}, "render_mode must be 'ansi'"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"tasks": 0}, "tasks must be at least 1"),
        ({"desc": ["SG"], "size": 4}, "desc is the one map of all tasks; leave out size and tasks"),
        ({"desc": ["SG"], "tasks": 2}, "leave out size and tasks"),
        ({"desc": ["SF", "G"]}, "desc must be rows of equal length"),
        ({"desc": ["SSG"]}, "desc must be rows of equal length, of the letters F, H and G and one S"),
        ({"desc": []}, "desc must be rows"),
        ({"desc": "SFG"}, "desc must be rows"),
        ({"desc": ["SHG"]}, "desc must have a way from S to G"),
        ({"success_rate": 0.5}, "success_rate is a probability and needs slippery=True; got 0.5"),
        ({"success_rate": 1.5, "slippery": True}, "success_rate is a probability"),
        ({"reward_schedule": (1, 0)}, "reward_schedule must be 3 finite numbers: goal, hole, ice"),
        ({"reward_schedule": (1, 0, float("nan"))}, "reward_schedule must be 3 finite numbers"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        FrozenLake(**options)


# ---- expert and prompts -------------------------------------------------------------------------------


def test_the_expert_takes_a_shortest_way_where_nothing_slips():
    for size in (4, 8):
        env = FrozenLake(size=size)
        for task in range(20):
            observation, info = env.reset(options={"task": task})
            shortest, expert = env.distance(), env.expert(np.random.default_rng(0))
            while not info.get("success"):
                observation, _, _, truncated, info = env.step(expert(observation, info))
                assert not truncated
            assert info["step"] == shortest


def test_a_hasty_expert_runs_at_the_goal_and_loses_more():
    def wins(hasty):
        env, rng = FrozenLake(slippery=True), np.random.default_rng(1)
        won = 0
        for task in range(60):
            observation, info = env.reset(seed=task, options={"task": task})
            expert, over = env.expert(rng, hasty=hasty), False
            while not over:
                observation, _, terminated, truncated, info = env.step(expert(observation, info))
                over = terminated or truncated
                assert info["valid"]
            won += info["success"]
        return won

    assert wins(0.0) > wins(1.0) + 15
    with pytest.raises(ValueError, match="hasty must be in"):
        wins(2.0)


def test_the_compact_prompt_says_where_the_goal_is_and_what_is_near():
    window = PromptWindow.of(FrozenLake, "compact")
    info = {"task": "t", "admissible_actions": ("left",), "step": 0}
    assert window.prompt("@FH\nHFG\nFFF", info) == "Goal: 1 down, 2 right. Hole: down. Edge: left, up. Your move?"
    assert window.prompt("GFH\nFFF\nF@H", info) == "Goal: 2 up, 1 left. Hole: right. Edge: down. Your move?"
    assert window.prompt("[...]\nFFF", info).startswith("Goal: ")
