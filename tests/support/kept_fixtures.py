"""A study of two methods, and what is kept of trainings that never ran."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from paths import ROOT

from crbc_lab.studies.comparison.kept import place_of
from crbc_lab.studies.comparison.trainings import Training

STUDY = {
    "title": "Two methods",
    "asks": "Does it run?",
    "reference": "crbc",
    "settings": {
        "lab": {
            "sokoban": {
                "config": str(ROOT / "configs/sokoban_short.yaml"),
                "seeds": 2,
                "set": {
                    "updates": 2,
                    "rollout.num_groups": 2,
                    "eval.every": 1,
                    "eval.episodes": 4,
                    "eval.test_episodes": 6,
                },
                "set_tuning": {"updates": 1},
            }
        }
    },
    "variants": {
        "grpo": {"label": "GRPO", "set": {"credit.method": "grpo"}, "candidates": [{}, {"optim.lr": 1e-4}]},
        "crbc": {"label": "CRBC", "candidates": [{"credit.crbc.beta": 0.95}, {}]},
    },
}


def keep_made_up(
    training: Training,
    results: Path,
    successes: Sequence[int],
    validation: Sequence[float] = (0.2, 0.4),
    tasks: Sequence[int] | None = None,
    content: Sequence[str] | None = None,
) -> None:
    """Write the file of a training that never ran, with these successes."""
    tasks = list(range(len(successes))) if tasks is None else tasks
    content = [f"{task:08x}" for task in tasks] if content is None else content
    folder = results / training.scale / training.env
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "panel-made.json").write_text(
        json.dumps({"task": tasks, "kind": [""] * len(tasks), "content": content, "cluster": content})
    )
    told = {
        "digest": training.digest,
        "seed": training.seed,
        "manifest": {"minutes": {"training": 3.0, "evaluation": 1.0}, "commit": "abc"},
        "curve": {"success": [0.5, 0.6], "reward": [1.0, 3.0]},
        "validation": {"update": list(range(len(validation))), "success": list(validation)},
        "start": {"success": 0.25},
        "end": {"success": float(np.mean(successes)), "reward": 10 * float(np.mean(successes)), "reward_by_step": 2.0},
        "panel": "made",
        "success": "".join(map(str, successes)),
        "score": None,
    }
    path = place_of(training, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told))
