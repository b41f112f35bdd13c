"""Hints: they help, they say whether they win, and they leave the game alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

import gymnasium
import numpy as np
import pytest
import toy_env
from play_session import session

from crbc_envs.actions import tagged
from crbc_envs.sokoban.solver import distances
from crbc_envs.vector.members import make_member
from crbc_lab.commands.hints import Episode, Hint, Hints, NoHint

ENVIRONMENTS = ("CRBC-Sokoban-v0", "CRBC-ALFWorld-v0", "CRBC-WebShop-v0")


class Player:
    """A game whose hints can be asked for after every reply."""

    def __init__(self, env_id: str, hints: Hints, task: int, **options: object) -> None:
        self.env, self.hints, self.episode = make_member(env_id, options), hints, Episode(task, 100 + task)
        self.observation, self.info = self.env.reset(seed=100 + task, options={"task": task})
        self.over = False

    def hint(self) -> Hint:
        return self.hints(self.episode, self.info["anchor"])

    def step(self, reply: str) -> None:
        self.observation, _, terminated, truncated, self.info = self.env.step(reply)
        self.episode.replies.append(reply)
        self.over = terminated or truncated

    def follow(self) -> bool:
        """Play every hint; whether that wins."""
        while not self.over:
            self.step(self.hint().action)
        return bool(self.info["success"])


@contextmanager
def players(env_id: str, tasks: range, **options: object) -> Iterator[list[Player]]:
    with closing(Hints(partial(make_member, env_id, options))) as hints:
        yield [Player(env_id, hints, task, **options) for task in tasks]


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_hints_change_nothing_that_the_player_sees(env_id):
    with players(env_id, range(3)) as some:
        for player in some:
            twin = Player(env_id, player.hints, player.episode.task)
            rng = np.random.default_rng(player.episode.task)
            while not player.over:
                for _ in range(int(rng.integers(3))):
                    player.hint()
                action = str(rng.choice(player.info["admissible_actions"]))
                player.step(action)
                twin.step(action)
                assert player.observation is not None
                assert np.array_equal(player.observation, twin.observation)
                assert player.info == twin.info


def test_hints_in_a_game_cost_no_step_and_show_no_other_screen():
    moves = ["right", "hint", "hint", "down", "hint", "down"]
    hinted, plain = session(*moves), session(*[move for move in moves if move != "hint"])
    assert [shown for shown in hinted if not shown.startswith("hint: ")] == plain
    assert len(hinted) - len(plain) == 3


def test_a_room_is_won_exactly_where_the_hint_says_so():
    outcomes = set()
    with players("CRBC-Sokoban-v0", range(40)) as some:
        for player in some:
            rng = np.random.default_rng(player.episode.task)
            for _ in range(int(rng.integers(6))):
                if not player.over:
                    player.step(str(rng.choice(player.info["admissible_actions"])))
            if player.over:
                continue
            board, left = player.env, 15 - player.info["step"]
            away = distances(board.room).get(board.state)
            hint = player.hint()
            assert hint.success == (away is not None and away <= left)
            assert hint.steps == (away if hint.success else left)
            assert player.follow() == hint.success
            outcomes.add(hint.success)
    assert outcomes == {True, False}


def test_hints_win_a_household_wherever_the_player_has_got_to():
    with players("CRBC-ALFWorld-v0", range(12), rooms="small") as some:
        for player in some:
            rng = np.random.default_rng(player.episode.task)
            for _ in range(8):
                player.step(str(rng.choice(player.info["admissible_actions"])))
            assert player.follow()


def test_hints_shop_from_any_page():
    won = 0
    with players("CRBC-WebShop-v0", range(12)) as some:
        for player in some:
            player.step("search[lamp]")
            player.step(next(action for action in player.info["admissible_actions"] if action.startswith("click[b0")))
            promised = player.hint()
            assert player.follow() == promised.success
            assert player.info["score"] == promised.score
            won += promised.success
    assert won >= 6


# ---- other people's environments -------------------------------------------------------------------


class Advised(toy_env.CorridorEnv):
    """The corridor with an expert that says what it is told, or is lost."""

    said = ""

    def expert(self, rng, **options):
        def reply(observation, info):
            if not self.said:
                raise ValueError("lost")
            return tagged(self.said)

        return reply


class Forgetful(Advised):
    """Not a function of task, seed and replies."""

    made = 0

    def _begin(self, task):
        Forgetful.made += 1
        super()._begin((task[0], (task[1] + Forgetful.made) % 9))


@pytest.mark.parametrize(
    ("kind", "said", "reason"),
    [
        (toy_env.CorridorEnv, "", "corridor has no expert"),
        (Advised, "", "the expert has no advice here"),
        (Advised, "fly", "the expert has no advice here"),
        (Forgetful, "right", "the same replies lead elsewhere when they are repeated"),
    ],
)
def test_where_there_is_no_hint_the_reason_is_said(monkeypatch, kind, said, reason):
    monkeypatch.setattr(Advised, "said", said)
    env = kind()
    _, info = env.reset(seed=0, options={"task": 4})
    with pytest.raises(NoHint, match=reason):
        Hints(kind)(Episode(4, 0), info["anchor"])


def test_an_expert_that_never_wins_is_followed_to_the_limit(monkeypatch):
    monkeypatch.setattr(Advised, "said", "right")
    env = Advised(max_steps=7)
    _, info = env.reset(seed=0, options={"task": 4})
    assert Hints(partial(Advised, max_steps=7))(Episode(4, 0), info["anchor"]) == Hint("right", 7, False, 0.0)


class Noisy(toy_env.CorridorEnv):
    """Each step slips or not, as the seed decides; its expert goes where the key lies."""

    stochastic = True

    def _execute(self, action):
        return super()._execute(action if self.np_random.random() < 0.6 else "<invalid>")

    def expert(self, rng, **options):
        def reply(observation, info):
            for wish in ("open door", "take key"):
                if wish in info["admissible_actions"]:
                    return wish
            return "left" if "to the left" in observation else "right"

        return reply


gymnasium.register("NoisyCorridor-v0", entry_point=Noisy)


def test_a_hint_knows_the_noise_of_the_episode():
    with players("NoisyCorridor-v0", range(27)) as some:
        for player in some:
            player.step("right")
            promised = player.hint()
            assert player.follow() == promised.success
            assert player.info["step"] == 1 + promised.steps
