"""ALFWorld's games: reads the published `game.tw-pddl` files and parses them for the exact engine."""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crbc_envs.alfworld.engine.dialect import read_dialect, split_task
from crbc_envs.alfworld.engine.problem import Problem
from crbc_envs.alfworld.engine.state import Game
from crbc_envs.errors import DataError, FileError
from crbc_envs.storage import files
from crbc_envs.storage.files import shown

FAMILIES = {
    "pick_and_place_simple": "pick",
    "look_at_obj_in_light": "look",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "pick_two_obj_and_place": "pick2",
}
"""The six task families by the `task_type` of traj_data.json."""

LARGEST_FILE = 8 << 20
"""The most bytes of a file of a game. The published games have up to 138,334; whole trajectories have more."""

GAME_FILE, TRAJECTORY_FILE = "game.tw-pddl", "traj_data.json"


Check = Callable[[Path, bytes], None]
"""Checks what a file holds, or raises `DataError`."""


@dataclass(frozen=True, slots=True)
class GameFile:
    """One game as published: three texts, the family, and the expert's commands if there are any."""

    name: str
    family: str
    domain: str
    grammar: str
    problem: str
    walkthrough: tuple[str, ...] | None = None


def read_game_file(path: str | Path, check: Check = lambda path, content: None) -> GameFile:
    """Read a game. `path` is a folder with game.tw-pddl and traj_data.json, or the game.tw-pddl in it.

    Each of the two is opened once, and `check` gets its content before it is parsed. Raises `DataError` if one of
    them is missing or damaged, or if the family is not in `FAMILIES`.
    """
    path = Path(path)
    folder = path.parent if path.name == GAME_FILE else path
    game, trajectory = read_json(folder / GAME_FILE, check), read_json(folder / TRAJECTORY_FILE, check)
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        if not isinstance(game.get(key), str):
            raise FileError(folder / GAME_FILE, f"no text {key!r}; it is not an ALFWorld game. {GET_DATA}")
    family = family_of(trajectory)
    if family is None:
        kind = shown(trajectory.get("task_type"))
        raise FileError(folder / TRAJECTORY_FILE, f"unknown task_type {kind}; known: {', '.join(FAMILIES)}")
    return GameFile(
        name=f"{folder.parent.name}/{folder.name}",
        family=family,
        domain=game["pddl_domain"],
        grammar=game["grammar"],
        problem=game["pddl_problem"],
        walkthrough=_walkthrough(folder / GAME_FILE, game.get("walkthrough")),
    )


GET_DATA = "Install the published games with: crbc data alfworld --from DIR"


def family_of(trajectory: dict[str, Any]) -> str | None:
    """The family by the `task_type` of traj_data.json. None for any other."""
    kind = trajectory.get("task_type")
    return FAMILIES.get(kind) if isinstance(kind, str) else None


def _walkthrough(path: Path, steps: Any) -> tuple[str, ...] | None:
    if steps is None:
        return None
    if not isinstance(steps, list) or not all(isinstance(s, str) for s in steps):
        why = f"its walkthrough is no list of commands. {GET_DATA}"
        raise FileError(path, why)
    return tuple(steps)


def read_json(path: Path, check: Check = lambda path, content: None) -> dict[str, Any]:
    """Read the JSON object of a file. Raises `DataError` if there is none."""
    try:
        content = files.read_bytes(path, LARGEST_FILE)
        check(path, content)
        data = files.parse_json(content)
    except FileNotFoundError:
        raise FileError(path, f"no such file. {GET_DATA}") from None
    except OSError as error:
        raise FileError(path, f"it cannot be read: {error.strerror}. {GET_DATA}") from error
    except DataError:
        raise
    except ValueError as error:
        raise FileError(path, f"damaged, it is not JSON ({error}). {GET_DATA}") from error
    if not isinstance(data, dict):
        raise FileError(path, f"it is JSON, but not an object. {GET_DATA}")
    return data


KNIVES = ("knifetype", "butterknifetype")


copyreg.pickle(Game, lambda game: (parse, (game.source,)))


def parse(file: GameFile) -> Game:
    """Parse a game for the exact engine. Raises a `FileError` that names the game."""
    try:
        problem, (task, grammar) = Problem(file.problem), split_task(file.grammar)
        has = problem.objects_with
        return Game(
            name=file.name,
            family=file.family,
            task=task,
            dialect=read_dialect(file.domain, grammar),
            objects=tuple(problem.names[name] for name in problem.objects),
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
            source=file,
        )
    except KeyError as error:
        raise FileError(file.name, f"the problem uses {shown(error.args[0])}, but does not declare it") from error
    except ValueError as error:
        raise FileError(file.name, str(error)) from error
