"""The exact engine beside the real one: equal texts, commands and outcomes, and what would tell if they were not."""

from __future__ import annotations

import gc
import json
import os
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from alfworld_games import Games, game_json, kitchen, published, small_game, tour, write_game
from effort import FULL

from anchors.key import ANCHOR_KINDS
from benchmarks import envs
from crbc_envs.alfworld import conformance as everything
from crbc_envs.alfworld.engine import conformance, textworld
from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.conformance import Outcome, conform, conform_all, game_folders, read_outcomes
from crbc_envs.alfworld.engine.game import FAMILIES, parse, read_game_file
from crbc_envs.alfworld.engine.textworld import TextWorldGame, shared_game
from crbc_envs.alfworld.env import AlfworldEnv
from crbc_envs.alfworld.games.generate import generate_game, reworded
from crbc_envs.errors import DataError, install_extra
from crbc_lab import cli

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 13), reason="TextWorld 1.7.0 does not run on Python 3.13")

LIBRARIES = {"alfworld", "fast_downward", "textworld", "tatsu"}

# ---- the two engines ------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [pytest.param("move", marks=pytest.mark.full), "put"])
def test_both_engines_agree_in_the_kitchen(verb):
    outcome = conform(replace(kitchen(verb=verb), walkthrough=tour(verb)), steps=10, seed=1)
    assert not outcome.difference
    assert outcome.won
    assert {command.split()[0] for command in tour(verb)} | {"invalid"} <= set(outcome.verbs)


@pytest.mark.parametrize("family", [pytest.param("look", marks=pytest.mark.full), "pick2"])
def test_both_engines_agree_in_a_small_generated_room(family):
    assert not conform(generate_game(np.random.default_rng(1), family, size="small"), steps=8, seed=1).difference


@pytest.mark.full
@pytest.mark.parametrize("family", sorted(FAMILIES.values()))
def test_both_engines_agree_in_generated_rooms(family):
    rng = np.random.default_rng(2)
    for verb in ("move", "put"):
        assert not conform(generate_game(rng, family, verb=verb), steps=40, seed=1).difference


@pytest.mark.full
def test_both_engines_agree_in_published_games_of_every_family(tmp_path):
    folders = {}
    for folder in game_folders(published("valid_train", tmp_path)):
        folders.setdefault(folder.parent.name.partition("-")[0], folder)
    assert len(folders) == len(FAMILIES)
    for folder in folders.values():
        outcome = conform(read_game_file(folder), steps=40, seed=1)
        assert (outcome.difference, outcome.won) == ("", True)


def test_players_of_one_real_game_do_not_disturb_each_other():
    file = kitchen()
    game, real = parse(file), TextWorldGame(file)
    rng = np.random.default_rng(0)
    players = [(game.start, real.root)] * 3
    for _ in range(12):
        m = int(rng.integers(3))
        state, node = players[m]
        assert node.admissible == engine.admissible(game, state)
        command = node.admissible[rng.integers(len(node.admissible))]
        state, said = engine.step(game, state, command)
        node = real.step(node, command)
        assert node.feedback == said
        players[m] = state, node


def test_the_environment_is_the_same_on_either_engine():
    envs = [AlfworldEnv(engine=name) for name in ("exact", "textworld", "textworld")]
    for env in envs:
        env.panel = Games(kitchen())
    rng = np.random.default_rng(3)
    answers = [env.reset(seed=0) for env in envs]
    for _ in range(10):
        assert answers[0] == answers[1] == answers[2]
        commands = (*answers[0][-1]["admissible_actions"], "fly")
        command = commands[rng.integers(len(commands))]
        answers = [env.step(command) for env in envs]
    assert envs[1].backend.game is envs[2].backend.game


# ---- the real engine's manners --------------------------------------------------------------------


def test_the_real_engine_leaves_no_global_state(capsys):
    arguments, kept = sys.argv, list(sys.argv)
    variables, out = dict(os.environ), sys.stdout
    TextWorldGame(kitchen())
    assert sys.argv is arguments
    assert sys.argv == kept
    assert dict(os.environ) == variables
    assert sys.stdout is out
    assert capsys.readouterr().out == ""


def test_games_that_nobody_plays_give_their_libraries_on():
    def libraries() -> int:
        gc.collect()
        return len(textworld._idle) + len(textworld._games)

    before = libraries()
    for n in range(4):
        file = replace(kitchen(), grammar=kitchen().grammar.replace("heat some", f"heat {n}"))
        game = shared_game(file)
        assert shared_game(file) is game
        assert f"Your task is to: heat {n} apple" in game.root.feedback
        del game
        gc.collect()
    # One is in use; the grammar's parser remembers its last failure, and with it whoever asked.
    assert libraries() <= before + 2


