"""A headless Chromium that visits the site. After a crash, a new browser continues at the same page.

Every step is two calls: one clicks, the other reads the whole page. The address of a page holds its state, so after a
crash the new browser opens the last page and repeats the click.

The driver, chromedriver, asks nobody for a password. It listens on a port of the loopback, starts any program that a
request names, and lets any request use any of its sessions. Its options leave it open to every user of the machine:
--allowed-origins is about web pages, and with --allowed-ips it even listens on all interfaces. So each browser has a
driver of its own, on a free port that the system chose. Once it serves our connection, it can take no other (Linux),
and it is killed together with the browser. What remains is the second or so between its start and that moment: another
user of the machine who connects first can make it start a program as this user. That is noticed, and the driver is
killed, but the program may have run. On a machine with users who are not trusted, run the browser in a container.
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
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from crbc_envs.errors import BrowserError, install_extra
from crbc_envs.webshop.shop.pages import Kind

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.common.service import Service

PROGRAMS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    "chromedriver": ("chromedriver",),
}
"""The possible names of each program. The first one found is used."""

PACKAGES = "apt-get install -y chromium chromium-driver"

UNSAFE_ROOT = "CRBC_UNSAFE_ROOT"
ROOT_REMEDY = (
    "run this as an ordinary user; or, in a container of its own, allow it with --unsafe-root (crbc play), "
    f"unsafe_root=True (the environment) or {UNSAFE_ROOT}=1"
)

TRIES = 3
"""How often a step is tried. Each retry uses a new browser."""

TIMEOUT = 20.0
"""Seconds to wait for a page, or for any answer of the browser."""

_FLAGS = (
    "--headless=new --disable-gpu --disable-dev-shm-usage --disable-extensions --no-first-run "
    "--disable-background-networking --disable-sync --disable-component-update --no-default-browser-check "
    "--remote-debugging-pipe --renderer-process-limit=1 --window-size=1100,900"
)
"""With the debugging pipe, Chromium exits when its driver exits, for whatever reason."""

_LOOPBACK_ONLY = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
"""The browser can resolve the loopback address and no other host."""

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
"""Marks the current document before a click. The page has changed once the mark is gone."""

_CLICK = f'{_LEAVE} document.querySelectorAll("[data-role]")[arguments[0]].click();'

_SEARCH = f"""{_LEAVE}
const query = document.getElementById("query");
query.value = arguments[0];
query.form.submit();
"""


@dataclass(frozen=True, slots=True)
class Screen:
    """A page as read from the browser.

    It has the address, the kind, the instruction, the texts as rows of (text, role, clicked, group) and, after a
    purchase, the parts of the reward as JSON by name.
    """

    url: str
    kind: Kind
    instruction: str
    nodes: list[list[Any]]
    parts: list[list[str]]


def find_program(name: str) -> str | None:
    """The path of one of the `PROGRAMS`, or the version of Selenium. None if it is missing."""
    if name == "selenium":
        return metadata.version(name) if find_spec(name) else None
    return next(filter(None, map(shutil.which, PROGRAMS[name])), None)


def missing() -> list[tuple[str, str]]:
    """The missing requirements of the browser, each with the command that installs it."""
    needs = {"selenium": install_extra("site"), **dict.fromkeys(PROGRAMS, PACKAGES)}
    return [(name, command) for name, command in needs.items() if find_program(name) is None]


def is_root() -> bool:
    """Whether this process may do anything. Chromium's sandbox does not work then."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def root_permitted(unsafe_root: bool = False) -> bool:
    """Whether the browser may run as root: by the argument, or by `UNSAFE_ROOT` in the environment."""
    return unsafe_root or os.environ.get(UNSAFE_ROOT) == "1"


def require_browser(unsafe_root: bool = False) -> None:
    """Raise `BrowserError` if a requirement of the browser is missing. It names the command that installs it.

    Also raises it for root, unless that is permitted.
    """
    problems = [f"{name} is missing: {fix}" for name, fix in missing()]
    if is_root() and not root_permitted(unsafe_root):
        problems.append(f"as root, Chromium would run without its sandbox: {ROOT_REMEDY}")
    if problems:
        raise BrowserError("; ".join(problems))


