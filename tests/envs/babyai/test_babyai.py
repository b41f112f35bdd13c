"""CRBC-BabyAI-v0: its view in words, its anchors, its splits, its expert, and what it says without MiniGrid."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from effort import effort
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX
from minigrid.core.world_object import Ball, Box, Key

import crbc_envs
from anchors import INVALID
from anchors.key import ANCHOR_KINDS
from crbc_envs import GroupVectorEnv, PromptWindow
from crbc_envs.babyai import words
from crbc_envs.babyai.env import BabyAI, levels
from crbc_envs.babyai.expert import ACTIONS
from crbc_envs.errors import RequirementError
from crbc_envs.tasks import SPLITS

LEVELS = ["GoToObj", "GoToLocal", "GoToDoor", "PickupLoc", "PutNextLocal", "OpenDoor", "UnlockLocal", "GoToSeqS5R2"]


def seen(things, direction=0, carrying=None):
    """The words for a view of 7 x 7 empty cells, with things at (column, row): (name, colour, state)."""
    image = np.zeros((7, 7, 3), np.uint8)
    image[:, :, 0] = OBJECT_TO_IDX["empty"]
    for place, (name, colour, state) in things.items():
        image[place] = OBJECT_TO_IDX[name], COLOR_TO_IDX[colour], state
    env = SimpleNamespace(unwrapped=SimpleNamespace(carrying=carrying))
    return words.view(env, {"image": image, "direction": direction, "mission": "m"})


# ---- words --------------------------------------------------------------------------------------------


def test_things_are_told_from_the_agents_place_the_nearest_first():
    things = {(3, 4): ("ball", "red", 0), (1, 5): ("door", "blue", 2), (4, 6): ("box", "grey", 0)}
    expected = (
        "You see grey box 1 right, red ball 2 ahead, locked blue door 1 ahead 2 left. Walls: none. "
        "You face east and carry nothing."
    )
    assert seen(things) == expected


def test_walls_are_told_straight_ahead_and_to_the_sides_the_nearest_of_each():
    grey = ("wall", "grey", 0)
    things = {(3, 2): grey, (3, 1): grey, (1, 6): grey, (0, 6): grey, (6, 6): grey, (0, 0): grey}
    assert "You see nothing. Walls: 4 ahead, 2 left, 3 right." in seen(things)
    assert "Walls: 1 ahead." in seen({(3, 5): grey})


def test_what_is_carried_and_where_the_agent_faces():
    text = seen({(3, 6): ("key", "blue", 0)}, direction=3, carrying=Key("blue"))
    assert text == "You see nothing. Walls: none. You face north and carry blue key."
    box = Box("red", contains=Ball("green"))
    # MiniGrid's image does not tell what is in the box.
    assert seen({}, direction=1, carrying=box).endswith("You face south and carry red box.")


def test_the_view_is_where_things_are():
    env = BabyAI(level="GoToLocal")
    told = 0
    for task in range(20):
        observation, _ = env.reset(options={"task": task})
        inner = env.env.unwrapped
        for part in observation.partition(". Walls")[0].removeprefix("You see ").split(", "):
            if part == "nothing":
                continue
            colour, kind, *place = part.split()
            ways = dict(zip(place[1::2], map(int, place[::2]), strict=True))
            aside = ways.get("right", 0) - ways.get("left", 0)
            x, y = inner.agent_pos + inner.dir_vec * ways.get("ahead", 0) + inner.right_vec * aside
            thing = inner.grid.get(int(x), int(y))
            assert (thing.color, thing.type) == (colour, kind)
            told += 1
    assert told > 20


# ---- anchors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["GoToLocal", "PutNextLocal", "UnlockLocal", "GoToSeqS5R2"])
def test_one_state_and_one_action_have_one_outcome(level):
    env = BabyAI(level=level, max_steps=60)
    rng, after, again = np.random.default_rng(0), {}, 0
    for task in range(2):
        for _ in range(effort(4, full=8)):
            _, info = env.reset(options={"task": task})
            over = False
            while not over:
                pair = (task, info["anchor"], str(rng.choice(list(ACTIONS))))
                _, _, terminated, truncated, info = env.step(pair[2])
                over = terminated or truncated
                again += pair in after
                assert after.setdefault(pair, (info["anchor"], terminated)) == (info["anchor"], terminated)
    assert again > 50


def test_kinds_of_anchor_tell_less_and_less():
    env = BabyAI(level="OpenDoorsOrderN2", max_steps=100)
    rng, keys = np.random.default_rng(0), []
    for episode in range(12):
        env.reset(options={"task": episode // 6})
        while not env._over:
            env.step(str(rng.choice(list(ACTIONS))))
            keys.append([env.anchor_as(kind) for kind in ("state", "situation", "observation")])
            assert env.anchor_as("paper") == env.anchor_as("situation")
    state, situation, observation = (len(set(column)) for column in zip(*keys, strict=True))
    assert state > situation > observation
    assert len({tuple(key) for key in keys}) == state  # the same state is the same under every kind


@pytest.mark.parametrize("kind", ANCHOR_KINDS)
def test_an_anchor_is_of_the_kind_that_was_asked_for(kind):
    env = BabyAI(anchor=kind)
    _, info = env.reset(options={"task": 3})
    assert info["anchor"] == env.anchor_as(kind) and env.anchor_name == f"{kind}-2"
    assert env._start(5) == BabyAI(anchor="state")._start(5)
    assert info["task_id"] == BabyAI(anchor="state").panel[3].id
    assert env.step("jump")[4]["anchor"] == info["anchor"]


def test_a_thing_that_was_moved_out_of_sight_is_another_state_only():
    env = BabyAI(level="GoToLocal")
    _, before = env.reset(options={"task": 0})
    inner = env.env.unwrapped
    situation = env.anchor_as("situation")
    sees = {tuple(cell) for cell in np.argwhere(inner.grid.encode()[:, :, 0] > 4).tolist() if not inner.in_view(*cell)}
    assert sees
    inner.grid.set(*min(sees), None)
    assert env.anchor_as("situation") == situation and env.anchor_as("state") != before["anchor"]


def test_what_minigrid_remembers_of_the_mission_is_part_of_the_state():
    env = BabyAI(level="GoToSeqS5R2")
    _, before = env.reset(options={"task": 0})
    situation = env.anchor_as("situation")
    env.env.unwrapped.instrs.a_done = "success"
    assert env.anchor_as("state") != before["anchor"] and env.anchor_as("situation") == situation


@pytest.mark.parametrize("level", ["GoToSeq", "OpenTwoDoors", "MiniBossLevel"])
def test_who_turns_about_is_back_in_the_state_of_the_start(level):
    env = BabyAI(level=level)
    _, before = env.reset(options={"task": 0})
    after = [env.step("turn left")[4] for _ in range(4)][-1]
    assert after["anchor"] == before["anchor"] == env.anchor_as("state")


def test_where_a_thing_that_is_to_be_put_was_before_is_no_state():
    env = BabyAI(level="PutNextLocal")
    env.reset(options={"task": 0})
    inner = env.env.unwrapped
    description = inner.instrs.desc_move
    state = env.anchor_as("state")
    description.obj_poss = [(1, 1)]
    assert env.anchor_as("state") == state
    description.obj_set = description.obj_set[:0]
    assert env.anchor_as("state") != state


def test_equal_things_are_told_apart_where_one_of_them_is_meant():
    env = BabyAI(level="PickupLoc")
    _, before = env.reset(options={"task": 0})
    inner = env.env.unwrapped
    meant = inner.instrs.desc.obj_set[0]
    x, y = map(int, meant.cur_pos)
    inner.grid.set(x, y, type(meant)(meant.color))
    assert env.anchor_as("state") != before["anchor"]
    inner.grid.set(x, y, meant)
    assert env.anchor_as("state") == before["anchor"]


# ---- splits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["GoToObj", "PutNextLocal"])
def test_no_walls_things_and_mission_are_in_two_splits(level):
    layouts, starts = {}, {}
    for split in SPLITS:
        env = BabyAI(split=split, level=level)
        tasks = [env.panel[index] for index in range(40)]
        layouts[split] = {env._start(task.content).layout for task in tasks}
        starts[split] = {task.digest for task in tasks}
        assert len(starts[split]) > 36
    for kind in (layouts, starts):
        assert not kind["train"] & kind["test"]
        assert not kind["train"] & kind["validation"]
        assert not kind["validation"] & kind["test"]


def test_no_start_is_met_in_training():
    report = crbc_envs.measure_splits("CRBC-BabyAI-v0", train_tasks=15, held_out_tasks=30, walks=2, level="GoToObj")
    assert not report.leaks
    for part in report.held_out:
        assert part.train["layout"] == part.other["layout"] == part.visited["anchor"] == 0


def test_the_mission_is_the_task():
    env = BabyAI(level="PutNextLocal")
    _, info = env.reset(options={"task": 5})
    assert info["task"] == env.env.unwrapped.mission == env.panel[5].text
    assert info["task"].startswith("put the ") and " next to the " in info["task"]


# ---- play ---------------------------------------------------------------------------------------------


def test_actions_do_what_they_say():
    env = BabyAI(level="PickupLoc", max_steps=200)
    env.reset(options={"task": 0})
    inner = env.env.unwrapped
    facing = inner.agent_dir
    env.step("turn right")
    assert inner.agent_dir == (facing + 1) % 4
    env.step("turn left")
    assert inner.agent_dir == facing
    inner.grid.set(*inner.front_pos, Key("red"))
    assert env.step("pick up")[0].endswith("carry red key.")
    assert env.step("drop")[0].startswith("You see red key 1 ahead")
    inner.grid.set(*inner.front_pos, None)
    ahead = tuple(inner.front_pos)
    env.step("go forward")
    assert tuple(inner.agent_pos) == ahead
    box = Box("red", contains=Ball("green"))
    inner.grid.set(*inner.front_pos, box)
    assert "green ball 1 ahead" in env.step("toggle")[0]


def test_copies_of_a_task_start_alike_in_worker_processes_too():
    def first(**backend):
        with closing(GroupVectorEnv("CRBC-BabyAI-v0", 2, 2, level="GoToObj", **backend)) as envs:
            observations, info = envs.reset(seed=3)
            return list(observations), list(info["anchor"])

    observations, anchors = first()
    assert anchors[0] == anchors[1] != anchors[2] == anchors[3]
    assert first(backend="process", num_workers=2) == (observations, anchors)


def test_making_levels_prints_nothing(capsys):
    env = BabyAI(level="PutNextLocal")
    for task in range(20):
        env.reset(options={"task": task})
    assert capsys.readouterr().out == ""


def test_the_frame_is_minigrids():
    env = gymnasium.make("CRBC-BabyAI-v0", render_mode="rgb_array")
    env.reset(options={"task": 0})
    assert env.render().shape == (256, 256, 3)


# ---- expert and prompts -------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("errs", [0.0, 0.3])
def test_the_expert_solves_the_levels_also_where_it_errs(level, errs):
    env, rng = BabyAI(level=level, max_steps=300), np.random.default_rng(0)
    for task in range(3):
        observation, info = env.reset(options={"task": task})
        expert, over = env.expert(rng, errs=errs), False
        while not over:
            observation, _, terminated, truncated, info = env.step(expert(observation, info))
            over = terminated or truncated
            assert info["valid"]
        assert info["success"], task


def test_the_expert_goes_on_after_what_a_person_did():
    env, rng = BabyAI(level="PickupLoc", max_steps=200), np.random.default_rng(1)
    for task in range(8):
        observation, info = env.reset(options={"task": task})
        expert, over = env.expert(rng), False
        while not over:
            reply = expert(observation, info)
            if info["step"] < 20 and rng.random() < 0.5:
                reply = str(rng.choice([*ACTIONS, "sit down"]))
            observation, _, terminated, truncated, info = env.step(reply)
            over = terminated or truncated
        assert info["success"], task


def test_the_expert_comes_to_an_end_where_two_doors_wait_for_each_other():
    """MiniGrid's bot plans for ever at the first step of this task."""
    env = BabyAI(level="UnlockToUnlock", max_steps=30)
    observation, info = env.reset(options={"task": 0})
    expert, over = env.expert(np.random.default_rng(0)), False
    while not over:
        observation, _, terminated, truncated, info = env.step(expert(observation, info))
        over = terminated or truncated
    assert info["valid"] and info["step"] > 1


