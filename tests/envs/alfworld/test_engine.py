"""ALFWorld's exact engine: its rules and words, the files it reads, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from alfworld_games import TASK, game_json, kitchen, published
from hypothesis import given
from hypothesis import strategies as st

from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.conformance import game_folders
from crbc_envs.alfworld.engine.game import FAMILIES, parse, read_game_file
from crbc_envs.alfworld.games.generate import generate_game
from crbc_envs.errors import DataError

IDLE = {"help", "inventory", "look"}


def played(*commands, game=None):
    """The game and its state after commands that must all do something."""
    game = game or parse(kitchen())
    state = game.start
    for command in commands:
        state, said = engine.step(game, state, command)
        assert said != engine.NOTHING_HAPPENS, command
    return game, state


def said(*commands, game=None):
    """What is said of the last command."""
    game, state = played(*commands[:-1], game=game)
    return engine.step(game, state, commands[-1])[1]


def possible(*commands, game=None):
    return set(engine.admissible(*played(*commands, game=game)))


# ---- words ----------------------------------------------------------------------------------------


def test_an_episode_begins_with_the_receptacles_and_the_task():
    assert engine.intro(parse(kitchen())) == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a cabinet 1, a countertop 1, a drawer 1, "
        "a fridge 1, a microwave 1, and a sinkbasin 1.\n\n"
        f"Your task is to: {TASK}"
    )


def test_the_first_id_has_the_highest_number():
    assert "apple 2" in said("go to countertop 1")
    assert said("go to fridge 1", "open fridge 1").endswith("In it, you see a apple 1.")


@pytest.mark.parametrize(
    ("commands", "text"),
    [
        (["go to sinkbasin 1"], "You arrive at sinkbasin 1. On the sinkbasin 1, you see a bread 1."),
        (["go to drawer 1"], "You arrive at drawer 1. The drawer 1 is closed."),
        (["go to drawer 1", "open drawer 1"], "You open the drawer 1. The drawer 1 is open. In it, you see a mug 1."),
        (["go to drawer 1", "open drawer 1", "close drawer 1"], "You close the drawer 1."),
        (["go to microwave 1", "open microwave 1", "examine microwave 1"],
         "The microwave 1 is open. In it, you see nothing."),
        (["go to countertop 1", "take egg 1 from countertop 1"], "You pick up the egg 1 from the countertop 1."),
        (["go to countertop 1", "use desklamp 1"], "You turn on the desklamp 1."),
        (["go to countertop 1", "use desklamp 1", "use desklamp 1"], "You turn on the desklamp 1."),
        (["inventory"], "You are not carrying anything."),
        (["look"], "You are in the middle of a room. Looking quickly around you, you see nothing."),
        (["go to drawer 1", "look"], "You are facing the cabinet 1, and drawer 1. Next to it, you see nothing."),
    ],
)  # fmt: skip
def test_what_is_said(commands, text):
    assert said(*commands) == text


TAKE = ("go to countertop 1", "take apple 2 from countertop 1")


@pytest.mark.parametrize(
    ("commands", "text"),
    [
        (["inventory"], "You are carrying: a apple 2."),
        (["examine apple 2"], "There's nothing special about apple 2."),
        (["clean apple 2 with sinkbasin 1"], "You clean the apple 2 using the sinkbasin 1."),
        (["go to fridge 1", "cool apple 2 with fridge 1"], "You cool the apple 2 using the fridge 1."),
        (["move apple 2 to sinkbasin 1", "look"],
         "You are facing the countertop 1, and sinkbasin 1. Next to it, you see a apple 2."),
        (["move apple 2 to countertop 1", "look"],
         "You are facing the countertop 1, and sinkbasin 1. Next to it, you see nothing."),
    ],
)  # fmt: skip
def test_what_is_said_of_an_apple_in_hand(commands, text):
    assert said(*TAKE, *commands) == text


def test_a_bowl_tells_what_lies_in_it():
    bowl = ("go to countertop 1", "take bowl 1 from countertop 1")
    assert said(*bowl, "examine bowl 1") == "This is a normal bowl 1. In it, you see a egg 1."


def test_the_older_generation_puts_arrives_at_numbers_and_has_no_help():
    game = parse(kitchen(verb="put"))
    assert said("go to drawer 1", game=game) == "You arrive at loc 4. The drawer 1 is closed."
    assert said(*TAKE, "put apple 2 in/on sinkbasin 1", game=game) == "You put the apple 2 in/on the sinkbasin 1."
    assert not [command for command in possible(*TAKE, game=game) if command.startswith(("move", "help"))]
    assert engine.step(game, game.start, "help") == (game.start, "Nothing happens.")


@pytest.mark.parametrize("command", ["", "fly", "Look", "go to  drawer 1", "open drawer 1", "take apple 2", "help me"])
def test_a_command_that_is_not_admissible_does_nothing(command):
    game = parse(kitchen())
    assert engine.step(game, game.start, command) == (game.start, "Nothing happens.")


def test_blanks_around_a_command_do_not_matter():
    assert said(" inventory\n") == "You are not carrying anything."


# ---- rules ----------------------------------------------------------------------------------------


def test_nothing_at_the_current_place_can_be_gone_to():
    everywhere = {"cabinet", "countertop", "drawer", "fridge", "microwave", "sinkbasin"}
    reach = {command.split()[2] for command in possible("go to drawer 1") if command.startswith("go to ")}
    assert reach == everywhere - {"drawer", "cabinet"}


def test_only_what_is_in_hand_can_be_examined():
    assert {c for c in possible("go to countertop 1") if c.startswith("examine")} == {
        "examine countertop 1", "examine sinkbasin 1",
    }  # fmt: skip
    assert "examine egg 1" in possible("go to countertop 1", "take egg 1 from countertop 1")


def test_there_is_one_hand():
    assert not [command for command in possible(*TAKE) if command.startswith("take ")]


def test_a_closed_receptacle_gives_and_takes_nothing():
    assert not [c for c in possible("go to fridge 1") if c.startswith("take ")]
    assert "take apple 1 from fridge 1" in possible("go to fridge 1", "open fridge 1")
    assert "move apple 2 to fridge 1" not in possible(*TAKE, "go to fridge 1")
    assert "cool apple 2 with fridge 1" in possible(*TAKE, "go to fridge 1")


def test_a_receptacle_takes_what_its_kind_can_contain():
    assert not [c for c in possible(*TAKE, "go to microwave 1", "open microwave 1") if c.startswith("move ")]


def test_an_object_may_be_in_two_receptacles_and_leaves_one():
    take = ("go to countertop 1", "take bread 1 from sinkbasin 1")
    assert "bread 1" in said(*take, "examine countertop 1")
    assert "bread 1" not in said(*take, "examine sinkbasin 1")


def test_slicing_takes_a_knife_and_what_is_beside():
    knife = ("go to cabinet 1", "open cabinet 1", "take knife 1 from cabinet 1")
    assert not [c for c in possible(*knife) if c.startswith("slice ")]
    assert {c for c in possible(*knife, "go to countertop 1") if c.startswith("slice ")} == {
        "slice apple 2 with knife 1", "slice bread 1 with knife 1",
    }  # fmt: skip


def test_admissible_commands_are_sorted_texts():
    commands = engine.admissible(*played(*TAKE))
    assert list(commands) == sorted(set(commands))


@given(st.integers(0, 2**32), st.sampled_from(sorted(FAMILIES.values())), st.sampled_from(["move", "put"]))
def test_an_admissible_command_is_answered_and_leaves_other_states_alone(seed, family, verb):
    rng = np.random.default_rng(seed)
    file = generate_game(rng, family, verb=verb)
    game, fresh = parse(file), parse(file)
    state = game.start
    for _ in range(12):
        commands = engine.admissible(game, state)
        assert IDLE - {"help"} <= set(commands)
        command = commands[rng.integers(len(commands))]
        after, text = engine.step(game, state, command)
        assert text != engine.NOTHING_HAPPENS
        assert (after == state) or command.split()[0] not in IDLE | {"examine"}
        assert engine.step(game, state, command) == (after, text)  # remembered
        assert engine.step(fresh, state, command) == (after, text)  # worked out anew
        assert hash(after) == hash(tuple(after))
        state = after


def test_the_memo_is_shared_and_bounded(monkeypatch):
    monkeypatch.setattr(engine, "MEMO", 4)
    game = parse(kitchen())
    here = engine.situation(game, game.start)
    assert engine.situation(game, game.start._replace()) is here
    for command in engine.admissible(game, game.start):
        engine.admissible(game, engine.step(game, game.start, command)[0])
        assert len(game.situations) <= 4
    assert engine.situation(game, game.start).admissible == here.admissible


# ---- goals ----------------------------------------------------------------------------------------


def test_a_walkthrough_wins_with_its_last_command():
    for verb in ("move", "put"):
        file = kitchen(verb=verb)
        game, state = parse(file), parse(file).start
        for command in file.walkthrough:
            assert not engine.won(game, state)
            state, _ = engine.step(game, state, command)
        assert engine.won(game, state)


HOLDS_EGG = "(exists (?a - agent) (holds ?a egg_bar_1))"


@pytest.mark.parametrize(
    ("goal", "commands", "reached"),
    [
        (HOLDS_EGG, ["go to countertop 1", "take egg 1 from countertop 1"], True),
        (HOLDS_EGG, ["go to countertop 1", "take bowl 1 from countertop 1"], False),
        (f"(and (not {HOLDS_EGG}) (opened drawer_bar_1))", ["go to drawer 1", "open drawer 1"], True),
        (f"(or {HOLDS_EGG} (atLocation agent1 loc_bar_3))", ["go to fridge 1"], True),
        (f"(or {HOLDS_EGG} (atLocation agent1 loc_bar_3))", ["go to drawer 1"], False),
        ("(exists (?o ?p - object) (and (sliceable ?o) (sliceable ?p) (not (= ?o ?p))))", [], True),
        ("(exists (?o ?p - object) (and (toggleable ?o) (toggleable ?p) (not (= ?o ?p))))", [], False),
        ("(exists (?o - object) (and (toggleable ?o) (isToggled ?o)))", ["go to countertop 1", "use desklamp 1"], True),
        (
            "(exists (?r - receptacle ?l - location) (and (receptacleAtLocation ?r ?l) (atLocation agent1 ?l)))",
            [],
            False,
        ),
        ("(objectAtLocation egg_bar_1 loc_bar_1)", ["go to countertop 1", "take egg 1 from countertop 1"], False),
        ("(inReceptacle fridge_bar_1 egg_bar_1)", [], False),
    ],
)
def test_goals_are_any_formula_of_facts(goal, commands, reached):
    assert engine.won(*played(*commands, game=parse(kitchen(goal)))) is reached


@pytest.mark.parametrize(
    ("goal", "why"),
    [
        ("(forall (?o - object) (isClean ?o))", "an unknown form"),
        ("(checked fridge_bar_1)", "the goal uses checked, which the engine does not track"),
        ("(imply (isClean egg_bar_1) (isHot egg_bar_1))", "an unknown form"),
    ],
)
def test_a_goal_that_cannot_be_judged_is_refused(goal, why):
    with pytest.raises(DataError, match=why):
        parse(kitchen(goal))


# ---- files ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """The kitchen as its files."""
    place = tmp_path / "pick_heat" / "trial_1"
    place.mkdir(parents=True)
    (place / "game.tw-pddl").write_text(game_json(kitchen()), encoding="utf-8")
    (place / "traj_data.json").write_text(json.dumps({"task_type": "pick_heat_then_place_in_recep"}), encoding="utf-8")
    return place


def test_a_game_is_read_by_its_folder_or_its_file(folder):
    assert read_game_file(folder) == read_game_file(folder / "game.tw-pddl")
    assert read_game_file(str(folder)) == replace(kitchen(), name="pick_heat/trial_1", family="heat")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("game.tw-pddl", None, r"game.tw-pddl: no such file. .*crbc data alfworld"),
        ("traj_data.json", None, r"traj_data.json: no such file. .*crbc data alfworld"),
        ("game.tw-pddl", '{"pddl_domain": "(define', r"game.tw-pddl: damaged, it is not JSON .*crbc data alfworld"),
        ("game.tw-pddl", "[1]", r"game.tw-pddl: it is JSON, but not an object"),
        ("game.tw-pddl", '{"grammar": ""}', r"game.tw-pddl: no text 'pddl_domain'; it is not an ALFWorld game"),
        ("traj_data.json", '{"task_type": "dance"}', r"traj_data.json: unknown task_type 'dance'; known: pick_and"),
    ],
)  # fmt: skip
def test_a_file_that_is_missing_or_damaged_is_named(folder, name, text, why):
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=why):
        read_game_file(folder)


@pytest.mark.parametrize(
    ("field", "old", "new", "why"),
    [
        ("problem", "(:goal", "(:aim", "kitchen: the problem is cut short: it needs :objects, :init and :goal"),
        ("problem", "(pickupable egg_bar_1)", "(pickupable egg_bar_9)", "uses 'egg_bar_9', but does not declare it"),
        ("problem", "(atLocation agent1 loc_bar_9)", "", "the problem has 0 agents with a place; there must be one"),
        ("domain", "(not (holdsAny ?a))", "(holdsAny ?a)", "domain is of an unknown version: its action .*object' has"),
        ("domain", "OpenObject", "OpenThing", "domain is of an unknown version: its action 'openthing' has digest"),
        ("grammar", "There's nothing special", "Nothing special", "the grammar is of an unknown version: its texts"),
        ("grammar", "Your task is to:", "You must:", 'the grammar has no sentence "Your task is to: ..."'),
        ("grammar", "action OpenObject", "action OpenThing", "the grammar has no action openobject"),
        ("grammar", '"intro": [', '"intro": [[', "the grammar is damaged"),
        ("grammar", "take {o} from {r}", "take {o.__class__} from {r}", "has an unknown slot"),
    ],
)  # fmt: skip
def test_a_game_of_an_unknown_version_is_refused_by_name(field, old, new, why):
    text = getattr(kitchen(), field)
    assert old in text
    with pytest.raises(DataError, match=why):
        parse(replace(kitchen(), **{field: text.replace(old, new)}))


def test_a_problem_cut_anywhere_is_refused():
    whole = kitchen().problem
    for end in range(0, len(whole) - 1, 97):
        with pytest.raises(DataError, match=r"^kitchen: "):
            parse(replace(kitchen(), problem=whole[:end]))


def test_texts_are_the_same_under_any_hash_seed(run_python):
    code = """
