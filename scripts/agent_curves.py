"""Learning curves of the shipped agents: collects them from run folders, and draws them.

    python scripts/agent_curves.py add sokoban_tiny CRBC runs/a runs/b      # each run is a seed; again replaces it
    python scripts/agent_curves.py teacher sokoban_tiny runs/studies/agent.json    # of `crbc study agent`; or a number
    python scripts/agent_curves.py draw [--x updates]

docs/agents.json has the figures, docs/agents.png is drawn from it alone. Minutes are those of training: evaluations
are left out.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from crbc_rl.runs.metrics import evaluated, read_metrics

ROOT = Path(__file__).resolve().parents[1]
DATA, PICTURE = ROOT / "docs/agents.json", ROOT / "docs/agents.png"

TITLES = {
    "sokoban_tiny": "Sokoban, one box",
    "sokoban_boxes": "Sokoban, three boxes",
    "sokoban_short": "Sokoban, three boxes",
    "alfworld_tiny": "ALFWorld",
    "webshop_tiny": "WebShop",
}
"""The agents that are drawn first, in this order, and their titles. An agent has the name of its config."""
COLOURS = {"CRBC": "#0b3c5d", "GRPO": "#7f7f7f", "GiGPO": "#d55e00", "GraphGPO": "#009e73", "HGPO": "#e69f00"}
OTHERS = ("#cc79a7", "#a0522d", "#5796c4")
"""Colours of further methods. Colour-blind readers can distinguish all of them."""
TEACHER, WARM = "#222222", "#c0392b"
MINUTES, UPDATES = "minutes", "updates"

Data = dict[str, Any]


# ---- collect --------------------------------------------------------------------------------------


def curve(run: Path) -> tuple[str, Data]:
    """The seed of a run and its figures. Raises `SystemExit` for a folder without a validation."""
    if not (run / "config.yaml").is_file():
        raise SystemExit(f"{run} is no run folder: it has no config.yaml")
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    records = read_metrics(run)
    points = evaluated(records, "validation")
    if not points:
        raise SystemExit(f"{run} has no validation yet")
    seconds, spent = 0.0, {}
    for record in records:
        trained = record["update"] > 0  # before it, there is evaluation alone
        seconds += trained * (record.get("seconds/update", 0.0) - record.get("seconds/eval", 0.0))
        spent[record["update"]] = seconds / 60
    tests = evaluated(records, "test")
    last = tests[-1] if tests and tests[-1]["update"] > 0 else None
    return str(config["seed"]), {
        "episodes": points[0]["validation/episodes"],
        "update": [record["update"] for record in points],
        "minutes": [round(spent[record["update"]], 2) for record in points],
        "success": [round(record["validation/success"], 4) for record in points],
        "test": {
            "episodes": tests[0]["test/episodes"] if tests else 0,
            "before": _interval(tests[0]) if tests and tests[0]["update"] == 0 else None,
            "after": None if last is None else _interval(last),
        },
    }


def _interval(record: Mapping[str, float]) -> list[float]:
    return [round(record[f"test/{name}"], 4) for name in ("success", "low", "high")]


def add(data: Data, agent: str, method: str, runs: Sequence[Path]) -> None:
    """Put the curves of some runs into the data. Raises `SystemExit` where two have one seed."""
    found = [curve(run) for run in runs]
    seeds = [seed for seed, _ in found]
    if len(set(seeds)) < len(seeds):
        raise SystemExit(f"two of these runs have the same seed: {', '.join(seeds)}")
    methods = data.setdefault(agent, {}).setdefault("methods", {})
    merged = {**methods.get(method, {}), **dict(found)}
    methods[method] = dict(sorted(merged.items(), key=lambda item: int(item[0])))


def teacher(data: Data, agent: str, given: str) -> None:
    """Put the success of an agent's teacher into the data: a number, or from a file of `crbc study agent`."""
    path = Path(given)
    if path.is_file():
        study = json.loads(path.read_text(encoding="utf-8"))
        rate = study["findings"]["success"]["teacher"]
        if rate is None:
            raise SystemExit(f"{path}: the environment has no expert")
        told = {"success": round(rate["rate"], 4), "tasks": rate["tasks"], "split": study["split"]}
        data.setdefault(agent, {})["teacher"] = {**told, "options": study["teacher"]}
        return
    try:
        share = float(given)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise SystemExit(f"{given} is no agent.json, and no share from 0 to 1")
    data.setdefault(agent, {})["teacher"] = {"success": share}


# ---- draw -----------------------------------------------------------------------------------------


