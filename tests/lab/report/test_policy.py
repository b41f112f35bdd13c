"""The report in a browser: its policy lets its own script and style work, and nothing else run or load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from anchors import Rollout, RolloutGroup, Step
from crbc_lab.report import write_report
from crbc_rl.config import TrainConfig
from crbc_rl.runs.folder import Run

MODEL = str(ROOT / "warmstarts" / "sokoban-tiny")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run with two groups and a curve."""
    folder = tmp_path_factory.mktemp("run") / "run"
    run = Run.start(folder, TrainConfig(name="made-up", model=MODEL, updates=2), resume=False)
    (folder / "metrics.jsonl").write_text('{"update": 0}\n{"update": 1, "success": 0.5}\n{"update": 2, "success": 1}\n')
    first, better, worse = Step("a", "go", 0.0, "a room"), Step("b", "up", 1.0, "b"), Step("b", "down", 0.0, "b")
    group = RolloutGroup([Rollout([first, better], True), Rollout([first, worse], False)], task="a task")
    for update in (1, 2):
        run.keep_group(update, group)
    return write_report(folder)


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """A server's address, and the paths that were asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", paths
    server.shutdown()
    thread.join()
    server.server_close()


def refused(chromium: Any) -> list[str]:
    """What the browser said since the last time about things that the policy forbids."""
    return [entry["message"] for entry in chromium.get_log("browser") if "Content Security Policy" in entry["message"]]


@pytest.mark.slow
def test_the_report_s_own_script_and_style_work(chromium: Any, page: Path) -> None:
    from selenium.webdriver import ActionChains

    chromium.get("about:blank")
    chromium.get(page.as_uri())
    tip = chromium.find_element("id", "tip")
    for place, name in ((".gradient.value", "background-image"), (".keys .dark", "background-color")):
        assert chromium.find_element("css selector", place).value_of_css_property(name) not in (
            "none",
            "rgba(0, 0, 0, 0)",
        )
    panels = chromium.find_elements("css selector", ".group")
    assert [panel.is_displayed() for panel in panels] == [False, True]
    assert not tip.is_displayed()
    ActionChains(chromium).move_to_element(panels[1].find_element("css selector", ".node")).perform()
    assert tip.is_displayed() and "anchor 0" in tip.text and "a room" in tip.text
    assert tip.value_of_css_property("left") != "auto"
    ActionChains(chromium).move_to_element(chromium.find_element("css selector", "svg.chart path")).perform()
    assert "update" in tip.text
    width = panels[1].find_element("css selector", ".graph").get_attribute("width")
    panels[1].find_element("css selector", "[data-zoom=in]").click()
    assert panels[1].find_element("css selector", ".graph").get_attribute("width") != width
    assert not chromium.find_element("id", "prompt-part").is_displayed()
    assert chromium.find_element("id", "no-texts").is_displayed(), "of a run without transcripts"
    assert not refused(chromium)


def test_what_somebody_writes_into_the_page_neither_runs_nor_loads(
    chromium: Any, page: Path, tmp_path: Path, asked: tuple[str, list[str]]
) -> None:
    address, paths = asked
    injected = (
        f"<img src='{address}/image'><script>window.ran = 1</script><script src='{address}/script'></script>"
        f"<style>h1 {{ display: none }}</style><link rel='stylesheet' href='{address}/style'>"
        f"<iframe src='{address}/frame'></iframe><img src='data:,' onerror='window.ran = 2'>"
        f"<h2 style='display: none' id='styled'>x</h2><script type='application/json'>{{}}</script>"
    )
    text = page.read_text(encoding="utf-8")
    place = tmp_path / "page.html"
    place.write_text(text.replace("<main>", f"<main>{injected}"), encoding="utf-8")
    chromium.get(place.as_uri())
    assert chromium.execute_script("return window.ran") is None
    assert (
        chromium.find_element("tag name", "h1").is_displayed() and chromium.find_element("id", "styled").is_displayed()
    )
    assert len(refused(chromium)) >= 7
    place.write_text(place.read_text().replace('http-equiv="Content-Security-Policy"', 'name="nothing"'))
    assert not paths
    chromium.get(place.as_uri())  # without the policy, all of it would have happened
    assert chromium.execute_script("return window.ran") is not None
    assert {"/image", "/script", "/style", "/frame"} <= set(paths)
