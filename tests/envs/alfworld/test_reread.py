"""Games are read once per process."""

from __future__ import annotations

import builtins
import io
from collections import Counter

import pytest
from alfworld_games import four_games

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs import GroupVectorEnv
from crbc_envs.alfworld.engine import game
from crbc_envs.alfworld.engine.problem import Problem
from crbc_envs.alfworld.games import official
from crbc_envs.alfworld.games.official import DATASET, OfficialPanel
from crbc_envs.storage import datasets
from crbc_envs.storage.datasets import install


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "home"))
    return tmp_path / "home" / "alfworld"


@pytest.fixture
def games(tmp_path):
    """The games as the user has them."""
    return four_games(tmp_path / "mine" / "json_2.1.1")


@pytest.fixture
def opened(monkeypatch):
    """How often each file has been opened."""
    found = Counter()

    def counting(real):
        def opening(file, *args, **kwargs):
            found[str(file)] += 1
            return real(file, *args, **kwargs)

        return opening

    monkeypatch.setattr(builtins, "open", counting(builtins.open))
    monkeypatch.setattr(io, "open", counting(io.open))
    return found


@pytest.mark.parametrize("installed", [True, False])
def test_a_process_opens_a_game_once_to_list_it_and_once_to_play_it(games, home, opened, installed, monkeypatch):
    if installed:
        install(DATASET, [games])
    folder = home if installed else games
    opened.clear()
    parsed = Counter()
    official.shared_parse.cache_clear()
    monkeypatch.setattr(game, "Problem", lambda text: parsed.update([text]) or Problem(text))
    envs = GroupVectorEnv("CRBC-ALFWorld-v0", num_groups=3, group_size=4, data="official", data_dir=str(folder))
    for seed in range(3):
        envs.reset(seed=seed, options={"task": [0, 1, 2]})
    envs.close()
    counts = {path: count for path, count in opened.items() if path.startswith(str(folder / "train"))}
    assert len(counts) == 6 and set(counts.values()) == {2}
    assert opened[str(folder / datasets.MANIFEST)] <= 1
    assert list(parsed.values()) == [1, 1, 1]


def names(folder):
    panel = OfficialPanel("train", folder)
    return [panel[index].content.name.partition("/")[0] for index in range(len(panel))]


def test_a_folder_as_it_was_is_not_scanned_again(games, monkeypatch):
    assert names(games) == ["a-task", "b-task", "c-task"]
    monkeypatch.setattr(official, "trajectories", lambda folder: pytest.fail("scanned again"))
    assert names(games) == ["a-task", "b-task", "c-task"]
