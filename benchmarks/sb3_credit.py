"""What credit is worth inside Stable-Baselines3's PPO: success at equal LIVE steps, three seeds, as curves.

    python -m benchmarks.sb3_credit             # about 20 CPU minutes; goes on where it stopped
    python -m benchmarks.sb3_credit --draw      # the figure and the table from the results alone

GAE plays twice: with the same groups of eight as the others, and with 64 different tasks at a time, which suits it
better, since it does not compare rollouts. An idle member of a group is no live step.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crbc_envs.sokoban.panels import PANELS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/adapters/sb3_credit.jsonl"
FIGURE = RESULTS.with_suffix(".png")

STEPS, EVERY, SEEDS, TASKS = 150_000, 25_000, 3, 512


class Setting(NamedTuple):
    name: str
    method: str
    groups: tuple[int, int]
    colour: str


SETTINGS = [
    Setting("CRBC, 8 groups of 8", "crbc", (8, 8), "#c0392b"),
    Setting("GiGPO, 8 groups of 8", "gigpo", (8, 8), "#2471a3"),
    Setting("GRPO, 8 groups of 8", "grpo", (8, 8), "#229954"),
    Setting("GAE, 64 tasks", "gae", (64, 1), "#7d3c98"),
    Setting("GAE, 8 groups of 8", "gae", (8, 8), "#909497"),
]


def results() -> list[dict[str, Any]]:
    """Those on today's rooms: results on an earlier panel are not compared with them."""
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []
    return [row for row in rows if row.get("panel") == PANELS[0]]


def run(setting: Setting, seed: int) -> dict[str, Any]:
    """One training: success on the first tasks of the test panel by live steps."""
    import torch

    sys.path.insert(0, str(ROOT / "examples"))
    from sb3_ppo import success, train

    torch.set_num_threads(1)
    curve: list[tuple[int, float]] = []
    train(
        setting.method,
        seed,
        STEPS,
        EVERY,
        lambda steps, agent: curve.append((steps, success(agent, "test", TASKS))),
        setting.groups,
    )
    return {"panel": PANELS[0], "setting": setting.name, "seed": seed, "curve": curve}


def table(found: list[dict[str, Any]]) -> str:
    lines = ["| PPO with | start | half | end, each seed | end, mean |", "|---|---|---|---|---|"]
    for setting in SETTINGS:
        curves = [row["curve"] for row in found if row["setting"] == setting.name]
        values = 100 * np.array([[success for _, success in curve] for curve in curves])
        start, half, end = values[:, 0].mean(), values[:, len(values[0]) // 2].mean(), values[:, -1]
        ends = ", ".join(f"{value:.1f}" for value in end)
        lines.append(f"| {setting.name} | {start:.1f} | {half:.1f} | {ends} | {end.mean():.1f} |")
    return "\n".join(lines)


def draw(found: list[dict[str, Any]]) -> None:
    """Means over the seeds, with bars for their intervals (95 %, t with two degrees of freedom), side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for number, setting in enumerate(SETTINGS):
        curves = np.array([row["curve"] for row in found if row["setting"] == setting.name])
        steps, values = curves[..., 0].mean(axis=0) / 1000, 100 * curves[..., 1]
        mean, half = values.mean(axis=0), 4.303 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
        beside = steps + 1.2 * (number - 2)
        bars: dict[str, Any] = {"elinewidth": 1.0, "capsize": 2.5, "linewidth": 2.0}
        axes.errorbar(beside, mean, half, color=setting.colour, label=setting.name, **bars)
    axes.set(xlabel="live environment steps (thousands)", ylabel="success on the test panel (%)", ylim=(0, 100))
    axes.legend(loc="upper left", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(FIGURE, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draw", action="store_true", help="train nothing")
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    found = results()
    there = {(row["setting"], row["seed"]) for row in found}
    wanted = [(setting, seed) for seed in range(SEEDS) for setting in SETTINGS if (setting.name, seed) not in there]
    for setting, seed in [] if parser.parse_args().draw else wanted:
        found.append(row := run(setting, seed))
        RESULTS.write_text("".join(json.dumps(row) + "\n" for row in found))
        print(f"{setting.name}, seed {seed}: {row['curve'][0][1]:.1%} to {row['curve'][-1][1]:.1%}", flush=True)
    print(table(found))
    draw(found)


if __name__ == "__main__":
    main()
