"""Every number that a report shows, worked by hand from a run of three updates and a group of five rollouts."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from strategies import group

from crbc_lab.report import content as report_content
from crbc_lab.report import write_report
from crbc_lab.report.content import CREDIT_PANELS, content, drawn
from crbc_rl.config import TrainConfig
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics


def figures(split: str, success: float, low: float, high: float, episodes: int) -> dict[str, float]:
    of = {"success": success, "low": low, "high": high, "episodes": episodes}
    return {f"{split}/{name}": value for name, value in of.items()}


def seconds(**phases: float) -> dict[str, float]:
    return {f"seconds/{name}": spent for name, spent in phases.items()} | {"seconds/update": 99.0}


RECORDS: list[dict[str, float]] = [
    {"update": 0, **seconds(eval=4)} | figures("test", 0.2, 0.1, 0.35, 40) | figures("validation", 0.25, 0.1, 0.45, 8),
    {"update": 1, "success": 0.1, "reward": 1, "steps": 100, "skipped_steps": 0, "invalid": 0.5}
    | figures("test", 0.6, 0.5, 0.65, 40)
    | figures("validation", 0.5, 0.3, 0.7, 8)
    | seconds(reset=1, generate=4, environments=1, group_advantage=0.01, step_credit=0.02, save=1)
    | seconds(tensors=0.5, train=0.25, weights=0.25),
    {"update": 2, "success": 0.4, "reward": 2, "steps": 150, "skipped_steps": 2, "invalid": 0.0}
    | seconds(generate=10, group_advantage=0.02, step_credit=0.03, train=2, figures=0.5, other=0.5),
    {"update": 3, "success": 0.9, "reward": 6, "steps": 1250, "skipped_steps": 1, "invalid": 0.1}
    | figures("test", 0.55, 0.4, 0.7, 30)
    | figures("validation", 0.4, 0.2, 0.6, 8)
    | seconds(generate=30, environments=14, group_advantage=0.15, step_credit=0.25, figures=1, other=1, eval=2)
    | seconds(old=1, reference=1, values=1, critic=1, train=2.52),
]
"""Rollouts take 6, 10 and 44 s, credit 30, 50 and 400 ms, training 1, 2 and 6.52 s; all of it 80 s."""


def make(folder: Path, records: list[dict[str, float]]) -> Run:
    credit = {"method": "crbc", "crbc": {"beta": 0.5, "depth": 0, "sigma_min": 0.05}}
    sizes = {"updates": 4, "seed": 13, "rollout": {"num_groups": 6, "group_size": 7}}
    model = str(ROOT / "warmstarts/sokoban-tiny")
    run = Run.start(folder, TrainConfig(name="by-hand", model=model, credit=credit, **sizes), resume=False)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """With a group of 5 rollouts, 11 steps, 4 anchors, 3 of them met again, 6 pairs, 2 anchors with two actions."""
    made = make(tmp_path_factory.mktemp("run"), RECORDS)
    paths = ("s:left m:jump +", "s:left m:jump n:walk -", "s:right n:walk +", "s:right k:<invalid> -", "s:left m:sit +")
    made.keep_group(2, group(*paths))
    return made


@pytest.fixture(scope="module")
def shown(run: Run) -> dict[str, Any]:
    made = content(run, read_metrics(run.folder))
    return made | drawn(made["scenes"])


def test_the_page_has_every_figure_of_the_run(run: Run) -> None:
    page = re.sub(r"<(style|script).*?</\1>", "", write_report(run.folder).read_text(), flags=re.S)
    text = " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())
    assert 'aria-label="update 2: 3 of 5 solved"' in page
    for figure in (
        "crbc beta 0.5, depth 0, sigma_min 0.05",
        "seed 13 3 updates of 6 groups × 7 rollouts",
        "Unfinished: update 3 of 4.",
        "20.0 % → 55.0 % +35.0 points on the test split",
        "before training 10.0 to 35.0 %, 40 tasks",
        "after update 3 40.0 to 70.0 %, 30 tasks",
        "best validation success 50.0%, update 1",
        "environment steps played 1,500",
        "credit block per update 50 ms, 0.60% of all time",
        "mini-batches skipped, gradient not finite 3",
        "exponential moving average (α = 0.50)",
        "rollout 60 s 75.00% 10 s",
        "train 9.52 s 11.90% 2 s",
        "eval 6 s 7.50% 3 s",
        "save 1 s 1.25% 1 s",
        "other 3 s 3.75% 1.5 s",
        "credit 480 ms 0.60% 50 ms",
        "2 of the 5 rollouts on this page failed.",
        "last anchor rollouts group/rollout/step n 1 training-2/1/2 k 1 training-2/3/1",
        "cause steps group/rollout/step cause not kept 1 training-2/3/1",
        "Q − V −0.17 +0.17",
        "rollouts 5 success rate 60.0% steps 11 anchors 4 visited more than once 3 (anchor, action) pairs 6",
        "gated anchors (2 actions or more) 2 steps with non-zero step credit 73%",
    ):
        assert figure in text, figure


def test_the_bars_of_held_out_success(shown: dict[str, Any]) -> None:
    """The axis reaches from 0 to 80 % and from 12 to 548."""
    before, after = ([bar[end] for end in ("low", "at", "high")] for bar in shown["intervals"]["bars"])
    assert before == pytest.approx([79, 146, 246.5]) and after == pytest.approx([280, 380.5, 481])
    assert [tick.text for tick in shown["intervals"]["ticks"]] == ["0%", "20%", "40%", "60%", "80%"]


def test_the_curves_and_their_moving_average(shown: dict[str, Any]) -> None:
    """Of 0.1, 0.4, 0.9 with weight 1/2: 0.1; (0.1 / 4 + 0.4 / 2) / (3 / 4); (0.1 / 8 + 0.4 / 4 + 0.9 / 2) / (7 / 8)."""
    chart = shown["curves"]
    assert chart.hover["rows"] == [
        ["update 0", ["validation", "25% (10% to 45%)"]],
        ["update 1", ["training", "10%"], ["training, smoothed", "10%"], ["validation", "50% (30% to 70%)"]],
        ["update 2", ["training", "40%"], ["training, smoothed", "30%"]],
        ["update 3", ["training", "90%"], ["training, smoothed", "64.3%"], ["validation", "40% (20% to 60%)"]],
    ]
    assert chart.hover["at"] == [46, 222, 398, 574]  # 176 to an update
    paths = {layer.style: layer.path for layer in chart.layers}
    assert paths["raw line"] == "M222.0 319.6L398.0 216.4L574.0 44.4"  # 344 from 0 to 100 %, downwards
    assert paths["band validation"].startswith("M46.0 319.6L222.0 250.8L574.0 285.2L574.0 147.6L")
    assert [tick.text for tick in chart.y_ticks] == ["0%", "20%", "40%", "60%", "80%", "100%"]
    assert [tick.text for tick in chart.x_ticks] == ["0", "1", "2", "3", "4"]
    panels = {panel.title: panel.hover["rows"][-1] for panel in shown["panels"]}
    assert panels["Mean reward"] == ["update 3", ["this update", "6"], ["smoothed", "4.14"]]
    assert panels["Invalid share"] == ["update 3", ["this update", "10%"], ["smoothed", "12.9%"]]


def test_the_seconds_of_each_update(shown: dict[str, Any]) -> None:
    """The one update without a test takes 13.05 s, so 246 are 15 s; a longer bar ends there, with its seconds above."""
    chart = shown["phases"]
    assert [tick.text for tick in chart.y_ticks] == ["0", "5", "10", "15"]
    phases = [["rollout", "10 s"], ["train", "2 s"], ["other", "1 s"], ["credit", "50 ms"]]
    assert chart.hover["rows"][2] == ["update 2", *phases]
    heights = {layer.style: re.findall(r" ([\d.]+)H[\d.]+V([\d.]+)", layer.path) for layer in chart.layers}
    assert heights["phase rollout"] == [("268.0", "169.6"), ("268.0", "104.0"), ("268.0", "22.0")]
    assert heights["phase train"] == [("169.6", "153.2"), ("104.0", "71.2")]
    assert [text for *_, text in chart.notes] == ["55 s"]


def test_the_charts_of_credit_have_their_metrics(tmp_path: Path) -> None:
    """Every metric has a value of its own and is constant; smoothing changes nothing, and shares are in percent."""
    keys = ["gate_open", "coverage/0", "coverage/1", "coverage/3", "coverage/full", "revisit_share", "group_term"]
    keys += ["step_term", "turned", "certified/0", "certified/1", "certified/3", "advantage_abs", "anchors_per_group"]
    keys += ["calibration", "calibration_upper"]
    values = {key: (i + 1) / 20 for i, key in enumerate(keys)}
    run = make(tmp_path, [{"update": 0}, *({"update": update, **values} for update in (1, 2))])
    panels = content(run, read_metrics(run.folder))["credit_panels"]
    assert [[text for _, text in chart.hover["rows"][-1][1:]] for chart, _ in panels] == [
        ["5%"],
        ["10%", "15%", "20%", "25%"],
        ["30%"],
        ["0.35", "0.4"],
        ["45%"],
        ["0.75", "0.8"],
        ["50%", "55%", "60%"],
        ["0.65"],
        ["0.7"],
    ]
    assert [chart.title for chart, _ in panels] == list(CREDIT_PANELS)
    assert [lines for _, lines in panels][2:4] == [[], [("first", "group"), ("second", "step")]]
    page = write_report(run.folder).read_text()
    assert [page.count(f'class="{line} line"') for line in ("first", "second", "third", "fourth")] == [9, 4, 2, 1]


def test_a_group_is_drawn_with_the_options_of_the_run(shown: dict[str, Any]) -> None:
    """At depth 0 a value is the mean of 0.5 ** (steps to the success) over visits.

    V(s) = 3/20, V(m) = 1/3, V(n) = 1/4; Q(s, left) = 1/6, Q(s, right) = 1/8, Q(m, jump) = 1/4, Q(m, sit) = 1/2.
    sigma(s)^2 = (3/60^2 + 2/40^2) / 5, less than sigma_min^2, and sigma(m)^2 = (2/12^2 + 1/6^2) / 3.
    """
    (view,) = shown["groups"]
    assert view["data"]["anchors"] == [
        ["0.150", "5", "0.020", [0]],
        ["0.333", "3", "0.118", [1]],
        ["0.250", "2", "0.000", [2]],
        ["0.000", "1", "0.000", [3]],
    ]
    assert view["data"]["pairs"] == [
        [0, "←", "3", "0.60", "0.167", "+0.017", "+0.33"],
        [0, "→", "2", "0.40", "0.125", "−0.025", "−0.50"],
        [1, "jump", "2", "0.67", "0.250", "−0.083", "−0.71"],
        [1, "sit", "1", "0.33", "0.500", "+0.167", "+1.41"],
        [2, "walk", "2", "1.00", "0.250", "0.000", "0.00"],
        [3, "invalid", "1", "1.00", "0.000", "0.000", "0.00"],
    ]
    halves = [[pair, "1", "0.50"] for pair in (1, 1, 2, 2)]
    ends = [[3, "1", "1.00"], [4, "1", "0.50"], [4, "1", "0.50"], [5, "1", "1.00"]]
    assert view["data"]["edges"] == [[0, "3", "1.00"], *halves, *ends]


def test_a_drawing_has_places_colours_and_widths(shown: dict[str, Any]) -> None:
    """m, n and k are one move from s. A column takes 118 for a picture, 9 for its frames and 84 for the gap."""
    (view,) = shown["groups"]
    nodes, edges = view["nodes"], view["edges"]
    assert [(node["x"], node["value"], node["gated"], node["highlight"]) for node in nodes] == [
        (16.5, "0.15", True, False),
        (227.5, "0.33", True, True),
        (227.5, "0.25", False, False),
        (227.5, "0.00", False, False),
    ]
    (success, failure), middle = view["boundaries"], nodes[0]["y"]
    assert success["x"] == failure["x"] == 497.5 and success["y"] < middle < failure["y"]
    assert [nodes[i]["ring"] for i in (0, 2, 3)] == ["#cce1d8", "#bedecd", "#e2e5e9"]  # at V 0.15, 0.25, 0
    drawn = {(edge["source"], edge["target"], edge["label"]): (edge["colour"], edge["width"]) for edge in edges}
    assert drawn[0, 1, "←"] == ("#a8b8c8", 2.37)  # 0.2 from grey to light blue; 1.1 + 0.9 * sqrt(3 - 1)
    assert drawn[1, 4, "sit"] == ("#0d5ca5", 1.1) and drawn[1, 2, "jump"] == drawn[1, 4, "jump"] == ("#e8a05c", 1.1)
    assert drawn[3, 5, "invalid"] == ("#b8bdc5", 1.1)
    assert [edge["label"] for edge in edges][-3:] == ["jump", "jump", "sit"], "strong credit is drawn on top"


@pytest.mark.parametrize(("first", "gain"), [(0, "+12.5"), (2, None)])
def test_the_gain_is_that_over_the_start(first: int, gain: str | None) -> None:
    more = {"test/low": 0.0, "test/high": 1.0, "test/episodes": 8}
    tested = [{"update": at, "test/success": won, **more} for at, won in ((first, 0.5), (4, 0.25), (6, 0.625))]
    assert report_content._gain([{"update": 1, "success": 0.9}, *tested]) == gain
    assert report_content._gain(tested[:1]) is None