def test_missing_packages_are_named_with_the_command_that_brings_them(run_python):
    code = """
import sys
sys.modules["alfworld"] = None
import numpy as np
from crbc_envs.alfworld.games.generate import generate_game, reworded
from crbc_envs.alfworld.engine.textworld import TextWorldGame
from crbc_envs.errors import RequirementError
try:
    TextWorldGame(generate_game(np.random.default_rng(0), "pick"))
except RequirementError as error:
    print(error)
"""
    assert run_python(code).endswith(install_extra("alfworld"))


def test_the_exact_engine_needs_none_of_them(run_python):
    code = """
import sys, gymnasium, crbc_envs
env = gymnasium.make("CRBC-ALFWorld-v0")
env.reset(seed=0)
env.step("look")
print(*{name.split(".")[0] for name in sys.modules})
"""
    assert not LIBRARIES & set(run_python(code).split())


# ---- the comparison itself ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong", "what"),
    [
        ("intro", lambda game: "Welcome!", "step 0: text: 'Welcome!', TextWorld has '-= Welcome"),
        ("admissible", lambda game, state: ("look",), r"step 0: admissible commands: \('look',\), TextWorld has"),
        ("won", lambda game, state: state != game.start, "step [1-9]: won: True, TextWorld has False"),
    ],
)
def test_a_wrong_engine_is_found_out(monkeypatch, name, wrong, what):
    monkeypatch.setattr(engine, name, wrong)
    outcome = conform(kitchen(), steps=20, seed=0)
    assert outcome.steps < 20
    assert re.match(what, outcome.difference)


@pytest.fixture
def walked(tmp_path, monkeypatch):
    """Three folders with games, and the names of those that were walked."""
    names = []

    def walk(file, steps, seed):
        names.append(file.name)
        return Outcome(file.name, file.family, seed, steps, True, "", {"go": steps})

    monkeypatch.setattr(conformance, "conform", walk)
    for n in range(3):
        place = tmp_path / "games" / "heat" / f"trial_{n}"
        place.mkdir(parents=True)
        (place / "game.tw-pddl").write_text(game_json(kitchen()), encoding="utf-8")
        (place / "traj_data.json").write_text('{"task_type": "pick_heat_then_place_in_recep"}', encoding="utf-8")
    return conformance.published(tmp_path / "games"), tmp_path / "out" / "done.jsonl", names


def test_a_stopped_run_goes_on_where_it_was(walked):
    folders, out, names = walked
    first = next(conform_all(folders, 10, 0, out))
    assert names == ["heat/trial_0"]
    outcomes = list(conform_all(folders, 10, 0, out))
    assert names == ["heat/trial_0", "heat/trial_1", "heat/trial_2"]
    assert outcomes[0] == first
    assert [outcome.seed for outcome in outcomes] == [0, 1, 2]
    assert list(conform_all(folders, 10, 0, out)) == outcomes == read_outcomes(out)


def test_a_longer_run_or_another_seed_walks_again(walked):
    folders, out, names = walked
    list(conform_all(folders, 10, 0, out))
    list(conform_all(folders, 20, 0, out))
    list(conform_all(folders, 20, 7, out))
    assert len(names) == 9


def test_agreement_of_another_engine_is_not_taken_over(walked, monkeypatch):
    games, out, names = walked
    list(conform_all(games, 10, 0, out))
    monkeypatch.setattr(conformance, "engine_digest", lambda: "changed since")
    list(conform_all(games, 10, 0, out))
    assert len(names) == 6
    list(conform_all(games, 10, 0, out))
    assert len(names) == 6


def test_a_line_that_was_not_finished_is_walked_again(walked):
    folders, out, names = walked
    list(conform_all(folders[:2], 10, 0, out))
    text = out.read_text()
    out.write_text(text[:-9])
    assert len(list(conform_all(folders[:2], 10, 0, out))) == 2
    assert names == ["heat/trial_0", "heat/trial_1", "heat/trial_1"]
    assert len(read_outcomes(out)) == 2


def test_a_file_of_something_else_is_refused(walked):
    folders, out, _ = walked
    list(conform_all(folders[:1], 10, 0, out))
    sound = json.loads(out.read_text())
    del sound["verbs"]
    for line in (b'{"loss": 1}', b"[]", b"\xff", json.dumps(sound).encode()):
        out.write_bytes(line + b"\n")
        with pytest.raises(DataError, match="line 1 is not an outcome of a conformance run"):
            list(conform_all(folders, 10, 0, out))


