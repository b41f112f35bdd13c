"""Lays out a case, lets the victim open it, and judges what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from hostile.case import HERE, OUTSIDE, Case, Outcome

MEGABYTES = 1_000
SECONDS = 10
ROOT = Path(__file__).resolve().parents[3]


class Lab:
    """Context manager: a running victim, with the package of the clone `tree`."""

    def __init__(self, tree: Path = ROOT) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CRBC_")}
        path = os.pathsep.join((str(tree), str(Path(__file__).resolve().parents[1])))
        self._victim = subprocess.Popen(
            [sys.executable, "-m", "hostile.victim"],
            env={**kept, "PYTHONPATH": path},
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        package = json.loads(self._asked())["package"]
        assert Path(package) == tree.resolve(), f"the victim has {package}"

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self._victim.stdin is not None
        self._victim.stdin.close()
        self._victim.wait()

    def _asked(self, request: str = "") -> str:
        assert self._victim.stdin is not None and self._victim.stdout is not None
        if request:
            print(request, file=self._victim.stdin, flush=True)
        return self._victim.stdout.readline()

    def run(self, case: Case, folder: Path) -> Outcome:
        """Lay out the case in an empty folder, run it and judge it. Raises `AssertionError` for what is a fault."""
        (folder / HERE).mkdir()
        (folder / OUTSIDE).mkdir()
        (folder / OUTSIDE / "precious.txt").write_text("years of work\n")
        (folder / "stdin").write_text(case.stdin)
        case.make(folder)
        before = snapshot(folder / OUTSIDE)
        with case.serve() as url:
            places = {"{url}": url or "", "{here}": str(folder / HERE), "{outside}": str(folder / OUTSIDE)}
            request = {"name": case.name, "folder": str(folder), "argv": [replaced(w, places) for w in case.argv]}
            figures = json.loads(self._asked(json.dumps(request)))
        shown = [(folder / name).read_text(errors="replace", encoding="utf-8") for name in ("stdout", "stderr")]
        outcome = Outcome(out=shown[0], err=shown[1], **figures)
        judge(case, outcome)
        changed = {name for name, _ in before ^ snapshot(folder / OUTSIDE)}
        assert not changed, f"changed outside: {sorted(changed)}"
        case.check(folder)
        return outcome


def judge(case: Case, outcome: Outcome) -> None:
    """Raise `AssertionError` for an outcome that is a fault."""
    told = f"\n{outcome.out[-600:]!r}\n{outcome.err[-900:]!r}"
    assert outcome.megabytes < MEGABYTES, f"{outcome.megabytes:.0f} MB"
    assert outcome.cpu_seconds < SECONDS, f"{outcome.cpu_seconds:.1f} s of CPU, {outcome.seconds:.1f} s in all"
    text = outcome.out + outcome.err
    assert "Traceback" not in text and "a bug in crbc" not in text, f"a traceback{told}"
    assert outcome.status == case.status, f"status {outcome.status}, not {case.status}{told}"
    said = " ".join(text.lower().split())
    tight = said.replace(" ", "")
    missing = [word for word in case.says if word not in said and word.replace(" ", "") not in tight]
    assert not missing, f"it does not say {missing}{told}"
    assert not [word for word in case.never if word in text], f"it says what it must not{told}"
    control = {symbol for symbol in text if not (symbol.isprintable() or symbol in "\n\t\r")}
    assert not control, f"control characters {control!r}{told}"
    if case.status:
        assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1, f"not one line{told}"
        assert len(outcome.err) < 2_000, f"a line of {len(outcome.err)} characters"


def snapshot(folder: Path) -> set[tuple[str, str]]:
    """The paths below a folder, with what is there."""
    found = set()
    for path in folder.rglob("*"):
        what = (
            os.readlink(path) if path.is_symlink() else sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        )
        found.add((path.relative_to(folder).as_posix(), what))
    return found


def replaced(word: str, places: dict[str, str]) -> str:
    for place, value in places.items():
        word = word.replace(place, value)
    return word


def scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True)
