"""ALFWorld's panels: generated splits that share nothing they should not, and the published games in order."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import lru_cache
from itertools import islice

import numpy as np
import pytest
from alfworld_games import published, write_game
from effort import effort

from crbc_envs.alfworld.engine.game import FAMILIES, GAME_FILE, TRAJECTORY_FILE, parse
from crbc_envs.alfworld.engine.state import bits
from crbc_envs.alfworld.games.generate import generate_game
from crbc_envs.alfworld.games.goals import read_task
from crbc_envs.alfworld.games.household import ROOMS, SIZES
from crbc_envs.alfworld.games.official import OfficialPanel
from crbc_envs.alfworld.games.panels import PANEL_SIZE, ROOMS_OF_A_KIND, AlfworldPanel, make_panel, panel_layout
from crbc_envs.errors import DataError

GOLDEN = {
    "full": ["07e7bd4cc2283d78", "9f914997d9517fbf", "da677d122d11e3d3"],
    "small": ["b8f633f3aae2ec88", "ce5251701eeaee13", "785bf35b28cd742b"],
}
"""How the digests of the first 30 tasks begin, by rooms and split."""


def furniture(game):
    """The kinds of receptacles, as an agent is told them."""
    return tuple(sorted(name.rpartition(" ")[0] for name in game.receptacles))


def puzzle(game):
    """All of a game up to names and wording, worked out from what the engine plays."""
    kinds = [name.rpartition(" ")[0] for name in game.objects]
    places = []
    for here in game.receptacles_at:
        places.append(
            sorted(
                (game.receptacles[r].rpartition(" ")[0], game.openable >> r & 1, sorted(kinds[o] for o in bits(row)))
                for r, row in ((r, game.start.inside[r]) for r in here)
            )
        )
    return game.family, tuple(re.findall(r"[a-z]+", game.task)[-4:]), str(sorted(places))


def receptacle_ids(game_file):
    return frozenset(re.findall(r"^ +(\S+) - receptacle$", game_file.problem, re.MULTILINE))


@lru_cache
def seen_layouts(rooms):
    """Every room that is trained in."""
    numbers = range(ROOMS_OF_A_KIND["seen"])
    return [panel_layout("seen", room, number, rooms) for room in ROOMS for number in numbers]


# ---- generated -------------------------------------------------------------------------------------


def test_the_panels_are_frozen_whatever_the_hash_seed(run_python):
    code = """
from crbc_envs.alfworld.games.panels import AlfworldPanel
for rooms in ("full", "small"):
    print(*(AlfworldPanel(split, rooms).digest(30)[:16] for split in ("train", "valid_seen", "valid_unseen")))
