"""CRBC-WebShopSite-v0 in a real browser: the same walks as in text, crashes, and who can use the pages how."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from refusals import refusal
from worker_processes import alive, processes

from anchors import INVALID
from benchmarks.webshop_site import VIEWS, expert_choice, kill_browser, random_choice, walk_both
from crbc_envs.errors import BrowserError
from crbc_envs.webshop.env import WebShopEnv
from crbc_envs.webshop.shop.pages import Node, Page
from crbc_envs.webshop.site import browser
from crbc_envs.webshop.site.env import WebShopSiteEnv, node_index

needs_browser = pytest.mark.skipif(bool(browser.missing()), reason=f"no browser: {browser.missing()}")


@pytest.fixture(scope="module")
def text():
    return WebShopEnv()


@pytest.fixture(scope="module")
def site():
    env = WebShopSiteEnv()
    yield env
    env.close()


def both(text, site, task, *actions):
    """The same steps in both; the last answers, which are equal."""
    last = [env.reset(seed=0, options={"task": task}) for env in (text, site)]
    assert last[0] == last[1]
    for action in actions:
        last = [env.step(action) for env in (text, site)]
        assert last[0] == last[1], action
    return last[0]


def first_product(env):
    return next(f"click[{node.text.lower()}]" for node in env.session.page.nodes if node.role == "link")


def to_options(env):
    """Walk to a product with options, and give them."""
    env.reset(seed=0, options={"task": 3})
    env.step(f"search[{env.panel[3].text.lower()}]")
    env.step(first_product(env))
    return [node for node in env.session.page.nodes if node.role == "option"]


@needs_browser
def test_a_walk_is_the_same_in_the_browser(text, site):
    rng = np.random.default_rng(0)
    assert walk_both(text, site, 0, random_choice(rng))[0] == 15 or text._ended()
    steps, score, _ = walk_both(text, site, 1, expert_choice(rng))
    assert steps >= 3 and score > 0


@needs_browser
def test_what_is_typed_reaches_the_shop_as_in_text(text, site):
    hostile = "search[<script>alert(1)</script> \"&'+%3C#?]", "search[ \u00e9\U0001f600 ]", "search[a\x00b]", "search[]"
    _, _, _, _, info = both(text, site, 2, *hostile, "CLICK[search]", "search[search_results]", "no action")
    assert info["action"] == INVALID


@needs_browser
def test_an_invalid_step_asks_nothing_of_the_browser(site, monkeypatch):
    site.reset(seed=0)
    monkeypatch.setattr(site.browser, "click", None)
    monkeypatch.setattr(site.browser, "search", None)
    assert site.step("click[nothing of that name]")[-1]["valid"] is False


@needs_browser
@pytest.mark.parametrize("when", ["before a step", "its page alone"])
@pytest.mark.slow
def test_a_killed_browser_is_replaced_and_the_episode_goes_on_at_the_same_page(text, site, when):
    restarts = site.browser.restarts
    seen = both(text, site, 4, "search[shoes]", "click[next >]")
    if when == "its page alone":
        from selenium.common.exceptions import WebDriverException

        with suppress(WebDriverException):
            site.browser.driver.get("chrome://crash")
    else:
        kill_browser(site)
    assert site.step("click[< prev]") == text.step("click[< prev]")
    assert site.browser.restarts > restarts
    assert seen[-1]["step"] == 2


@needs_browser
@pytest.mark.slow
def test_a_browser_that_never_comes_back_is_an_error_and_a_reset_tries_again(text, site, monkeypatch):
    site.reset(seed=0)
    kill_browser(site)

    def refuse(profile):
        raise OSError("it will not start")

    monkeypatch.setattr(browser, "_launch", refuse)
    with pytest.raises(BrowserError, match="3 browsers in a row failed to load the page: it will not start"):
        site.step("search[shoes]")
    monkeypatch.undo()
    both(text, site, 4, "search[shoes]")


def test_what_is_missing_is_named_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setattr(browser, "PROGRAMS", {"chromium": ("no-chromium",), "chromedriver": ("no-driver",)})
    command = "apt-get install -y chromium chromium-driver"
    missing = [("chromium", command), ("chromedriver", command)]
    assert [found for found in browser.missing() if found[0] != "selenium"] == missing
    with pytest.raises(BrowserError, match=f"chromium is missing: {command}; chromedriver is missing: {command}"):
        WebShopSiteEnv().reset(seed=0)


def family(pid):
    """A process and its descendants."""
    there, found = list(processes()), [pid]
    for parent in found:
        found += [process.pid for process in there if process.parent == parent]
    return found


def soon(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_browser
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
@pytest.mark.parametrize("how", ["close", pytest.param("forget", marks=pytest.mark.full), "kill"])
def test_no_browser_outlives_its_environment(how):
    code = "import sys\nfrom crbc_envs.webshop.site.env import WebShopSiteEnv\nenv = WebShopSiteEnv()\n"
    code += "env.reset(seed=0)\nprint(env.browser.driver.service.process.pid, flush=True)\nsys.stdin.readline()\n"
    code += {"close": "env.close()\nprint('closed', flush=True)\nsys.stdin.readline()", "forget": "", "kill": ""}[how]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as run:
        assert run.stdin and run.stdout
        pids = family(int(run.stdout.readline()))
        assert len(pids) > 3
        if how == "kill":
            run.send_signal(signal.SIGKILL)
        else:
            run.stdin.write("\n")
            run.stdin.flush()
        if how == "close":
            assert run.stdout.readline() == "closed\n"
        soon(lambda: not alive(*pids))


def test_root_is_refused_unless_it_is_permitted(monkeypatch, capsys):
    monkeypatch.setattr(browser, "missing", list)
    monkeypatch.setattr(browser, "is_root", lambda: True)
    monkeypatch.delenv("CRBC_UNSAFE_ROOT", raising=False)
    said = "as root, Chromium would run without its sandbox: run this as an ordinary user; or"
    for make in (WebShopSiteEnv, lambda: gymnasium.make("CRBC-WebShopSite-v0"), browser.Browser()._start):
        with pytest.raises(BrowserError, match=said):
            make()
    for value in ("0", "", "yes"):
        monkeypatch.setenv("CRBC_UNSAFE_ROOT", value)
        with pytest.raises(BrowserError, match=said):
            WebShopSiteEnv()
    assert said in refusal(capsys, "play", "CRBC-WebShopSite-v0")
    gymnasium.make("CRBC-WebShopSite-v0", unsafe_root=True).close()
    monkeypatch.setenv("CRBC_UNSAFE_ROOT", "1")
    WebShopSiteEnv().close()
    monkeypatch.setattr(browser, "is_root", lambda: False)
    monkeypatch.delenv("CRBC_UNSAFE_ROOT")
    WebShopSiteEnv().close()


def test_playing_allows_root_by_an_option(monkeypatch, capsys):
    monkeypatch.setattr(browser, "missing", list)
    monkeypatch.setattr(browser, "is_root", lambda: True)
    monkeypatch.delenv("CRBC_UNSAFE_ROOT", raising=False)
    made = []

    def start(self):
        made.append(self.unsafe_root)
        raise BrowserError("far enough")

    monkeypatch.setattr(browser.Browser, "_start", start)
    for env_id, said in (
        ("CRBC-WebShopSite-v0", "far enough"),
        ("CRBC-WebShop-v0", "--unsafe-root: CRBC-WebShop-v0 starts no browser, leave the option out"),
    ):
        assert said in refusal(capsys, "play", env_id, "--unsafe-root")
    assert made == [True]


def asked(port, path, body=None, timeout=0.5):
    """What the driver answers to somebody else; None if it does not."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


