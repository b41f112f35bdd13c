"""What the documents mention exists: names that can be imported, files, commands."""

from __future__ import annotations

import ast
import json
import re
from importlib import import_module

import pytest
import yaml
from paths import ROOT

from crbc_envs.errors import RequirementError
from crbc_envs.sokoban.panels import PANELS
from crbc_lab.commands.table import COMMANDS

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PACKAGES = ("anchors", "crbc_envs", "crbc_rl", "crbc_lab")
DOTTED = re.compile(r"`((?:anchors|crbc_envs|crbc_rl|credit)(?:\.\w+)+)(?:\(.*?\))?`")
FILE = re.compile(r"`((?:anchors|crbc_envs|crbc_rl|tests|scripts|configs|docs|examples|benchmarks)/[\w./-]*\w)`")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)

MARK = re.compile(r"<!-- (?:results: \S+|figures: \S+|measured: (.+); commit [0-9a-f]{7,}) -->")
FIGURE = re.compile(r"(?<![\w.])\d*\.\d+(?![\w.])|\d ?%")
HELD = {"example": "rl/credit/test_worked_example", "metrics": "rl/runs/test_metrics", "config": "test_site"}
HELD |= {"paper_index": "test_paper_index"} | dict.fromkeys(("closure", "index"), "test_printed_counts")
"""Pages whose figures a test reads or computes again, and the test."""
LATER = {"CHANGELOG.md", "config.md"}
"""Pages that tell of names that are gone, or of keys that look like names."""


def text(page):
    return page.read_text(encoding="utf-8")


def resolve(name):
    """The object of a dotted name. Raises `AttributeError` where there is none."""
    first, *rest = (
        name.replace("credit.", "crbc_rl.credit.", 1).split(".") if name.startswith("credit.") else name.split(".")
    )
    found, path = import_module(first), first
    for part in rest:
        path += f".{part}"
        if not hasattr(found, part):
            try:
                found = import_module(path)
                continue
            except RequirementError:  # an adapter, and its trainer is not installed here
                return defined_in(path, rest)
            except ModuleNotFoundError as error:
                raise AttributeError(f"{path} is neither a module nor an attribute") from error
        found = getattr(found, part)
    return found


def defined_in(module, rest):
    """The definition of the last of `rest` in the file of `module`, or the file. Raises `AttributeError`."""
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    inside = [] if rest[-1] == module.rpartition(".")[2] else rest[-1:]
    for name in inside:
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        if name not in names:
            raise AttributeError(f"{module} defines no {name}")
    return tree


def imports(block):
    """(module, name) of every import of ours in a piece of code."""
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in PACKAGES:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] in PACKAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_name_that_a_page_mentions_can_be_imported(page):
    for block in BLOCK.findall(text(page)):
        for module, name in imports(block):
            resolve(f"{module}.{name}" if name else module)
    for name in [] if page.name in LATER else DOTTED.findall(text(page)):
        resolve(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_mentions_exists(page):
    missing = [name for name in FILE.findall(text(page)) if "NAME" not in name and not (ROOT / name).exists()]
    assert not missing or page.name in LATER


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != ROOT], ids=lambda page: page.name)
def test_a_page_says_where_its_figures_are_from(page):
    said, held = text(page), page.stem in HELD and page.stem in text(ROOT / f"tests/{HELD[page.stem]}.py")
    tables = re.findall(r"(?:^ *\|.*\n)+", said, re.MULTILINE)
    measured = any(sum(bool(FIGURE.search(cell)) for cell in table.split("|")) >= 3 for table in tables)
    assert not measured or held or MARK.search(said), "write behind a table: <!-- measured: COMMAND; commit HASH -->"
    assert len(MARK.findall(said)) == len(re.findall("<!-- (?:results|figures|measured)", said)), "a mark's form"
    for command in filter(None, MARK.findall(said)):
        first, second, third, *_ = [*command.split(), "", ""]
        of = {"bash": second, "python": f"{third.replace('.', '/')}.py" if second == "-m" else second}.get(first, ".")
        assert (ROOT / of).exists() and (first != "crbc" or second in COMMANDS), command


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_what_they_say(package):
    module = import_module(package)
    assert len(module.__all__) == len(set(module.__all__))
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        module.nonsense  # noqa: B018


def test_the_documents_figures_are_of_todays_rooms():
    """A new panel makes warm start, figures and pictures out of date: `bash scripts/figures.sh` makes them anew."""
    today = PANELS[0]
    recipe = json.loads((ROOT / "warmstarts/sokoban-tiny/warmstart.json").read_text())
    configs = [
        yaml.safe_load((ROOT / f"configs/{n}.yaml").read_text())
        for n in ("warmstart_sokoban", "sokoban_tiny", "sokoban_boxes")
    ]
    assert [made["env"]["kwargs"]["panel"] for made in (recipe, *configs)] == [today] * 4
    studied = [json.loads(line)["panel"] for line in (ROOT / "docs/adapters/sb3_credit.jsonl").read_text().splitlines()]
    assert len(studied) == 15 and set(studied) == {today}
    for page in ("README.md", "docs/credit/accuracy.md", "docs/adapters/trl.md", "docs/adapters/sb3.md"):
        assert f"sokoban-{today}" in (ROOT / page).read_text(), page
