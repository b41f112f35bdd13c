"""A small kitchen written out by hand, in ALFWorld's own format, and the published games where they are."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import SHARED

from crbc_envs.alfworld.engine.game import GAME_FILE, TRAJECTORY_FILE, GameFile
from crbc_envs.alfworld.games.generate import TASK_TYPES, generate_game
from crbc_envs.alfworld.games.goals import read_task
from crbc_envs.alfworld.games.household import HOLDS, THINGS
from crbc_envs.tasks import Task, TaskPanel

PUBLISHED = SHARED / "data" / "alfworld"

OBJECTS = {f"{kind.lower()}_bar_1": kind for kind in ("Apple", "Bowl", "Bread", "DeskLamp", "Egg", "Knife", "Mug")}
OBJECTS = dict(sorted({**OBJECTS, "apple_bar_2": "Apple"}.items()))

RECEPTACLES = {
    "cabinet_bar_1": ("Cabinet", "loc_bar_2"),
    "countertop_bar_1": ("CounterTop", "loc_bar_1"),
    "drawer_bar_1": ("Drawer", "loc_bar_2"),
    "fridge_bar_1": ("Fridge", "loc_bar_3"),
    "microwave_bar_1": ("Microwave", "loc_bar_4"),
    "sink_bar_1_bar_sinkbasin": ("SinkBasin", "loc_bar_1"),
}
"""Counter and sink share a place, and so do cabinet and drawer."""

INSIDE = {
    "apple_bar_1": ("countertop_bar_1",),
    "apple_bar_2": ("fridge_bar_1",),
    "bowl_bar_1": ("countertop_bar_1",),
    "bread_bar_1": ("countertop_bar_1", "sink_bar_1_bar_sinkbasin"),
    "desklamp_bar_1": ("countertop_bar_1",),
    "egg_bar_1": ("countertop_bar_1",),
    "knife_bar_1": ("cabinet_bar_1",),
    "mug_bar_1": ("drawer_bar_1",),
}

GOAL = "(exists (?o - object ?r - receptacle) (and (objectType ?o AppleType) (inReceptacle ?o ?r) (isHot ?o)))"

TASK = "heat some apple and put it in drawer."


def problem(goal: str = GOAL, more: str = "") -> str:
    """The kitchen as a PDDL problem: the agent starts at no receptacle, everything is closed."""
    facts = ["atLocation agent1 loc_bar_9", "inReceptacleObject egg_bar_1 bowl_bar_1", "isReceptacleObject bowl_bar_1"]
    for name, kind in OBJECTS.items():
        place = RECEPTACLES[INSIDE[name][0]][1]
        facts += [f"objectType {name} {kind}Type", f"objectAtLocation {name} {place}"]
        facts += [f"inReceptacle {name} {receptacle}" for receptacle in INSIDE[name]]
        facts += [f"canContain {kind_of}Type {kind}Type" for kind_of in ("CounterTop", "Drawer", "Fridge", "SinkBasin")]
        if kind != "DeskLamp":
            facts.append(f"pickupable {name}")
    for name, (kind, place) in RECEPTACLES.items():
        facts += [f"receptacleType {name} {kind}Type", f"receptacleAtLocation {name} {place}"]
        if kind in ("Cabinet", "Drawer", "Fridge", "Microwave"):
            facts.append(f"openable {name}")
    facts += [
        f"{p} {o}" for p in ("heatable", "coolable", "cleanable", "sliceable") for o in ("apple_bar_1", "bread_bar_1")
    ]
    facts += ["cleanable knife_bar_1", "toggleable desklamp_bar_1"]
    kinds = sorted(set(OBJECTS.values()))
    receptacle_kinds = sorted({kind for kind, _ in RECEPTACLES.values()} | {"Sink"})
    names = [
        "agent1 - agent",
        *(f"{kind}Type - otype" for kind in [*kinds, "ButterKnife"]),
        *(f"{kind}Type - rtype" for kind in receptacle_kinds),
        *(f"{name} - object" for name in OBJECTS),
        *(f"{name} - receptacle" for name in RECEPTACLES),
        *(f"loc_bar_{n} - location" for n in (1, 2, 3, 4, 9)),
    ]
    lines = "\n".join(names), "\n".join(f"({fact})" for fact in facts)
    return (
        f"(define (problem kitchen)(:domain alfred)(:objects\n{lines[0]})\n(:init\n{lines[1]}\n{more})\n(:goal {goal}))"
    )


@lru_cache
def kitchen(goal: str = GOAL, verb: str = "move", more: str = "") -> GameFile:
    """A game in the kitchen, of either generation."""
    rules = generate_game(np.random.default_rng(0), "heat", verb=verb)
    sentence = rules.grammar.index("Your task is to: ") + len("Your task is to: ")
    end = rules.grammar.index('"', sentence)
    grammar = rules.grammar[:sentence] + TASK + rules.grammar[end:]
    way = "go to countertop 1, take apple 2 from countertop 1, go to microwave 1, heat apple 2 with microwave 1, "
    way += "go to drawer 1, open drawer 1, "
    way += "move apple 2 to drawer 1" if verb == "move" else "put apple 2 in/on drawer 1"
    walkthrough = tuple(way.split(", "))
    return replace(rules, name="kitchen", grammar=grammar, problem=problem(goal, more), walkthrough=walkthrough)


def tour(verb: str = "move") -> tuple[str, ...]:
    """A way through the kitchen with every kind of command, whose last one wins."""
    put = "move {} to {}" if verb == "move" else "put {} in/on {}"
    commands = (
        "go to cabinet 1, open cabinet 1, take knife 1 from cabinet 1, examine knife 1, go to countertop 1, "
        "slice apple 2 with knife 1, clean knife 1 with sinkbasin 1, " + put.format("knife 1", "sinkbasin 1") + ", "
        "look, use desklamp 1, take apple 2 from countertop 1, examine apple 2, clean apple 2 with sinkbasin 1, "
        "examine apple 2, go to fridge 1, cool apple 2 with fridge 1, examine apple 2, open fridge 1, close fridge 1, "
        "go to microwave 1, heat apple 2 with microwave 1, examine apple 2, go to drawer 1, open drawer 1, "
    )
    return (*commands.split(", ")[:-1], put.format("apple 2", "drawer 1"))


class Games(TaskPanel[GameFile]):
    """A panel of given games."""

    def __init__(self, *files: GameFile) -> None:
        super().__init__("train", len(files))
        self.files = files

    def _task(self, index: int) -> Task[GameFile]:
        return Task(f"given/{index}", TASK, self.files[index], str(index))


def published(name: str, folder: Path) -> Path:
    """One of the published archives unpacked into `folder`; skips the test where it is not at hand."""
    archive = PUBLISHED / f"alfworld_{name}.tar.xz"
    if not archive.exists():
        pytest.skip(f"the published games are not at hand: {archive.name}")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    return folder


# ---- the official format ---------------------------------------------------------------------------


def game_json(game: GameFile) -> str:
    """The text of game.tw-pddl."""
    fields: dict[str, Any] = {
        "pddl_domain": game.domain,
        "grammar": game.grammar,
        "pddl_problem": game.problem,
        "solvable": True,
    }
    if game.walkthrough is not None:
        fields["walkthrough"] = list(game.walkthrough)
    return json.dumps(fields)


def trajectory_json(game: GameFile) -> str:
    """The text of traj_data.json, with the keys that ALFWorld reads."""
    goal = read_task(game.grammar)
    params = {
        "object_target": SPELLING[goal.target],
        "parent_target": SPELLING.get(goal.parent, ""),
        "toggle_target": SPELLING.get(goal.lamp, ""),
        "mrecep_target": "",
        "object_sliced": False,
    }
    return json.dumps({"task_id": game.name, "task_type": TASK_TYPES[game.family], "pddl_params": params})


SPELLING = {kind.lower(): kind for kind in [*HOLDS, *(kind for room in THINGS.values() for kind in room)]}


def write_game(game: GameFile, folder: Path) -> Path:
    """Write a game in ALFWorld's format: game.tw-pddl and traj_data.json in its own folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / GAME_FILE).write_text(game_json(game), encoding="utf-8")
    (folder / TRAJECTORY_FILE).write_text(trajectory_json(game), encoding="utf-8")
    return folder / GAME_FILE


# ---- files to be damaged ---------------------------------------------------------------------------


def small_game(seed: Any, family: str = "pick") -> GameFile:
    return generate_game(np.random.default_rng(seed), family, size="small")


BAD = "train/b-task/trial_2"
"""The game of `four_games` that is damaged."""


def four_games(root: Path) -> Path:
    """Three games of `train` and one of `valid_seen`, written under `root`."""
    for number, place in enumerate(("train/a-task/trial_1", BAD, "train/c-task/trial_3", "valid_seen/d-task/trial_4")):
        write_game(small_game(number), root / place)
    return root


def edit(path: Path, **changes: Any) -> None:
    """Change fields of a game's file: each by a function, or to a value."""
    data = json.loads(path.read_text())
    for key, change in changes.items():
        data[key] = change(data[key]) if callable(change) else change
    path.write_text(json.dumps(data))


def swap(old: str, new: str) -> Callable[[str], str]:
    """The change of a text's first `old`, which must be there."""

    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change