"""
    assert run_python(code, "random").split() == [*GOLDEN["full"], *GOLDEN["small"]]


@pytest.mark.parametrize("panel", [AlfworldPanel, OfficialPanel])
def test_splits_go_by_the_benchmark_s_names_and_the_suite_s(panel, tmp_path):
    where = {}
    if panel is OfficialPanel:
        write_game(generate_game(np.random.default_rng(0), "pick", size="small"), tmp_path / "valid_seen" / "a" / "b")
        write_game(generate_game(np.random.default_rng(1), "pick", size="small"), tmp_path / "valid_unseen" / "a" / "b")
        where = {"directory": tmp_path}
    assert panel("validation", **where).split == "valid_seen"
    assert panel("test", **where).split == "valid_unseen"
    assert panel("test", **where)[0].id == panel("valid_unseen", **where)[0].id
    with pytest.raises(ValueError, match="split must be one of train, valid_seen, valid_unseen, .*; got 'dev'"):
        panel("dev", **where)


def test_the_six_families_come_in_turn():
    panel = AlfworldPanel("train", "small")
    assert [panel[index].content.family for index in range(12)] == [*FAMILIES.values()] * 2
    assert len(panel) == PANEL_SIZE["train"] == 100_000
    assert panel[99_999].id == "alfworld-small-v2/train/99999"
    with pytest.raises(IndexError):
        panel[100_000]


def test_a_task_s_text_is_what_the_game_says():
    task = AlfworldPanel("valid_seen")[3]
    assert task.text == parse(task.content).task


@pytest.mark.parametrize("rooms", SIZES)
@pytest.mark.slow
def test_no_room_of_train_has_the_furniture_of_an_unseen_room(rooms):
    seen = {tuple(sorted(kind.lower() for kind in layout.furniture)) for layout in seen_layouts(rooms)}
    assert len(seen) > 1_000
    for split, trained in (("train", True), ("valid_seen", True), ("valid_unseen", False)):
        panel = AlfworldPanel(split, rooms)
        assert {furniture(parse(panel[index].content)) in seen for index in range(30)} == {trained}


def test_valid_seen_plays_in_train_s_rooms_themselves():
    rooms = {frozenset(receptacle.name for receptacle in layout.receptacles) for layout in seen_layouts("full")}
    for split in ("train", "valid_seen"):
        panel = AlfworldPanel(split)
        assert {receptacle_ids(panel[index].content) for index in range(30)} <= rooms


@pytest.mark.parametrize(("rooms", "count"), [("small", 150), pytest.param("small", 2_000, marks=pytest.mark.full)])
def test_no_two_splits_share_a_puzzle(rooms, count):
    puzzles = {}
    for split in PANEL_SIZE:
        panel = AlfworldPanel(split, rooms)
        puzzles[split] = {puzzle(parse(panel[index].content)) for index in range(count)}
        assert len(puzzles[split]) > 0.98 * count
    for split, own in puzzles.items():
        assert not any(own & other for name, other in puzzles.items() if name != split)


@pytest.mark.slow
@pytest.mark.parametrize("rooms", SIZES)
def test_no_goal_of_a_test_split_is_trained_in_a_room_with_the_same_furniture(rooms):
    """By what the engine plays: the kinds of receptacles, and what the task asks for."""
    pairs = {}
    for split in PANEL_SIZE:
        panel = AlfworldPanel(split, rooms)
        games = [parse(panel[index].content) for index in range(effort(120, full=240))]
        pairs[split] = {(furniture(game), read_task(game.task)) for game in games}
    assert not pairs["train"] & pairs["valid_seen"]
    assert not (pairs["train"] | pairs["valid_seen"]) & pairs["valid_unseen"]
    goals = [{goal for _, goal in own} for own in pairs.values()]
    assert len(goals[0] & goals[1] & goals[2]) > effort(20, full=60), "the same goals, in other rooms"


def test_an_unknown_option_is_named():
    with pytest.raises(ValueError, match="'huge' is not one of full, small"):
        AlfworldPanel("train", "huge")
    with pytest.raises(ValueError, match="'shove' is not one of move, put"):
        AlfworldPanel("train", verb="shove")
    with pytest.raises(ValueError, match="data must be one of generated, official; got 'real'"):
        make_panel("real", "train")
    with pytest.raises(ValueError, match="data_dir is the folder of the published games: give data='official' too"):
        make_panel("generated", "train", directory="somewhere")
    for option in ({"rooms": "small"}, {"verb": "put"}):
        with pytest.raises(ValueError, match="rooms and verb are of generated games"):
            make_panel("official", "train", **option)


# ---- published -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder like the published one: three games that count in two tasks, and one of each that does not."""
    root = tmp_path_factory.mktemp("alfworld")
    split = root / "train"

    def put(name, family, **changes):
        game = generate_game(np.random.default_rng(len(name)), family, size="small")
        write_game(game, split / name)
        for file in (GAME_FILE, TRAJECTORY_FILE):
            data = json.loads((split / name / file).read_text())
            data.update({key: value for key, value in changes.items() if key in data})
            (split / name / file).write_text(json.dumps(data))

    put("look-at-this-heat-task/trial_2", "heat")  # made in an order that is not theirs
    put("look-at-this-heat-task/trial_10", "heat")
    put("a-pick-task/trial_3", "pick")
    put("pick_and_place_with_movable_recep-Mug/trial_1", "pick")
    put("pick_heat_then_place-AppleSliced/trial_1", "heat")
    put("unsolved/trial_1", "cool", solvable=False)
    put("another/trial_1", "cool", task_type="pick_and_place_with_movable_recep")
    put("nothing/trial_1", "clean")
    (split / "nothing/trial_1" / GAME_FILE).unlink()
    return root


