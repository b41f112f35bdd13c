"""CRBC-Sokoban-v0: frames and the environment."""

from __future__ import annotations

import hashlib

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sokoban_boards import on_board, parse_room

import crbc_envs  # noqa: F401  registers the id
from anchors import INVALID, anchor_key
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.render import atlas, render
from crbc_envs.sokoban.rules import MOVES

GOLDEN_ANCHOR = "dc24f726ccc34abdaad0458e5aae9990"
"""The anchor after reset(seed=7) of the default environment."""

GYM_SOKOBAN_TILES = "9e507fe63d499210ee4c7f3f870ae10e73247959b721c69878ff269349a3f9ab"
"""sha256 of gym-sokoban's wall, floor, target, box on target, box, player, player on target, (7, 16, 16, 3)."""

CORRIDOR = "#######\n#@$_._#\n#_____#\n#######"
# ---- frames ---------------------------------------------------------------------------------------


def test_the_tiles_are_those_of_gym_sokoban():
    assert hashlib.sha256(atlas().tobytes()).hexdigest() == GYM_SOKOBAN_TILES


def test_the_tiles_cannot_be_written_on():
    with pytest.raises(ValueError, match="read-only"):
        atlas()[0] = 0


def test_a_frame_can_be_written_on_without_harm():
    tiles = np.zeros((1, 1), dtype=np.uint8)
    before = render(tiles).copy()
    render(tiles)[:] = 77
    np.testing.assert_array_equal(render(tiles), before)


def test_boards_of_equal_bytes_and_unequal_shapes_have_frames_of_their_own():
    row = np.array([0, 1, 2, 3, 4, 5], dtype=np.uint8)
    for shape in ((1, 6), (6, 1), (2, 3), (3, 2), (1, 6)):
        frame = render(row.reshape(shape))
        assert frame.shape == (16 * shape[0], 16 * shape[1], 3)
        for cell, tile in np.ndenumerate(row.reshape(shape)):
            r, c = (16 * i for i in cell)
            np.testing.assert_array_equal(frame[r : r + 16, c : c + 16], atlas()[tile])


# ---- the environment ------------------------------------------------------------------------------


@pytest.mark.parametrize("moves", [["right", "right"], ["up"] * 15], ids=["won", "cut"])
def test_stepping_after_the_end_raises(moves):
    env = on_board(CORRIDOR)
    for move in moves:
        env.step(move)
    with pytest.raises(gymnasium.error.ResetNeeded, match="the episode is over"):
        env.step("up")


def test_stepping_before_the_first_reset_raises():
    with pytest.raises(gymnasium.error.ResetNeeded):
        SokobanEnv().step("up")


@pytest.mark.parametrize(
    "reply", ["", "jump", "<think>up", "<action>up", "up down", "\x00" * 1_000_000, "<invalid>", "\ud800"]
)
def test_an_invalid_reply_costs_a_step_and_changes_nothing(reply):
    env = on_board(CORRIDOR)
    state, anchor = env.state, env._anchor()
    obs, reward, terminated, truncated, info = env.step(reply)
    assert (env.state, info["anchor"], info["step"]) == (state, anchor, 1)
    assert (reward, terminated, truncated) == (pytest.approx(-0.1), False, False)
    assert (info["action"], info["valid"], info["success"]) == (INVALID, False, False)
    np.testing.assert_array_equal(obs, env._frame())


def test_by_tags_a_bare_action_is_invalid():
    env = on_board(CORRIDOR, replies="tags")
    assert env.step("down")[4]["action"] == INVALID
    assert env.step("<think>a</think><action>down</action>")[4]["action"] == "down"


def test_an_action_that_is_not_text_is_refused():
    env = on_board(CORRIDOR)
    with pytest.raises(TypeError, match="an action must be a str, got int"):
        env.step(2)


def test_info_says_what_the_contract_promises():
    env = SokobanEnv()
    _, info = env.reset(options={"task": 12})
    assert set(info) == {"anchor", "label", "admissible_actions", "task", "task_id", "data", "step"}
    assert (info["task_id"], info["data"], info["step"]) == ("sokoban-v3/train/12", "generated", 0)
    assert info["admissible_actions"] == MOVES
    assert info["label"] == env.room.text(env.state)
    *_, after_step = env.step("up")
    assert set(after_step) - set(info) == {"action", "valid", "success", "score"}
    assert type(after_step["success"]) is bool
    assert after_step["step"] == 1


