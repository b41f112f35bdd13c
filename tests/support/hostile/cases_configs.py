"""Configs of others: numbers, YAML, modules and templates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from hostile.case import HERE, OUTSIDE, RAN, Case
from hostile.cases_models import DRY, lay_model

CONFIG = "config.yaml"
HEAD = "name: run\nmodel: model\n"
Make = Callable[[Path], None]

TEXTS = {
    "python": "name: !!python/object/apply:os.system ['true']",
    "control": r'credit: {method: "\e[2J\u202e"}',
}
"""Texts that are no honest config, by name."""


def written(text: str) -> Make:
    """An honest model, and a config that replaces a line or adds one."""

    def make(folder: Path) -> None:
        lay_model(folder)
        head = "".join(line + "\n" for line in HEAD.splitlines() if not text.startswith(line.split(":")[0] + ":"))
        (folder / HERE / CONFIG).write_text(head + text + "\n")

    return make


def module(name: str, text: str, place: str = "") -> Make:
    """A module that writes when it runs, and a config that names it."""

    def make(folder: Path) -> None:
        file = folder / HERE / (place or f"{name.replace('.', '/')}.py")
        file.parent.mkdir(parents=True, exist_ok=True)
        for package in [parent for parent in file.parents if parent.is_relative_to(folder / HERE / name.split(".")[0])]:
            (package / "__init__.py").write_text(f"open({str(folder / OUTSIDE / RAN)!r}, 'w')\n")
        file.write_text(f"open({str(folder / OUTSIDE / RAN)!r}, 'w')\n")
        written(text)(folder)

    return make


def placed(folder: Path) -> None:
    """The config itself says where a module with a harmless name is."""
    from hashlib import sha256

    file = folder / HERE / "elsewhere" / "numpy_extras.py"
    file.parent.mkdir()
    file.write_text(f"open({str(folder / OUTSIDE / RAN)!r}, 'w')\n")
    told = json.dumps({"file": str(file), "sha256": sha256(file.read_bytes()).hexdigest()})
    written(f"credit: {{method: 'numpy_extras:method'}}\nmodules: {{numpy_extras: {told}}}")(folder)


def jinja(text: str) -> Make:
    def make(folder: Path) -> None:
        written("env: {kwargs: {observation: text}, prompt: p.j2}")(folder)
        (folder / HERE / "p.j2").write_text(text)

    return make


def linked_template(folder: Path) -> None:
    (folder / HERE / "key").write_text("PRIVATE KEY")
    written("env: {kwargs: {observation: text}, prompt: p.j2}")(folder)
    (folder / HERE / "p.j2").symlink_to(folder / HERE / "key")


NAMES = {
    "credit": ("evil", "credit: {method: 'evil:method'}"),
    "package": ("evil.inner.deep", "env: {id: 'evil.inner.deep:Foo-v0'}"),
}
"""Places of a config that name a module."""


def cases() -> list[Case]:
    code = "no code from data: modules"
    escapes = "{{ task.__class__.__mro__[1].__subclasses__() }}"
    return [
        Case("config-honest", "what is honest still works", 0, make=written("updates: 3"), argv=DRY),
        *(Case(f"config-{name}", "values", 2, make=written(text), argv=DRY) for name, text in TEXTS.items()),
        *(
            Case(
                f"module-{name}{flag}", code, 2, ("--allow-import", ".py"), make=module(*named), argv=(*DRY[:2], *argv)
            )
            for (name, named), (flag, argv) in zip(NAMES.items(), (("", ()), ("-dry-run", DRY[2:])), strict=True)
        ),
        Case("module-placed", code, 2, ("elsewhere/numpy_extras.py", "--allow-import"), make=placed, argv=DRY),
        Case("jinja-escapes", code, 2, ("p.j2",), make=jinja(escapes), argv=DRY),
        Case(
            "jinja-link", "no read elsewhere", 2, ("p.j2", "link"), never=("PRIVATE",), make=linked_template, argv=DRY
        ),
    ]


CASES = cases()
