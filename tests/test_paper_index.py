"""docs/paper_index.md has a row for every label of the paper, and all that it names exists.

Labels and numbers are kept in tests/data/paper_labels.json. Where the paper is at hand, they are compared with it. Code
and tests are looked up in the files' syntax trees, and commands in the table of commands; nothing of ours is run.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from inspect import signature
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT, SHARED

from crbc_lab.commands.parse import Group
from crbc_lab.commands.studying import STUDY
from crbc_lab.commands.table import COMMANDS
from crbc_rl.config import load_config
from crbc_rl.names import find_config

PAPER = SHARED / "paper.tex"
PAGE = (ROOT / "docs" / "paper_index.md").read_text(encoding="utf-8")
STORED = [
    (entry["label"], entry["number"]) for entry in json.loads((ROOT / "tests/data/paper_labels.json").read_text())
]
STUDIES = {path: yaml.safe_load(path.read_text()) for path in sorted((ROOT / "configs" / "studies").glob("*.yaml"))}
PACKAGES = ("anchors", "crbc_envs", "crbc_rl", "crbc_lab", "benchmarks", "credit")
OTHER_NAMES = {"from": "sources"}
"""Options that are called otherwise on the command line than in Python."""
KINDS = {"cor": "prop", "app": "sec"}
"""Labels that are counted together with others."""

Row = dict[str, str]


# ---- the page ----------------------------------------------------------------------------------------


def rows_of(page: str) -> Iterator[Row]:
    """The rows of its tables as {head: cell}."""
    heads: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells or not heads:
            heads = cells
        elif set(line) - set("|- "):
            assert len(cells) == len(heads), f"{len(cells)} cells where the table has {len(heads)}: {line[:80]}"
            yield dict(zip(heads, cells, strict=True))


def quoted(text: str) -> list[str]:
    """All that stands between backticks."""
    return re.findall(r"`([^`]+)`", text)


ROWS = [row for row in rows_of(PAGE) if "label" in row]
ALL = list(dict.fromkeys(quoted(PAGE)))
NAMED = [name for name in ALL if "::" in name]
CALLS = [name for name in ALL if name.startswith(("crbc ", "python ", "bash ", "torchrun "))]
PATHS = [name for name in ALL if re.fullmatch(r"[\w.-]+(/[\w.-]+)+", name)]
DOTTED = [name for name in ALL if re.fullmatch(rf"(?:{'|'.join(PACKAGES)})(\.\w+)+(\(.*\))?", name)]


def kind_of(label: str) -> str:
    start = label.partition(":")[0]
    return KINDS.get(start, start)


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"no section {title!r}"
    return found[1]


def test_every_label_has_one_row_with_its_number_in_the_papers_order() -> None:
    told = [(quoted(row["label"])[0], row["no."]) for row in ROWS if quoted(row["label"])]
    assert set(told) == set(STORED)
    assert [label for label, count in Counter(told).items() if count > 1] == []
    for kind in {kind_of(label) for label, _ in STORED}:
        assert [one for one in told if kind_of(one[0]) == kind] == [one for one in STORED if kind_of(one[0]) == kind]


def test_every_study_is_for_its_labels_or_said_to_go_beyond_the_paper() -> None:
    told = {quoted(row["file"])[0]: row for row in rows_of(section("The studies")) if "file" in row}
    assert set(told) == {path.relative_to(ROOT).as_posix() for path in STUDIES}
    shown = {quoted(row["label"])[0]: quoted(row["shown by"]) for row in ROWS if quoted(row["label"])}
    for path, study in STUDIES.items():
        row = told[path.relative_to(ROOT).as_posix()]
        command = f"crbc study {path.stem.replace('_', '-')}"
        assert quoted(row["command"]) == [command]
        assert quoted(row["for"]) == study["paper"]
        assert study["paper"] or row["for"].startswith("beyond the paper: ")
        for label in study["paper"]:
            assert any(f"{one} ".startswith(f"{command} ") for one in shown[label]), f"{label}: {command}"


# ---- what it names -----------------------------------------------------------------------------------


@cache
def defined(path: Path) -> set[str]:
    """Qualified names of a file's classes, functions, methods and variables."""
    return set(_names(ast.parse(path.read_text(encoding="utf-8"))))


def _names(node: ast.AST, prefix: str = "") -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name
            yield from _names(child, f"{prefix}{child.name}.") if isinstance(child, ast.ClassDef) else ()
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))
        elif not isinstance(child, ast.expr):
            yield from _names(child, prefix)


def check_named(name: str) -> None:
    """`path::name`: a test in tests/, any definition elsewhere. Raises `AssertionError`."""
    path, _, inner = name.partition("::")
    assert (ROOT / path).is_file(), f"{name}: no such file"
    if path.startswith("tests/"):
        assert inner.rpartition(".")[2].startswith("test_"), f"{name}: not a test"
    assert inner in defined(ROOT / path), f"{name}: {path} does not define it"


