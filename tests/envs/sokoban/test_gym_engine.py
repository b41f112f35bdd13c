"""`engine="gym"` is gym-sokoban itself behind the same wrapper, and conformance finds every planted difference."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np
import pytest
from sokoban_boards import parse_room

import crbc_envs  # noqa: F401  registers the id
from anchors import INVALID
from crbc_envs import GroupVectorEnv
from crbc_envs.checking.check import check_anchor_env
from crbc_envs.errors import RequirementError
from crbc_envs.sokoban import batch, conformance, gym_engine, render
from crbc_envs.sokoban.batch import SokobanBatch
from crbc_envs.sokoban.conformance import COMPARED, Engines, conform, play
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.gym_engine import GymGame, gym_sokoban_class
from crbc_envs.sokoban.rules import MOVES, Room, State
from crbc_lab import cli


@pytest.fixture(autouse=True)
def installed():
    try:
        gym_sokoban_class()
    except RequirementError as missing:
        pytest.skip(str(missing))


# ---- the engine -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"observation": "text"},
        {"pixels": 50},
        {"panel": "paper", "split": "validation"},
        {"level": "8x8-2box", "render_mode": "rgb_array"},
        {"height": 5, "width": 7, "num_boxes": 1},
    ],
    ids=str,
)
def test_both_engines_give_the_same_bytes(kwargs, monkeypatch):
    steps = []
    step = GymGame.step
    monkeypatch.setattr(GymGame, "step", lambda self, action: steps.append(action) or step(self, action))
    ours, theirs = (SokobanEnv(**kwargs, engine=name) for name in ("exact", "gym"))
    rng = np.random.default_rng(0)
    for task in range(5):
        (seen, info), (their_seen, their_info) = (env.reset(options={"task": task}) for env in (ours, theirs))
        assert info == their_info
        expert = ours.expert(rng)
        over = False
        while not over:
            np.testing.assert_array_equal(seen, their_seen)
            np.testing.assert_array_equal(ours.render(), theirs.render())
            reply = expert(None, {}) if rng.random() < 0.5 else [*MOVES, "sideways"][rng.integers(5)]
            (seen, *rest), (their_seen, *their_rest) = ours.step(reply), theirs.step(reply)
            assert rest == their_rest and [*map(type, rest)] == [*map(type, their_rest)]
            over = rest[1] or rest[2]
        np.testing.assert_array_equal(seen, their_seen)
    assert {*MOVES, INVALID} == set(steps), "gym-sokoban was asked for each"


@pytest.mark.parametrize(
    "board", ["########\n#@$._*_#\n#_*____#\n########", "######\n#_+$_#\n#_$._#\n######"], ids=["placed", "on a target"]
)
def test_any_room_is_put_into_its_state(board):
    room = parse_room(board)
    game = GymGame(room, 50)
    assert game.state == room.start and not game.won and not game.done
    np.testing.assert_array_equal(game.frame(), render.render(room.tiles(room.start)))
    state = room.start
    for move in np.random.default_rng(0).choice(MOVES, 30):
        game.step(move)
        state = room.move(state, move)
        assert game.state == state
        np.testing.assert_array_equal(game.frame(), render.render(room.tiles(state)))


def test_it_moves_pays_ends_and_draws(monkeypatch):
    """A change of gym-sokoban is a change of the environment: nothing of ours stands in its place."""
    theirs = gym_sokoban_class()
    env = SokobanEnv(engine="gym")
    assert env.batch(4) is None
    env.reset(options={"task": 0})
    monkeypatch.setattr(Room, "move", None)
    monkeypatch.setattr(Room, "solved", None)
    env.step("up")
    monkeypatch.setattr(theirs, "get_image", lambda self, mode, scale: np.full((96, 96, 3), 7, np.uint8))
    monkeypatch.setattr(theirs, "_check_if_all_boxes_on_target", lambda self: True)
    monkeypatch.setattr(theirs, "_calc_reward", lambda self: setattr(self, "reward_last", 3.5))
    frame, reward, terminated, _, info = env.step("down")
    assert (frame == 7).all() and (reward, terminated, info["success"]) == (3.5, True, True)


def test_frames_are_copies():
    env = SokobanEnv(engine="gym")
    for begin in (lambda: env.reset(options={"task": 0}), lambda: env.step("up")):
        frame = begin()[0]
        kept = frame.copy()
        frame[:] = 0
        np.testing.assert_array_equal(env.game.frame(), kept)


@pytest.mark.usefixtures("one_hash_seed")
def test_it_keeps_the_contract():
    env = gymnasium.make("CRBC-Sokoban-v0", engine="gym", observation="text", disable_env_checker=True)
    check_anchor_env(env, tasks=2, episodes=4, fuzz=20, split_tasks=1)


@pytest.mark.parametrize(("backend", "observation"), [("sync", "text"), ("process", "rgb")])
def test_groups_play_it(backend, observation):
    def played(**kwargs):
        rng = np.random.default_rng(1)
        envs = GroupVectorEnv("CRBC-Sokoban-v0", 2, 2, observation=observation, max_steps=5, **kwargs)
        try:
            seen = [envs.reset(seed=5)[0]]
            while envs.active.any():
                seen.append(envs.step(rng.choice([*MOVES, "sideways"], 4).tolist())[0])
            return repr([np.asarray(one).tolist() for one in seen]), repr(envs.groups()), envs.transition_counts()
        finally:
            envs.close()

    assert played(engine="gym", backend=backend) == played()


def test_a_wrong_name_is_one_error():
    with pytest.raises(ValueError, match=r"^engine must be one of exact, gym; got 'unity'$"):
        gymnasium.make("CRBC-Sokoban-v0", engine="unity")
    with pytest.raises(ValueError, match=r"^engine must be one of exact, gym; got \['gym'\]$"):
        SokobanEnv(engine=["gym"])


def test_a_missing_package_is_told_with_the_command(monkeypatch):
    monkeypatch.setattr(gym_engine, "PACKAGES", ("gym_sokoban_of_nobody",))
    with pytest.raises(RequirementError, match=r"gym_sokoban_of_nobody is not installed: .*install .*\[sokoban\]"):
        SokobanEnv(engine="gym")
    SokobanEnv()


def test_nobody_else_finds_the_stand_in_for_pkg_resources(run_python):
    code = "import sys, crbc_envs.sokoban.gym_engine as e; e.gym_sokoban_class(); print('pkg_resources' in sys.modules)"
    there = run_python("from importlib.util import find_spec; print(find_spec('pkg_resources') is not None)")
    assert run_python(code) == there


# ---- conformance ----------------------------------------------------------------------------------


def test_rooms_are_won_pushed_in_and_equal():
    outcomes = list(play(3, 40, 3, level="8x8-1box"))
    assert len(outcomes) == 3 and all(outcome.won and not outcome.difference for outcome in outcomes)
    assert all(outcome.steps >= 40 for outcome in outcomes)
    verbs = {name for outcome in outcomes for name in outcome.verbs if outcome.verbs[name]}
    assert verbs == {*MOVES, INVALID, "(pushes)"}
    assert outcomes[:1] == list(play(1, 40, 3, level="8x8-1box")) != list(play(1, 40, 4, level="8x8-1box"))


def stays_at_the_left(self, state, move):
    return state if move == "left" else Room_move(self, state, move)


def pushes_two(self, state, move):
    after = Room_move(self, state, move)
    moved = after.boxes - state.boxes
    return State(state.player, after.boxes) if moved else after


Room_move = Room.move
Env_execute, Env_info, Batch_step = SokobanEnv._execute, SokobanEnv._info, SokobanBatch.step


def pays_more(self, action):
    return Env_execute(self, action) + (self.engine == "exact" and self._success())


def other_anchor(self):
    info = Env_info(self)
    return {**info, "anchor": info["anchor"][::-1]} if self.engine == "exact" and self._steps == 3 else info


def batch_pays_less(self, numbers, boards=None):
    rewards, solved = Batch_step(self, numbers, boards)
    return np.where(solved, 10.0, rewards), solved


@pytest.mark.parametrize(
    ("where", "name", "fault", "found"),
    [
        (Room, "move", stays_at_the_left, "frame: "),
        (Room, "move", pushes_two, "frame: "),
        (Room, "solved", lambda self, state: False, "reward: 0.9, gym-sokoban has 10.9"),
        (SokobanEnv, "_execute", pays_more, "reward: 11.9, gym-sokoban has 10.9"),
        (SokobanEnv, "_info", other_anchor, "anchor: "),
        (SokobanBatch, "step", batch_pays_less, "batch: reward: "),
        (batch, "board_text", lambda tiles: "#", "batch: text: '#'"),
        (SokobanEnv, "_cut", lambda self: self.engine == "exact" and self._steps > 3, "truncated: True, gym-sokoban"),
        (gym_sokoban_class, "_check_if_maxsteps", lambda self: False, "done: the episode's end is True, gym-sokoban"),
    ],
    ids=["move", "push", "solved", "reward", "anchor", "batch reward", "batch text", "truncated", "done"],
)
def test_a_planted_fault_is_found(monkeypatch, where, name, fault, found):
    monkeypatch.setattr(where() if where is gym_sokoban_class else where, name, fault)
    (outcome,) = play(1, 200, 0)
    assert outcome.difference.startswith(f"step {outcome.steps}: {found}")


def test_a_frame_with_one_other_pixel_is_found(monkeypatch):
    drawn = SokobanEnv._frame

    def spotted(self):
        frame = drawn(self)
        frame[5, 6, 1] ^= self.engine == "exact" and self._steps == 2
        return frame

    monkeypatch.setattr(SokobanEnv, "_frame", spotted)
    outcome = conform(Engines(), 7, 50, 0)
    assert outcome.difference == "step 2: frame: 1 pixels differ from gym-sokoban's"


def test_the_command_tells_what_was_compared_and_whether_all_agree(monkeypatch, capsys):
    command = ["bench", "conformance", "CRBC-Sokoban-v0", "--count", "2", "--steps", "20", "--set", "panel=paper"]
    cli.main(command)
    printed = " ".join(capsys.readouterr().out.split())
    assert "CRBC-Sokoban-v0 and gym-sokoban 0.0.6" in printed
    assert f"compared at every step: {', '.join(COMPARED)}" in printed
    monkeypatch.setattr(Room, "move", stays_at_the_left)
    with pytest.raises(SystemExit) as left:
        cli.main(command)
    assert left.value.code == 1
    assert "sokoban-paper/train/0 seed 0, step" in capsys.readouterr().out


def test_a_run_without_a_room_is_no_success(monkeypatch):
    monkeypatch.setattr(conformance, "CONFORMANCE", conformance.CONFORMANCE._replace(play=lambda *args: iter(())))
    with pytest.raises(SystemExit):
        cli.main(["bench", "conformance", "CRBC-Sokoban-v0"])
    assert "gym_sokoban" in sys.modules
