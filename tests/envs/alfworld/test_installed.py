"""Installing games: a damaged one is refused by the user's name for it, and what was installed before stays."""

from __future__ import annotations

import json
import os
import tarfile
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from alfworld_games import BAD, PUBLISHED, edit, four_games, small_game, swap, write_game

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.alfworld.engine.game import FAMILIES, GAME_FILE, LARGEST_FILE, TRAJECTORY_FILE, parse
from crbc_envs.alfworld.games import official
from crbc_envs.alfworld.games.official import DATASET, task_of
from crbc_envs.errors import DataError, FileError
from crbc_envs.storage.datasets import install, verify


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "home"))
    return tmp_path / "home" / "alfworld"


@pytest.fixture
def games(tmp_path):
    """The games as the user has them."""
    return four_games(tmp_path / "mine" / "json_2.1.1")


def after(mark, new):
    """Everything after a mark is new."""

    def change(text):
        assert mark in text
        return text.partition(mark)[0] + mark + new

    return change


def files_under(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# ---- what is refused -------------------------------------------------------------------------------

DEEP = "(" * 100_000

FAULTS = {
    "problem of brackets": ({"pddl_problem": DEEP}, "cut short"),
    "goal of brackets": ({"pddl_problem": after("(:goal ", DEEP)}, "nested too deeply"),
    "closed goal": ({"pddl_problem": after("(:goal ", "(not " * 100_000 + "(= a b)" + ")" * 100_000)}, "nested too"),
    "facts of brackets": ({"pddl_problem": swap("(:init", f"(:init {DEEP} zebra)")}, "uses 'zebra', which the domain"),
    "domain of brackets": ({"pddl_domain": DEEP}, "nested too deeply"),
    "grammar of brackets": ({"grammar": lambda text: text + 'grammar :: """' + "[" * 30_000 + '""";'}, "nested too"),
    "goal without sense": ({"pddl_problem": after("(:goal ", "(forall (?o - object) (isHot ?o))))")}, "unknown form"),
    "fact without a name": ({"pddl_problem": swap("(:init", "(:init (openable)")}, "openable with 0 names; it has 1"),
    "fact with names": ({"pddl_problem": swap("(:init", "(:init (isHot a b)")}, "ishot with 2 names; it has 1"),
    "goal without a name": ({"pddl_problem": after("(:goal ", "(holds)))")}, "holds with 0 names; it has 2"),
    "name not declared": ({"pddl_problem": swap("(:init", "(:init (pickupable egg_bar_9)")}, "does not declare it"),
    "name in colour": ({"pddl_problem": lambda text: text.replace("agent1", "a\x1b[2J")}, "cannot be shown"),
    "half a character": ({"pddl_problem": lambda text: text.replace("agent1", "a\ud800")}, "cannot be shown"),
    "problem cut in its names": ({"pddl_problem": lambda text: text[: text.index("(:init") - 9]}, "cut short"),
    "problem cut in its facts": ({"pddl_problem": lambda text: text[: text.index("(:goal") - 9]}, "cut short"),
    "problem cut in its goal": ({"pddl_problem": lambda text: text[: text.index("(:goal") + 30]}, "cut short"),
    "no problem": ({"pddl_problem": ""}, "cut short"),
    "problem is a list": ({"pddl_problem": ["x"]}, "no text 'pddl_problem'"),
    "another effect": ({"pddl_domain": swap("(not (holdsAny ?a))", "(holdsAny ?a)")}, "unknown version: its action"),
    "another type": ({"pddl_domain": swap("  otype", "  otype - object")}, "unknown version: its part ':types'"),
    "another predicate": ({"pddl_domain": swap("(holdsAny ?a - agent)", "")}, "its part ':predicates' has"),
    "another domain": ({"pddl_domain": swap("(domain alfred)", "(domain fred)")}, "its part 'domain' has digest"),
    "a derived predicate": (
        {"pddl_domain": swap("(:functions", "(:derived (opened ?r) (openable ?r)) (:functions")},
        "its part ':derived' has digest",
    ),
    "no types": ({"pddl_domain": lambda text: text[: text.index("(:types")] + text[text.index("(:predicates") :]},
                 "no part :types"),
    "another text": ({"grammar": swap("There's nothing special", "Nothing special")}, "of an unknown version"),
    "no task": ({"grammar": swap("Your task is to", "You might")}, "no sentence"),
    "walkthrough of numbers": ({"walkthrough": [1]}, "its walkthrough is no list"),
}  # fmt: skip
"""What is done to the fields of game.tw-pddl, and what the error says of it."""


def as_folder(root):
    return root.parent, lambda name: str(root / name)


def as_zip(root):
    path = root.parent.parent / "games.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*.*")):
            archive.write(file, f"download/{file.relative_to(root)}")
    return path, lambda name: f"{path}: download/{name}"


