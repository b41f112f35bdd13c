"""Run folders as trainings of several seeds and methods leave them, for what compares them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from kept_rollouts import MODEL, keep, walk

from crbc_rl.config import parse_config
from crbc_rl.runs.folder import Run

TASKS, UPDATES = 40, 4


def trained(
    folder: Path, seed: int, method: str = "crbc", gain: float = 0.2, ended: bool = True, **more: object
) -> Path:
    """A run folder as a training leaves it, with success by chance: 30 % before it, and `gain` more after."""
    config = {
        "name": folder.parent.name,
        "model": MODEL,
        "updates": UPDATES,
        "seed": seed,
        "credit": {"method": method},
    }
    run = Run.start(folder, parse_config({**config, **more}, "test"), resume=False)
    rng = np.random.default_rng([seed, len(method)])
    rows, lines = [], []
    for update in range(UPDATES + 1 if ended else UPDATES):
        row = {"update": update, "success": 0.3 + gain * update / UPDATES, "seconds/update": 60.0, "seconds/eval": 30.0}
        for split in ("validation", "test") if update in (0, UPDATES) else ("validation",):
            won = rng.random(TASKS) < row["success"]
            lines.append({"update": update, "split": split, "task": list(range(TASKS)), "success": won.tolist()})
            lines[-1] |= {"cluster": [str(task // 2) for task in range(TASKS)]}
            told = {"success": won.mean(), "low": 0.0, "high": 1.0, "episodes": TASKS}
            row |= {f"{split}/{name}": float(value) for name, value in told.items()}
        rows.append(row)
    for name, kept in (("metrics", rows), ("outcomes", lines)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    won_by = "to b" if method == "crbc" else "to c"
    played = [walk("a", "b", "c", won=method == "crbc", task="one"), walk("a", won_by[-1], "d", won=True, task="two")]
    played.append(walk(*"ab", *"c" * (method == "crbc"), task="three"))
    keep(run.folder, "test-000000", played)
    keep(run.folder, f"test-{UPDATES:06d}", [*played, walk("z", task=f"only {method}")])
    return folder
