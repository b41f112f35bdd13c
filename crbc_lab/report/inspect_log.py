"""What a run kept of its rollouts, as logs of Inspect (https://inspect.aisi.org.uk), whose viewer shows them.

    crbc export RUN                            # RUN/inspect/TIME_NAME-last_last.json, and others
    inspect view start --log-dir RUN/inspect

A rollout is a sample: its prompts and replies are messages, its success is the score, and each reply has as metadata
what the page of the run says of that step. The names of files are those that the viewer looks for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from anchors import EmpiricalProcess
from crbc_envs.storage.files import replace_file
from crbc_lab.report.estimators import compared, credit_of, options_of
from crbc_lab.report.group import Part
from crbc_lab.report.scenes import Scene, ending, scenes_of
from crbc_rl.credit import CreditError, closure
from crbc_rl.errors import ConfigError
from crbc_rl.runs.folder import Run
from crbc_rl.runs.versions import read_versions

VERSION = 2
"""Of the log's format, that of inspect_ai 0.3.285."""
SCORE, KEPT = "success", "of those kept"
"""What is kept was chosen to be looked at: its mean is no success rate."""


def write_logs(place: Path, folder: Path) -> list[Path]:
    """Write a log for each kind of rollouts that the run at `place` kept with texts, into `folder`, and return their
    paths. Raises `ConfigError` where it kept none."""
    run = Run.open(place)
    scenes = [scene for scene in scenes_of(run) if scene.turns]
    if not scenes:
        raise ConfigError(f"{place} kept no prompts and replies: a log has messages; its config says `transcripts`")
    made = datetime.fromtimestamp((place / "metrics.jsonl").stat().st_mtime, UTC).isoformat(timespec="seconds")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in dict.fromkeys(scene.kind for scene in scenes):
        own = [scene for scene in scenes if scene.kind == kind]
        path = folder / f"{made.replace(':', '-')}_{run.config.name}-{kind}_{kind}.json"
        replace_file(path, json.dumps(_log(run, kind, made, own), indent=1).encode())
        written.append(path)
    return written


def _log(run: Run, kind: str, made: str, scenes: Sequence[Scene]) -> Part:
    samples = [sample for scene in scenes for sample in _samples(scene)]
    mean = float(np.mean([sample["scores"][SCORE]["value"] for sample in samples]))
    metrics = {KEPT: {"name": KEPT, "value": mean}}
    spec = {
        "eval_id": kind,
        "run_id": run.config.name,
        "created": made,
        "task": f"{run.config.name}-{kind}",
        "task_id": kind,
        "dataset": {"name": run.config.env.id, "samples": len(samples)},
        "model": read_versions(run.folder).get("model", run.config.model),
        "config": {"epochs": max(sample["epoch"] for sample in samples)},
        "metadata": {"credit": run.config.credit.method, "seed": run.config.seed},
    }
    count = {"total_samples": len(samples), "completed_samples": len(samples)}
    results = {**count, "scores": [{"name": SCORE, "scorer": SCORE, "metrics": metrics}]}
    times = {"started_at": made, "completed_at": made}
    log = {"eval": spec, "plan": {}, "results": results, "stats": times, "samples": samples}
    return {"version": VERSION, "status": "success", **log}


def _samples(scene: Scene) -> Iterator[dict[str, Any]]:
    """Every rollout of a group; `epoch` counts those of a task."""
    process = EmpiricalProcess.from_group(scene.group)
    values, (rollouts, pair) = closure(process, **options_of(closure, scene.credit)), process.steps()
    own = compared(scene.credit)[0]
    try:
        credit: list[float | str] = credit_of(process, own).round(4).tolist()
    except CreditError as error:  # such as one of a module: the page says the same
        credit = [str(error)] * len(pair)
    ends = np.cumsum(rollouts.length)[:-1]
    for number, (rollout, pairs) in enumerate(zip(scene.group.rollouts, np.split(pair, ends), strict=True)):
        messages, first = [], int(rollouts.length[:number].sum())
        for t, (step, turn) in enumerate(zip(rollout.steps, scene.turns_of(number), strict=True)):
            at = int(process.pair_anchor[pairs[t]])
            about = {
                "step": t,
                "anchor": step.label or step.anchor,
                "action": step.action,
                "reward": step.reward,
                "V": round(float(values.V[at]), 4),
                "Q": round(float(values.Q[pairs[t]]), 4),
                own.name: credit[first + t],
            }
            messages += [
                {"id": f"{t}-user", "role": "user", "content": turn.prompt},
                {"id": f"{t}-assistant", "role": "assistant", "content": turn.reply, "metadata": about},
            ]
        score = {"value": float(rollout.success), "answer": ending(rollout), "explanation": f"{len(rollout)} steps"}
        yield {
            "id": f"{scene.group.task}, update {scene.update}" if scene.kind == "training" else scene.group.task,
            "epoch": number + 1,
            "input": scene.group.rollouts[0].steps[0].label or scene.group.task,
            "target": "solved",
            "messages": messages,
            "scores": {SCORE: score},
            "metadata": {"kind": scene.kind, "update": scene.update, "group": scene.key, "reward": rollout.reward},
        }
