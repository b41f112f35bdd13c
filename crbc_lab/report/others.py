"""What a page is made of, and the pages of what is no run: an evaluation, a prompting agent's folder, several seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from crbc_envs.storage.files import read_json
from crbc_lab.report import charts
from crbc_lab.report.content import CHART, LINES, content, panel, shown
from crbc_lab.report.group import Part
from crbc_lab.report.scenes import Scene, scenes_of, sound_scenes
from crbc_lab.statistics.curves import smooth, smoothing
from crbc_rl.errors import ConfigError
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import evaluated, read_metrics
from crbc_rl.runs.transcripts import kept

FILE = "agents.json"
AGENT_FILES = 24
"""The most recordings of an agent's single tasks that are read, where it kept no transcripts."""


def page_of(place: Path) -> tuple[Part, Path]:
    """The variables of `report.html.j2` for a run, an evaluation, an agent or several runs, and the page's file.

    Raises `ConfigError` for what is none of them.
    """
    if place.suffix == ".json" and not place.is_dir():
        return _evaluation(place), place.with_suffix(".html")
    if (place / FILE).is_file():
        return _agents(place), place / "report.html"
    if not (place / "config.yaml").is_file() and (runs := children(place)):
        return _seeds(place, runs), place / "report.html"
    run, records = Run.open(place), read_metrics(place)
    if not records:
        raise ConfigError(
            f"{place} has no metrics yet: {place / 'metrics.jsonl'} holds no record; continue the run with "
            f"`crbc train CONFIG --run {quote(str(place))} --resume`, then `crbc report {quote(str(place))}`"
        )
    return content(run, records), place / "report.html"


def children(place: Path) -> list[Path]:
    """The runs in a folder that have metrics."""
    found = sorted(path.parent for path in place.glob("*/config.yaml"))
    return [folder for folder in found if read_metrics(folder)]


def _evaluation(place: Path) -> Part:
    from crbc_lab.evaluation.record import read_evaluation  # it waits for torch

    transcripts = place.with_suffix(".transcripts.parquet")
    left_out: list[str] = []
    scenes = sound_scenes(transcripts, left_out, "task") if transcripts.is_file() else []
    return {"title": place.stem, "evaluation": read_evaluation(place), **shown(scenes, left_out)}


def _agents(place: Path) -> Part:
    result = read_json(place / FILE)
    files = [path for *_, path in kept(place)] or sorted((place / "rollouts").rglob("*.parquet"))[:AGENT_FILES]
    left_out: list[str] = []
    found = [sound_scenes(path, left_out, "task", f"{i}-" if i else "") for i, path in enumerate(files)]
    scenes = [scene for some in found for scene in some]
    return {"title": result["name"], "agent": result, **shown(scenes, left_out)}


def _seeds(place: Path, folders: Sequence[Path]) -> Part:
    """Of each run its curve, and what failed last: two groups of training, and four held-out tasks."""
    scenes, left_out, rows, series, last = list[Scene](), list[str](), [], [], 1
    for number, folder in enumerate(folders):
        records = read_metrics(folder)
        own = scenes_of(Run.open(folder), re.sub(r"[^\w-]+", "-", folder.name) + "-", left_out)
        training = [scene for scene in own if scene.kind == "training"][-2:]
        lost = [scene for scene in own if scene.kind == "last" and not scene.group.success_rate][:4]
        scenes += training + lost
        last = max(last, done := int(records[-1]["update"]))
        x, y = charts.column(records, "success")
        style = LINES[number % len(LINES)]
        series.append(charts.Series(folder.name, x, smooth(y, smoothing(done)), style, percent=True))
        failed = next((scene.key for scene in training[::-1] + lost if scene.group.success_rate < 1), None)
        rows.append((folder.name, done, [record["test/success"] for record in evaluated(records, "test")], failed))
    scenes.sort(key=lambda scene: scene.kind != "training")
    return {
        "title": place.resolve().name,
        "seeds": rows,
        "credit_panels": panel("Success", series, last, CHART),
        **shown(scenes, left_out),
    }
