"""Hints in `info`: on request alone, in every reset and step, and nowhere that an agent sees."""

from __future__ import annotations

import math
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from alfworld_games import TASK, Games, kitchen

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs import GroupVectorEnv
from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.game import parse
from crbc_envs.alfworld.env import AlfworldEnv
from crbc_envs.alfworld.experts.expert import distance, hint, plan
from crbc_envs.prompts import PromptWindow

ID = "CRBC-ALFWorld-v0"
HINTS = {"expert_command", "dead_end"}
STUCK = ("go to countertop 1", "take bowl 1 from countertop 1")


def without_place(kind, file):
    """The kitchen in which nothing accepts a kind of thing."""
    lines = [line for line in file.problem.split("\n") if not ("canContain" in line and f" {kind}Type" in line)]
    assert len(lines) < file.problem.count("\n")
    return replace(file, problem="\n".join(lines))


def asking(task, file):
    """The game with another task's sentence."""
    assert TASK in file.grammar
    return replace(file, grammar=file.grammar.replace(TASK, task))


def state_after(game, commands):
    state = game.start
    for command in commands:
        assert command in engine.admissible(game, state)
        state, _ = engine.step(game, state, command)
    return state


LOOK = (
    "(and (exists (?l - object ?r - receptacle ?a - agent ?p - location) (and (objectType ?l DeskLampType) "
    "(isToggled ?l) (receptacleAtLocation ?r ?p) (atLocation ?a ?p) (inReceptacle ?l ?r))) "
    "(exists (?o - object ?a - agent) (and (objectType ?o BowlType) (holds ?a ?o))))"
)


# ---- what they say ---------------------------------------------------------------------------------


@pytest.mark.parametrize("task", range(6))
def test_who_does_what_the_hints_say_wins(task):
    env = gymnasium.make(ID, rooms="small", hints=True)
    _, info = env.reset(options={"task": task})
    steps = len(plan(env.unwrapped.tracker.game))
    for left in reversed(range(steps)):
        assert info["expert_command"] in info["admissible_actions"]
        assert info["dead_end"] is False
        *_, info = env.step(info["expert_command"])
        assert info["success"] == (left == 0)
    assert (info["expert_command"], info["dead_end"]) == ("", False)


def test_wherever_an_agent_wanders_the_hint_is_admissible_or_there_is_none():
    rng, told = np.random.default_rng(0), set()
    env = gymnasium.make(ID, hints=True)
    for task in range(20):
        _, info = env.reset(seed=0, options={"task": task})
        over = False
        while not over:
            here = [action for action in info["admissible_actions"] if action.startswith(("take", "move", "open"))]
            action = rng.choice(here or info["admissible_actions"] + ("fly",))
            *_, info = env.step(str(action))[1:]
            over = info["success"] or info["step"] == 50
            assert set(map(type, (info["expert_command"], info["dead_end"]))) == {str, bool}
            assert info["expert_command"] in (*info["admissible_actions"], "")
            assert not (info["dead_end"] and info["expert_command"])
            game, state = env.unwrapped.tracker.game, env.unwrapped.backend.state
            stays = state.held >= 0 and not any(kinds >> state.held & 1 for kinds in game.accepts)
            assert stays or not info["dead_end"]
            told.add((info["dead_end"], bool(info["expert_command"])))
    assert {(True, False), (False, True)} <= told


def test_a_thing_that_can_be_put_nowhere_is_a_dead_end_once_it_is_taken():
    env = AlfworldEnv(hints=True)
    env.panel = Games(without_place("Bowl", kitchen()))
    _, info = env.reset(seed=0)
    said = [info["dead_end"]]
    for command in STUCK:
        info = env.step(command)[-1]
        said.append(info["dead_end"])
    assert said == [False, False, True]
    assert info["expert_command"] == ""
    assert env.distance() == float("inf")


