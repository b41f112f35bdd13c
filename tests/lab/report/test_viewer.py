"""The page in a browser: from a failure to its step and to what another estimator credits, by mouse and by keys.

Two tests run in the ordinary check; those marked `full` are the part `report` of scripts/full.sh.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept_rollouts import HOSTILE, kept_run, random_group, turns_of
from trained_runs import trained

from crbc_envs.local_server import LocalServer, serving
from crbc_envs.storage.rollouts import write_groups
from crbc_lab.report import write_report
from crbc_lab.report.live import POLICY, Live
from crbc_lab.report.scenes import Scene, scenes_of
from crbc_rl import credit
from crbc_rl.runs.folder import Run

AXE = "axe-core@4.11.0"
"""The accessibility rules, from npm's registry."""


def visit(chromium: Any, page: Path | str, address: str = "") -> None:
    """Open the page in a new document, with nothing said or asked for yet. A served group is waited for."""
    chromium.get("about:blank")
    for log in ("browser", "performance"):
        chromium.get_log(log)
    chromium.get((page if isinstance(page, str) else page.as_uri()) + address)
    ends = time.monotonic() + 10
    told = "return document.getElementById('anchor-name')?.textContent ?? 'no viewer'"
    while not chromium.execute_script(told):
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.fixture(scope="module", params=["file", "served"])
def place(request: pytest.FixtureRequest, kept_page: Path, folder: Path) -> Iterator[str]:
    """The address of the page, as a file and as `crbc view` serves it."""
    if request.param == "file":
        yield kept_page.as_uri()
        return
    with LocalServer(Live([folder]).respond, "the page", POLICY) as server, serving(server) as url:
        yield url + "/"


def text(chromium: Any, name: str) -> str:
    found: str = chromium.find_element("id", name).text
    return found


def where(chromium: Any) -> str:
    address: str = chromium.current_url
    return address.partition("#")[2]


def one(chromium: Any, selector: str) -> Any:
    return chromium.find_element("css selector", selector)


