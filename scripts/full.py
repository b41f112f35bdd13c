"""The parts that `.ci/run` leaves out, and whether each has passed since what it guards changed (scripts/full.sh).

`scripts/full.toml` lists the parts:

    [parts.vllm]
    command = "bash scripts/test_vllm.sh"
    python = ".venv-vllm/bin/python"         # where the versions are looked up
    versions = ["vllm", "torch"]
    guards = ["crbc_rl/policies/vllm.py",    # a file, or a folder with all that git knows in it
              "crbc_lab/plan/check.py::installed",  # a definition of a file
              "pyproject.toml::vllm"]        # the requirements of an extra

A part that passes gets a stamp in `scripts/stamps/`: the digest of what it guards, the date, versions and minutes. With
`--check`, nothing runs: the exit status is 1 where what a part guards has changed since its stamp was written. A part
with `wide = true` exercises everything; after `STALE` commits it is stale, which is a warning. `[red.NAME]` gives `why`
and `since` of a part that is known to fail: `--check` prints them and asks for no stamp.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STALE = 50


class PartsError(Exception):
    """The list of parts does not fit the tree, or a name is no part."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part: `guards` are what makes its stamp out of date, none where it is `wide`."""

    name: str
    command: str
    guards: Sequence[str] = ()
    wide: bool = False
    python: str = ".venv/bin/python"
    versions: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Parts:
    """What `scripts/full.toml` holds: the parts in order, and those that are known to be red."""

    parts: dict[str, Part]
    red: dict[str, dict[str, str]] = field(default_factory=dict)


def read_parts(root: Path) -> Parts:
    """Raises `PartsError` where an entry is none."""
    data = tomllib.loads((root / "scripts" / "full.toml").read_text("utf-8"))
    try:
        parts = {name: Part(name, **entry) for name, entry in data["parts"].items()}
    except TypeError as error:
        raise PartsError(f"scripts/full.toml: {error}") from error
    red = data.get("red", {})
    for name, part in parts.items():
        if part.wide == bool(part.guards):
            raise PartsError(f"scripts/full.toml: [parts.{name}] needs either guards or wide = true")
    for name, entry in red.items():
        if name not in parts or set(entry) != {"why", "since"}:
            raise PartsError(f"scripts/full.toml: [red.{name}] needs the name of a part, why and since")
    return Parts(parts, red)


# ---- what a part guards ---------------------------------------------------------------------------


def guarded(root: Path, guard: str) -> Iterator[tuple[str, bytes]]:
    """(name, contents) of all that one guard stands for. Raises `PartsError` where there is nothing."""
    name, _, inner = guard.partition("::")
    if inner and name == "pyproject.toml":
        extras = tomllib.loads((root / name).read_text("utf-8"))["project"]["optional-dependencies"]
        if inner not in extras:
            raise PartsError(f"{guard}: no such extra")
        yield guard, "\n".join(extras[inner]).encode()
    elif inner:
        yield guard, definition(root, name, inner).encode()
    else:
        listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", name)
        names = subprocess.run(listing, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
        files = sorted({path for path in names if path and (root / path).is_file()})
        if not files:
            raise PartsError(f"{guard}: no such file")
        yield from ((path, (root / path).read_bytes()) for path in files)


def definition(root: Path, file: str, name: str) -> str:
    """The source of a function, class or variable at the top of a file. Raises `PartsError` where it has none."""
    if not (root / file).is_file():
        raise PartsError(f"{file}::{name}: no such file")
    text = (root / file).read_text("utf-8")
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [getattr(node, "name", None), *(getattr(target, "id", None) for target in targets)]
        if name in names:
            return ast.get_source_segment(text, node) or ""
    raise PartsError(f"{file}::{name}: the file does not define it")


def digest(root: Path, part: Part) -> str:
    """32 hex digits of what a part guards; empty for a wide one."""
    if part.wide:
        return ""
    total = hashlib.sha256()
    for guard in part.guards:
        for name, contents in guarded(root, guard):
            total.update(f"{name}\0{len(contents)}\0".encode() + contents)
    return total.hexdigest()[:32]


# ---- stamps ---------------------------------------------------------------------------------------


def stamp_path(root: Path, part: Part) -> Path:
    return root / "scripts" / "stamps" / f"{part.name}.json"


def commits(root: Path) -> int:
    """How many commits lead to the current one."""
    count = subprocess.run(("git", "rev-list", "--count", "HEAD"), cwd=root, check=True, capture_output=True, text=True)
    return int(count.stdout)


def versions_of(root: Path, part: Part) -> dict[str, str]:
    """Versions of the part's packages in its environment, and of its Python."""
    code = (
        "import importlib.metadata as m, json, platform, sys\n"
        "print(json.dumps({'python': platform.python_version(), **{name: m.version(name) for name in sys.argv[1:]}}))"
    )
    call = (str(root / part.python), "-c", code, *part.versions)
    return dict(json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout))


