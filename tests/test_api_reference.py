"""Every public name says what its arguments are, in its docstring, and stands in a page of docs/api."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
from paths import ROOT

PACKAGES = ("anchors", "crbc_envs", "crbc_rl", "crbc_rl.credit")
NAMES = [f"{package}.{name}" for package in PACKAGES for name in import_module(package).__all__]
VALUES = {"anchors.ANCHOR_VERSION", "anchors.FAILURE", "anchors.INVALID", "anchors.SUCCESS", "crbc_rl.credit"}
VALUES |= {"crbc_rl.credit.METHODS", "crbc_rl.credit.Method"}
"""Neither a class nor a function."""
ARRAY = re.compile(r"NDArray|ndarray|Tensor")
SHAPE = re.compile(r"\([\w+ ]*,[\w+, .]*\)|\b(?:one|a) (?:\w+ )?(?:value|number|row|entry) (?:for each|per|a)\b|each")


def found(name: str) -> Any:
    package, _, last = name.rpartition(".")
    return getattr(import_module(package), last)


def members(owner: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods and properties that a class defines itself, and its `__init__` unless Python makes it."""
    for name, value in vars(owner).items():
        made = dataclasses.is_dataclass(owner) or getattr(owner, "_is_protocol", False)
        if name == "__init__" and not made:
            yield name, value
        if not name.startswith("_"):
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if inspect.isfunction(function):
                yield name, function


def undocumented(function: Callable[..., Any], docstring: str | None) -> list[str]:
    """What `docstring` says nothing of: arguments that no `backticks` name, and an array without its shape."""
    if not docstring:
        return ["a docstring"]
    signature = inspect.signature(function)
    named = " ".join(re.findall(r"`([^`]*)`", docstring))
    arguments = [p for p in signature.parameters.values() if p.name not in ("self", "cls") and p.name[0] != "_"]
    lacks = [p.name for p in arguments if not re.search(rf"\b{p.name}\b", named)]
    arrays = [p.name for p in arguments if ARRAY.search(str(p.annotation))]
    arrays += ["the result"] if ARRAY.search(str(signature.return_annotation)) else []
    return lacks + [f"a shape for {name}" for name in arrays if not SHAPE.search(docstring)]


def undescribed(owner: type, docstring: str) -> list[str]:
    """The fields of a dataclass that neither its docstring names nor a text below them describes."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(tree, ast.ClassDef)
    below = {
        field.target.id
        for field, text in pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
    named = " ".join(re.findall(r"`([^`]*)`", docstring))
    fields = [field.name for field in dataclasses.fields(owner) if field.init and field.name[0] != "_"]
    return [name for name in fields if name not in below and not re.search(rf"\b{name}\b", named)]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in VALUES])
def test_each_argument_of_a_public_name_is_documented(name: str) -> None:
    thing = found(name)
    if not inspect.isclass(thing):
        assert not undocumented(thing, inspect.getdoc(thing))
        return
    said = inspect.getdoc(thing) or ""
    assert said and not said.startswith(f"{thing.__name__}("), "a docstring of its own"
    lacks = {"fields": undescribed(thing, said)} if dataclasses.is_dataclass(thing) else {}
    for member, function in members(thing):
        own = said + (function.__doc__ or "") if member == "__init__" else inspect.getdoc(getattr(thing, member))
        lacks |= {member: undocumented(function, own)}
    assert not {member: what for member, what in lacks.items() if what}


def test_the_pages_of_the_api_have_each_public_name_once() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/api").glob("*.md"))
    names = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    shown = [re.sub(r"\.(\w+)\.\1$", r".\1", name) for name in names]  # a function that is named as its module
    assert sorted(shown) == sorted({*NAMES} - {"crbc_rl.credit"})


def test_a_missing_argument_would_be_noticed() -> None:
    def documented(first: int, second: int) -> None:
        """Adds `first` to it."""

    assert undocumented(documented, documented.__doc__) == ["second"]
