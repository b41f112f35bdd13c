"""Reuses the initial evaluation of an identical run.

Every training of a study evaluates the policy that it starts from. With one seed that is the same policy on the same
tasks with the same draws, whatever is learned afterwards: so one of them plays it, and the others read it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from crbc_rl.runs.folder import Run
from crbc_rl.runs.lines import OUTCOMES, Record, read_lines
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.runs.versions import read_versions

LIKE = "CRBC_LIKE"
"""The environment variable with the folder of the other run, set by whoever starts several trainings."""
LEARNING = {"credit", "loss", "optim", "critic", "updates", "protocol"}
LEARNING |= {"name", "tracking", "save_every", "record_every", "transcripts"}
"""Sections and keys without influence on how a policy plays."""
SPLITS = ("validation", "test")


def evaluated_start(folder: Path) -> Record | None:
    """What the run in a folder measured of its start, on both splits; None where it has not."""
    first = next(iter(read_metrics(folder)), {"update": -1})
    evaluation = {
        name: value for name, value in first.items() if name.startswith(tuple(f"{split}/" for split in SPLITS))
    }
    whole = first["update"] == 0 and all(f"{split}/success" in evaluation for split in SPLITS)
    return evaluation if whole else None


def start_like(run: Run) -> tuple[Record, dict[str, Record], Path] | None:
    """The evaluation of the start, its outcomes by split, and the folder of the run that `LIKE` names. None where none
    is named, where it was not evaluated yet, and where anything differs that the evaluation depends on: then this run
    plays it.
    """
    place = os.environ.get(LIKE)
    if not place or (evaluation := evaluated_start(other := Path(place))) is None:
        return None
    if _playing(Run.open(other)) != _playing(run):
        return None
    lines = [record for record in read_lines(other / OUTCOMES) if record["update"] == 0]
    outcomes = {line["split"]: {k: v for k, v in line.items() if k not in ("update", "split")} for line in lines}
    return (evaluation, outcomes, other) if set(outcomes) == set(SPLITS) else None


def _playing(run: Run) -> dict[str, Any]:
    """All that an evaluation depends on: the settings, the policy's digest, the packages, the anchors and the tasks."""
    own = run.config.model_dump(mode="json", exclude={*LEARNING, "model", "revision", "modules"})
    apart = ("config", "model", "commit")
    kept = {name: value for name, value in read_versions(run.folder).items() if name not in apart}
    named = {str(one).partition(":")[0] for one in (own["env"]["id"], own["env"]["prompt"], own["generator"]["engine"])}
    return {**own, **kept, **{name: one.sha256 for name, one in run.config.modules.items() if name in named}}
