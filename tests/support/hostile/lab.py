"""Lays out a case, lets the victim open it, and judges what came of it."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from warm import Ended, Warm

from hostile.case import HERE, OUTSIDE, Case
from hostile.victim import CALL

MEGABYTES = 1_000
SECONDS = 10
WALL_SECONDS = 30


def run_case(case: Case, folder: Path, warm: Warm) -> None:
    """Lay out the case in an empty folder, run it in a fork and judge it. Raises `AssertionError` for a fault."""
    (folder / HERE).mkdir()
    (folder / OUTSIDE).mkdir()
    (folder / OUTSIDE / "precious.txt").write_text("years of work\n")
    case.make(folder)
    before = snapshot(folder / OUTSIDE)
    with case.serve() as url:
        places = {"{url}": url or "", "{here}": str(folder / HERE), "{outside}": str(folder / OUTSIDE)}
        argv = [replaced(word, places) for word in case.argv]
        victim = warm.start(["-c", CALL, case.name, folder, *argv], folder / HERE, stdin=case.stdin)
        outcome = victim.wait(WALL_SECONDS)
    judge(case, outcome)
    changed = {name for name, _ in before ^ snapshot(folder / OUTSIDE)}
    assert not changed, f"changed outside: {sorted(changed)}"
    case.check(folder)


def judge(case: Case, outcome: Ended) -> None:
    """Raise `AssertionError` for an outcome that is a fault."""
    told = f"\n{outcome.out[-600:]!r}\n{outcome.err[-900:]!r}"
    assert outcome.megabytes < MEGABYTES, f"{outcome.megabytes:.0f} MB"
    assert outcome.cpu_seconds < SECONDS, f"{outcome.cpu_seconds:.1f} s of CPU, {outcome.seconds:.1f} s in all"
    text = outcome.out + outcome.err
    assert "Traceback" not in text and "a bug in crbc" not in text, f"a traceback{told}"
    assert outcome.status == case.status, f"status {outcome.status}, not {case.status}{told}"
    assert len(text) < 300_000, f"{len(text):,} characters"
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
