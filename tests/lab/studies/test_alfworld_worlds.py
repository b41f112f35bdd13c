"""ALFWorld's small rooms as processes: replayed in the environment, step by step."""

from __future__ import annotations

import numpy as np
import pytest

from anchors import INVALID, anchor_key
from crbc_envs.alfworld.engine.game import parse
from crbc_envs.alfworld.env import AlfworldEnv
from crbc_envs.alfworld.games.official import task_of
from crbc_envs.alfworld.observation import HISTORY, added_line
from crbc_envs.tasks import TaskPanel
from crbc_lab.studies.worlds import WORLDS, alfworld, behaviour
from crbc_lab.studies.worlds.build import TooManyStates

KINDS = ("situation", "paper", "observation", "state")


class OneRoom(TaskPanel):
    """A panel with the game of one world."""

    def __init__(self, index):
        super().__init__("train", 1)
        self.file = alfworld.game(0, index)

    def _task(self, index):
        return task_of("room", self.file)


@pytest.fixture(scope="module")
def rooms():
    games = [parse(alfworld.game(0, index)) for index in range(5)]
    return {kind: [alfworld.solve(game, kind) for game in games] for kind in KINDS}


def remembered(text):
    """An anchor's payload with the part of the item history that counts."""
    history = added_line(text, HISTORY)
    return text.replace(HISTORY + history, HISTORY + "; ".join(history.split("; ")[-alfworld.REMEMBERED :]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_room_is_the_environment_step_by_step(rooms, kind):
    """Random walks, with invalid replies: equal actions, anchors, success and end at every step."""
    rng = np.random.default_rng(0)
    wins = exact = cut = 0
    for index, room in enumerate(rooms[kind]):
        mdp, n = room.mdp, len(room.mdp.successor)
        number = {payload: i for i, payload in enumerate(room.payloads)}
        policy = behaviour(mdp, "mix0.1", rng)
        env = AlfworldEnv(anchor=kind, verb="put", max_steps=mdp.horizon)
        env.panel = OneRoom(index)
        for walk in range(5):
            _, info = env.reset(seed=walk)
            state = 0
            for _ in range(mdp.horizon):
                admissible = {room.actions[a] for a in np.flatnonzero(mdp.admissible[state])}
                assert admissible == {INVALID, *info["admissible_actions"]}
                payload = env._payload(kind)
                assert info["anchor"] == anchor_key(payload)
                shown = remembered(payload) if kind in ("situation", "paper") else payload
                assert number[shown] == mdp.anchor[state]
                exact += shown == payload
                cut += shown != payload
                action = rng.choice(len(room.actions), p=policy[state])
                command = "no such command" if room.actions[action] == INVALID else room.actions[action]
                _, _, terminated, truncated, info = env.step(command)
                assert info["valid"] == (room.actions[action] != INVALID)
                state = mdp.successor[state, action, 0]
                assert terminated == info["success"] == (state == n)
                if terminated:
                    wins += 1
                    break
            assert truncated != terminated
    assert wins >= 4 and exact > 200
    assert (cut > 0) == (kind in ("situation", "paper")), "the restriction is at work, and only there"


def test_a_walk_of_a_few_item_changes_has_the_environments_own_anchors(rooms):
    """Every payload with a history shorter than `REMEMBERED` is one that the environment can show."""
    for room in rooms["situation"]:
        lengths = [len(added_line(payload, HISTORY).split("; ")) for payload in room.payloads]
        assert max(lengths) <= alfworld.REMEMBERED and min(lengths) == 1


def test_kinds_of_one_game_agree_about_the_way_to_success(rooms):
    for several in zip(*rooms.values(), strict=True):
        assert len({room.mdp.distance[0] for room in several}) == 1
        assert all(0 < room.mdp.distance[0] < alfworld.HORIZON for room in several)
        situation, paper, observation, state = (len(room.mdp.successor) for room in several)
        assert state <= observation <= paper and state <= situation <= paper <= alfworld.MOST_STATES


def test_what_every_kind_promises(rooms):
    aliased = dict.fromkeys(KINDS, 0)
    for kind, several in rooms.items():
        for room in several:
            mdp = room.mdp
            n = len(mdp.successor)
            np.testing.assert_array_equal(mdp.probability.sum(axis=2), mdp.admissible)
            assert len(room.actions) == mdp.successor.shape[1] and len(room.payloads) == mdp.anchor.max() + 1
            invalid = room.actions.index(INVALID)
            assert mdp.admissible[:, invalid].all()
            kept = mdp.successor[:, invalid, 0] == np.arange(n)
            assert kept.all() if kind in ("situation", "state") else not kept.all()
            _, first = np.unique(mdp.anchor, return_index=True)
            if kind != "observation":  # the bare text does not tell what is admissible
                np.testing.assert_array_equal(mdp.admissible, mdp.admissible[first][mdp.anchor])
            aliased[kind] += n - len(first)
    assert aliased["state"] == 0 < aliased["situation"] < aliased["paper"]
    assert aliased["observation"] > 0


@pytest.mark.parametrize("name", [name for name in WORLDS if name.startswith("alfworld")])
def test_the_worlds_are_these_rooms(rooms, name):
    kind = "situation" if name == "alfworld" else name.removeprefix("alfworld-")
    world = WORLDS[name]
    for index in range(2):
        made = world.make(0, index)
        np.testing.assert_array_equal(made.successor, rooms[kind][index].mdp.successor)
        np.testing.assert_array_equal(made.anchor, rooms[kind][index].mdp.anchor)
        for which in world.behaviours:
            policy = behaviour(made, which, np.random.default_rng(0))
            np.testing.assert_allclose(policy.sum(axis=1), 1.0)
            assert (policy[~made.admissible] == 0.0).all()


def test_rooms_are_small_and_their_families_alternate():
    games = [alfworld.game(0, index) for index in range(5)]
    assert tuple(game.family for game in games) == alfworld.FAMILIES
    for game in map(parse, games):
        assert len(game.receptacles) <= 4 and len(game.objects) <= 3
        with pytest.raises(TooManyStates, match="more than 5 states"):
            alfworld.solve(game, "state", most=5)
    assert alfworld.game(1, 0) != alfworld.game(0, 0)
