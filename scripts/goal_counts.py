"""Counts what the published ALFWorld training tasks ask for, into crbc_envs/alfworld/games/goal_counts.toml.

    python scripts/goal_counts.py DIR      # the folder that holds train/

The names of the tasks' folders say family, target, place and scene. The problems say how many things of the target's
kind there are.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

from crbc_envs.alfworld.engine.game import FAMILIES, GAME_FILE, read_game_file
from crbc_envs.alfworld.engine.problem import Problem
from crbc_envs.alfworld.games.goal_counts import FILE

HEAD = """\
# How often the 3,553 published training tasks of ALFWorld ask for each goal: [goals.FAMILY.ROOM] has a target and the
# receptacles or lamps that go with it. `copies`: how many of a family's tasks have 1, 2, 3 ... things of the target's
# kind. Counted by scripts/goal_counts.py (Shridhar et al., 2021; MIT licence, see NOTICE).
"""


ROOM_OF_SCENE = {
    "kitchen": range(1, 31),
    "living room": range(201, 231),
    "bedroom": range(301, 331),
    "bathroom": range(401, 431),
}
"""The kind of room of a published scene, by the scene's number."""


def main(folder: Path) -> None:
    goals: dict[tuple[str, str], dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    copies: dict[str, Counter[int]] = defaultdict(Counter)
    for path in sorted((folder / "train").rglob(GAME_FILE)):
        task_type, target, _, parent, scene = path.parent.parent.name.split("-")
        family = FAMILIES[task_type]
        room = next(room for room, scenes in ROOM_OF_SCENE.items() if int(scene) in scenes)
        goals[family, room][target][parent] += 1
        kinds = Problem(read_game_file(path.parent).problem).object_type.values()
        copies[family][list(kinds).count(f"{target.lower()}type")] += 1
    lines = [HEAD, "[copies]"]
    for family in FAMILIES.values():
        lines.append(f"{family} = {[copies[family][n] for n in range(1, max(copies[family]) + 1)]}")
    for (family, room), targets in sorted(goals.items()):
        lines += ["", f'[goals.{family}."{room}"]']
        for target, parents in sorted(targets.items()):
            lines.append(f"{target} = {{ {', '.join(f'{parent} = {n}' for parent, n in sorted(parents.items()))} }}")
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