@needs_browser
@pytest.mark.skipif(sys.platform != "linux", reason="only there a driver's limits can be set")
def test_nobody_else_can_use_the_driver(site, tmp_path):
    site.reset(seed=0)
    service = site.browser.driver.service
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"binary": str(program)}}}}
    assert asked(service.port, "/session", json.dumps(wanted).encode(), 1.0) is None
    assert asked(service.port, "/sessions") is asked(service.port, "/status") is None
    assert not (tmp_path / "ran").exists()
    restarts = site.browser.restarts
    site.step("search[shoes]")
    assert site.browser.restarts == restarts
    listening = {line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if " 0A " in line}
    assert f"0100007F:{service.port:04X}" in listening and f"00000000:{service.port:04X}" not in listening
    pids = family(service.process.pid)
    site.browser.close()
    soon(lambda: not alive(*pids))
    assert asked(service.port, "/status") is None


@needs_browser
@pytest.mark.skipif(sys.platform != "linux", reason="only there a driver's limits can be set")
def test_a_driver_that_somebody_connected_to_first_is_not_used(monkeypatch):
    taken = []
    launch = browser._launch

    def launch_late(profile):
        driver = launch(profile)
        taken.append((socket.create_connection(("127.0.0.1", driver.service.port)), driver.service.process))
        return driver

    monkeypatch.setattr(browser, "_launch", launch_late)
    monkeypatch.setattr(browser, "TRIES", 1)
    with pytest.raises(BrowserError, match="another process has connected to the driver of the browser"):
        browser.Browser().open("http://127.0.0.1:9/")
    [(connection, process)] = taken
    connection.close()
    assert process.poll() is not None


