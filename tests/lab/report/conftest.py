"""A browser, and a run with transcripts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kept_rollouts import kept_run

from crbc_envs.webshop.site import browser
from crbc_lab.report import write_report

FLAGS = ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A driver of Chromium, 1,400 pixels wide, which logs what the page says and what it asks for."""
    if missing := browser.missing():
        pytest.skip(f"no browser: {missing}")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = browser.find_program("chromium") or ""
    for flag in (*FLAGS, "--window-size=1400,1000", *(["--no-sandbox"] if os.geteuid() == 0 else [])):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(browser.find_program("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kept_run(tmp_path_factory.mktemp("kept") / "run")


@pytest.fixture(scope="session")
def kept_page(folder: Path) -> Path:
    return write_report(folder)
