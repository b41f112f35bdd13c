"""Print docs/config.md, the page of all config keys: `python scripts/config_page.py > docs/config.md`.

A key's description is the text below it in its class, or the comment behind it.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from textwrap import dedent
from typing import Any, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from crbc_lab.agents.config import AgentsConfig
from crbc_lab.commands.warmstart_config import WarmstartConfig
from crbc_rl import credit
from crbc_rl.config import TrainConfig

PAGES: dict[type[BaseModel], tuple[str, str]] = {
    TrainConfig: ("A training", "`crbc train CONFIG`, and what `crbc eval` reads of it"),
    WarmstartConfig: ("A warm start", "`crbc warmstart CONFIG`"),
    AgentsConfig: ("A prompting agent", "`crbc agents CONFIG`"),
}
FILLED = ("modules", "env.template", "react.text")
"""What reading a config fills in."""
SIGNS = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt")}


def page() -> str:
    """docs/config.md."""
    parts = [
        "# Config keys\n\nA config is one YAML file. A key that is not here is an error. `--set KEY=VALUE` replaces "
        "one, such as `--set optim.lr=2e-5 credit.crbc.beta=0.9`.\n\n"
        "This page is made from the code: `python scripts/config_page.py > docs/config.md`.\n"
    ]
    shown: set[type] = set()
    for root, (title, use) in PAGES.items():
        parts.append(f"## {title}\n\n{use}.\n")
        parts += _tables(root, "", shown)
        if root is TrainConfig:
            parts.append(_options())
    return "\n".join(parts)


def _tables(of: type[BaseModel], prefix: str, shown: set[type]) -> Iterator[str]:
    """The table of a section's own keys, then one of each section in it that was not shown before."""
    inner = {name: section for name, field in of.model_fields.items() if (section := _section(field.annotation))}
    rows = [
        f"| `{prefix}{name}` | {_kind(field)} | {_default(field)} | {_cell(descriptions(of)[name])} |\n"
        for name, field in of.model_fields.items()
        if name not in inner and prefix + name not in FILLED
    ]
    if rows:
        yield f"| key | takes | default | meaning |\n|---|---|---|---|\n{''.join(rows)}"
    for name, section in inner.items():
        own = _own_defaults(of.model_fields[name], section)
        without = f" Without the section, {own}." if own else ""
        if section in shown:
            yield f"### `{prefix}{name}`{_anchor(of)}\n\nIts keys are those of a training.{without}\n"
            continue
        shown.add(section)
        about = (section.__doc__ or "").strip().partition("\n\n")[0]
        yield f"### `{prefix}{name}`{_anchor(of)}\n"
        if about or without:
            yield f"{_cell(' '.join(about.split()))}{without}".strip() + "\n"
        yield from _tables(section, f"{prefix}{name}.", shown)


def _own_defaults(field: FieldInfo, section: type[BaseModel]) -> str:
    """Where a section that is left out differs from an empty one."""
    left_out = field.get_default(call_default_factory=True)
    if not isinstance(left_out, section):
        return ""
    keys = {name: value for name, value in left_out if name in left_out.model_fields_set}
    return ", ".join(f"`{name}` is `{_number(value)}`" for name, value in keys.items())


def _options() -> str:
    """The options of each credit method."""
    common = credit.METHODS["grpo"].options
    rows = [
        f"| `credit.{name}` | {', '.join(f'`{key}: {_number(value)}`' for key, value in own.items())} |\n"
        for name, method in credit.METHODS.items()
        if (own := {key: value for key, value in method.options.items() if key not in common})
    ]
    shared = ", ".join(f"`{key}: {_number(value)}`" for key, value in common.items())
    return (
        "### Options of the credit methods\n\nA section `credit.METHOD` holds the options of that method. "
        f"[The pages of the methods](credit/index.md) say what each means. All methods take {shared}.\n\n"
        f"| section | further options, with their defaults |\n|---|---|\n{''.join(rows)}"
    )


def _anchor(of: type) -> str:
    return "" if of is TrainConfig else f" of {PAGES[of][0].lower()}" if of in PAGES else ""


@cache
def descriptions(of: type[BaseModel]) -> dict[str, str]:
    """The description of each key of a class and of what it inherits from. Raises `LookupError` for one without."""
    found: dict[str, str] = {}
    for owner in reversed(of.__mro__):
        if owner is BaseModel or not issubclass(owner, BaseModel):
            continue
        source = dedent(inspect.getsource(owner))
        (tree,) = ast.parse(source).body
        assert isinstance(tree, ast.ClassDef)
        lines = source.splitlines()
        for node, below in zip(tree.body, [*tree.body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            comment = re.search(r"  # (.+)$", lines[node.lineno - 1])
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[node.target.id] = " ".join(str(below.value.value).split())
            elif comment:
                found[node.target.id] = comment[1]
    lacking = [name for name in of.model_fields if name not in found and not _section(of.model_fields[name].annotation)]
    if lacking:
        raise LookupError(f"{of.__name__} says nothing of {', '.join(lacking)}")
    return found


def _section(annotation: Any) -> type[BaseModel] | None:
    """The section that a key holds, also one that may be left out."""
    for one in (annotation, *get_args(annotation)):
        if inspect.isclass(one) and issubclass(one, BaseModel) and get_origin(annotation) not in (dict, list):
            return one
    return None


def _kind(field: FieldInfo) -> str:
    name = re.sub(r"\b\w+\.|typing\.", "", re.sub(r"<class '(.+?)'>", r"\1", str(field.annotation)))
    name, null = re.sub(r"(?: \| |, )None(?:Type)?\b", "", name), "None" in name or name.startswith("Optional")
    name = re.sub(r"^Optional\[(.*)\]$", r"\1", name)
    choices = re.search(r"Literal\[(.*?)\]", name)
    shown = ", ".join(f"`{one}`" for one in re.findall(r"'(.*?)'", choices[1])) if choices else f"`{name}`"
    bounds = [
        f"{sign} {_number(getattr(m, key))}"
        for m in field.metadata
        for sign, key in [SIGNS.get(type(m), ("", ""))]
        if key
    ]
    return _cell(" ".join([shown, ", ".join(bounds), "or `null`" if null else ""])).replace("  ", " ").strip()


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    return "" if value is PydanticUndefined else f"`{_number(value)}`"


def _number(value: Any) -> str:
    """A value as YAML has it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return str(list(value))
    return "2^63" if value == 2**63 else str(value) if value != "" else '""'


def _cell(text: str) -> str:
    """Text in a table, with YAML's word for none."""
    plain = re.sub(r"\bNone:", "null:", text.replace("|", "\\|"))
    return re.sub(r"(?<!`)<(?=[/\w])(?![^`]*`(?:[^`]*`[^`]*`)*[^`]*$)", "&lt;", plain)


if __name__ == "__main__":
    print(page(), end="")
