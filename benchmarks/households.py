"""What households ask for and are like, generated beside published: `python -m benchmarks.households [--official DIR]`.

Without the published games, only the generated columns are shown. `--tasks` of each split are read (2,000: about three
minutes). The published column has the training games, evenly spread; goals are compared with all of them.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from crbc_envs.alfworld.engine import exact
from crbc_envs.alfworld.engine.game import FAMILIES, Game, GameFile, parse
from crbc_envs.alfworld.engine.problem import Problem
from crbc_envs.alfworld.engine.state import bits
from crbc_envs.alfworld.experts.expert import kind_of, plan
from crbc_envs.alfworld.experts.searcher import Searcher
from crbc_envs.alfworld.games.goal_counts import counts
from crbc_envs.alfworld.games.goals import APPLIANCES, Goal, read_task
from crbc_envs.alfworld.games.household import SIZES
from crbc_envs.alfworld.games.official import OfficialPanel
from crbc_envs.alfworld.games.panels import AlfworldPanel

LONGEST = 50
"""The most steps of an episode."""


@dataclass
class Seen:
    """What was found in some games; a figure is a mean over games unless it says otherwise."""

    goals: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    rooms: set[tuple[tuple[str, ...], tuple[str, str, str]]] = field(default_factory=set)
    """Furniture and goal."""
    puzzles: Counter[str] = field(default_factory=Counter)
    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, file: GameFile) -> None:
        game, problem = parse(file), Problem(file.problem)
        goal = read_task(game.task)
        key = (goal.family, goal.target, goal.parent or goal.lamp)
        self.goals[key] += 1
        self.rooms.add((tuple(sorted(map(kind_of, game.receptacles))), key))
        self.puzzles[file.problem.partition("(:init")[2]] += 1
        for name, value in measured(game, problem, goal):
            self.figures.setdefault(name, []).append(float(value))


def measured(game: Game, problem: Problem, goal: Goal) -> Iterator[tuple[str, float]]:
    """The figures of one game."""
    kinds = [kind_of(name) for name in game.objects]
    places = Counter(o for row in game.start.inside for o in bits(row))
    accepted = 0
    for row in game.accepts:
        accepted |= row
    yield "receptacles, median", len(game.receptacles)
    yield "objects", len(kinds)
    yield "of the target's kind", kinds.count(goal.target)
    yield "an object in two receptacles, %", 100 * any(n > 1 for n in places.values())
    yield "something to take that fits nowhere, %", 100 * bool(game.pickupable & ~accepted)
    yield "ends at the task's own appliance, %", 100 * (APPLIANCES.get(goal.family, "").lower() == (goal.parent or "-"))
    commands = plan(game)
    yield "won by the expert, %", 100 * wins(game, commands)
    yield "expert's plan, steps", len(commands)
    steps, won = searched(game)
    yield "searcher's success in 50 steps, %", 100 * won
    if won:
        yield "searcher's steps where it succeeds", steps


def wins(game: Game, commands: Iterable[str]) -> bool:
    state = game.start
    for command in commands:
        state, _ = exact.step(game, state, command)
    return exact.won(game, state)


def searched(game: Game) -> tuple[int, bool]:
    """The steps of the expert that sees what an agent sees, and whether it succeeds."""
    searcher, state = Searcher(game.task), game.start
    for step in range(1, LONGEST + 1):
        command = searcher.act(exact.admissible(game, state))
        state, _ = exact.step(game, state, command)
        searcher.record(command)
        if exact.won(game, state):
            return step, True
    return LONGEST, False


def look_at(files: Iterable[GameFile], told: str, total: int) -> Seen:
    seen = Seen()
    for file in track(files, told, total):
        seen.add(file)
    return seen


def variation(own: Mapping[tuple[str, str, str], int], family: str) -> float:
    """Total variation between the parents of own tasks and the published ones."""
    table = counts(family)
    official: Counter[str] = Counter()
    for asked, upto, before in zip(table.asked, table.sums, (0, *table.sums), strict=False):
        official[(asked.goal.parent or asked.goal.lamp).lower()] += upto - before
    mine: Counter[str] = Counter()
    for (of, _, parent), number in own.items():
        mine[parent] += number * (of == family)
    if not mine:
        return float("nan")
    kinds = official.keys() | mine.keys()
    return 0.5 * sum(abs(official[k] / official.total() - mine[k] / mine.total()) for k in kinds)


def support() -> set[tuple[str, str, str]]:
    """Every family, target and parent of a published training task."""
    return {
        (family, asked.goal.target.lower(), (asked.goal.parent or asked.goal.lamp).lower())
        for family in FAMILIES.values()
        for asked in counts(family).asked
    }


def rows(columns: Mapping[str, Seen]) -> Iterator[tuple[str, list[str]]]:
    known = support()
    yield "tasks", [f"{s.goals.total():,}" for s in columns.values()]
    yield (
        "goal occurs in the published train, %",
        [
            f"{100 * sum(n for goal, n in s.goals.items() if goal in known) / s.goals.total():.1f}"
            for s in columns.values()
        ],
    )
    yield "different goals", [f"{len(s.goals):,}" for s in columns.values()]
    yield "different puzzles, %", [f"{100 * len(s.puzzles) / s.puzzles.total():.1f}" for s in columns.values()]
    for family in FAMILIES.values():
        yield f"total variation of parents, {family}", [f"{variation(s.goals, family):.3f}" for s in columns.values()]
    for name in next(iter(columns.values())).figures:
        middle = np.median if "median" in name else np.mean
        yield name, [f"{middle(s.figures[name]):.1f}" if name in s.figures else "" for s in columns.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", type=Path, help="the folder of the published games")
    parser.add_argument("--tasks", type=int, default=2_000)
    options = parser.parse_args()
    columns: dict[str, Seen] = {}
    if options.official:
        official = OfficialPanel("train", options.official)
        chosen = np.linspace(0, len(official) - 1, min(options.tasks, len(official))).astype(int)
        columns["published train"] = look_at((official[int(n)].content for n in chosen), "published", len(chosen))
    for size in SIZES:
        for split in ("train", "valid_seen", "valid_unseen"):
            panel = AlfworldPanel(split, size)
            files = (panel[n].content for n in range(options.tasks))
            columns[f"{size} {split}"] = look_at(files, f"{size} {split}", options.tasks)
    table = Table("", *columns, box=None)
    for name, cells in rows(columns):
        table.add_row(name, *cells)
    console = Console(width=160)
    console.print(table)
    for size in SIZES:
        for split in ("valid_seen", "valid_unseen"):
            shared = columns[f"{size} train"].rooms & columns[f"{size} {split}"].rooms
            console.print(f"{size} {split}: {len(shared)} pairs of furniture and goal are in train too")


if __name__ == "__main__":
    main()
