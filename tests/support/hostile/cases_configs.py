"""Configs of others: numbers, YAML, modules and templates."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from hostile.case import HERE, OUTSIDE, RAN, Case
from hostile.cases_models import DRY, lay_model

CONFIG = "config.yaml"
HEAD = "name: run\nmodel: model\n"
BIG = 10**12
Make = Callable[[Path], None]

NUMBERS = {
    "depth": "credit: {crbc: {depth: 1000000000000}}",
    "depth-negative": "credit: {crbc: {depth: -1}}",
    "sigma": "credit: {crbc: {sigma_min: .nan}}",
    "weight": "credit: {crbc: {w_step: 1.0e+308}}",
    "weight-infinite": "credit: {crbc: {w_step: -.inf}}",
    "option-date": "credit: {crbc: {beta: 2020-01-01}}",
    "option-list": "credit: {crbc: {beta: [1]}}",
    "other-method": "credit: {hgpo: {history: 1000000000000}}",
    "groups": "rollout: {num_groups: 65536, group_size: 4096}",
    "new-tokens": "rollout: {max_new_tokens: 1000000000000}",
    "prompt-tokens": "rollout: {max_prompt_tokens: 1000000000000}",
    "rounds": "rollout: {rounds: 1000000000000}",
    "waves": "rollout: {waves: 1000000000000}",
    "temperature": "rollout: {temperature: 1.0e+300}",
    "history": "env: {history: 1000000000000000000000}",
    "updates": "updates: 1000000000000000000",
    "save-every": "save_every: 1000000000000000000",
    "episodes": "eval: {episodes: 1000000000000}",
    "test-episodes": "eval: {test_episodes: 1000000000000}",
    "epochs": "optim: {epochs: 1000000000000}",
    "minibatch": "optim: {minibatch: 1000000000000}",
    "rank": "policy: {lora_rank: 1000000000000}",
    "parallel": "generator: {tensor_parallel: 1000000000000}",
    "clip": "loss: {kl: 1.0e+300}",
    "threads": "threads: 1000000000000",
    "digits": "seed: " + "9" * 5_000,
    "env-size": "env: {kwargs: {height: 1000000000, width: 1000000000}}",
    "env-area": "env: {kwargs: {height: 1000000, width: 1000000}}",
    "env-boxes": "env: {kwargs: {num_boxes: 1000000000}}",
    "env-pixels": "env: {kwargs: {observation: rgb, pixels: 1000000000}, prompt: text}",
    "env-steps": "env: {kwargs: {max_steps: 1000000000000000000}}",
    "env-nan": "env: {kwargs: {max_steps: .nan}}",
    "env-date": "env: {kwargs: {max_steps: 2020-01-01}}",
    "env-list": "env: {kwargs: {height: [6]}}",
    "env-id-argument": "env: {kwargs: {id: CartPole-v1}}",
}
"""Wrong numbers, and values of wrong types, by name."""

YAML = {
    "aliases": "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x'}]\n" for i in range(10)),
    "aliases-inside": "env:\n kwargs:\n"
    + "".join(f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x'}]\n" for i in range(10)),
    "merges": "m0: &m0 {a: 1}\n"
    + "".join(f"m{i}: &m{i}\n  <<: [{', '.join([f'*m{i - 1}'] * 9)}]\n" for i in range(1, 10)),
    "circle": "env: &e {kwargs: {a: *e}}",
    "deep": "env: {kwargs: {a: " + "[" * 400 + "]" * 400 + "}}",
    "deeper": "env: " + "[" * 100_000,
    "binary": "name: !!binary aGVsbG8=",
    "set": "env: {kwargs: !!set {a, b}}",
    "python": "name: !!python/object/apply:os.system ['true']",
    "nul": r'model: "a\0b"',
    "nul-template": r'env: {prompt: "a\0b.j2"}',
    "control": r'credit: {method: "\e[2J\u202e"}',
    "number-key": "1: 2",
    "list-key": "[1]: 2",
    "tabs": "env:\n\tid: x",
    "surrogate": r'model: "\ud800"',
}
"""Texts that are no honest YAML, by name."""


def written(text: str, times: int = 1) -> Make:
    """An honest model, and a config that replaces a line or adds one."""

    def make(folder: Path) -> None:
        lay_model(folder)
        head = "".join(line + "\n" for line in HEAD.splitlines() if not text.startswith(line.split(":")[0] + ":"))
        (folder / HERE / CONFIG).write_text(head + text * times + "\n")

    return make


def many_keys(folder: Path) -> None:
    lay_model(folder)
    (folder / HERE / CONFIG).write_text(HEAD + "".join(f"k{i}:\n" for i in range(30_000)))


def endless(folder: Path) -> None:
    lay_model(folder)
    (folder / HERE / CONFIG).unlink()
    (folder / HERE / CONFIG).symlink_to("/dev/zero")


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


def endless_package(folder: Path) -> None:
    """A package with a file that never ends: where a module is, is said with a digest of its files."""
    package = folder / HERE / "evil"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "more.py").symlink_to("/dev/zero")
    written("credit: {method: 'evil:method'}")(folder)


def placed(folder: Path) -> None:
    """The config itself says where a module with a harmless name is."""
    from hashlib import sha256

    file = folder / HERE / "elsewhere" / "numpy_extras.py"
    file.parent.mkdir()
    file.write_text(f"open({str(folder / OUTSIDE / RAN)!r}, 'w')\n")
    told = json.dumps({"file": str(file), "sha256": sha256(file.read_bytes()).hexdigest()})
    written(f"credit: {{method: 'numpy_extras:method'}}\nmodules: {{numpy_extras: {told}}}")(folder)


def jinja(text: str, times: int = 1) -> Make:
    def make(folder: Path) -> None:
        written("env: {kwargs: {observation: text}, prompt: p.j2}")(folder)
        (folder / HERE / "p.j2").write_text(text * times)

    return make


def linked_template(folder: Path) -> None:
    (folder / HERE / "key").write_text("PRIVATE KEY")
    written("env: {kwargs: {observation: text}, prompt: p.j2}")(folder)
    (folder / HERE / "p.j2").symlink_to(folder / HERE / "key")


def pipe_template(folder: Path) -> None:
    written("env: {kwargs: {observation: text}, prompt: p.j2}")(folder)
    os.mkfifo(folder / HERE / "p.j2")


NAMES = {
    "environment": ("evil", "env: {id: 'evil:Foo-v0'}"),
    "prompt": ("evil", "env: {prompt: 'evil:prompt'}"),
    "credit": ("evil", "credit: {method: 'evil:method'}"),
    "engine": ("evil", "generator: {engine: 'evil:engine'}"),
    "package": ("evil.inner.deep", "env: {id: 'evil.inner.deep:Foo-v0'}"),
}
"""Places of a config that name a module."""

TEMPLATES = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "grows": "{{ 'a' * 10 ** 10 }}",
    "width": "{{ '%1000000000d' % 1 }}",
    "doubles": "{% set n = namespace(s='aa') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    "calls": "{% macro m(x) %}{{ m(x) }}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "escapes": "{{ task.__class__.__mro__[1].__subclasses__() }}",
    "includes": "{% include '/etc/passwd' %}",
}


def cases() -> list[Case]:
    bounds, code = "numbers in configs", "no code from data: modules"
    return [
        Case("config-honest", "what is honest still works", 0, make=written("updates: 3"), argv=DRY),
        *(Case(f"config-{name}", bounds, 2, make=written(text), argv=DRY) for name, text in NUMBERS.items()),
        *(
            Case(f"yaml-{name}", "YAML depth and aliases", 2, make=written(text), argv=DRY)
            for name, text in YAML.items()
        ),
        Case("yaml-long", bounds, 2, (CONFIG,), make=written("a: [1, 2, 3]\n", 8_000_000), argv=DRY),
        Case("yaml-keys", bounds, 2, (CONFIG,), make=many_keys, argv=DRY),
        Case("yaml-endless", bounds, 2, (CONFIG,), make=endless, argv=DRY),
        Case(
            "yaml-warmstart",
            bounds,
            2,
            make=written("out: made\n" + YAML["aliases-inside"]),
            argv=("warmstart", CONFIG),
        ),
        *(
            Case(
                f"module-{name}{flag}", code, 2, ("--allow-import", ".py"), make=module(*named), argv=(*DRY[:2], *argv)
            )
            for name, named in NAMES.items()
            for flag, argv in (("", ()), ("-dry-run", DRY[2:]))
        ),
        Case(
            "module-not-allowed",
            code,
            2,
            ("--allow-import",),
            make=module(*NAMES["credit"]),
            argv=DRY,
            env={"CRBC_ALLOW_IMPORT": "0"},
        ),
        Case("module-endless", "bounds: modules", 2, ("more.py",), make=endless_package, argv=DRY),
        Case("module-placed", code, 2, ("elsewhere/numpy_extras.py", "--allow-import"), make=placed, argv=DRY),
        Case(
            "module-library",
            code,
            2,
            ("no module 'os'",),
            make=module("os", "credit: {method: 'os:system'}", "unused.py"),
            argv=DRY,
        ),
        Case(
            "module-two-colons",
            code,
            2,
            make=module("evil", "env: {id: 'crbc_envs:evil:CRBC-Sokoban-v0', kwargs: {observation: text}}"),
            argv=DRY,
        ),
        Case(
            "module-installed", code, 2, ("--allow-import",), make=written("env: {id: 'antigravity:Foo-v0'}"), argv=DRY
        ),
        *(
            Case(f"jinja-{name}", "bounds: templates", 2, ("p.j2",), make=jinja(text), argv=DRY)
            for name, text in TEMPLATES.items()
        ),
        Case("jinja-long", "bounds: templates", 2, ("p.j2",), make=jinja("a" * 1_000, 100_000), argv=DRY),
        Case(
            "jinja-link", "no read elsewhere", 2, ("p.j2", "link"), never=("PRIVATE",), make=linked_template, argv=DRY
        ),
        Case("jinja-pipe", "bounds: templates", 2, ("p.j2",), make=pipe_template, argv=DRY),
    ]


CASES = cases()