def quiet(chromium: Any) -> None:
    """No error was logged, and nothing but the page itself was asked for."""
    assert not [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"]
    events = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert asked and all(url.startswith(("file:", "about:", "data:", "http://127.0.0.1:")) for url in asked), asked


def scene(folder: Path, key: str) -> Scene:
    return next(scene for scene in scenes_of(Run.open(folder)) if scene.key == key)


@contextmanager
def screen(chromium: Any, width: int = 1400, dark: bool = False) -> Iterator[None]:
    """The size of a phone, or the system's dark colours."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": theme})
    try:
        yield
    finally:
        chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_by_mouse_in_three_clicks(chromium: Any, kept_page: Path, folder: Path) -> None:
    """A failure, the step where |credit| is largest, and another estimator."""
    from selenium.webdriver.support.ui import Select

    visit(chromium, kept_page)
    link = one(chromium, "#failures ~ .row .go a[href^='#training-2/']")
    key, rollout, _ = link.get_attribute("href").partition("#")[2].split("/")
    link.click()
    group = scene(folder, key).group
    played = group.rollouts[int(rollout)]
    last = len(played) - 1
    assert where(chromium) == f"{key}/{rollout}/{last}" and not played.success
    assert text(chromium, "where") == f"Rollout {rollout} (of 0 to 7), step {last} (of 0 to {last}), out of steps"
    assert f"<think>step {last}</think>" in text(chromium, "reply") and "Your move?" in text(chromium, "prompt")
    assert one(chromium, "#reply .thought").text.endswith("</think>")

    one(chromium, "[data-move=largest]").click()
    own = credit.advantages(group)[int(rollout)]
    step = int(abs(own).argmax())
    assert where(chromium) == f"{key}/{rollout}/{step}"

    Select(chromium.find_element("id", "two")).select_by_visible_text("GiGPO, γ 0.98")
    other = credit.advantages(group, "gigpo", gamma=0.98)[int(rollout)]
    rows = [row.text for row in chromium.find_elements("css selector", "#steps tr")[1:]]
    for row, first, second in zip(rows, own, other, strict=True):
        assert f"{first:+.3f} {second:+.3f}".replace("-", "−") in row
        assert ("differ" in row) == (first * second < 0)
    assert f"{own[step]:+.3f}".replace("-", "−") in text(chromium, "numbers")

    chromium.refresh()
    assert where(chromium) == f"{key}/{rollout}/{step}" and f"step {step} (of 0 to" in text(chromium, "where")

    node = one(chromium, ".group:not([hidden]) .node[data-node='0'] .floor")
    chromium.execute_script("arguments[0].closest('.canvas').scrollTo(0, arguments[0].getBBox().y)", node)
    node.click()
    assert where(chromium) == f"{key}/a0" and text(chromium, "anchor-name") == "Anchor 0"
    assert len(chromium.find_elements("css selector", "#passes a")) == len(group), "all rollouts begin there"
    chromium.find_elements("css selector", "#passes a")[-1].click()
    assert where(chromium) == f"{key}/7/0"
    quiet(chromium)


FOCUS = """const at = document.activeElement, style = getComputedStyle(at);
return { name: at.dataset.move || at.id || at.localName, outline: `${style.outlineStyle} ${style.outlineWidth}` }"""


@pytest.mark.slow
def test_by_keys_alone(chromium: Any, kept_page: Path, folder: Path) -> None:
    """Each place has a visible focus, none keeps it, and the step is reached from a link by its keys."""
    from selenium.webdriver import ActionChains, Keys

    def press(key: str) -> Any:
        ActionChains(chromium, duration=0).send_keys(key).perform()
        return chromium.execute_script(FOCUS)

    visit(chromium, kept_page)
    assert press(Keys.TAB)["name"] == "theme"
    seen = set()
    for _ in range(400):
        place = press(Keys.TAB)
        if place["name"] in ("body", "theme"):
            break
        assert place["outline"] == "solid 3px", place
        seen.add(place["name"])
    else:
        raise AssertionError("the focus never comes back")
    assert {"group", "back", "next", "largest", "failure", "one", "two", "prompt", "a", "svg"} <= seen

    chromium.execute_script("document.querySelector('.go a[href^=\"#training-2/\"]').focus()")
    assert press(Keys.ENTER)["name"] == "step"
    key, rollout, step = where(chromium).split("/")
    press("p")
    assert where(chromium) == f"{key}/{rollout}/{int(step) - 1}"
    press("n")
    press("n")
    assert where(chromium) == f"{key}/{rollout}/{step}", "the last step"
    press("c")
    assert where(chromium).split("/")[2] == str(abs(credit.advantages(scene(folder, key).group)[int(rollout)]).argmax())
    press("f")
    assert where(chromium) != f"{key}/{rollout}/{step}" and "solved" not in text(chromium, "where")
    chromium.execute_script("document.querySelector('.group:not([hidden]) .canvas').focus()")
    press(Keys.ARROW_RIGHT)
    first = where(chromium)
    press(Keys.ARROW_RIGHT)
    assert "/a" in first and where(chromium) != first and text(chromium, "anchor-name") != "Anchor 0"
    chromium.execute_script("document.getElementById('group').focus()")
    press(Keys.HOME)
    assert where(chromium) == "training-1" and "Rollout" in text(chromium, "where")
    quiet(chromium)


@pytest.mark.slow
def test_strangers_texts_stay_texts(chromium: Any, tmp_path: Path) -> None:
    """Tasks, labels, actions, prompts, replies and names, wherever the page writes them."""
    folder = kept_run(tmp_path / "run", HOSTILE)
    (folder / "versions.json").write_text(json.dumps({HOSTILE: HOSTILE}))
    visit(chromium, write_report(folder))
    for option in chromium.find_elements("css selector", "#group option")[1:5:3]:
        option.click()
        for move in ("next", "largest", "failure"):
            one(chromium, f"[data-move={move}]").click()
        assert HOSTILE in text(chromium, "prompt") and HOSTILE in text(chromium, "reply")
        assert HOSTILE in text(chromium, "action") and HOSTILE in text(chromium, "actions")
    assert chromium.execute_script("return window.ran") is None
    assert not chromium.find_elements("css selector", "img")
    assert HOSTILE[:40] in one(chromium, "#group").text and HOSTILE[:40] in one(chromium, "#failures ~ .row").text
    quiet(chromium)


# ---- the part `report` of scripts/full.sh --------------------------------------------------------------------


@pytest.mark.full
def test_a_comparison_leads_to_the_step_where_methods_part(chromium: Any, tmp_path: Path) -> None:
    place = tmp_path / "lr 50% <script>é'"
    folders = [trained(place / method, 0, method, name=method) for method in ("gigpo", "crbc")]
    visit(chromium, write_report(*folders, out=tmp_path / "compared.html"))
    links = chromium.find_elements("css selector", "#partings ~ .card a")
    assert [link.text for link in links] == ["gigpo", "crbc"] * 3
    links[3].click()
    assert where(chromium) == "m2-0-last-1/0/1" and "step 1" in text(chromium, "where")
    assert "to b" in text(chromium, "action")
    assert chromium.execute_script("return document.getElementById('viewer').getBoundingClientRect().top < innerHeight")
    quiet(chromium)


SMALL = """return [...document.querySelectorAll("svg text")].filter(one => one.getBoundingClientRect().width)
  .map(one => parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a)"""
TOP = "return document.getElementById(arguments[0]).getBoundingClientRect().top"
BROAD = "return document.documentElement.scrollWidth - innerWidth"


@pytest.mark.full
@pytest.mark.parametrize("width", [400, 1400])
def test_every_view_fits_and_can_be_read(chromium: Any, place: str, width: int) -> None:
    with screen(chromium, width):
        for key in ("", "#training-1/2/3", "#training-2/a1", "#start-0/0/2", "#last-1"):
            visit(chromium, place, key)
            assert chromium.execute_script(BROAD) <= 0, key
            assert min(chromium.execute_script(SMALL)) >= 10, key
            canvas = one(chromium, ".group:not([hidden]) .canvas")
            assert canvas.size["width"] > 300 and canvas.size["height"] > 100
            assert one(chromium, ".chosen").is_displayed()
            named = chromium.find_elements("css selector", ".group:not([hidden]) .name")
            shown = [set(name.get_attribute("class").split()) for name in named if name.is_displayed()]
            assert shown and all(style & {"walk", "from"} for style in shown), "the rollout's, and the anchor's"
            if width == 400 and key:
                part = "anchor" if "/a" in key else "step"
                assert abs(chromium.execute_script(TOP, part)) < 5, "a link leads there"
            one(chromium, ".group:not([hidden]) [data-zoom=fit]").click()
            assert min(chromium.execute_script(SMALL)) >= 10, "what does not fit scrolls"


@pytest.mark.full
def test_dark_is_the_system_s_or_the_button_s(chromium: Any, place: str) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    with screen(chromium, dark=True):
        visit(chromium, place)
        dark = chromium.execute_script(paper)
        one(chromium, "#theme").click()
        light = chromium.execute_script(paper)
        chromium.refresh()
        assert dark != light == chromium.execute_script(paper), "the choice is kept"
    with screen(chromium):
        visit(chromium, place)
        assert chromium.execute_script(paper) == light
        one(chromium, "#theme").click()
        assert chromium.execute_script(paper) == dark
        chromium.execute_script("localStorage.clear()")


@pytest.mark.full
def test_every_pair_of_estimators_of_every_group(chromium: Any, place: str, folder: Path) -> None:
    from selenium.webdriver.support.ui import Select

    for shown in scenes_of(Run.open(folder)):
        visit(chromium, place, f"#{shown.key}/0/0")  # it waits for the group, which brings a list of its own
        for name in [option.text for option in Select(one(chromium, "#two")).options]:
            Select(one(chromium, "#two")).select_by_visible_text(name)
            steps = int(text(chromium, "where").rpartition(" to ")[2].partition(")")[0]) + 1
            assert len(chromium.find_elements("css selector", "#steps tr")) == 1 + steps
        quiet(chromium)


@pytest.mark.full
def test_a_link_opens_its_step_with_what_the_agent_saw(chromium: Any, tmp_path: Path) -> None:
    group = random_group(41)
    frames = [np.full((2, 3, 3), t, np.uint8) for rollout in group.rollouts for t in range(len(rollout))]
    run = kept_run(tmp_path)
    path = run / "transcripts" / "training-000001.parquet"
    write_groups(path, [group], update=1, turns=turns_of([group]), frames=frames)
    visit(chromium, write_report(run), "#training-1/2/3")
    assert chromium.execute_script("return document.getElementById('viewer').getBoundingClientRect().top < 100")
    assert one(chromium, "#frame").is_displayed()
    seen = "const seen = document.querySelector('#frame img'); return seen.decode().then(() => seen.naturalWidth)"
    assert chromium.execute_script(seen) == 3
    visit(chromium, write_report(run), "#training-2/0/0")
    assert not one(chromium, "#frame").is_displayed()
    quiet(chromium)


@pytest.mark.full
def test_charts_are_read_by_keys(chromium: Any, place: str) -> None:
    from selenium.webdriver import Keys

    visit(chromium, place)
    chart = one(chromium, "svg.chart")
    chromium.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.ARROW_LEFT)
    assert one(chromium, "#tip").is_displayed() and "update 1" in text(chromium, "tip")
    chart.send_keys(Keys.ESCAPE)
    assert not one(chromium, "#tip").is_displayed()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("axe")
    if shutil.which("npm") is None:
        pytest.skip("axe-core comes by npm, which is missing")
    done = subprocess.run(["npm", "pack", "--silent", AXE], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"npm's index gave no {AXE}: {done.stderr[-300:]}")
    subprocess.run(["tar", "xzf", done.stdout.split()[-1]], cwd=folder, check=True)
    return (folder / "package/axe.min.js").read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.parametrize(("width", "dark"), [(400, False), (1400, False), (1400, True)])
def test_axe_finds_nothing_serious(chromium: Any, place: str, axe: str, width: int, dark: bool) -> None:
    with screen(chromium, width, dark):
        for key in ("", "#training-2/a1", "#start-0/0/2"):
            visit(chromium, place, key)
            chromium.execute_script("document.querySelectorAll('details').forEach(one => { one.open = true; })")
            chromium.execute_script(axe)
            run = "axe.run(document).then(arguments[arguments.length - 1])"
            found = chromium.execute_async_script(run)["violations"]
            told = [
                (rule["id"], rule["impact"], rule["nodes"][0]["html"][:200], rule["nodes"][0]["failureSummary"])
                for rule in found
            ]
            assert not [rule for rule in told if rule[1] in ("serious", "critical")], told