def as_tar(root):
    path = root.parent.parent / "games.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        archive.add(root, "download")
    return path, lambda name: f"{path}: download/{name}"


def refused(games, packed, name, why):
    """Installing the games is one error, which begins a file's name as the user knows it; nothing else has changed."""
    before = files_under(DATASET.folder)
    source, named = packed(games)
    with pytest.raises(DataError) as raised:
        install(DATASET, [source])
    text = str(raised.value)
    assert f"{named(f'{BAD}/{name}')}: " in text
    assert why in text
    assert ".tmp" not in text
    assert files_under(DATASET.folder) == before
    assert [path.name for path in DATASET.folder.parent.iterdir()] == ["alfworld"]
    return text


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_game_is_refused_at_installation(games, fault):
    install(DATASET, [games])
    changes, why = FAULTS[fault]
    edit(games / BAD / GAME_FILE, **changes)
    text = refused(games, as_folder, GAME_FILE, why)
    assert text.startswith("1 of 4 games cannot be played: ")
    assert text.endswith("Get these files again, or leave them out: crbc data alfworld --from DIR")
    assert "\n" not in text and len(text) < 1_000
    verify(DATASET)


@pytest.mark.parametrize("packed", [as_folder, as_zip, as_tar])
@pytest.mark.parametrize(("name", "change", "why"), [
    (GAME_FILE, lambda text: json.dumps({**json.loads(text), "pddl_problem": DEEP}), "cut short"),
    (GAME_FILE, lambda text: text[:-20], "damaged, it is not JSON"),
    (GAME_FILE, lambda text: "[" * 100_000, "nested too deeply"),
    (GAME_FILE, lambda text: text + " " * LARGEST_FILE, "it has more than 8,388,608 bytes"),
    (TRAJECTORY_FILE, lambda text: "[]", "not an object"),
])  # fmt: skip
def test_the_user_s_file_is_named_wherever_it_is_packed(games, packed, name, change, why):
    install(DATASET, [games])
    path = games / BAD / name
    path.write_text(change(path.read_text()))
    refused(games, packed, name, why)


def test_all_damaged_games_are_counted_and_the_first_are_named(tmp_path):
    for number in range(9):
        write_game(small_game(number), tmp_path / "mine" / "train" / "task" / f"trial_{number}")
        if number:
            edit(tmp_path / "mine" / "train" / "task" / f"trial_{number}" / GAME_FILE, pddl_problem="")
    with pytest.raises(DataError, match=r"8 of 9 games cannot be played: .*trial_5/.*; and 3 more\. Get") as raised:
        install(DATASET, [tmp_path / "mine"])
    assert "trial_6" not in str(raised.value)


def test_a_game_that_is_not_played_need_not_be_whole(games):
    edit(games / BAD / GAME_FILE, solvable=False, pddl_problem=DEEP)
    assert install(DATASET, [games]) == "train 2 games (left out: 1 not solvable); valid_seen 1 games"


