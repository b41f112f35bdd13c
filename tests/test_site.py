"""The documentation as a site, its tutorial as a notebook, and the pages that are made from code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from selenium.webdriver.support.ui import WebDriverWait

DOCS = ROOT / "docs"
HOST = re.compile(r"\s*(?:https?:)?//\w")
STYLE_ASKS = re.compile(r"""(?:url\(|@import)\s*["']?(?:https?:)?//\w""")


class Asked(HTMLParser):
    """What a page fetches from another host when it is opened: everything but links to follow."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs if tag != "a" else ():
            if value and HOST.match(value) and not name.startswith("xmlns") and ("rel", "canonical") not in attrs:
                self.hosts.append(value)


def asked(text: str) -> list[str]:
    parser = Asked()
    parser.feed(text)
    return parser.hosts + STYLE_ASKS.findall(text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, in which mkdocs found every link, anchor and name of the API."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there_and_asks_no_other_host(site: Path) -> None:
    pages = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    assert pages >= {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    asking = {path.name: asked(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    asking |= {path.name: STYLE_ASKS.findall(path.read_text(encoding="utf-8")) for path in site.rglob("*.css")}
    assert not {name: hosts for name, hosts in asking.items() if hosts}
    assert asked('<video src="https://x.org/a.mp4">') and asked("<style>@import '//x.org/a.css'</style>")
    assert (site / "index.html").is_file() and (site / "tutorial.ipynb").is_file()


def test_the_search_knows_arguments_of_the_api(site: Path) -> None:
    """As a script, since a browser fetches nothing from file://."""
    index = (site / "search/search_index.js").read_text(encoding="utf-8")
    for word in ("group_size", "anchors.EmpiricalProcess", "crbc_rl.credit.advantages_from_rows", "rollout.num_groups"):
        assert word in index, word


def test_a_page_of_the_api_has_signatures_and_shapes(site: Path) -> None:
    text = re.sub("<[^>]*>", "", (site / "api/environments.html").read_text(encoding="utf-8"))
    assert re.search(r"GroupVectorEnv\(\s*env_id", text) and "(num_envs,) each" in text


def test_the_notebook_is_the_tutorials(run_python) -> None:  # type: ignore[no-untyped-def]
    made = run_python(
        "import sys; sys.path.insert(0, 'scripts'); import notebook, json\n"
        "print(json.dumps(notebook.notebook(notebook.PAGE.read_text(encoding='utf-8'))))"
    )
    kept = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
    assert kept == json.loads(made), "python scripts/notebook.py > docs/tutorial.ipynb"


def test_the_notebook_runs_and_its_agents_learn(tmp_path: Path) -> None:
    cells = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    env = {**os.environ, "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tutorial_curve.png").stat().st_size > 5_000
    ends = {
        name: [float(rate) for rate in rates] for name, *rates in re.findall(r"(\w+): (\S+)% to (\S+)%", done.stdout)
    }
    assert set(ends) == {"crbc", "grpo"} and all(last > first + 20 for first, last in ends.values())


def test_the_examples_of_the_concepts_run_one_after_the_other(run_python) -> None:  # type: ignore[no-untyped-def]
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "concepts.md").read_text(encoding="utf-8"), re.DOTALL)
    said = run_python("\n".join(blocks)).split("\n")
    assert len(said) == 5 and said[0].startswith("[0.71") and said[2].startswith("[-1.41") and said[3] == "independent"
    assert float(said[4]) < 0, "hidden state"


def test_the_page_of_config_keys_is_made_from_the_code(run_python) -> None:  # type: ignore[no-untyped-def]
    made = run_python("import sys; sys.path.insert(0, 'scripts'); import config_page; print(config_page.page())")
    assert (DOCS / "config.md").read_text(encoding="utf-8").rstrip("\n") == made, "python scripts/config_page.py"


@pytest.fixture
def phone() -> Iterator[Any]:
    """Chromium, as wide as a phone, in the dark."""
    from selenium import webdriver

    from crbc_envs.webshop.site.browser import find_program

    options = webdriver.ChromeOptions()
    options.binary_location = str(find_program("chromium"))
    for argument in ("--headless=new", "--no-sandbox", "--blink-settings=preferredColorScheme=0"):
        options.add_argument(argument)
    metrics = {"deviceMetrics": {"width": 390, "height": 844, "pixelRatio": 1.0}}
    options.add_experimental_option("mobileEmulation", metrics)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(find_program("chromedriver"))))
    yield driver
    driver.quit()


@pytest.mark.full
def test_the_search_works_from_a_file_and_no_page_is_wider_than_a_phone(site: Path, phone: Any) -> None:
    phone.get(f"{(site / 'index.html').as_uri()}?q=group_size")
    found = "return [...document.querySelectorAll('.md-search-result__link')].map(a => a.pathname)"
    WebDriverWait(phone, 30).until(lambda driver: driver.execute_script(found))
    assert any("api/environments.html" in path for path in phone.execute_script(found))
    assert phone.execute_script("return document.body.dataset.mdColorScheme") == "slate"
    wide = {}
    for page in sorted(site.rglob("*.html")):
        phone.get(page.as_uri())
        wide[page.name] = phone.execute_script("return document.documentElement.scrollWidth")
        if kept := os.environ.get("CRBC_SITE_SHOTS"):  # a folder, for people to look at
            phone.save_screenshot(f"{kept}/{'-'.join(page.relative_to(site).with_suffix('.png').parts)}")
    assert {name: width for name, width in wide.items() if width > 390} == {}