import hashlib, numpy as np
from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.game import parse
from crbc_envs.alfworld.games.generate import generate_game
game = parse(generate_game(np.random.default_rng(5), "pick2"))
rng, state, seen = np.random.default_rng(0), game.start, [engine.intro(game)]
for _ in range(60):
    commands = engine.admissible(game, state)
    state, said = engine.step(game, state, commands[rng.integers(len(commands))])
    seen += [said, *commands]
print(hashlib.sha256("\\n".join(seen).encode()).hexdigest())
"""
    assert len({run_python(code, hash_seed=seed) for seed in ("0", "1", "2")}) == 1


# ---- the published games --------------------------------------------------------------------------


def winners(folder):
    """How many games there are below `folder`, and in which the walkthrough does not win with its last command."""
    folders = game_folders(folder)
    wrong = []
    for path in folders:
        file = read_game_file(path)
        game = parse(file)
        state, won = game.start, [False]
        for command in file.walkthrough:
            state, _ = engine.step(game, state, command)
            won.append(engine.won(game, state))
        if won != [False] * len(file.walkthrough) + [True]:
            wrong.append(file.name)
    return len(folders), wrong


def test_every_walkthrough_of_the_smallest_published_split_is_won_at_its_last_step(tmp_path):
    assert winners(published("valid_train", tmp_path)) == (200, [])


@pytest.mark.full
def test_every_walkthrough_of_the_published_training_games_is_won_at_its_last_step(tmp_path):
    assert winners(published("train", tmp_path)) == (3553, [])