def test_an_expert_that_is_lost_says_so():
    env = BabyAI(level="KeyInBox")
    observation, info = env.reset(options={"task": 0})
    expert = env.expert(np.random.default_rng(0))

    def play():
        seen = observation, info
        for _ in range(64):
            seen = env.step(expert(*seen))[::4]

    with pytest.raises(ValueError, match="the bot is lost"):
        play()
    with pytest.raises(ValueError, match="errs must be in"):
        env.expert(np.random.default_rng(0), errs=-1)


def test_prompts_hold_mission_and_view():
    env = BabyAI()
    observation, info = env.reset(options={"task": 1})
    compact = PromptWindow.of(env, "compact").prompt(observation, info)
    assert compact == f"{info['task']}\n{observation}\nYour action?"
    text = PromptWindow.of(env, "text").prompt(observation, info)
    assert observation in text and info["task"] in text and "'pick up'" in text


# ---- errors -------------------------------------------------------------------------------------------


def test_without_minigrid_the_environment_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("crbc_envs.babyai.env.find_spec", lambda name: None)
    with pytest.raises(RequirementError, match=r"^CRBC-BabyAI-v0 needs minigrid: .* install .*\[babyai\]") as error:
        gymnasium.make("CRBC-BabyAI-v0")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "GoToLocl"}, "level 'GoToLocl' is none of MiniGrid's .* for example GoToLocal"),
        ({"level": "x"}, "for example GoToObj, GoToLocal, PutNextLocal"),
        ({"anchor": "own"}, "anchor must be one of paper"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"split": "dev"}, "split must be one of"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        BabyAI(**options)


def test_levels_have_minigrids_names():
    known = levels()
    assert known["GoToLocal"] == "BabyAI-GoToLocal-v0" and known["GoToObjS6"] == "BabyAI-GoToObjS6-v1"
    assert len(known) > 90


def test_an_invalid_reply_takes_no_step_inside():
    env = BabyAI()
    env.reset(options={"task": 0})
    assert env.step("done")[4]["action"] == INVALID
    assert env.env.unwrapped.step_count == 0
