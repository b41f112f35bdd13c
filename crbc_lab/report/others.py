"""The pages of what is no single run: an evaluation's file, the folder of a prompting agent, several seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crbc_envs.storage.files import read_json
from crbc_lab.agents.results import FILE
from crbc_lab.evaluation.record import read_evaluation
from crbc_lab.report import charts
from crbc_lab.report.content import CHART, LINES, content, shown
from crbc_lab.report.group import Part
from crbc_lab.report.scenes import Scene, read_scenes, scenes_of
from crbc_rl.errors import ConfigError
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import evaluated, read_metrics
from crbc_rl.runs.smoothing import smooth, smoothing
from crbc_rl.runs.transcripts import kept

AGENT_FILES = 24
"""The most recordings of an agent's single tasks that are read, where it kept no transcripts."""
OF_A_SEED = 2, 4
"""Groups of training, the newest, and lost held-out tasks that a page of several seeds shows of each."""


def page_of(place: Path) -> tuple[Part, Path]:
    """The content of the page of a run, an evaluation, an agent or several seeds, and the file it is written to.

    Raises `ConfigError` for what is none of them.
    """
    if place.is_file():
        return _evaluation(place), place.with_suffix(".html")
    if (place / "config.yaml").is_file() or not place.is_dir():
        return _run(place), place / "report.html"
    if (place / FILE).is_file():
        return _agents(place), place / "report.html"
    runs = children(place)
    return (_seeds(place, runs) if runs else _run(place)), place / "report.html"


def reportable(place: Path) -> bool:
    """Whether a page can be made of a path that is no run."""
    return place.suffix == ".json" or (place / FILE).is_file() or bool(children(place))


def children(place: Path) -> list[Path]:
    """The runs in a folder that have metrics."""
    return sorted(path.parent for path in place.glob("*/config.yaml") if (path.parent / "metrics.jsonl").is_file())


def _run(place: Path) -> Part:
    run, records = Run.open(place), read_metrics(place)
    if not records:
        raise ConfigError(
            f"{place} has no metrics yet: {place / 'metrics.jsonl'} holds no record; continue the run with "
            f"`crbc train CONFIG --run {place} --resume`, then `crbc report {place}`"
        )
    return content(run, records)


def _evaluation(place: Path) -> Part:
    document = read_evaluation(place)
    result, env, panel = document["result"], document["env"], document["panel"]
    transcripts = place.with_suffix(".transcripts.parquet")
    policy = document["policy"]
    return {
        "kind": "Evaluation",
        "title": place.stem,
        "tags": [
            ("policy", str(policy.get("name") or policy.get("model") or policy["which"]), ""),
            ("", env["id"], "".join(f", {name} {value}" for name, value in env["kwargs"].items())),
            ("", str(panel["episodes"]), f" tasks of {panel['name']} {panel['version']}, {document['split']}"),
        ],
        "facts": [_success(result["success"], *result["interval"]), *_figures(result)],
        **shown(read_scenes(transcripts, "task") if transcripts.is_file() else []),
    }


def _agents(place: Path) -> Part:
    result = read_json(place / FILE)
    files = [path for *_, path in kept(place)] or sorted((place / "rollouts").rglob("*.parquet"))[:AGENT_FILES]
    won = result.get("success")
    facts = [] if won is None else [_success(won["success"], won["low"], won["high"])]
    return {
        "kind": "Agent's run",
        "title": result["name"],
        "tags": [
            ("agent", result["agent"], ""),
            ("model", result["model"], ""),
            ("", str(result["episodes"]), " tasks"),
        ],
        "unfinished": result["stopped"],
        "facts": [*facts, *_figures(result)],
        **shown([scene for i, path in enumerate(files) for scene in read_scenes(path, "task", f"{i}-" if i else "")]),
    }


def _success(rate: float, low: float, high: float) -> tuple[str, str]:
    return "success, with its 95 % interval", f"{rate:.1%} ({low:.1%} to {high:.1%})"


def _figures(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    told = {"length": "{:.1f}", "score": "{:.2f}", "invalid_share": "{:.1%}", "truncated_share": "{:.1%}"}
    return [(name.replace("_", " "), form.format(result[name])) for name, form in told.items() if name in result]


def _seeds(place: Path, folders: Sequence[Path]) -> Part:
    scenes, rows, series, last = list[Scene](), [], [], 1
    for number, folder in enumerate(folders):
        run, records = Run.open(folder), read_metrics(folder)
        tested = [f"{record['test/success']:.1%}" for record in evaluated(records, "test")]
        own = _of_a_seed(scenes_of(run, re.sub(r"[^\w-]+", "-", folder.name) + "-"))
        lost = next((scene.key for scene in own if scene.group.success_rate < 1), None)
        done = int(records[-1]["update"]) if records else 0
        x, y = charts.column(records, "success")
        series.append(
            charts.Series(folder.name, x, smooth(y, smoothing(done)), LINES[number % len(LINES)], percent=True)
        )
        names = {"before": tested[0], "after": tested[-1]} if len(tested) > 1 else {"before": "", "after": ""}
        rows.append({"name": folder.name, "done": done, "link": lost and f"#{lost}", **names})
        scenes += own
        last = max(last, done)
    scenes.sort(key=lambda scene: scene.kind != "training")
    chart = charts.line_chart("Success", series, last, CHART, ticks=6)
    return {
        "kind": "Several runs",
        "title": place.name or str(place),
        "tags": [("", str(len(folders)), " runs")],
        "seeds": rows,
        "credit_panels": [(chart, [(one.style, one.name) for one in series])] if chart else [],
        **shown(scenes),
    }


def _of_a_seed(scenes: Sequence[Scene]) -> list[Scene]:
    groups, tasks = OF_A_SEED
    training = [scene for scene in scenes if scene.kind == "training"][-groups:]
    return training + [scene for scene in scenes if scene.kind == "last" and not scene.group.success_rate][:tasks]