def test_published_games_come_in_the_order_of_their_paths(written):
    panel = OfficialPanel("train", written)
    names = [panel[index].content.name for index in range(len(panel))]
    assert names == ["a-pick-task/trial_3", "look-at-this-heat-task/trial_10", "look-at-this-heat-task/trial_2"]
    assert panel[1].id == "alfworld-official/train/1"


def test_what_the_original_leaves_out_is_left_out_and_counted(written):
    panel = OfficialPanel("train", written)
    assert panel.left_out == {"movable": 1, "Sliced": 1, "not solvable": 1, "another task type": 1, "no game": 1}


def test_a_family_is_what_the_trajectory_says_whatever_the_folder_is_called(written):
    panel = OfficialPanel("train", written)
    assert panel.families == Counter(heat=2, pick=1)
    assert [panel[index].content.family for index in range(3)] == ["pick", "heat", "heat"]


def test_only_the_path_below_the_split_counts(tmp_path):
    # AlfredTWEnv looks at the whole path: a home folder named so would hide every game.
    write_game(generate_game(np.random.default_rng(0), "pick"), tmp_path / "movable" / "train" / "a" / "b")
    assert len(OfficialPanel("train", tmp_path / "movable")) == 1


def test_a_download_of_alfworld_s_own_is_found_in_its_folder(tmp_path):
    write_game(generate_game(np.random.default_rng(0), "pick"), tmp_path / "json_2.1.1" / "train" / "a" / "b")
    assert len(OfficialPanel("train", tmp_path)) == 1


def test_missing_data_is_one_error_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("CRBC_DATA", str(tmp_path))
    for make in (lambda: OfficialPanel("train"), lambda: make_panel("official", "valid_seen")):
        with pytest.raises(DataError, match=r"no such folder; .* crbc data alfworld --from DIR"):
            make()
    (tmp_path / "alfworld" / "train").mkdir(parents=True)
    with pytest.raises(DataError, match=r"holds no game; .* crbc data alfworld --from DIR"):
        OfficialPanel("train")


@pytest.mark.parametrize("file", [GAME_FILE, TRAJECTORY_FILE])
def test_a_truncated_game_is_named(tmp_path, file):
    write_game(generate_game(np.random.default_rng(0), "pick"), tmp_path / "train" / "a" / "b")
    path = tmp_path / "train" / "a" / "b" / file
    path.write_text(path.read_text()[:-20])
    with pytest.raises(DataError, match=re.escape(str(path))):
        OfficialPanel("train", tmp_path)


def test_a_game_without_a_task_is_named(tmp_path):
    path = write_game(generate_game(np.random.default_rng(0), "pick"), tmp_path / "train" / "a" / "b")
    path.write_text(path.read_text().replace("Your task is to", "You might"))
    panel = OfficialPanel("train", tmp_path)
    with pytest.raises(DataError, match="a/b"):
        panel[0]


@pytest.fixture(scope="module")
def valid_train(tmp_path_factory):
    return published("valid_train", tmp_path_factory.mktemp("published"))


def test_the_published_games_are_all_there(valid_train):
    panel = OfficialPanel("valid_train", valid_train)
    assert len(panel) == 200
    assert panel.families == Counter(pick=46, pick2=45, clean=37, cool=28, heat=25, look=19)
    assert panel.left_out == {}
    assert panel.digest(200) == "52f112c8799027e88964e8193c9e9cc437b06ce5a19bc6c0dcb150136a892519"
    assert len({panel[index].digest for index in range(200)}) == 200


def test_published_tasks_are_worded_as_generated_ones_are(valid_train):
    panel = OfficialPanel("valid_train", valid_train)
    for index in islice(range(len(panel)), 0, None, 10):
        task = panel[index]
        assert read_task(task.text).family == task.content.family
