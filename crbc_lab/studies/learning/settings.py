"""Where the study's agents learn: exact worlds, with a table for each anchor, and Sokoban's boards, with a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from crbc_lab.studies.learning.agents import Agents, Tables
from crbc_lab.studies.learning.processes import Processes
from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds import WORLDS, gamble, hidden, hub, search, sokoban
from crbc_lab.studies.worlds.behaviours import preferences
from crbc_rl.config.extensions import called_with, load
from crbc_rl.errors import ConfigError, nearest

Generators = Sequence[np.random.Generator]

BLOCK = 1_000
"""Seeds with the same instances. Seeds of another thousand have other ones."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Which instances: `count` of those that rates are chosen on, or that results are of, of a block of seeds."""

    block: int
    chosen_on: bool
    count: int

    @property
    def seed(self) -> int:
        """What worlds are made with."""
        return 2 * self.block + (not self.chosen_on)


@dataclass(frozen=True, slots=True)
class Setting:
    """`make(draws, generators)` has the agents at their start. `rates` are those that are tried, `few` of them by
    default. `most` instances and blocks of seeds have no instance in common with others."""

    name: str
    description: str
    make: Callable[[Draws, Generators], Agents]
    rates: tuple[float, ...]
    few: tuple[float, ...]
    most: tuple[float, float] = (math.inf, math.inf)


Maker = Callable[[int, int], TabularMDP]

MODERATE = 0.3
SKILL = {"house": 0.5, "distractors": 0.5, "shop": 0.2, "sokoban-h50": 0.1} | dict.fromkeys(
    ("lucky", "hub", "gamble", "needle", "repair", "stop", "errands"), 0.0
)
"""How well a table plays at its start, as in the behaviour "soft"; `MODERATE` where nothing is said."""


def tables(make: Maker, skill: float, draws: Draws, generators: Generators) -> Tables:
    """Tables that begin as the behaviour "soft`skill`" without its noise."""
    return Tables(*_begun(make, skill, draws), generators)


@lru_cache(maxsize=2)
def _begun(make: Maker, skill: float, draws: Draws) -> tuple[Processes, NDArray[np.float64]]:
    """The processes and the first logits, kept since building them takes longer than a training: the instances that
    rates are chosen on, and those that results are of."""
    each = [make(draws.seed, index) for index in range(draws.count)]
    processes = Processes.of(each)
    logits = np.zeros((processes.num_anchors, processes.num_actions))
    first = 0
    for mdp in each:
        logits[first : first + mdp.num_anchors, : mdp.num_actions] = preferences(mdp, skill)
        first += mdp.num_anchors
    return processes, logits


def longer(make: Maker, seed: int, index: int) -> TabularMDP:
    """The rooms that take 5 to 8 moves: shorter ones leave nothing to learn."""
    return make(seed, index // 4 * 8 + 4 + index % 4)


def network(start: tuple[int, int], draws: Draws, generators: Generators) -> Agents:
    """Networks after imitation with so many boxes for so many steps, tested in rooms of three boxes."""
    from crbc_lab.studies.learning.board import TESTED, players

    split = "validation" if draws.chosen_on else "test"
    return players(start, (split, draws.block * TESTED, TESTED), generators)


MADE: dict[str, tuple[str, Maker]] = {
    **{world.name: (world.description, world.make) for world in WORLDS.values()},
    "distractors": ("the same rooms, 15 steps, and 12 actions that do nothing", sokoban.distracted),
    "search": ("a thing in one of 8 places, to be brought to another, 20 steps", search.search),
    "hub": ("routes that meet in two hubs, chance behind each, 16 steps", hub.hub),
    "gamble": ("a sure way of 6 steps, and a gamble at each of them, 20 steps", gamble.gamble),
    "errands": ("four errands, of which it is not seen which are done, decide the end, 7 steps", hidden.errands),
    "carried": ("a corridor with a key and a door; it is not seen whether the key is held, 24 steps", hidden.carried),
    "coloured": ("a treasure in one of 13 rooms that look alike in threes, 24 steps", hidden.coloured),
}
ROOMS = ("sokoban", "sokoban-h20", "sokoban-h50", "slip", "distractors")
STARTS = {"board-weak": (1, 50), "board": (1, 1_500), "board-strong": (3, 1_500)}
"""Boxes and steps of the imitation before a network's first update."""

SECONDS = {
    **{"sokoban": 6, "sokoban-h20": 6, "sokoban-h50": 7, "slip": 6, "lucky": 6, "house": 11, "needle": 6, "repair": 3},
    **{"shop": 6, "stop": 4, "alfworld-paper": 27, "alfworld": 18, "alfworld-observation": 22, "alfworld-state": 9},
    **{"distractors": 9, "search": 6, "hub": 5, "gamble": 4, "errands": 5, "carried": 8, "coloured": 8},
    **{"board-weak": 150, "board": 125, "board-strong": 150},
}
"""CPU seconds of CRBC in each with the default's 10 seeds, and 5 to choose the rate of three with."""


def of_worlds(name: str, description: str, make: Maker) -> Setting:
    """Tables in the worlds of a function."""
    agents = partial(tables, partial(longer, make) if name in ROOMS else make, SKILL.get(name, MODERATE))
    most = (sokoban.ROOMS / 2, 50.0) if name in ROOMS else (math.inf, math.inf)  # `longer` takes every other four
    return Setting(name, description, agents, rates=(0.1, 0.3, 1.0, 3.0, 10.0), few=(0.3, 1.0, 3.0), most=most)


SETTINGS: dict[str, Setting] = {name: of_worlds(name, *made) for name, made in MADE.items()} | {
    name: Setting(
        name,
        f"a network on boards with three boxes, 30 steps, after {start[1]:,} steps of imitation with {start[0]}",
        partial(network, start),
        rates=(1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
        few=(3e-4, 1e-3, 3e-3),
        most=(math.inf, 7.0),  # blocks of 256 rooms in panels of 2,000
    )
    for name, start in STARTS.items()
}
"""All settings by name."""


def setting(name: str) -> Setting:
    """One of `SETTINGS`, or tables in worlds of one's own: "module:attribute", a function of a seed and an index that
    makes a `TabularMDP`. Raises `ConfigError` for neither."""
    if ":" in name:
        return of_worlds(name, "a world of your own", called_with(load(name, {}, "--world"), name, "seed", "index"))
    if name not in SETTINGS:
        raise ConfigError(
            f"--world {name}: there is no such setting{nearest(name, SETTINGS)}; or give module:attribute"
        )
    return SETTINGS[name]


FEW = ("sokoban-h20", "slip", "lucky", "house", "shop", "hub", "gamble", "alfworld-observation", "board")
"""The default: eight worlds, and one start of the network."""
