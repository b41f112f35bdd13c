"""AnchorWrapper around environments whose actions are text: what is admissible stands for itself."""

from __future__ import annotations

from contextlib import closing

import gymnasium
import numpy as np
import pytest
import text_games

import crbc_envs
from anchors import INVALID
from crbc_envs import AnchorWrapper, ChatEpisode, DiscreteActions, GroupVectorEnv
from crbc_envs.actions import NOT_ADMISSIBLE


@pytest.mark.usefixtures("one_hash_seed")
def test_the_check_passes():
    report = crbc_envs.check_anchor_env(gymnasium.make("Drawers-v0"), tasks=2, episodes=6, fuzz=60, split_tasks=2)
    assert report.label_collisions == report.aliasing == 0 and report.tasks == 2


def test_a_reply_is_read_as_in_the_other_text_environments():
    env = text_games.drawers()
    env.reset(seed=0)
    assert env.action_space.sample() in ("Go Left", "Go Right")
    _, reward, _, _, info = env.step("I look first.</think> <action> go  LEFT </action>")
    assert (info["action"], info["valid"], reward) == ("Go Left", True, 0.0)
    anchor = info["anchor"]
    _, _, _, _, info = env.step("<action>open the window</action>")
    assert (info["action"], info["valid"], info["anchor"]) == (INVALID, False, anchor)
    assert text_games.drawers(replies="tags").accepts("Go Left") is False


def test_chats_groups_and_numbered_actions_play_it():
    with closing(ChatEpisode("Drawers-v0")) as episode:
        messages = episode.begin(task=0, seed=0)
        assert "'Go Left', 'Go Right'" in messages[0]["content"]
        episode.reply("<action>fly</action>")
        episode.reply("<action>go right</action>")
        assert episode.causes == [NOT_ADMISSIBLE, ""] and episode.rows[1]["action"] == "Go Right"
    with closing(GroupVectorEnv("Drawers-v0", 2, 2)) as envs:
        _, infos = envs.reset(seed=3)
        rewards = np.zeros(4)
        while envs.active.any():
            last = [listed and listed[-1] for listed in infos["admissible_actions"]]
            _, gained, _, _, infos = envs.step(last)
            rewards += gained
        assert rewards.tolist() == [float(r.success) for group in envs.groups() for r in group.rollouts]
    env = DiscreteActions(gymnasium.make("Drawers-v0"), num_actions=3)
    env.reset(seed=0)
    assert env.step(1)[4]["action"] == "Go Right" and env.action_masks().sum() in (2, 3)


def test_a_fixed_vocabulary_will_do():
    env = text_games.drawers(actions=("Go Left", "Go Right"), admissible=None)
    assert env.reset(seed=0)[1]["admissible_actions"] == ("Go Left", "Go Right")


@pytest.mark.parametrize(
    ("admissible", "error", "message"),
    [
        (None, ValueError, "Drawers takes text: admissible must give the actions of now, or actions name all"),
        ("orders", TypeError, r"Drawers, step 0: the admissible actions are None \(NoneType\); return a list of texts"),
        (lambda env: "Go Left", TypeError, r"Drawers, step 0: the admissible actions are 'Go Left' \(str\); return a"),
        (lambda env: ["Go Left", "go left"], ValueError, "'Go Left' and 'go left' are one"),
        (lambda env: ["<action>"], ValueError, "the action '<action>' could never be asked for"),
        (lambda env: ["Go!"], ValueError, "the action 'Go!' stands for 'Go!', which is not in Text"),
    ],
)
def test_what_is_no_list_of_actions_is_refused_when_it_is_made(admissible, error, message):
    with pytest.raises(error, match=message):
        text_games.drawers(admissible=admissible)


@pytest.mark.slow  # TextWorld takes three seconds to be imported and to make a game
def test_a_game_of_textworlds_own_maker_is_played(tmp_path):
    path = text_games.textworld_game(tmp_path)
    env = AnchorWrapper(
        lambda seed: text_games.TextWorldGame(path),
        lambda env, seen: seen,
        success=lambda reward, terminated, info: info["won"],
        admissible="commands",
        tasks=1,
    )
    seen, info = env.reset(seed=0)
    assert "at(apple: o, kitchen: r)" in seen
    assert info["admissible_actions"] == ("examine apple", "go east", "inventory", "look", "take apple")
    anchors = [info["anchor"]]
    for reply in ("look", "Take Apple", "<action>eat apple</action>", "go east"):
        _, reward, terminated, _, info = env.step(reply)
        anchors.append(info["anchor"])
        assert (reward, terminated, info["valid"]) == (0.0, False, "eat" not in reply)
    assert anchors[0] == anchors[1] and anchors[2] == anchors[3] and len(set(anchors)) == 3
    _, reward, terminated, _, info = env.step("put apple on table")
    assert (reward, terminated, info["success"]) == (1.0, True, True)