def check_dotted(name: str) -> None:
    """A dotted name: modules as far as there are files, then a definition. Names of a package may come from its
    `__init__`. Raises `AssertionError`."""
    parts = name.partition("(")[0].split(".")
    parts = ["crbc_rl", *parts] if parts[0] == "credit" else parts
    folder, rest = ROOT / parts[0], parts[1:]
    while len(rest) > 1 and (folder / rest[0]).is_dir():
        folder, rest = folder / rest[0], rest[1:]
    module = folder / f"{rest[0]}.py"
    if len(rest) == 1:
        exported = re.search(rf"\b{rest[0]}\b", (folder / "__init__.py").read_text(encoding="utf-8"))
        assert exported or module.is_file() or (folder / rest[0]).is_dir(), f"{name}: nothing of that name"
    else:
        assert module.is_file() and ".".join(rest[1:]) in defined(module), f"{name}: nothing of that name"


def test_every_name_and_path_is_there() -> None:
    for name in NAMED:
        check_named(name)
    for name in DOTTED:
        check_dotted(name)
    assert [name for name in PATHS if not (ROOT / name).exists()] == []
    assert NAMED and DOTTED and PATHS


# ---- commands ----------------------------------------------------------------------------------------


def command_of(words: list[str]) -> tuple[Callable[..., None], list[str]]:
    """The function behind a command line of crbc, and the words after its name. Raises `AssertionError`."""
    found: Any = COMMANDS.get(words[0])
    rest = words[1:]
    if isinstance(found, Group):
        if rest and rest[0] not in found.commands and found.otherwise:
            return found.commands[found.otherwise], rest
        assert rest and rest[0] in found.commands, f"crbc {words[0]}: has no {rest[:1]}"
        found, rest = found.commands[rest[0]], rest[1:]
    assert found is not None, f"no command crbc {words[0]}"
    return found, rest


def check_crbc(words: list[str]) -> None:
    """Raises an error for a command, option, config, key or study that does not exist."""
    found, rest = command_of(words)
    first = rest[0] if rest and not rest[0].startswith("--") else ""
    for word in rest:
        name = OTHER_NAMES.get(word[2:], word[2:].replace("-", "_"))
        assert not word.startswith("--") or name in signature(found).parameters, f"no option {word}"
    if words[0] in ("train", "eval") and first and not first.isupper():
        sets = rest[rest.index("--set") + 1 :] if "--set" in rest else []
        keys = list(takewhile(lambda word: not word.startswith("--"), sets))
        load_config(find_config(ROOT / first if "/" in first else Path(first)), keys)
    if found is STUDY.commands[STUDY.otherwise]:
        assert ROOT / f"configs/studies/{first.replace('-', '_')}.yaml" in STUDIES, f"no study {first}"


def check_call(call: str) -> None:
    """Raises an error for a command line whose command, file or module is not there."""
    words = shlex.split(call)
    if words[:2] == ["crbc", "study"] and words[2:3] == ["NAME"]:
        words[2] = "main"
    if "-m" in words:
        module = words[words.index("-m") + 1].replace(".", "/")
        assert (ROOT / f"{module}.py").is_file() or (ROOT / module / "__init__.py").is_file(), call
        if module == "crbc_lab/cli":
            check_crbc(words[words.index("-m") + 2 :])
    elif words[0] == "crbc":
        check_crbc(words[1:])
    else:
        assert (ROOT / words[1]).is_file(), call


def test_every_command_is_there() -> None:
    for call in CALLS:
        check_call(call)
    assert CALLS


# ---- the paper, where it is at hand ------------------------------------------------------------------


def labels_of(tex: str) -> list[tuple[str, str]]:
    """(label, number) of a paper's equations, results, algorithms, tables, figures and sections, in order.

    For papers in which all equations, captions and results have labels of their own, as this one's have.
    """
    tex = re.sub(r"(?<!\\)%.*", "", tex)
    counts: Counter[str] = Counter()
    place, appendix, found = "", False, []
    for match in re.finditer(r"\\(appendix\b|(?:sub)?section\{|label\{([^}]*)\})", tex):
        if match[1] == "appendix":
            appendix, counts["section"] = True, 0
        elif not match[1].startswith("label"):
            level = match[1].removesuffix("{")
            counts[level] += 1
            if level == "section":
                counts["subsection"] = 0
            outer = chr(64 + counts["section"]) if appendix else str(counts["section"])
            place = outer if level == "section" else f"{outer}.{counts['subsection']}"
        elif (kind := kind_of(match[2])) == "sec":
            found.append((match[2], place))
        else:
            counts[kind] += 1
            found.append((match[2], str(counts[kind])))
    return found


def source() -> str:
    if not PAPER.is_file():
        pytest.skip(f"the paper is not at hand: {PAPER}")
    return PAPER.read_text(encoding="utf-8")


def test_the_labels_are_the_papers() -> None:
    tex = source()
    assert labels_of(tex) == STORED
    captions = sum(kind_of(label) in ("tab", "fig", "alg") for label, _ in STORED)
    assert len(re.findall(r"\\caption\{", tex)) == captions