def test_the_command_sums_up_and_says_by_its_status_whether_all_were_equal(walked, tmp_path, monkeypatch, capsys):
    _, out, _ = walked
    command = ["bench", "conformance", "--games", str(tmp_path / "games"), "--steps", "7", "--out", str(out)]
    cli.main(command)
    printed = capsys.readouterr().out
    assert "heat" in printed
    assert "commands: go 21" in printed

    def differ(file, steps, seed):
        return Outcome(file.name, file.family, seed, 3, False, "step 3: won: True, TextWorld has False", {"go": 3})

    monkeypatch.setattr(conformance, "conform", differ)
    with pytest.raises(SystemExit) as left:
        cli.main([*command, "--seed", "9"])
    assert left.value.code == 1
    assert "heat/trial_2 seed 11, step 3: won: True, TextWorld has False" in capsys.readouterr().out


def test_everything_has_both_wordings_and_generated_games(tmp_path, monkeypatch):
    for n in range(3):
        write_game(small_game(n), tmp_path / "train" / f"t{n}" / "trial")
    monkeypatch.setattr(everything, "GENERATED", 1)
    games = everything.everything(tmp_path)
    assert [game.name for game in games] == ["t0/trial (move)", "t1/trial (put)", "t2/trial (move)", "generated/0"]
    for game in games:
        file = game.read()
        assert file.walkthrough[-1].startswith("put" if "(put)" in game.name else "move")


def test_a_game_in_other_words_is_the_same_game():
    new = everything._planned(generate_game(np.random.default_rng(4), "pick", size="small"))
    old = reworded(new, "put")
    assert old.problem == new.problem and old.grammar != new.grammar
    assert any(command.startswith("put ") and " in/on " in command for command in old.walkthrough)
    assert reworded(old, "move").walkthrough == new.walkthrough
    assert parse(old).task == parse(new).task


@pytest.mark.slow
def test_the_command_plays_the_expert_in_generated_households(monkeypatch, capsys):
    command = ["bench", "conformance", "CRBC-ALFWorld-v0", "--count", "1", "--steps", "1", "--set", "rooms=small"]
    cli.main(command)
    printed = capsys.readouterr().out
    assert "compared at every step: text, admissible commands, won" in printed
    assert re.search(r"all +│ 1 +│ \d+ +│ 1 +│ 0", printed), "one game, won, no difference"
    monkeypatch.setattr(engine, "won", lambda game, state: False)
    with pytest.raises(SystemExit) as left:
        cli.main(command)
    assert left.value.code == 1 and "won: False, TextWorld has True" in capsys.readouterr().out


@pytest.mark.full
def test_the_benchmark_compares_both_engines_in_one_run(capsys):
    envs.main(["--env", "alfworld", "--count", "1", "--steps", "2"])
    printed = capsys.readouterr().out
    assert printed.count("TextWorld / exact") == 3
    assert printed.count(" times") == 5


def test_a_folder_without_games_is_named(tmp_path):
    with pytest.raises(DataError, match=r"holds no game.tw-pddl"):
        game_folders(tmp_path)


def facts(node):
    """How TextWorld's facts differ from those at the start, without "checked", which nothing reads, and without the
    complements of facts; but that of "inreceptacle" tells what was taken from where, and `look` reads it."""

    def counts(name):
        return name == "not_inreceptacle" or (name != "checked" and not name.startswith("not_"))

    return tuple(frozenset(str(fact) for fact in part if counts(fact.name)) for part in (node.added, node.removed))


@pytest.mark.slow
def test_both_engines_have_the_same_anchors_of_every_kind_and_the_same_states():
    """TextWorld keeps its own facts: one set of them for each exact state, and the other way round."""
    exact, original = (AlfworldEnv(engine=name, rooms="small", anchor="state") for name in ("exact", "textworld"))
    rng, facts_of, state_of = np.random.default_rng(0), {}, {}
    for task in (0, 0, 1) if FULL else (0, 0):
        answers = [env.reset(options={"task": task}) for env in (exact, original)]
        over = False
        while not over:
            assert answers[0] == answers[1]
            for kind in ANCHOR_KINDS:
                assert exact.anchor_as(kind) == original.anchor_as(kind)
            state, found = (task, exact.backend.state), (task, facts(original.backend.node))
            assert facts_of.setdefault(state, found) == found
            assert state_of.setdefault(found, state) == state
            action = "no action" if rng.random() < 0.1 else str(rng.choice(answers[0][-1]["admissible_actions"]))
            answers = [env.step(action) for env in (exact, original)]
            over = answers[0][2] or answers[0][3]
    assert len(state_of) > (50 if FULL else 20)