@needs_browser
@pytest.mark.slow
def test_a_group_is_played_with_one_browser_each():
    envs = gymnasium.make_vec("CRBC-WebShopSite-v0", num_envs=2)
    _, info = envs.reset(seed=1)
    envs.step(["search[shoes]", "search[lamp]"])
    _, *_, info = envs.step(["click[back to search]"] * 2)
    assert len(set(info["anchor"])) == 1
    envs.close()


@needs_browser
@pytest.mark.full
@pytest.mark.parametrize(("observation", "anchor"), VIEWS)
def test_many_walks_are_the_same_in_the_browser(observation, anchor):
    # benchmarks/webshop_site.py plays two hundred.
    options = {"observation": observation, "anchor": anchor}
    text, site = WebShopEnv(**options), WebShopSiteEnv(**options)
    rng = np.random.default_rng(1)
    for task in range(1000, 1005):
        expert = observation == "text_rich" and task % 2
        walk_both(text, site, task, (expert_choice if expert else random_choice)(rng))
    site.close()


def test_a_click_means_the_last_of_equal_values_and_a_value_before_a_button():
    size, fit = Node("small", "option", group="size"), Node("small", "option", group="fit")
    value = Node("features", "option", group="fit")
    page = Page("item", (Node("Features", "button"), size, Node("small"), fit, value, Node("B01", "link")))
    assert [node_index(page, what) for what in ("small", "features", "b01")] == [3, 4, 5]
    assert page.clickables["small"] == "fit"


# ---- for people -----------------------------------------------------------------------------------

_TEXTS = """
const alpha = colour => { const parts = colour.match(/[\\d.]+/g).map(Number); return parts.length > 3 ? parts[3] : 1; };
const shown = [];
for (const element of document.querySelectorAll("body *")) {
  const own = Array.from(element.childNodes).some(node => node.nodeType === 3 && node.textContent.trim());
  if (!own && !(element.tagName === "INPUT" && element.type !== "hidden")) continue;
  let behind = element;
  while (behind && alpha(getComputedStyle(behind).backgroundColor) === 0) behind = behind.parentElement;
  const style = getComputedStyle(element);
  shown.push([element.textContent || element.id, style.color, getComputedStyle(behind).backgroundColor]);
}
return shown;
"""