def write_stamp(root: Path, part: Part, guarded_digest: str, seconds: float) -> None:
    stamp: dict[str, Any] = {
        "digest": guarded_digest,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commits": commits(root),
        "minutes": round(seconds / 60, 1),
        "versions": versions_of(root, part),
    }
    stamp_path(root, part).parent.mkdir(exist_ok=True)
    stamp_path(root, part).write_text(json.dumps(stamp, indent=1) + "\n", "utf-8")


def state(root: Path, part: Part) -> tuple[bool, str]:
    """Whether `.ci/run` may pass with this part's stamp as it is, and one line about it."""
    again = f"run: bash scripts/full.sh {part.name}"
    path = stamp_path(root, part)
    if not path.is_file():
        return part.wide, f"{'WARNING: ' if part.wide else ''}never passed; {again}"
    stamp = json.loads(path.read_text("utf-8"))
    passed = f"passed on {stamp['date']} in {stamp['minutes']} minutes"
    if part.wide:
        behind = commits(root) - stamp["commits"]
        return True, f"WARNING: {passed}, {behind} commits ago; {again}" if behind > STALE else passed
    if stamp["digest"] != digest(root, part):
        return False, f"{passed}, and what it guards has changed since; {again}"
    return True, passed


def check(root: Path, listed: Parts) -> int:
    """Print every part's state; 1 where one that is not known to be red needs to run again."""
    status = 0
    for name, part in listed.parts.items():
        if name in listed.red:
            line, good = f"RED since {listed.red[name]['since']}: {listed.red[name]['why']}", True
        else:
            good, line = state(root, part)
        status |= not good
        print(f"{name:>12}  {line}")
    return status


def run(root: Path, parts: Sequence[Part]) -> int:
    """Run parts in order and stamp each that passes; a failed one does not keep the others from running."""
    lines = []
    for part in parts:
        print(f"== {part.name}: {part.command}", flush=True)
        before, began = digest(root, part), time.monotonic()
        status = subprocess.run(("bash", "-c", part.command), cwd=root, check=False).returncode
        seconds = time.monotonic() - began
        if not status:
            write_stamp(root, part, before, seconds)
        lines.append((status, f"{part.name:>12}  {seconds / 60:5.1f} min  {'FAILED' if status else 'passed'}"))
    print(*(line for _, line in lines), sep="\n")
    return int(any(status for status, _ in lines))


def main() -> int:
    parser = argparse.ArgumentParser(description="The parts that .ci/run leaves out.")
    parser.add_argument("parts", nargs="*", metavar="PART", help="these parts alone")
    parser.add_argument("--check", action="store_true", help="run nothing: whether each part's stamp is good")
    options = parser.parse_args()
    try:
        listed = read_parts(ROOT)
        if unknown := [name for name in options.parts if name not in listed.parts]:
            raise PartsError(f"no part {unknown[0]}; the parts are {', '.join(listed.parts)}")
        chosen = {name: part for name, part in listed.parts.items() if not options.parts or name in options.parts}
        if options.check:
            return check(ROOT, Parts(chosen, listed.red))
        return run(ROOT, list(chosen.values()))
    except PartsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