def test_a_split_without_a_game_that_is_played_is_refused_by_its_source(games):
    edit(games / "valid_seen/d-task/trial_4" / GAME_FILE, solvable=False)
    with pytest.raises(DataError, match="holds no game") as raised:
        install(DATASET, [games])
    assert str(raised.value) == f"{games}: valid_seen holds no game that is played (left out: 1 not solvable)"


def test_the_progress_counts_games_last(games):
    heard = []
    install(DATASET, [games], lambda done, total: heard.append((done, total)))
    assert heard[-4:] == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize("fails_at", range(6))
def test_an_installation_that_fails_while_moving_puts_everything_back(games, home, monkeypatch, fails_at):
    install(DATASET, [games])
    before = files_under(home)
    for path in games.rglob(GAME_FILE):
        edit(path, solvable=True, walkthrough=["look"])
    real, moves = os.replace, []

    def failing(source, to):
        if home in (Path(source).parent, Path(to).parent):
            moves.append(to)
            if len(moves) == fails_at + 1:
                raise OSError(28, "No space left on device", str(to))
        real(source, to)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(DataError, match="No space left on device"):
        install(DATASET, [games])
    assert files_under(home) == before
    verify(DATASET)


def damaged(rng, text):
    """A text with a few bytes of its own, or of what has a meaning in PDDL, changed, left out or put in."""
    words = *b"( ) () ; \\ \0 \xff ?o".split(b" "), b"(exists (?o - object) ", b"(and ", b"(not ", b" - "
    data = bytearray(text.encode())
    for _ in range(rng.integers(1, 3)):
        at, other, length = rng.integers(len(data), size=3)
        change = rng.integers(4)
        if change == 0:
            data[at] = rng.integers(256)
        elif change == 1:
            del data[at : at + length % 40 + 1]
        elif change == 2:
            data[at:at] = words[rng.integers(len(words))]
        else:
            data[at:at] = data[other : other + length % 40 + 1]
    return data.decode("utf-8", "surrogateescape")


def test_a_game_with_changed_bytes_is_parsed_or_refused_and_nothing_else():
    rng, outcomes = np.random.default_rng(0), Counter()
    games = [small_game(number, family) for number, family in enumerate(FAMILIES.values())]
    for number in range(300):
        game = games[number % len(games)]
        if number % 3:
            game = replace(game, problem=damaged(rng, game.problem))
        else:
            head, mark, goal = game.problem.partition("(:goal")
            game = replace(game, problem=head + mark + damaged(rng, goal))
        try:
            parse(game)
            task_of("id", game)
            outcomes["parsed"] += 1
        except DataError:
            outcomes["refused"] += 1
    assert min(outcomes["parsed"], outcomes["refused"]) > 30


def test_a_file_with_changed_bytes_is_read_or_refused_and_nothing_else(tmp_path):
    rng, outcomes = np.random.default_rng(1), Counter()
    path = write_game(small_game(0), tmp_path / "a" / "b")
    text = path.read_text()
    for _ in range(300):
        path.write_bytes(damaged(rng, text).encode("utf-8", "surrogateescape"))
        try:
            official.load("id", path.parent)
            outcomes["read"] += 1
        except FileError as error:
            outcomes["refused"] += error.path == path
    assert outcomes.total() == 300
    assert min(outcomes["read"], outcomes["refused"]) > 20


def test_the_published_games_are_parsed_when_they_are_installed():
    archive = PUBLISHED / "alfworld_valid_train.tar.xz"
    if not archive.exists():
        pytest.skip(f"the published games are not at hand: {archive.name}")
    heard = []
    assert install(DATASET, [archive], lambda done, total: heard.append((done, total))) == "valid_train 200 games"
    assert heard[-1] == (200, 200)
    assert verify(DATASET) == "valid_train 200 games"
    assert len(official.OfficialPanel("valid_train")) == 200
