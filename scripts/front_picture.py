"""Makes docs/front.png, the README's picture, and docs/credit/example.png: `python scripts/front_picture.py`.

The README's has one merged graph, of eight rollouts by the scripted expert, hasty half of the time. Beside it stands
where CRBC learns more than others, and where not, from the learning studies of `results/`. The other picture is the
graph of docs/credit/example.md. It needs Chromium.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader
from matplotlib.figure import Figure
from PIL import Image
from site_pictures import picture

from anchors import Rollout, RolloutGroup, Step
from crbc_envs.sokoban.env import SokobanEnv
from crbc_lab.report.content import ramps
from crbc_lab.report.group import view_group
from crbc_lab.report.scenes import Scene, Texts
from crbc_lab.studies.learning.page import kept
from crbc_lab.studies.learning.settings import FEW
from crbc_rl.config.sections import CreditConfig

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
FRONT, EXAMPLE = (1240, 460), (720, 470)
"""Width and height."""
MOST_ANCHORS = 20
"""More are too small to read."""
BESIDE = {"grpo": "#1a5fa8", "gigpo": "#d9822b", "graphgpo": "#5b8c5a"}
LABELS = {"grpo": "GRPO", "gigpo": "GiGPO", "graphgpo": "GraphGPO"}
WORLDS = {
    "sokoban-h20": "Sokoban, one box",
    "slip": "Sokoban that slips",
    "lucky": "lucky shortcuts",
    "alfworld-observation": "hidden state",
    "board": "network on boards",
}

PAGE = """<!doctype html><meta charset="utf-8">{% import "macros.html.j2" as draw %}<style>{{ style }}
body { background: #fff; display: grid; grid-template-columns: 690px 500px; gap: 18px; padding: 14px 16px; }
svg.graph { width: 690px; height: 390px; min-width: 0; } h3 { font-size: 15px; margin-bottom: 8px; }
.forest svg { width: 500px; height: 390px; }</style>
<div><h3>{{ title }}; better actions blue, worse orange</h3>
{{ draw.graph(group) }}</div>{% if forest %}
<div class="forest"><h3>CRBC minus others: where it is ahead, and where not</h3>{{ forest|safe }}</div>{% endif %}"""


def merged() -> RolloutGroup:
    """The first group whose outcomes are mixed and whose anchors are few."""
    env = SokobanEnv(observation="text")
    for task in range(1_000):
        rng = np.random.default_rng(task)
        group = RolloutGroup([played(env, task, rng) for _ in range(8)])
        anchors = {step.anchor for rollout in group.rollouts for step in rollout.steps}
        if 3 <= sum(rollout.success for rollout in group.rollouts) <= 5 and 12 <= len(anchors) <= MOST_ANCHORS:
            return group
    raise SystemExit("no such group among 1,000 tasks")


def played(env: SokobanEnv, task: int, rng: np.random.Generator) -> Rollout:
    observation, info = env.reset(options={"task": task})
    expert, steps, over, truncated = env.expert(rng, hasty=0.5), [], False, False
    while not over and not truncated:
        anchor, label = info["anchor"], info["label"]
        observation, _, over, truncated, info = env.step(expert(observation, info))
        steps.append(Step(anchor, info["action"], label=label))
    return Rollout(steps, success=info["success"], truncated=truncated)


def forest() -> str:
    """The figure as SVG: in every setting, CRBC's area minus that of each method; hollow where it is not separated."""
    figure = Figure(figsize=(6.9, 5.4), layout="constrained")
    ax, whole = figure.subplots(), kept(RESULTS / "learning_all" / "methods")
    settings = {name: whole[name] for name in (*FEW[:-2], "stop", *FEW[-2:])}  # CRBC loses there, too
    for height, found in enumerate(settings.values()):
        rows = {row.result.estimator: row for row in found}
        for place, (method, colour) in enumerate(BESIDE.items()):
            beside = rows[method].beside
            assert beside is not None
            one = beside.difference
            at, face = height + 0.24 * (place - 1), colour if rows[method].separated else "white"
            ax.plot([-100 * one.low, -100 * one.high], [at, at], color=colour, linewidth=2)
            ax.plot([-100 * one.value], [at], "o", color=colour, markersize=6, markerfacecolor=face)
    for method, colour in BESIDE.items():
        ax.plot([], [], "o-", color=colour, label=LABELS[method])
    ax.axvline(0, color="#1b2027", linewidth=1)
    ax.set_yticks(range(len(settings)), [WORLDS.get(name, name) for name in settings], fontsize=11.5)
    ax.set_ylim(len(settings) - 0.5, -0.5)
    ax.legend(loc="upper left", fontsize=11, frameon=False)
    ax.set_xlabel(
        "points of success, mean over a training, with 95 % intervals; 20 seeds\nexact success; hollow: not separated",
        fontsize=10.5,
    )
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="x", color="#e6e6e6", linewidth=0.7)
    out = io.StringIO()
    figure.savefig(out, format="svg")
    return "<svg" + out.getvalue().partition("<svg")[2]


def worked() -> RolloutGroup:
    """The three rollouts of docs/credit/example.md."""
    ways = (
        (("s", "left"), ("m", "jump")),
        (("s", "left"), ("m", "jump"), ("n", "walk")),
        (("s", "right"), ("n", "walk")),
    )
    steps = [[Step(anchor, action, label=anchor) for anchor, action in way] for way in ways]
    return RolloutGroup([Rollout(way, success) for way, success in zip(steps, (True, False, True), strict=True)])


def draw(
    path: Path, size: tuple[int, int], title: str, group: RolloutGroup, options: dict[str, float], beside: str
) -> None:
    templates = Environment(loader=PackageLoader("crbc_lab", "report"), autoescape=True, trim_blocks=True)
    style = templates.get_template("style.html.j2").render(ramps=ramps())
    credit = CreditConfig.model_validate({"method": "crbc", "crbc": options})
    view = view_group(Scene("front", "training", 0, group, None, credit), Texts())
    page = templates.from_string(PAGE).render(style=style, group=view, title=title, forest=beside)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "page.html"
        source.write_text(page, encoding="utf-8")
        taken = picture(source.as_uri(), size, Path(folder), scale=2)
    taken.convert("P", palette=Image.Palette.ADAPTIVE).save(path, optimize=True)


def main() -> None:
    draw(ROOT / "docs/front.png", FRONT, "Eight rollouts of a room, merged", merged(), {"beta": 0.9}, forest())
    draw(ROOT / "docs/credit/example.png", EXAMPLE, "The three rollouts, merged", worked(), {"beta": 1.0}, "")


if __name__ == "__main__":
    main()
