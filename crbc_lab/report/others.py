"""What a page is made of, and the pages of what is no run: an evaluation, a prompting agent's folder, several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from crbc_envs.storage.files import read_json
from crbc_lab.report.compared import compared
from crbc_lab.report.content import content, shown
from crbc_lab.report.group import Part
from crbc_lab.report.methods import runs_in
from crbc_lab.report.scenes import sound_scenes
from crbc_rl.errors import ConfigError
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.runs.transcripts import kept

FILE = "agents.json"
COMPARED = "compared.html"
"""Where the page of several folders goes by itself."""
AGENT_FILES = 24
"""The most recordings of an agent's single tasks that are read, where it kept no transcripts."""


def page_of(places: Sequence[Path]) -> tuple[Part, Path]:
    """The variables of `report.html.j2` for a run, an evaluation, an agent or several runs, and the page's file.

    Raises `ConfigError` for what is none of them.
    """
    place = places[0]
    if len(places) > 1:
        found = {each: runs_in(each) for each in places}
        for each, runs in found.items():
            if not runs:
                raise ConfigError(f"{each} is no run folder with metrics, and no folder of such: several are compared")
        names = " and ".join(path.name for path in places[:2]) + " and others" * (len(places) > 2)
        return compared(names, [run for runs in found.values() for run in runs]), Path(COMPARED)
    if place.suffix == ".json" and not place.is_dir():
        return _evaluation(place), place.with_suffix(".html")
    if (place / FILE).is_file():
        return _agents(place), place / "report.html"
    if not (place / "config.yaml").is_file() and (runs := runs_in(place)):
        return compared(place.resolve().name, runs), place / "report.html"
    run, records = Run.open(place), read_metrics(place)
    if not records:
        raise ConfigError(
            f"{place} has no metrics yet: {place / 'metrics.jsonl'} holds no record; continue the run with "
            f"`crbc train CONFIG --run {quote(str(place))} --resume`, then `crbc report {quote(str(place))}`"
        )
    return content(run, records), place / "report.html"


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
