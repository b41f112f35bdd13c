"""How many deliberate faults the fast tests notice. Run by scripts/mutants.sh.

`scripts/mutants/*.toml` lists the faults, each of them one replaced piece of text:

    [[mutant]]
    file = "crbc_envs/vector/group.py"
    find = "exact text, occurring exactly once in the file"
    replace = "the faulty text"
    why = "one short sentence: what is wrong now"
    tests = ["tests/envs/vector/test_group.py"]
    # equivalent = "why no test can notice it"

Every fault is put into a copy of the tree, and the fast ones of its tests run there. A failing test or
a hang notices the fault (killed), passing tests do not (survived); anything else, such as a test file
that cannot be collected, is an error of the list. Mutants with `equivalent` count neither way, and one
that is noticed all the same is an error. The exit status is 0 where the list has no error, the tests
pass without a fault and at least `NEEDED` of the mutants are killed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
LISTS = ROOT / "scripts" / "mutants"
NEEDED = 0.95
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider")
KILLED, SURVIVED, EQUIVALENT, ERROR = "killed", "survived", "equivalent", "error"


class ListError(Exception):
    """The list of mutants is wrong, or the tests do not pass on the unchanged tree."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: in `file`, the only `find` becomes `replace`; `tests` are those most likely to notice."""

    file: str
    find: str
    replace: str
    why: str
    tests: Sequence[str]
    equivalent: str = ""

    def put_into(self, text: str) -> str:
        """The file's text with the fault in it; raises `ListError` where `find` is not there exactly once."""
        if (found := text.count(self.find)) != 1:
            raise ListError(f"{self.file}: the text to find occurs {found} times ({self.why})")
        if self.find == self.replace:
            raise ListError(f"{self.file}: the replacement changes nothing ({self.why})")
        return text.replace(self.find, self.replace)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant, `output` being the end of what its tests printed."""

    mutant: Mutant
    result: str
    seconds: float
    output: str


def read_mutants(lists: Path, only: str = "") -> list[Mutant]:
    """The mutants of all files in `lists` whose file or `why` contains `only`."""
    mutants = []
    for path in sorted(lists.glob("*.toml")):
        for entry in tomllib.loads(path.read_text("utf-8")).get("mutant", []):
            try:
                mutants.append(Mutant(**entry))
            except TypeError as error:
                raise ListError(f"{path.name}: {error} in {entry}") from error
    return [mutant for mutant in mutants if only in mutant.file or only in mutant.why]


def check(mutants: Sequence[Mutant], root: Path) -> None:
    """Raises `ListError` where a mutant does not fit the tree at `root`."""
    for mutant in mutants:
        if not (root / mutant.file).is_file():
            raise ListError(f"{mutant.file}: no such file ({mutant.why})")
        mutant.put_into((root / mutant.file).read_text("utf-8"))
        missing = [test for test in mutant.tests if not (root / test.split("::")[0]).is_file()]
        if missing or not mutant.tests:
            raise ListError(f"{mutant.file}: tests missing: {', '.join(missing) or 'none given'} ({mutant.why})")


# ---- running --------------------------------------------------------------------------------------


def copy_tree(root: Path, to: Path) -> None:
    """Copy what git tracks at `root`, and what it neither tracks nor ignores."""
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listing, cwd=root, check=True, capture_output=True, text=True).stdout
    for name in names.split("\0"):
        if (root / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name)


def run_tests(tree: Path, tests: Sequence[str], timeout: float | None, **environment: str) -> tuple[int | None, str]:
    """pytest's exit status, None for a hang, and what it printed. Nothing it started outlives it."""
    process = subprocess.Popen(
        [*PYTEST, *tests],
        cwd=tree,
        env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(tree), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        return None, f"no end after {timeout:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@contextmanager
def fault(tree: Path, mutant: Mutant) -> Iterator[None]:
    """The mutant's fault in the copy `tree`, taken out again at the end."""
    path = tree / mutant.file
    sound = path.read_text("utf-8")
    path.write_text(mutant.put_into(sound), "utf-8")
    # Python tells compiled code out of date by size and whole seconds, which a quick change escapes.
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
    try:
        yield
    finally:
        path.write_text(sound, "utf-8")


def judge(tree: Path, mutant: Mutant, timeout: float) -> Verdict:
    """Run the mutant's tests in the copy `tree`."""
    began = time.monotonic()
    with fault(tree, mutant):
        status, output = run_tests(tree, mutant.tests, timeout, PYTHONDONTWRITEBYTECODE="1")
    # With -x, pytest ends a failed collection with the status of a failed test.
    result = {None: KILLED, 0: SURVIVED, 1: KILLED}.get(status, ERROR) if "ERROR collecting" not in output else ERROR
    if mutant.equivalent and result != ERROR:
        result = EQUIVALENT if result == SURVIVED else ERROR
    return Verdict(mutant, result, time.monotonic() - began, output[-3000:])


def judge_all(mutants: Sequence[Mutant], root: Path, jobs: int, timeout: float, console: Console) -> list[Verdict]:
    """The verdicts, in order: first the tests on an unchanged copy, then `jobs` mutants side by side."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        first = Path(folder) / "0"
        copy_tree(root, first)
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        console.print(f"{len(mutants)} mutants; first the {len(tests)} test files without a fault")
        status, output = run_tests(first, tests, None)
        if status:
            raise ListError(f"the tests do not pass on the unchanged tree:\n{output[-3000:]}")
        for job in range(jobs):
            if job:
                shutil.copytree(first, Path(folder) / str(job))  # compiled code included
            trees.put(Path(folder) / str(job))

        def one(mutant: Mutant) -> Verdict:
            tree = trees.get()
            try:
                verdict = judge(tree, mutant, timeout)
            finally:
                trees.put(tree)
            progress.console.print(f"{verdict.result:>10}  {mutant.file}: {mutant.why}", markup=False, soft_wrap=True)
            progress.advance(task)
            return verdict

        with Progress(console=console) as progress, ThreadPoolExecutor(jobs) as pool:
            task = progress.add_task("mutants", total=len(mutants))
            return list(pool.map(one, mutants))


# ---- telling --------------------------------------------------------------------------------------


def share(verdicts: Sequence[Verdict]) -> tuple[int, int]:
    """How many were killed, and of how many that count."""
    killed, survived = (sum(verdict.result == result for verdict in verdicts) for result in (KILLED, SURVIVED))
    return killed, killed + survived


def tell(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print a table by folder, and every mutant that was not killed."""
    table = Table("folder", "killed", "of", "share")
    folders = sorted({str(PurePosixPath(verdict.mutant.file).parent) for verdict in verdicts})
    for folder in [*folders, "all"]:
        inside = [v for v in verdicts if folder in ("all", str(PurePosixPath(v.mutant.file).parent))]
        killed, of = share(inside)
        table.add_row(folder, str(killed), str(of), f"{killed / of:.1%}" if of else "-")
    console.print(table)
    for verdict in verdicts:
        if verdict.result != KILLED:
            note = f" ({verdict.mutant.equivalent})" if verdict.mutant.equivalent else ""
            console.print(f"{verdict.result}: {verdict.mutant.file}: {verdict.mutant.why}{note}", markup=False)
        if verdict.result == ERROR:
            console.print(verdict.output, markup=False)


def main() -> int:
    parser = argparse.ArgumentParser(description="How many deliberate faults the fast tests notice.")
    parser.add_argument("--only", default="", metavar="TEXT", help="only mutants with this in their file or why")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants side by side")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds until a mutant's tests count as hung")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every verdict here as JSON")
    options, console = parser.parse_args(), Console()
    try:
        mutants = read_mutants(LISTS, options.only)
        if not mutants:
            raise ListError(f"no mutants in {LISTS} match {options.only!r}")
        check(mutants, ROOT)
        verdicts = judge_all(mutants, ROOT, min(max(options.jobs, 1), len(mutants)), options.timeout, console)
    except ListError as error:
        console.print(str(error), markup=False)
        return 1
    tell(verdicts, console)
    if options.out:
        options.out.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1), "utf-8")
    killed, of = share(verdicts)
    return int(killed < NEEDED * of or any(verdict.result == ERROR for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