def luminance(colour):
    """Relative luminance of "rgb(r, g, b)" (WCAG 2.1)."""
    channels = np.array([float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]) / 255
    linear = np.where(channels <= 0.03928, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ (0.2126, 0.7152, 0.0722)


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def walk_every_kind_of_page(site, check):
    """Open a page of each kind, and call `check` there with its name."""
    options = to_options(site)
    site.step(f"click[{options[0].text}]")
    check("item")
    site.step("click[features]")
    check("details")
    site.step("click[< prev]")
    site.step("click[< prev]")
    check("results")
    site.step("click[back to search]")
    check("index")
    to_options(site)
    site.step("click[buy now]")
    site.browser.driver.find_element("tag name", "summary").click()
    check("done")
    for path in ("/", "/nowhere", "/goal/3/nowhere"):
        site.browser.open(site._url + path)
        check(path)
    site.reset(seed=0)


def texts_stand_out(driver, kind):
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        found = driver.execute_script(_TEXTS)
        assert len(found) > 3, kind
        for text, ink, ground in found:
            assert contrast(ink, ground) >= 4.5, (kind, scheme, text, ink, ground)
        assert {luminance(ground) < 0.2 for *_, ground in found} >= {scheme == "dark"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def fits_a_phone(driver, kind):
    size = {"width": 320, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    shown, window = driver.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert shown <= window == 320, kind
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@needs_browser
@pytest.mark.slow
def test_every_kind_of_page_has_texts_that_stand_out_and_fits_a_phone(site):
    def check(kind):
        texts_stand_out(site.browser.driver, kind)
        fits_a_phone(site.browser.driver, kind)

    walk_every_kind_of_page(site, check)


def focused(driver):
    return driver.switch_to.active_element


def tab_to(driver, text):
    """Press Tab until the element with that text has the focus, and see that it shows."""
    from selenium.webdriver import ActionChains, Keys

    for _ in range(60):
        ActionChains(driver).send_keys(Keys.TAB).perform()
        if focused(driver).text.strip().endswith(text) and focused(driver).tag_name != "body":
            assert focused(driver).value_of_css_property("outline-style") != "none"
            return
    raise AssertionError(f"{text} cannot be reached with Tab")


@needs_browser
def test_a_person_shops_with_the_keyboard_alone(site):
    from selenium.webdriver import Keys

    site.reset(seed=0, options={"task": 3})
    driver = site.browser.driver
    driver.get(f"{site._url}/goal/3")
    soon(lambda: driver.title == "Search - WebShop")
    driver.find_element("id", "query").send_keys("Remote Control", Keys.ENTER)
    soon(lambda: driver.title == "Results - WebShop")
    asin = driver.find_element("class name", "product-link").text
    tab_to(driver, driver.find_element("class name", "card").text)
    focused(driver).send_keys(Keys.ENTER)
    soon(lambda: driver.title == "Product - WebShop")
    for label in ("Description", "Features", "Reviews"):
        tab_to(driver, label)
    tab_to(driver, "Buy Now")
    focused(driver).send_keys(Keys.ENTER)
    soon(lambda: driver.title == "Thank you - WebShop")
    assert "Your score" in driver.find_element("tag name", "h1").text
    assert f"asin={asin}" in driver.current_url


@needs_browser
def test_the_back_button_and_a_reload_show_the_page_that_was_left(site):
    options = to_options(site)
    before = site.session.page
    site.step(f"click[{options[0].text}]")
    chosen = site.session.page
    assert chosen != before
    driver = site.browser.driver
    driver.refresh()
    site.session._read(site.browser._read())
    assert site.session.page == chosen
    left = site.browser.screen
    driver.back()
    soon(lambda: driver.current_url != left.url)
    driver.execute_script("document.documentElement.removeAttribute('data-left')")  # it was kept, mark and all
    site.session._read(site.browser._read())
    assert site.session.page == before


def test_a_site_environment_that_was_never_reset_starts_nothing():
    env = WebShopSiteEnv()
    assert env.browser.screen is None
    env.close()
