"""The experts: what they play wins, what the planner plays is short, and the searcher sees no state."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import gymnasium
import numpy as np
import pytest
from alfworld_games import kitchen, published
from hypothesis import given
from hypothesis import strategies as st

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.game import parse
from crbc_envs.alfworld.experts.expert import distance, plan
from crbc_envs.alfworld.experts.searcher import Searcher
from crbc_envs.alfworld.games.generate import ROOMS_OF, VERBS, generate_game
from crbc_envs.alfworld.games.goals import read_task
from crbc_envs.alfworld.games.household import SIZES
from crbc_envs.alfworld.games.official import OfficialPanel
from crbc_envs.alfworld.games.panels import AlfworldPanel
from crbc_envs.demonstrations import expert_steps

draws = st.tuples(
    st.integers(0, 10**6), st.sampled_from(sorted(ROOMS_OF)), st.sampled_from(SIZES), st.sampled_from(VERBS)
)


def game_of(seed, family, size="full", verb="move"):
    return parse(generate_game(np.random.default_rng(seed), family, size=size, verb=verb))


def won_after(game, commands, state=None):
    """How many of the commands it takes to win; each must be admissible. None if they do not win."""
    state = game.start if state is None else state
    for count, command in enumerate(commands, start=1):
        assert command in engine.admissible(game, state)
        state, _ = engine.step(game, state, command)
        if engine.won(game, state):
            return count
    return None


def search(game, most=2_000):
    """The commands of a searcher, which is shown no more than what is admissible."""
    searcher, state, commands = Searcher(game.task), game.start, []
    while not engine.won(game, state):
        assert len(commands) < most
        command = searcher.act(engine.admissible(game, state))
        assert command in engine.admissible(game, state)
        state, _ = engine.step(game, state, command)
        searcher.record(command)
        commands.append(command)
    return commands


def shortest(game, most):
    """Steps of the shortest way there is, by breadth-first search up to `most`; None for a longer one."""
    layer, seen = [game.start], {game.start}
    for depth in range(1, most + 1):
        after = []
        for state in layer:
            for command in engine.admissible(game, state):
                following, _ = engine.step(game, state, command)
                if engine.won(game, following):
                    return depth
                if following not in seen:
                    seen.add(following)
                    after.append(following)
        layer = after
    return None


# ---- the planner -----------------------------------------------------------------------------------


@given(draws)
def test_a_plan_wins_at_its_last_step(draw):
    game = game_of(*draw)
    commands = plan(game)
    assert won_after(game, commands) == len(commands) <= 12


@pytest.mark.parametrize("family", ["pick", "look"])
def test_no_way_is_shorter_than_the_plan(family):
    compared = 0
    for seed in range(12):
        game = game_of([seed, 3], family, "small")
        steps = len(plan(game))
        if steps <= 4:
            assert shortest(game, steps) == steps
            compared += 1
    assert compared >= 5


@given(draws, st.integers(0, 40))
def test_there_is_a_plan_from_wherever_an_agent_has_wandered(draw, wander):
    game = game_of(*draw)
    rng, state = np.random.default_rng(draw[0]), game.start
    for _ in range(wander):
        commands = engine.admissible(game, state)
        state, _ = engine.step(game, state, commands[rng.integers(len(commands))])
    held = game.objects[state.held] if state.held >= 0 else ""
    if held and not any(kinds >> state.held & 1 for kinds in game.accepts) and held.split()[0] not in game.task:
        return  # a thing that can be put nowhere stays in hand for ever
    commands = plan(game, state)
    assert engine.won(game, state) if not commands else won_after(game, commands, state) == len(commands)


def test_no_command_comes_nearer_than_the_plan_with_another_thing_in_hand():
    panel, states = AlfworldPanel("valid_seen", "small"), 0
    for task in range(60):
        game, rng = parse(panel[task].content), np.random.default_rng(task)
        state, target = game.start, read_task(game.task).target
        for _ in range(12):
            commands = [text for text in engine.admissible(game, state) if text.split()[0] in ("go", "open", "take")]
            state, _ = engine.step(game, state, commands[rng.integers(len(commands))])
            if state.held < 0 or game.objects[state.held].startswith(target) or distance(game, state) == math.inf:
                continue
            after = [engine.step(game, state, command)[0] for command in engine.admissible(game, state)]
            assert min(distance(game, one) for one in after) == distance(game, state) - 1
            states += 1
    assert states > 100


def test_a_plan_knows_doors_and_places():
    assert ", ".join(plan(parse(kitchen()))) == (
        "go to countertop 1, take apple 2 from countertop 1, go to microwave 1, heat apple 2 with microwave 1, "
        "go to drawer 1, open drawer 1, move apple 2 to drawer 1"
    )


def test_where_nothing_leads_to_the_goal_the_planner_says_so():
    game_file = generate_game(np.random.default_rng(0), "heat", size="small")
    game = parse(game_file)
    target = read_task(game.task).target
    lines = [line for line in game_file.problem.splitlines() if f"(pickupable {target}" not in line.lower()]
    with pytest.raises(ValueError, match="no plan reaches the goal, .*heat|hot"):
        plan(parse(replace(game_file, problem="\n".join(lines))))


# ---- the searcher ----------------------------------------------------------------------------------


@given(draws)
def test_a_searcher_wins_knowing_what_an_agent_is_told(draw):
    game = game_of(*draw)
    assert len(search(game)) >= len(plan(game))


def test_a_searcher_always_does_the_same():
    game = game_of(1, "pick2")
    assert search(game) == search(game)


def test_a_searcher_nearly_always_finishes_in_time():
    lengths = [len(search(game_of([seed, 4], family))) for family in ROOMS_OF for seed in range(25)]
    assert np.mean(np.array(lengths) <= 50) >= 0.97
    assert np.median(lengths) <= 12


@pytest.mark.parametrize("family", sorted(ROOMS_OF))
@pytest.mark.parametrize("verb", VERBS)
def test_a_searcher_recovers_from_what_others_did(family, verb):
    # Every third command is anyone's: it may pick up what nobody asked for, shut doors, put things elsewhere.
    for seed in range(8):
        game = game_of([seed, 5], family, "small", verb)
        rng, searcher, state = np.random.default_rng(seed), Searcher(game.task), game.start
        for step in range(400):
            admissible = engine.admissible(game, state)
            command = searcher.act(admissible)
            if step % 3 == 0:
                command = admissible[rng.integers(len(admissible))]
            state, _ = engine.step(game, state, command)
            searcher.record(command)
            if engine.won(game, state):
                break
        assert engine.won(game, state)


@pytest.mark.parametrize("family", ["clean", "heat", "cool"])
def test_a_searcher_takes_back_what_was_left_untreated(family):
    for seed in range(6):
        game = game_of([seed, 6], family, "small")
        goal, searcher, state = read_task(game.task), Searcher(game.task), game.start
        while state.held < 0 or not game.objects[state.held].startswith(goal.target):
            command = searcher.act(engine.admissible(game, state))
            state, _ = engine.step(game, state, command)
            searcher.record(command)
        held = game.objects[state.held]
        place = next(r for r in game.receptacles if r.startswith(f"{goal.parent} "))
        for command in (f"go to {place}", f"open {place}", f"move {held} to {place}"):
            if command in engine.admissible(game, state):
                state, _ = engine.step(game, state, command)
                searcher.record(command)
        assert state.held < 0 and not engine.won(game, state)
        for _ in range(60):
            command = searcher.act(engine.admissible(game, state))
            state, _ = engine.step(game, state, command)
            searcher.record(command)
            if engine.won(game, state):
                break
        assert engine.won(game, state), game.task


def test_a_searcher_puts_a_thing_away_where_it_is_taken():
    game = parse(AlfworldPanel("train", "small")[72].content)
    searcher, state = Searcher(game.task), game.start
    for command in ("go to tvstand 1", "take statue 2 from tvstand 1"):  # the stand takes no statue back
        searcher.act(engine.admissible(game, state))
        state, _ = engine.step(game, state, command)
        searcher.record(command)
    while not engine.won(game, state):
        command = searcher.act(engine.admissible(game, state))
        state, _ = engine.step(game, state, command)
        searcher.record(command)


def test_demonstrations_follow_the_environment_and_mostly_succeed():
    env = gymnasium.make("CRBC-ALFWorld-v0", disable_env_checker=True).unwrapped
    lessons = list(islice(expert_steps(env, np.random.default_rng(0), hasty=0.2), 300))
    assert lessons == list(islice(expert_steps(env, np.random.default_rng(0), hasty=0.2), 300))
    for _, info, reply in lessons:
        think, action = reply.removeprefix("<think>").removesuffix("</action>").split("</think><action>")
        assert think
        assert action in info["admissible_actions"]
    assert sum("look around" in reply for _, _, reply in lessons) > 30
    episodes = sum(info["step"] == 0 for _, info, _ in lessons)
    assert episodes >= 300 / 25


def test_a_blind_searcher_goes_down_the_list_and_still_finds_everything():
    env = gymnasium.make("CRBC-ALFWorld-v0", disable_env_checker=True, rooms="small").unwrapped
    differs = 0
    for task in range(12):
        found = {}
        for blind in (0.0, 1.0):
            text, info = env.reset(options={"task": task})
            expert, replies = env.expert(np.random.default_rng(0), blind=blind), []
            while not info.get("success") and len(replies) < 50:
                replies.append(expert(text, info))
                text, *_, info = env.step(replies[-1])
            assert info["success"]
            found[blind] = replies
        places = [text for text in env.reset(options={"task": task})[1]["admissible_actions"] if "go to" in text]
        assert found[1.0][0] == f"<think>find {read_task(info['task']).target}</think><action>{places[0]}</action>"
        differs += found[0.0] != found[1.0]
    assert differs > 6
    with pytest.raises(ValueError, match="blind"):
        env.expert(np.random.default_rng(0), blind=1.5)


def test_a_blind_searcher_comes_back_last_to_what_it_left_closed():
    checked = 0
    for seed in range(30):
        game = game_of([seed, 6], "pick", "small")
        searcher, state = Searcher(game.task, blind=True), game.start
        places = [text for text in engine.admissible(game, state) if text.startswith("go to ")]
        for way in (places[0], places[-1]):  # what others did
            searcher.act(engine.admissible(game, state))
            state, _ = engine.step(game, state, way)
            searcher.record(way)
            if way == places[0] and f"open {way.removeprefix('go to ')}" not in engine.admissible(game, state):
                break
        else:
            proposed = searcher.act(engine.admissible(game, state))
            if proposed.startswith("go to "):
                assert proposed != places[0]
                checked += 1
    assert checked > 5


# ---- on the published games ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "games"), [("valid_train", 200), pytest.param("train", 3_553, marks=pytest.mark.full)]
)
def test_published_tasks_are_solved_in_no_more_steps_than_their_walkthroughs(tmp_path, split, games):
    panel, steps = OfficialPanel(split, published(split, tmp_path)), []
    for index in range(len(panel)):
        game_file = panel[index].content
        game = parse(game_file)
        commands = plan(game)
        assert won_after(game, commands) == len(commands) <= len(game_file.walkthrough)
        steps.append(len(search(game)))
    assert len(steps) == games
    assert max(steps) <= 50
    assert split == "train" or np.mean(steps) < 10
