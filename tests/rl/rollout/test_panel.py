"""The tasks of an evaluation: evenly over kinds, in the paper's proportions, the same on every machine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from alfworld_games import published
from door_env import Clerk, door_config
from learner_fixtures import small

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.alfworld.games.official import OfficialPanel
from crbc_envs.alfworld.games.panels import AlfworldPanel
from crbc_envs.sokoban.panels import make_panel
from crbc_envs.tasks import Task, TaskPanel
from crbc_lab.plan.check import check_run
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.evaluate import play_panel, summarise
from crbc_rl.rollout.panel import Name, apportioned, choose

SEEN = {"look": 13, "pick": 35, "clean": 27, "cool": 25, "heat": 16, "pick2": 24}
"""The games of the published valid_seen by family, in the order of their folders' names."""
PAPER = {"pick": 30, "clean": 19, "cool": 26, "look": 12, "heat": 21, "pick2": 20}


class Sorted(TaskPanel[str]):
    """Tasks in the order of their kinds' names, as the published games stand."""

    listed = True
    drawn_in_paper = PAPER
    repeats_in_paper = True

    def __init__(self, sizes: dict[str, int] = SEEN) -> None:
        self.names = [kind for kind, size in sizes.items() for _ in range(size)]
        super().__init__("test", len(self.names))

    def _task(self, index: int) -> Task[str]:
        return Task(f"sorted/{index}", "", self.names[index], f"{index:04x}", self.names[index])


def kinds(source: TaskPanel[Any], tasks: tuple[int, ...]) -> Counter[str]:
    return Counter(source.kind(task) for task in tasks)


def test_an_even_panel_has_as_many_tasks_of_every_kind() -> None:
    source = Sorted()
    assert kinds(source, choose(source, "test", 128, "first").tasks)["pick2"] == 12  # of 24
    assert set(kinds(source, choose(source, "test", 78).tasks).values()) == {13}
    assert choose(source, "test", 78).name == "even"  # since the order is one of names
    full = kinds(source, choose(source, "test", 128).tasks)
    assert full == {"look": 13, "heat": 16, "pick2": 24, "pick": 25, "clean": 25, "cool": 25}
    every = choose(source, "test", 140).tasks
    assert sorted(every) == list(range(140))
    assert all(choose(source, "test", n).tasks == every[:n] for n in (1, 7, 78, 128))
    looks = [task for task in every if source.kind(task) == "look"]
    assert looks != sorted(looks)  # or the first ones of a name would stand for all


def test_generated_games_are_even_as_they_stand() -> None:
    source = AlfworldPanel("test")
    assert [source.kind(i) for i in range(6)] == [source[i].kind for i in range(6)]
    first = choose(source, "test", 128)
    assert first.name == "first" and first.tasks == choose(source, "test", 128, "even").tasks == tuple(range(128))
    assert set(kinds(source, first.tasks).values()) == {21, 22}


def test_published_games_are_even_too_and_tell_their_rooms(tmp_path: Path) -> None:
    source = OfficialPanel("valid_train", published("valid_train", tmp_path) / "json_2.1.1")
    chosen = choose(source, "valid_train", 6 * 19)
    assert chosen.name == "even" and set(kinds(source, chosen.tasks).values()) == {19}
    rooms = {(source.cluster(source[i]), e.folder.parent.name.rsplit("-", 1)[1]) for i, e in enumerate(source.entries)}
    assert len(rooms) == len({room for room, _ in rooms}) == len({plan for _, plan in rooms}) == 82


def test_the_papers_panel_has_its_proportions_and_its_repeats() -> None:
    source = Sorted()
    chosen = choose(source, "test", 128, "paper")
    assert kinds(source, chosen.tasks) == PAPER
    assert 60 < len(set(chosen.tasks)) < 110 and max(chosen.repeats) > 0
    assert chosen.repeats.count(0) == len(set(chosen.tasks))
    for n in (1, 13, 64, 1_000):
        counts = apportioned(PAPER, n)
        assert sum(counts.values()) == n
        assert all(abs(counts[kind] - n * weight / 128) < 1 for kind, weight in PAPER.items())
        assert len(choose(source, "test", n, "paper").tasks) == n
    with pytest.raises(ConfigError, match="has no task of kind heat"):
        choose(Sorted({"pick": 3, "clean": 3, "cool": 3, "look": 3}), "test", 128, "paper")


def test_panels_are_the_same_on_every_machine() -> None:
    """A change of these digests is a change of what published figures are of: raise `PANEL_VERSION`."""
    shop = gymnasium.make("CRBC-WebShop-v0", split="validation", panel="official", disable_env_checker=True)
    sources = {
        "household": AlfworldPanel("validation"),
        "sorted": Sorted(),
        "rooms": make_panel("v3", "validation"),
        "boards": make_panel("paper", "validation"),
        "shop": shop.unwrapped.panel,  # type: ignore[attr-defined]
    }
    found = {
        name: tuple(choose(source, "validation", 12, panel).digest(source)[:16] for panel in PANELS)
        for name, source in sources.items()
    }
    assert found == GOLDEN


PANELS: tuple[Name, ...] = ("first", "even", "paper")
GOLDEN = {
    "household": ("57dcdb3b4bf0551b", "57dcdb3b4bf0551b", "0fb2876259fc1639"),
    "sorted": ("143fc0153f6fb1af", "968b33d61e1416fc", "c2cc589ea4c5ce95"),
    "rooms": ("fbd5ff87b78f2231", "fbd5ff87b78f2231", "d833a307bfd136f7"),
    "boards": ("038c41ff614efb64", "038c41ff614efb64", "3b02d0965399a1b8"),
    "shop": ("9add08ed9cfe9abf", "9add08ed9cfe9abf", "520814e7beb0cbed"),
}


def test_a_repeated_task_is_played_with_other_random_numbers() -> None:
    config, once, again = door_config(), Clerk(), Clerk()
    play_panel(once, config, "test", [3, 5], 0)
    played = play_panel(again, config, "test", [3, 5, 3], 0, repeats=[0, 0, 1])
    assert len({asked.seed for asked in again.asked}) == len(again.asked)
    assert {asked.seed for asked in once.asked} < {asked.seed for asked in again.asked}
    assert (played["task"].tolist(), played["repeat"].tolist()) == ([3, 5, 3], [0, 0, 1])
    told = summarise("test", played)
    assert (told.episodes, told.different) == (3, 2)


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ({"id": "CRBC-FrozenLake-v0", "prompt": "text"}, {"panel": "paper"}, "the paper has no evaluation on these"),
        ({"kwargs": {"observation": "text"}}, {"episodes": 2_001}, "eval.episodes: 2001 episodes, and the validation"),
        ({"kwargs": {"observation": "text"}}, {"panel": "paper", "test_episodes": 2_001}, "eval.test_episodes: 2001"),
    ],
)
def test_a_panel_that_there_is_not_is_said_before_anything_is_played(
    env: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    config = small(Path("unused"), env=env, eval={"episodes": 4, "test_episodes": 6, **options})
    with pytest.raises(ConfigError, match=message):
        check_run(config)
