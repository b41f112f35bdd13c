"""ALFWorld's games: reads the published `game.tw-pddl` files and parses them for the exact engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crbc_envs.alfworld.engine.dialect import TASK, read_dialect
from crbc_envs.alfworld.engine.problem import Problem
from crbc_envs.alfworld.engine.state import Game
from crbc_envs.errors import DataError

FAMILIES = {
    "pick_and_place_simple": "pick",
    "look_at_obj_in_light": "look",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "pick_two_obj_and_place": "pick2",
}
"""The six task families by the `task_type` of traj_data.json."""

GAME_FILE, TRAJECTORY_FILE = "game.tw-pddl", "traj_data.json"


@dataclass(frozen=True, slots=True)
class GameFile:
    """One game as published: three texts, the family, and the expert's commands if there are any."""

    name: str
    family: str
    domain: str
    grammar: str
    problem: str
    walkthrough: tuple[str, ...] | None = None


def read_game_file(path: str | Path) -> GameFile:
    """Read a game. `path` is a folder with game.tw-pddl and traj_data.json, or the game.tw-pddl in it.

    Raises `DataError` if one of the two is missing or damaged, or if the family is not in `FAMILIES`.
    """
    path = Path(path)
    folder = path.parent if path.name == GAME_FILE else path
    game, trajectory = read_json(folder / GAME_FILE), read_json(folder / TRAJECTORY_FILE)
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        if not isinstance(game.get(key), str):
            raise DataError(f"{folder / GAME_FILE}: no text {key!r}; it is not an ALFWorld game. {GET_DATA}")
    family = FAMILIES.get(str(trajectory.get("task_type")))
    if family is None:
        raise DataError(
            f"{folder / TRAJECTORY_FILE}: unknown task_type {trajectory.get('task_type')!r}; "
            f"known: {', '.join(FAMILIES)}"
        )
    steps = game.get("walkthrough")
    return GameFile(
        name=f"{folder.parent.name}/{folder.name}",
        family=family,
        domain=game["pddl_domain"],
        grammar=game["grammar"],
        problem=game["pddl_problem"],
        walkthrough=tuple(map(str, steps)) if isinstance(steps, list) else None,
    )


GET_DATA = "Install the published games with: crbc data alfworld --from DIR"


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object of a file. Raises `DataError` if there is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. {GET_DATA}") from None
    except ValueError as error:
        raise DataError(f"{path}: damaged, it is not JSON ({error}). {GET_DATA}") from error
    if not isinstance(data, dict):
        raise DataError(f"{path}: it is JSON, but not an object. {GET_DATA}")
    return data


KNIVES = ("knifetype", "butterknifetype")


def parse(file: GameFile) -> Game:
    """Parse a game for the exact engine. Raises a `DataError` that names the game."""
    try:
        problem, task = Problem(file.problem), TASK.search(file.grammar)
        if task is None:
            raise DataError('the grammar has no sentence "Your task is to: ..."')
        has = problem.objects_with
        return Game(
            name=file.name,
            family=file.family,
            task=json.loads(f'"{task[1]}"'),
            dialect=read_dialect(file.domain, file.grammar),
            objects=tuple(problem.names[name] for name in problem.objects),
            object_types=tuple(problem.object_type.values()),
            receptacles=tuple(problem.names[name] for name in problem.receptacles),
            receptacle_types=tuple(problem.receptacle_type.values()),
            places=tuple(problem.names.get(name, name) for name in problem.places),
            place_of=problem.place_of(),
            receptacles_at=problem.receptacles_at(),
            openable=problem.bits_of("openable", problem.receptacles),
            accepts=problem.accepts(),
            within=problem.rows("inreceptacleobject", problem.objects),
            pickupable=has("pickupable"),
            cleanable=has("cleanable"),
            heatable=has("heatable"),
            coolable=has("coolable"),
            toggleable=has("toggleable"),
            sliceable=has("sliceable"),
            containers=has("isreceptacleobject"),
            knives=sum(1 << o for o, kind in enumerate(problem.object_type.values()) if kind in KNIVES),
            start=problem.start(),
            won=problem.won(),
        )
    except KeyError as error:
        raise DataError(f"{file.name}: the problem uses {error}, but does not declare it") from error
    except ValueError as error:
        raise DataError(f"{file.name}: {error}") from error