class Browser:
    """One headless Chromium with its driver, about 430 MB. It starts when a page is first opened.

    Raises `BrowserError` if the browser, its driver or Selenium is missing, with the command that installs it, and for
    root without `unsafe_root`. Also raises it if `TRIES` browsers in a row fail to load a page.
    """

    def __init__(self, unsafe_root: bool = False) -> None:
        self.unsafe_root = unsafe_root
        self.screen: Screen | None = None
        self.restarts = 0
        self._driver: Chrome | None = None
        self._end: Callable[[], Any] = lambda: None

    def open(self, url: str) -> Screen:
        """Open an address."""
        return self._with_retries(partial(_open, url), None)

    def click(self, node: int) -> Screen:
        """Click the node of that number on the page, and wait for the next page."""
        return self._with_retries(lambda driver: driver.execute_script(_CLICK, node), self.screen)

    def search(self, query: str) -> Screen:
        """Submit the search form with a query."""
        return self._with_retries(lambda driver: driver.execute_script(_SEARCH, query), self.screen)

    def close(self) -> None:
        """End the browser and its driver. A closed browser starts again on its next use."""
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
        """Selenium's driver of the browser. It starts the browser if none is running."""
        if self._driver is None:
            self._start()
        assert self._driver is not None
        return self._driver

    # ---- internals ----------------------------------------------------------------------------

    def _with_retries(self, go: Callable[[Chrome], Any], left: Screen | None) -> Screen:
        """Call `go` on the page `left` and read the next page. After an error, try again in a new browser."""
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
            f"{TRIES} browsers in a row failed to load the page: {reason}; run crbc doctor to find the cause"
        )

    def _read(self) -> Screen:
        """Read the page, once it is another one than before the click."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            page = self.driver.execute_script(_READ)
            if page is not None:
                fields: dict[str, Any] = {name: value if value is not None else "" for name, value in page.items()}
                return Screen(**fields)
            time.sleep(0.002)
        raise TimeoutError(f"no new page in {TIMEOUT:.0f} s")

    def _start(self) -> None:
        require_browser(self.unsafe_root)
        profile = mkdtemp(prefix="crbc-browser-")
        with ExitStack() as cleanup:
            cleanup.callback(shutil.rmtree, profile, ignore_errors=True)
            self._driver = _launch(profile)
            cleanup.pop_all()  # only needed if the start fails
        self._end = weakref.finalize(self, _quit, self._driver, profile)
        if sys.platform == "linux":
            _keep_others_out(self._driver.service)


def _open(url: str, driver: Chrome) -> None:
    driver.execute_script(_LEAVE)
    driver.get(url)


def _launch(profile: str) -> Chrome:
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.page_load_strategy = "none"  # because `_read` does the waiting
    options.binary_location = find_program("chromium") or ""
    for flag in (*_FLAGS.split(), _LOOPBACK_ONLY, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    if is_root():
        options.add_argument("--no-sandbox")  # Chromium does not start with it; `require_browser` asked for permission
    service = Service(
        find_program("chromedriver"), popen_kw={"preexec_fn": _end_with_parent} if sys.platform == "linux" else {}
    )
    driver = Chrome(options=options, service=service)
    assert not isinstance(driver.command_executor, str)
    driver.command_executor.client_config.timeout = TIMEOUT + 10
    driver.set_page_load_timeout(TIMEOUT)
    driver.set_script_timeout(TIMEOUT)
    return driver


_SET_PARENT_DEATH_SIGNAL = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _end_with_parent() -> None:
    """Make Linux kill the driver when its parent process dies, even if the parent is killed."""
    assert _LIBC is not None
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


MOST_FILES = 3
"""Open files of a driver that can open no other: its standard streams are as many."""


def _keep_others_out(service: Service) -> None:
    """Make a driver that serves our connection take no other. Raises `OSError` if it has taken one already.

    A connection needs a free file descriptor, and what is open stays open under a lower limit.
    """
    import resource

    if service.process is None:
        raise OSError("the driver of the browser is gone")
    resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))
    if _connections(service.port) > 1:
        raise OSError("another process has connected to the driver of the browser")


def _connections(port: int) -> int:
    """The established TCP connections to a port of this machine."""
    tables = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return sum(local.endswith(f":{port:04X}") and state == "01" for _, local, _, state, *_ in lines)


def _quit(driver: Chrome, profile: str) -> None:
    """Kill the driver without a request to the browser, which may hang. The browser ends with its driver."""
    process = driver.service.process
    if process is not None:
        process.kill()
        process.wait()
    shutil.rmtree(profile, ignore_errors=True)