def test_reset_options_are_checked():
    env = SokobanEnv(split="test")
    with pytest.raises(ValueError, match="unknown option 'tsak'; the only option is 'task'"):
        env.reset(options={"tsak": 1})
    with pytest.raises(IndexError, match="task 2000 is not in the test panel"):
        env.reset(options={"task": 2000})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observation": "ascii"}, "observation must be one of rgb, text; got 'ascii'"),
        ({"render_mode": "human"}, "render_mode must be one of"),
        ({"max_steps": 2.5}, "max_steps must be at least 1 and a whole number, got 2.5"),
        ({"max_steps": 0}, "max_steps must be at least 1 and a whole number, got 0"),
        ({"pixels": 0}, "pixels must be at least 1, got 0"),
        ({"split": "dev"}, "split must be one of"),
    ],
)
def test_constructor_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        SokobanEnv(**options)


def walk(env, seed, steps):
    """(state, anchor) along a random walk over several tasks."""
    rng = np.random.default_rng(seed)
    obs, info = env.reset(options={"task": int(rng.integers(100))})
    for _ in range(steps):
        yield env.room.text(env.state), info["anchor"], obs
        obs, _, terminated, truncated, info = env.step(MOVES[rng.integers(4)])
        if terminated or truncated:
            obs, info = env.reset(options={"task": int(rng.integers(100))})


def test_pictures_and_text_share_every_anchor():
    rgb, text = SokobanEnv(observation="rgb"), SokobanEnv(observation="text")
    for (board, key, frame), (same_board, same_key, shown) in zip(walk(rgb, 3, 300), walk(text, 3, 300), strict=True):
        assert (key, board) == (same_key, same_board)
        assert shown == board
        assert key == anchor_key(rgb.room.tiles(parse_room(board).start))
        assert frame in rgb.observation_space
        assert shown in text.observation_space


@pytest.mark.parametrize("pixels", [None, 256])
def test_anchors_are_equal_exactly_when_frames_are_and_when_boards_are(pixels):
    seen = {(board, key, frame.tobytes()) for board, key, frame in walk(SokobanEnv(pixels=pixels), 4, 1_000)}
    boards, keys, frames = map(set, zip(*seen, strict=True))
    assert len(seen) == len(boards) == len(keys) == len(frames) > 100


def test_pixels_resize_as_the_paper_s_code_family_does():
    env = on_board(CORRIDOR, pixels=256)
    width, height = 16 * 7, 16 * 4
    factor = (256 * 256 / (width * height)) ** 0.5
    expected = Image.fromarray(render(env.room.tiles(env.state))).resize((int(width * factor), int(height * factor)))
    frame = env.step("down")[0]
    assert frame.shape == env.observation_space.shape == (193, 338, 3)
    np.testing.assert_array_equal(env.step("up")[0], np.asarray(expected))
    assert SokobanEnv(pixels=256).observation_space.shape == (256, 256, 3)
    assert SokobanEnv(pixels=96).observation_space.shape == (96, 96, 3)


@pytest.mark.parametrize("pixels", [None, 50])
def test_what_is_handed_out_can_be_written_on_without_harm(pixels):
    env = on_board(CORRIDOR, pixels=pixels, render_mode="rgb_array")
    before = env.render().copy()
    env.render()[:] = 77
    np.testing.assert_array_equal(env.render(), before)
    observation = env.step("no move at all")[0]
    np.testing.assert_array_equal(observation, before)
    observation[:] = 77
    np.testing.assert_array_equal(env.step("no move at all")[0], before)


@given(st.integers(0, 2**31 - 1))
def test_the_same_seed_begins_the_same_task(seed):
    one, other = SokobanEnv(observation="text"), SokobanEnv(observation="text")
    assert one.reset(seed=seed) == other.reset(seed=seed)


def test_reset_without_a_seed_goes_on_drawing_tasks():
    env = SokobanEnv(observation="text")
    env.reset(seed=0)
    assert len({env.reset()[1]["task_id"] for _ in range(20)}) > 15


@pytest.mark.parametrize("hash_seed", ["0", "random"])
def test_the_first_anchor_is_the_frozen_one_in_any_process(run_python, hash_seed):
    code = 'import gymnasium; print(gymnasium.make("crbc_envs:CRBC-Sokoban-v0").reset(seed=7)[1]["anchor"])'
    assert run_python(code, hash_seed) == GOLDEN_ANCHOR


def test_rendering_shows_the_current_board():
    env = on_board(CORRIDOR, render_mode="rgb_array")
    env.step("right")
    np.testing.assert_array_equal(env.render(), render(env.room.tiles(env.state)))
    assert on_board(CORRIDOR, render_mode="ansi").render().replace(" ", "") == CORRIDOR
    assert on_board(CORRIDOR).render() is None


def test_capitals_and_spacing_of_an_action_do_not_matter(monkeypatch):
    env = SokobanEnv()
    env.reset(seed=0)
    monkeypatch.setattr(env, "_admissible", lambda: ("Go  Up",))
    monkeypatch.setattr(env, "_execute", lambda action: 0.0)
    assert env.step("<think></think><action> go UP </action>")[4]["action"] == "Go  Up"
