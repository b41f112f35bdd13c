"""A headless Chromium that looks at the site, and comes back to its page when it has crashed.

Every step is two calls: one that clicks, one that reads the page with all it can be asked for. A page's address
holds its state, so after a crash a new browser opens the page that was left and the click is made again.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from crbc_envs.errors import BrowserError
from crbc_envs.webshop.shop.pages import Kind

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

PROGRAMS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    "chromedriver": ("chromedriver",),
}
"""The names that each program goes by; the first that is there is taken."""

PACKAGES = "apt-get install -y chromium chromium-driver"

TRIES = 3
"""How often a step is tried, each time but the first in a new browser."""

PATIENCE = 20.0
"""Seconds for a page, or for any answer of the browser."""

_FLAGS = (
    "--headless=new --disable-gpu --disable-dev-shm-usage --disable-extensions --no-first-run "
    "--disable-background-networking --disable-sync --disable-component-update --no-default-browser-check "
    "--remote-debugging-pipe --renderer-process-limit=1 --window-size=1100,900"
)
"""With the pipe Chromium ends when its driver does, however that ends."""

_NOWHERE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
"""The browser finds the loopback and no other host."""

_READ = """
if (document.readyState !== "complete" || document.documentElement.hasAttribute("data-left")) return null;
const page = document.querySelector(".page"), instruction = document.getElementById("instruction");
return {
  url: document.location.href,
  kind: page && page.dataset.kind,
  instruction: instruction && instruction.textContent,
  nodes: Array.from(document.querySelectorAll("[data-role]"), node => [
    node.textContent, node.dataset.role, node.getAttribute("aria-current") === "true", node.dataset.group || ""]),
  parts: Array.from(document.querySelectorAll("data[id]"), part => [part.id, part.value]),
};
"""

_LEAVE = 'document.documentElement.setAttribute("data-left", "");'
"""Marks the document that a click leaves: until another is there, the page has not changed."""

_CLICK = f'{_LEAVE} document.querySelectorAll("[data-role]")[arguments[0]].click();'

_SEARCH = f"""{_LEAVE}
const query = document.getElementById("query");
query.value = arguments[0];
query.form.submit();
"""


@dataclass(frozen=True, slots=True)
class Screen:
    """A page as the browser shows it: its address, its kind, the instruction above it, its texts as rows of
    (text, role, clicked, group), and the parts of the reward as JSON by name, after a purchase."""

    url: str
    kind: Kind
    instruction: str
    nodes: list[list[Any]]
    parts: list[list[str]]


def place(name: str) -> str | None:
    """Where one of the `PROGRAMS` is, or which Selenium is installed; None where it is missing."""
    if name == "selenium":
        return metadata.version(name) if find_spec(name) else None
    return next(filter(None, map(shutil.which, PROGRAMS[name])), None)


def missing() -> list[tuple[str, str]]:
    """What is not there of what a browser needs, each with the command that brings it."""
    needs = {"selenium": "pip install 'crbc[site]'", **dict.fromkeys(PROGRAMS, PACKAGES)}
    return [(name, command) for name, command in needs.items() if place(name) is None]


def require_browser() -> None:
    """Raise `BrowserError` where something of what a browser needs is missing, with the command that brings it."""
    lacking = missing()
    if lacking:
        raise BrowserError("; ".join(f"{name} is missing: {fix}" for name, fix in lacking))


class Browser:
    """One headless Chromium with its driver, about 430 MB; started when a page is first opened.

    Raises `BrowserError` where the browser, its driver or Selenium is missing, naming the command that
    brings it, and where a page cannot be had in `TRIES` browsers one after the other.
    """

    def __init__(self) -> None:
        self.screen: Screen | None = None
        self.restarts = 0
        self._driver: Chrome | None = None
        self._end: Callable[[], Any] = lambda: None

    def open(self, url: str) -> Screen:
        """Go to an address."""
        return self._until_there(partial(_open, url), None)

    def click(self, node: int) -> Screen:
        """Click the node of that number on the page, and wait for where it leads."""
        return self._until_there(lambda driver: driver.execute_script(_CLICK, node), self.screen)

    def search(self, query: str) -> Screen:
        """Send the search form with a query."""
        return self._until_there(lambda driver: driver.execute_script(_SEARCH, query), self.screen)

    def close(self) -> None:
        """End the browser and its driver; a closed browser starts anew when it is used."""
        from selenium.common.exceptions import WebDriverException
        from urllib3.exceptions import HTTPError

        with suppress(WebDriverException, HTTPError, OSError):
            if self._driver is not None:
                self._driver.execute("quit")
        self._kill()

    def _kill(self) -> None:
        self._end()
        self._driver = None

    @property
    def driver(self) -> Chrome:
        """Selenium's driver of the running browser, which is started if there is none."""
        if self._driver is None:
            self._start()
        assert self._driver is not None
        return self._driver

    # ---- inside -------------------------------------------------------------------------------

    def _until_there(self, go: Callable[[Chrome], Any], left: Screen | None) -> Screen:
        """The page that `go` leads to from the page `left`. What goes wrong is done again in a new browser."""
        from selenium.common.exceptions import WebDriverException
        from urllib3.exceptions import HTTPError

        error: Exception | None = None
        for _ in range(TRIES):
            try:
                if error is not None and left is not None:
                    _open(left.url, self.driver)
                    self._read()
                go(self.driver)
                self.screen = self._read()
                return self.screen
            except (WebDriverException, HTTPError, OSError, TimeoutError) as failed:
                error = failed
                self.restarts += 1
                self._kill()
        reason = str(error).partition("\n")[0]
        raise BrowserError(
            f"no page from {TRIES} browsers, one after the other: {reason}; crbc doctor looks for causes"
        )

    def _read(self) -> Screen:
        """What the page says, once it is another one than was left."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = self.driver.execute_script(_READ)
            if found is not None:
                return Screen(**{name: value if value is not None else "" for name, value in found.items()})
            time.sleep(0.002)
        raise TimeoutError(f"no new page in {PATIENCE:.0f} s")

    def _start(self) -> None:
        require_browser()
        profile = mkdtemp(prefix="crbc-browser-")
        with ExitStack() as unless_started:
            unless_started.callback(shutil.rmtree, profile, ignore_errors=True)
            self._driver = _launch(profile)
            unless_started.pop_all()
        self._end = weakref.finalize(self, _quit, self._driver, profile)


def _open(url: str, driver: Chrome) -> None:
    driver.execute_script(_LEAVE)
    driver.get(url)


def _launch(profile: str) -> Chrome:
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.page_load_strategy = "none"  # `_read` waits, and knows better for what
    options.binary_location = place("chromium") or ""
    for flag in (*_FLAGS.split(), _NOWHERE, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium does not start for root with it
    service = Service(
        place("chromedriver"), popen_kw={"preexec_fn": _end_with_parent} if sys.platform == "linux" else {}
    )
    driver = Chrome(options=options, service=service)
    driver.command_executor.client_config.timeout = PATIENCE + 10
    driver.set_page_load_timeout(PATIENCE)
    driver.set_script_timeout(PATIENCE)
    return driver


_SET_PARENT_DEATH_SIGNAL = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _end_with_parent() -> None:
    """A driver must not outlive its process, even one that is killed. Linux's prctl does that."""
    assert _LIBC is not None
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _quit(driver: Chrome, profile: str) -> None:
    """End the driver without asking the browser, which may hang; it ends with its driver."""
    process = driver.service.process
    if process is not None:
        process.kill()
        process.wait()
    shutil.rmtree(profile, ignore_errors=True)