def test_what_is_to_be_looked_at_is_no_dead_end_in_hand():
    game = parse(asking("look at bowl under the desklamp.", without_place("Bowl", kitchen(LOOK))))
    assert hint(game, state_after(game, STUCK)) == ("use desklamp 1", False)


def test_there_is_no_plan_that_puts_a_thing_where_it_does_not_fit():
    game = parse(asking("put some bowl on drawer.", without_place("Bowl", kitchen())))
    with pytest.raises(ValueError, match="no plan reaches the goal"):
        plan(game)
    assert hint(game, game.start) == ("", False) and distance(game, game.start) == math.inf


def test_a_plan_for_another_goal_than_the_game_s_is_no_hint():
    game = parse(asking("put some egg on sinkbasin.", kitchen()))
    assert plan(game)
    assert hint(game, game.start) == ("", False) and distance(game, game.start) is None


def test_a_task_in_other_words_has_no_hint():
    game = parse(asking("tidy up.", without_place("Bowl", kitchen())))
    assert hint(game, game.start) == ("", False) and distance(game, game.start) is None
    assert hint(game, state_after(game, STUCK)) == ("", True)
    assert hint(game, state_after(game, ("go to countertop 1", "take egg 1 from countertop 1"))) == ("", False)


# ---- where they are --------------------------------------------------------------------------------


def played(**options):
    """Everything that twenty random steps return, and the prompts for them."""
    env = gymnasium.make(ID, rooms="small", **options)
    rng, window = np.random.default_rng(3), PromptWindow.of(env.unwrapped, "text")
    observation, info = env.reset(seed=1, options={"task": 3})
    found = [(observation, dict(info), window.prompt(observation, info))]
    for _ in range(20):
        action = str(rng.choice(info["admissible_actions"]))
        window.record(observation, action)
        observation, *_, info = env.step(action)
        found.append((observation, dict(info), window.prompt(observation, info)))
    return found


def test_without_the_request_there_are_none_and_they_are_not_computed(monkeypatch):
    import crbc_envs.alfworld.experts.expert as expert

    monkeypatch.setattr(expert, "hint", lambda game, state: pytest.fail("computed"))
    env = gymnasium.make(ID, rooms="small")
    assert not HINTS & set(env.reset(seed=0)[1])
    assert not HINTS & set(env.step("look")[-1])


def test_nothing_that_an_agent_sees_holds_a_hint():
    plain, hinted = played(), played(hints=True)
    for (text, info, prompt), (same_text, more, same_prompt) in zip(plain, hinted, strict=True):
        assert (text, prompt) == (same_text, same_prompt)
        assert set(more) - set(info) == HINTS
        assert {key: more[key] for key in info} == info


@pytest.mark.parametrize("backend", ["sync", "process"])
def test_a_group_has_them_at_every_step(backend):
    envs = GroupVectorEnv(ID, num_groups=2, group_size=2, backend=backend, rooms="small", hints=True)
    _, info = envs.reset(seed=0, options={"task": [0, 2]})
    played = np.ones(4, dtype=bool)
    while envs.active.any():
        for key, kind in (("expert_command", str), ("dead_end", np.bool_)):
            assert (info[f"_{key}"] == played).all()
            assert all(isinstance(value, kind) for value in info[key][played])
        played = envs.active.copy()
        *_, info = envs.step(np.where(played, info["expert_command"], None).tolist())
    assert all(rollout.success for group in envs.groups() for rollout in group.rollouts)
    envs.close()


def test_gymnasium_s_own_vector_environment_has_them_at_every_step():
    envs = gymnasium.vector.AsyncVectorEnv(
        [lambda: gymnasium.make(ID, rooms="small", hints=True)] * 2, shared_memory=False
    )
    _, info = envs.reset(seed=0)
    for _ in range(12):  # past the end of the first episodes
        assert info["dead_end"].dtype == bool and info["_dead_end"].all() and info["_expert_command"].all()
        assert all(isinstance(command, str) for command in info["expert_command"])
        *_, info = envs.step([command or "look" for command in info["expert_command"]])
    envs.close()
