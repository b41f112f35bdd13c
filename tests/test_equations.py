"""Equation numbers in code and docs are the paper's, each where tests/data/equations.json has it.

The list holds what may be cited where. A place is `file:Class.method` in Python, `file:module` outside of any
definition there, `file:first cell` in a table of a page, and the file alone elsewhere. What the tests themselves
cite is not on it. An equation of another paper is cited as "Somebody et al. 2016, eq. 16" and is not looked at.
"""

from __future__ import annotations

import ast
import json
import re
from itertools import pairwise

import pytest
from paths import ROOT

PAPER = ROOT.parent / "shared" / "paper.tex"
STORED = json.loads((ROOT / "tests" / "data" / "equations.json").read_text(encoding="utf-8"))
FOLDERS = ("anchors", "crbc_envs", "crbc_rl", "crbc_lab", "benchmarks", "docs", "configs")
SUFFIXES = {".py", ".md", ".yaml", ".toml", ".j2"}
FILES = [ROOT / "README.md", *(path for name in FOLDERS for path in sorted((ROOT / name).rglob("*.*")))]

WORD = re.compile(r"\b(?:eqs?\.|equations?(?=[\s#]+\(?\d))", re.IGNORECASE)
GAP = r"[\s#]*"
NUMBER = r"\(?\d+\)?"
NUMBERS = re.compile(rf"{GAP}{NUMBER}(?:{GAP}(?:,{GAP}and|,|and|or|to|-|–){GAP}{NUMBER})*")
FOREIGN = re.compile(r"et al\.,? \d{4},\s+$")


def mentions(name, text):
    """(number, place, line) of every equation mentioned in a file; the number is None where none is given."""
    place = places(name, text)
    for word in WORD.finditer(text):
        if FOREIGN.search(text[: word.start()]):
            continue
        line = text.count("\n", 0, word.start()) + 1
        given = NUMBERS.match(text, word.end())
        for number in listed(given[0]) if given else [None]:
            yield number, place(line), line


def listed(numbers):
    """[4, 5, 6, 9] of "4-6 and 9"."""
    parts = re.findall(r"\d+|to|-|–", numbers)
    found = []
    for before, part in pairwise(["", *parts]):
        if part.isdigit():
            found += range(found[-1] + 1, int(part) + 1) if before in {"to", "-", "–"} else [int(part)]
    return found


def places(name, text):
    """The function from a line of the file to its place."""
    if name.endswith(".py"):
        spans = list(definitions(ast.parse(text)))
        return lambda line: f"{name}:{next((title for title, a, b in reversed(spans) if a <= line <= b), 'module')}"
    if name.endswith(".md"):
        lines = text.splitlines()
        cells = [row.split("|")[1].replace("`", "").strip() if row.startswith("|") else "" for row in lines]
        return lambda line: f"{name}:{cells[line - 1]}" if cells[line - 1] else name
    return lambda line: name


def definitions(node, prefix=""):
    """(qualified name, first line, last line) of every class and function, outer ones first."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            start = min(part.lineno for part in (child, *child.decorator_list))
            yield prefix + child.name, start, child.end_lineno
            yield from definitions(child, f"{prefix}{child.name}.")
        else:
            yield from definitions(child, prefix)


@pytest.fixture(scope="module")
def found():
    return [
        mention
        for path in FILES
        if path.suffix in SUFFIXES
        for mention in mentions(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]


def test_every_mention_is_of_an_equation_that_belongs_there(found):
    allowed = {(entry["number"], place) for entry in STORED for place in entry["cited_in"]}
    names = {entry["number"]: f"eq. {entry['number']} ({entry['name']})" for entry in STORED}
    wrong = [
        f"{place} (line {line}) cites {names.get(number, f'eq. {number}, which the paper does not have')}"
        for number, place, line in found
        if (number, place) not in allowed
    ]
    assert not wrong, "not in tests/data/equations.json:\n" + "\n".join(wrong)


def test_every_place_of_the_list_cites_its_equation(found):
    cited = {(number, place) for number, place, _ in found}
    missing = [
        f"{place} does not cite eq. {entry['number']} ({entry['name']})"
        for entry in STORED
        for place in entry["cited_in"]
        if (entry["number"], place) not in cited
    ]
    assert not missing, "\n".join(missing)


# ---- the paper, where it is at hand ----------------------------------------------------------------


def numbered(tex):
    """The labels of a paper's equations in order, hence by number; "" for one without.

    For papers whose numbers all come from `equation`, one each: anything else that numbers is refused.
    """
    tex = re.sub(r"(?<!\\)%.*", "", tex)
    other = r"\\begin\{(?:align(?:at)?|flalign|gather|multline|eqnarray|subequations|dmath)\}"
    other += r"|\\(?:tag|notag|nonumber)\b|\\(?:numberwithin|counterwithin|setcounter|addtocounter)\{equation\}"
    assert not re.search(other, tex), "the paper numbers equations in ways this does not follow"
    bodies = re.findall(r"\\begin\{equation\}(.*?)\\end\{equation\}", tex, re.DOTALL)
    return [next(iter(re.findall(r"\\label\{(.*?)\}", body)), "") for body in bodies]


def test_numbers_and_labels_are_the_papers():
    if not PAPER.is_file():
        pytest.skip(f"the paper is not at hand: {PAPER}")
    assert numbered(PAPER.read_text(encoding="utf-8")) == [entry["label"] for entry in STORED]


# ---- the reading of mentions -----------------------------------------------------------------------