def draw(data: Data, path: Path, x: str = MINUTES) -> None:
    """One panel for each agent with curves: each seed a thin line, the mean of a method's seeds a thick one."""
    agents = [name for name in (*TITLES, *sorted(set(data) - set(TITLES))) if data.get(name, {}).get("methods")]
    if not agents:
        raise SystemExit("there are no curves yet: python scripts/agent_curves.py add AGENT METHOD RUN...")
    methods = list(dict.fromkeys(m for known in (COLOURS, *(data[a]["methods"] for a in agents)) for m in known))
    methods = [m for m in methods if any(m in data[a]["methods"] for a in agents)]
    rest = iter(OTHERS * len(methods))
    colours = {method: COLOURS.get(method) or next(rest) for method in methods}
    figure = Figure(figsize=(4.5 * len(agents), 4.5), layout="constrained")
    for ax, agent in zip(figure.subplots(1, len(agents), squeeze=False)[0], agents, strict=True):
        _panel(ax, data[agent], TITLES.get(agent, agent), colours, x)
        ax.set_xlabel("minutes of training" if x == MINUTES else "updates")
    figure.axes[0].set_ylabel("success on validation tasks")
    lines = [Line2D([], [], color=colours[m], linewidth=2.6, label=m) for m in methods]
    lines.append(Line2D([], [], color=WARM, marker="o", linestyle="none", label="warm start"))
    if any("teacher" in data[agent] for agent in agents):
        lines.append(Line2D([], [], color=TEACHER, linestyle="--", linewidth=1.3, label="teacher"))
    figure.legend(handles=lines, loc="outside lower center", ncols=len(lines), fontsize=10, frameon=False)
    figure.savefig(path, dpi=110)


def _panel(ax: Axes, agent: Data, title: str, colours: Mapping[str, str], x: str) -> None:
    axis = "minutes" if x == MINUTES else "update"
    highest, starts, told = 0.0, [], []
    for method, seeds in agent["methods"].items():
        for run in seeds.values():
            ax.plot(run[axis], run["success"], color=colours[method], linewidth=0.9, alpha=0.45)
            highest = max(highest, *run["success"])
            starts += [run["success"][0]] if run["update"][0] == 0 else []
        if len(shared := _shared_updates(seeds.values())):
            across, up = (_mean(seeds.values(), name, shared) for name in (axis, "success"))
            ax.plot(across, up, color=colours[method], linewidth=2.6, zorder=3)
        told.append((_tests(method, list(seeds.values())), colours[method]))
    if starts:
        ax.plot([0], [np.mean(starts)], color=WARM, marker="o", markersize=7, zorder=4, clip_on=False)
    if "teacher" in agent:
        highest = max(highest, agent["teacher"]["success"])
        ax.axhline(agent["teacher"]["success"], color=TEACHER, linestyle="--", linewidth=1.3)
    told = [(text, colour) for text, colour in told if text]
    for line, (text, colour) in enumerate(reversed(told)):
        ax.text(0.5, 1.02 + 0.055 * line, text, transform=ax.transAxes, color=colour, ha="center", fontsize=9)
    ax.set_title(title, fontsize=12, fontweight="bold", pad=8 + 14 * len(told))
    ax.set_ylim(0, min(1.02, 1.08 * highest) or 1)
    ax.set_xlim(left=0)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.grid(color="#e6e6e6", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _shared_updates(runs: Any) -> list[int]:
    """The updates that all runs were validated after."""
    return sorted(set.intersection(*(set(run["update"]) for run in runs)))


def _mean(runs: Any, name: str, updates: Sequence[int]) -> list[float]:
    """The mean of a column over the runs, at each of `updates`."""
    columns = [dict(zip(run["update"], run[name], strict=True)) for run in runs]
    return [float(np.mean([column[update] for column in columns])) for update in updates]


def _tests(method: str, runs: Sequence[Data]) -> str:
    """What a method's finished runs came to on the test tasks, in words; empty where none is finished."""
    ended = [run["test"] for run in runs if run["test"]["before"] and run["test"]["after"]]
    if not ended:
        return ""
    before, after = (np.mean([test[when][0] for test in ended]) for when in ("before", "after"))
    seeds = f"{len(ended)} seed{'s' * (len(ended) > 1)}"
    return f"{method}: test {100 * before:.1f} → {100 * after:.1f} %, {seeds}"


# ---- command --------------------------------------------------------------------------------------


def main(args: Sequence[str], data_path: Path = DATA, picture: Path = PICTURE) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add", help="curves of runs")
    adding.add_argument("agent")
    adding.add_argument("method")
    adding.add_argument("runs", nargs="+", type=Path)
    teaching = commands.add_parser("teacher", help="the success of an agent's teacher")
    teaching.add_argument("agent")
    teaching.add_argument("given", metavar="FILE_OR_SHARE")
    drawing = commands.add_parser("draw", help="the picture")
    drawing.add_argument("--x", choices=(MINUTES, UPDATES), default=MINUTES)
    asked = parser.parse_args(args)
    data: Data = json.loads(data_path.read_text(encoding="utf-8")) if data_path.is_file() else {}
    if asked.command == "draw":
        draw(data, picture, asked.x)
        return
    if asked.command == "add":
        add(data, asked.agent, asked.method, asked.runs)
    else:
        teacher(data, asked.agent, asked.given)
    lists = re.compile(r"\[[^\[\]{}]*\]")  # each on one line
    text = lists.sub(lambda found: " ".join(found[0].split()), json.dumps(data, indent=1))
    data_path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
