"""The report: complete, self-contained, safe with hostile text, and the same bytes every time."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from kept_rollouts import MODEL, random_group

from anchors import Rollout, RolloutGroup, Step
from crbc_lab.report import write_report
from crbc_lab.report.board import parse_board, pictures
from crbc_lab.report.charts import POINTS, Series, line_chart, thin
from crbc_lab.report.graph import Link, _crossings, _order, lay_out
from crbc_lab.report.scenes import choose
from crbc_lab.statistics.curves import smooth
from crbc_rl.config import TrainConfig
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.evaluate import wilson
from crbc_rl.runs.folder import Run

VOID = {"meta", "br", "link", "img", "input", "hr"}
UPDATES = 12


class Page(HTMLParser):
    """Checks that every element is closed in order, and keeps what a reader or a browser would meet."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.blocks: list[str] = []
        self._inside: dict[str, str | None] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self._inside = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"] and self._inside.get("type") == "application/json":
            self.blocks.append(data)
        elif self.open[-1:] not in (["script"], ["style"]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def make_run(folder: Path, done: int, groups: dict[int, RolloutGroup]) -> Path:
    """A run of `UPDATES` updates of which `done` were made, with figures out of a seeded generator."""
    run = Run.start(folder, TrainConfig(name="made-up", model=MODEL, updates=UPDATES), resume=False)
    rng = np.random.default_rng(0)
    lines = []
    for update in range(done + 1):
        rate = 0.2 + 0.5 * update / UPDATES
        record: dict[str, float | int] = {"update": update}
        if update:
            record |= {"success": rate + 0.05 * rng.standard_normal(), "reward": rng.normal(), "length": 12.0}
            record |= {"kl": 1e-5 * update, "entropy": 1.0, "clip_share": 0.0, "grad_norm": float("nan")}
            record |= {"invalid": 0.0, "mixed_groups": 0.5, "steps": 1500, "skipped_steps": 0.0, "loss": 0.1}
            record |= {"seconds/rollout": 20.0, "seconds/credit": 0.012, "seconds/train": 10.0}
        for split, n, due in (("validation", 128, update % 5 == 0), ("test", 512, update in (0, UPDATES))):
            if due:
                low, high = wilson(round(n * rate), n)
                record |= {f"{split}/success": rate, f"{split}/low": low, f"{split}/high": high}
                record |= {f"{split}/episodes": n, "seconds/eval": 90.0}
        lines.append(json.dumps(record) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines))
    for update, group in groups.items():
        run.keep_group(update, group)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(
        tmp_path_factory.mktemp("finished"), UPDATES, {1: random_group(1), 6: random_group(6), 12: random_group(9)}
    )


def hostile() -> RolloutGroup:
    """Labels, actions and a task that would run if they were pasted into the page."""
    bad = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    step = [Step("a", bad, 0.0, bad), Step("b", "'\"><svg onload=alert(3)>", 0.0, "b & c")]
    return RolloutGroup([Rollout(step, True), Rollout([step[0]], False), Rollout(step[:1] * 3, False)], task=bad)


def test_a_finished_run_is_a_small_page(finished: Path) -> None:
    path = write_report(finished)
    page = Page(path.read_text())
    assert path == finished / "report.html"
    assert path.stat().st_size < 2_000_000
    assert not page.open
    assert "made-up" in page.text and "Unfinished" not in page.text and "Evidence coverage" not in page.text
    assert "credit block per update 12 ms" in page.text, "as earlier versions recorded it"


def test_unfinished_run_says_so(tmp_path: Path) -> None:
    page = Page(write_report(make_run(tmp_path, 7, {})).read_text())
    assert "Unfinished: update 7 of 12" in page.text
    assert "this run has no files in its folder transcripts" in page.text
    assert "points on the test split" not in page.text


