"""The cost of the environments: `python -m benchmarks.envs --env sokoban --rooms`.

Times are CPU time on this machine. Whoever is compared takes turns, board by board and on the same
seeds, so that a busy machine is a burden to all of them alike.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from benchmarks.credit import table
from crbc_envs.sokoban.published import gym_sokoban_room, paper_room
from crbc_envs.sokoban.rooms import generate_room

INSTALL = "pip install --no-deps gym-sokoban==0.0.6"
"""Its board generator needs numpy alone; the rest of the package wants gym and setuptools<=81."""

Board = tuple[NDArray[np.float64], NDArray[np.float64]]


def gym_sokoban_room_utils() -> ModuleType:
    """gym-sokoban's board generator, without importing the package, which would take gym with it.

    Raises `ModuleNotFoundError`, saying how to get it, where it is not installed.
    """
    found = importlib.util.find_spec("gym_sokoban")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"gym-sokoban is not installed; to compare with it: {INSTALL}")
    return room_utils(Path(found.submodule_search_locations[0]) / "envs" / "room_utils.py")


def room_utils(path: Path) -> ModuleType:
    """A board generator by its file. Raises `FileNotFoundError` where there is none."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; it is a room_utils.py that is wanted")
    spec = importlib.util.spec_from_file_location("room_utils", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def their_board(
    module: ModuleType, seed: int, height: int = 6, width: int = 6, num_boxes: int = 1, **more: int
) -> Board:
    """The board `module.generate_room` draws for a seed: what never moves, and the start, (H, W) tile codes.

    It seeds and uses the global streams. A board that fails is drawn anew from the streams as they
    are, the way gym-sokoban's reset does it.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  what is measured draws from it
    steps = int(1.7 * (height + width))
    while True:
        try:
            fixed, start, *_ = module.generate_room((height, width), num_steps=steps, num_boxes=num_boxes, **more)
            return fixed, start
        except (RuntimeError, RuntimeWarning):
            continue


def milliseconds(draw: dict[str, Callable[[int], object]], seeds: Sequence[int]) -> dict[str, float]:
    """The mean CPU time of a board by who draws it."""
    times: dict[str, list[float]] = {name: [] for name in draw}
    for seed in seeds:
        for name, board in draw.items():
            start = time.process_time()
            board(seed)
            times[name].append(time.process_time() - start)
    return {name: 1e3 * fmean(spent) for name, spent in times.items()}


def rooms(seeds: Sequence[int], paper: Path | None = None) -> None:
    """What a 6x6 board with one box costs; `paper` is the room_utils.py of verl-agent or RAGEN."""
    draw: dict[str, Callable[[int], object]] = {
        "generate_room": lambda seed: generate_room(np.random.default_rng(seed)),
        "gym_sokoban_room": gym_sokoban_room,
        "paper_room": paper_room,
    }
    theirs: dict[str, str] = {}
    missing = []
    try:
        original = gym_sokoban_room_utils()
        draw["gym-sokoban's own"] = lambda seed: their_board(original, seed)
        theirs["gym-sokoban's own"] = "gym_sokoban_room"
    except ModuleNotFoundError as reason:
        missing.append(str(reason))
    if paper is None:
        missing.append("no original of paper_room; to compare with it: --room-utils <verl-agent's room_utils.py>")
    else:
        variant = room_utils(paper)
        draw["the paper family's own"] = lambda seed: their_board(variant, seed, search_depth=30)
        theirs["the paper family's own"] = "paper_room"
    spent = milliseconds(draw, seeds)
    rows = [(name, f"{ms:.3f} ms") for name, ms in spent.items()]
    rows += [(f"{own} / {ours}", f"{spent[own] / spent[ours]:.1f} times") for own, ours in theirs.items()]
    table(f"Sokoban, 6x6 with one box: CPU time a board, mean of {len(seeds):,} seeds", rows)
    for line in missing:
        print(f"  {line}")


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--recovery" in arguments:
        from benchmarks import recovery

        return recovery.main(arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envs", description="What environments cost.")
    parser.add_argument("--env", choices=["sokoban"], required=True)
    parser.add_argument("--rooms", action="store_true", required=True, help="the board generators")
    parser.add_argument("--seeds", type=int, default=500, help="boards each of them draws")
    parser.add_argument("--room-utils", type=Path, help="verl-agent's or RAGEN's room_utils.py, to time it too")
    given = parser.parse_args(arguments)
    if given.seeds < 1:
        parser.error(f"--seeds must be at least 1, got {given.seeds}")
    return rooms(range(given.seeds), given.room_utils)


if __name__ == "__main__":
    main()