def test_self_contained(finished: Path) -> None:
    text = write_report(finished).read_text()
    page = Page(text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert not [name for name, _ in page.attributes if name in ("src", "xlink:href", "srcset")]
    assert all(value and value.startswith("#") for name, value in page.attributes if name == "href")
    assert "@import" not in text
    assert "url(" not in text


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    text = write_report(make_run(tmp_path, 3, {2: hostile()})).read_text()
    page = Page(text)
    assert not page.open
    assert text.count("<script>") == 1
    assert "<img" not in text
    assert "onload" not in {name for name, _ in page.attributes}
    assert "alert(1)" in page.text
    (data,) = (json.loads(block) for block in page.blocks if '"pairs"' in block)
    assert "alert(3)" in data["pairs"][1][1]


def test_the_policy_names_the_page_s_own_script_and_style(finished: Path) -> None:
    text = write_report(finished).read_text(encoding="utf-8")
    policy = html.unescape(re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)[0])
    allowed = {name: values.split() for name, _, values in (part.strip().partition(" ") for part in policy.split(";"))}
    for name, tag in (("script-src", "script"), ("style-src", "style")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert allowed[name] == [f"'sha256-{digest}'"]
    assert allowed["default-src"] == ["'none'"] and allowed["img-src"] == ["data:"]
    assert not [value for name, value in Page(text).attributes if name == "style" or name.startswith("on")]


def test_same_run_same_bytes(finished: Path) -> None:
    first = write_report(finished).read_bytes()
    assert write_report(finished).read_bytes() == first


def test_run_without_metrics(tmp_path: Path) -> None:
    Run.start(tmp_path, TrainConfig(name="new", model=MODEL), resume=False)
    with pytest.raises(ConfigError, match=r"no metrics yet.*--resume"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_boards() -> None:
    board = "# # #\n# @ #\n# . #\n# # #"
    assert parse_board(board) == [row.split() for row in board.splitlines()]
    assert parse_board("You are in the kitchen.") is None
    assert parse_board("# #\n#") is None
    (picture,) = pictures([board])  # one column of two cells of 25 remains within the walls
    assert (picture.width, picture.height) == (25, 50)
    player, target = "M5.0 12.5a7.5 7.5 0 1 0 15.0 0a7.5 7.5 0 1 0 -15.0 0Z", "M2.5 37.5a10.0 10.0 0 1 0 20.0 0"
    shapes = dict(picture.shapes)
    assert shapes["player"] == player and shapes["target"].startswith(target) and len(shapes) == 2
    assert pictures([board, "a kitchen"])[0].lines


def test_layout_keeps_nodes_apart() -> None:
    rng = np.random.default_rng(3)
    links = [Link(int(rng.integers(i)), i, "a") for i in range(1, 60)]
    links += [Link(*map(int, rng.integers(60, size=2)), "back") for _ in range(60)] + [Link(59, 60, "a")]
    layout = lay_out(60, links, 50, 50)
    for i, (x, y) in enumerate(layout.at):
        assert 0 <= x <= layout.width
        assert all(abs(x - u) >= 50 or abs(y - v) >= 49.9 for u, v in layout.at[:i])
    assert len(layout.routes) == len(links)


def test_crossings_are_those_of_every_pair_of_links() -> None:
    rng = np.random.default_rng(5)
    columns = [rng.permutation(9).tolist(), (9 + rng.permutation(9)).tolist()]
    links = {(int(a), int(9 + b)) for a, b in rng.integers(9, size=(30, 2))}
    near = [[b for a, b in links if a == node] + [a for a, b in links if b == node] for node in range(18)]
    at = {node: place for column in columns for place, node in enumerate(column)}
    crossed = sum((at[a] - at[c]) * (at[b] - at[d]) < 0 for a, b in links for c, d in links) // 2
    assert _crossings(columns, near) == crossed > 0


def test_the_order_drawn_is_the_best_of_all_sweeps() -> None:
    """A sweep may add crossings, so more sweeps are no worse only if the best order is kept."""
    rng, improved = np.random.default_rng(6), 0
    for _ in range(12):
        depth = [0, *sorted(rng.integers(1, 5, size=30).tolist())]
        near: list[list[int]] = [[] for _ in depth]
        for a, b in rng.integers(len(depth), size=(160, 2)).tolist():
            if abs(depth[a] - depth[b]) == 1 and b not in near[a]:
                near[a].append(b)
                near[b].append(a)
        crossed = [_crossings(_order(depth, near, sweeps), near) for sweeps in range(13)]
        assert crossed == sorted(crossed, reverse=True)
        improved += crossed[-1] < crossed[0]
    assert improved == 12


def test_a_long_curve_is_thinned_to_its_pixels() -> None:
    assert thin(range(POINTS)) == range(POINTS)
    thinned = thin(range(7 * POINTS))
    assert len(thinned) == POINTS and (thinned[0], thinned[-1]) == (0, 7 * POINTS - 1)
    x = np.arange(3.0 * POINTS)
    chart = line_chart("Long", [Series("a", x, x, "raw", band=(x - 1, x + 1))], len(x), (280, 168))
    assert chart is not None and len(chart.hover["at"]) == POINTS


@pytest.mark.parametrize("value", [0.0, -5e-324, 5e-324, 1e-320, 1e100, -1e100, 1e-13])
def test_any_constant_can_be_drawn(value: float) -> None:
    y = np.full(3, value)
    chart = line_chart("Constant", [Series("a", np.arange(3.0), y, "raw")], 3, (280, 168))
    assert chart is not None and "nan" not in chart.layers[0].path and "inf" not in chart.layers[0].path


def test_smoothing_of_a_constant_is_that_constant() -> None:
    assert smooth(np.full(9, 0.4), 0.95) == pytest.approx(np.full(9, 0.4))


def test_groups_of_mixed_outcome_come_first() -> None:
    step = Step("a", "go")
    won, lost = Rollout([step], True), Rollout([step], False)
    groups = {u: RolloutGroup([won, lost if u % 2 else won]) for u in range(40)}
    assert [update for update, _ in choose(groups)] == [1, 11, 21, 29, 39]
