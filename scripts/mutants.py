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

`--fresh first` judges the faults of `scripts/mutants/fresh/first*.toml` instead. Whoever wrote them had not seen the
tests, so they name none: `nearest_tests` takes those of the file's folder and of what imports the file.
"""

from __future__ import annotations

import argparse
import ast
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
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from warm import Warm  # noqa: E402  beside the tests

LISTS = ROOT / "scripts" / "mutants"
NEEDED = 0.95
PYTEST = (
    "import pytest, sys; sys.exit(pytest.main(['-x', '-q', '-m', 'not slow', '-p', 'no:cacheprovider', *sys.argv[1:]]))"
)
MODULES = (
    "torch",
    "transformers.models.qwen2",
    "pyarrow.parquet",
    "pytest",
    "hypothesis",
    "gymnasium",
    "scipy.sparse",
    "matplotlib",
    "pydantic",
    "rich.progress",
    "tyro",
)
"""What most tests import and no fault is in: imported once, before the tests are forked."""
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
    area: str = ""

    @property
    def room(self) -> str:
        """What the table counts it under."""
        return self.area or str(PurePosixPath(self.file).parent)

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


def read_mutants(lists: Path, only: str = "", names: str = "*.toml") -> list[Mutant]:
    """The mutants of all files in `lists` with such names, whose file or `why` contains `only`."""
    mutants = []
    for path in sorted(lists.glob(names)):
        for entry in tomllib.loads(path.read_text("utf-8")).get("mutant", []):
            try:
                tests = entry["tests"] if "tests" in entry else nearest_tests(entry["file"], ROOT)
                mutants.append(Mutant(**{**entry, "tests": tests}))
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


# ---- the tests of a file ---------------------------------------------------------------------------


def nearest_tests(file: str, root: Path) -> list[str]:
    """The test files of a product file: those that bear its name, those of its folder, and those of what imports it.
    Where there are none, as for a file at the top that the package exports, those at the top."""
    name, folder = PurePosixPath(file).stem, test_folder(file)
    inside = sorted((root / folder).rglob("test_*.py")) if folder.count("/") > 1 or file.startswith("anchors") else []
    own = sorted((root / folder).glob(f"test_{name}*.py"))
    importers = [path for path in product_files(root) if imports(root / path, module_of(file))]
    theirs = [
        test for path in importers for test in (root / test_folder(path)).glob(f"test_{PurePosixPath(path).stem}.py")
    ]
    direct = [test for test in sorted((root / "tests").rglob("test_*.py")) if imports(test, module_of(file))]
    near = [*own, *inside, *direct, *theirs] or sorted((root / folder).glob("test_*.py"))
    return list(dict.fromkeys(path.relative_to(root).as_posix() for path in near))


def test_folder(file: str) -> str:
    """Where the tests mirror a product file: a folder below tests/, or the package's own for files at the top."""
    parts = PurePosixPath(file).parts
    place = {"anchors": "anchors", "crbc_envs": "envs", "crbc_rl": "rl", "crbc_lab": "lab"}[parts[0]]
    return "/".join(("tests", place, *parts[1:-1][:1]))


def product_files(root: Path) -> list[str]:
    packages = (root / package for package in ("anchors", "crbc_envs", "crbc_rl", "crbc_lab"))
    return sorted(path.relative_to(root).as_posix() for package in packages for path in package.rglob("*.py"))


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def imported(path: Path) -> frozenset[str]:
    """The modules that a file imports, and what may be one: the names that it takes from a package."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def imports(path: Path, module: str) -> bool:
    return module in imported(path)


# ---- running --------------------------------------------------------------------------------------


def copy_tree(root: Path, to: Path) -> None:
    """Copy what git tracks at `root`, and what it neither tracks nor ignores."""
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listing, cwd=root, check=True, capture_output=True, text=True).stdout
    for name in names.split("\0"):
        if (root / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name)


class Tree(Warm):
    """Context manager: a copy of the tree, and a process whose forks run tests in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(MODULES, folder)
        self.folder = folder

    def run_tests(self, tests: Sequence[str], timeout: float) -> tuple[int | None, str]:
        """pytest's exit status, None for a hang, and what it printed. Nothing it started outlives it."""
        variables = {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        ended = self.start(["-c", PYTEST, *tests], self.folder, variables).wait(timeout)
        if ended.status == -signal.SIGKILL:
            return None, f"no end after {timeout:.0f} s"
        return ended.status, ended.out + ended.err


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


def judge(tree: Tree, mutant: Mutant, timeout: float) -> Verdict:
    """Run the mutant's tests in the copy `tree`."""
    began = time.monotonic()
    with fault(tree.folder, mutant):
        status, output = tree.run_tests(mutant.tests, timeout)
    # With -x, pytest ends a failed collection with the status of a failed test.
    result = {None: KILLED, 0: SURVIVED, 1: KILLED}.get(status, ERROR) if "ERROR collecting" not in output else ERROR
    if mutant.equivalent and result != ERROR:
        result = EQUIVALENT if result == SURVIVED else ERROR
    return Verdict(mutant, result, time.monotonic() - began, output[-3000:])


def judge_all(
    mutants: Sequence[Mutant], root: Path, jobs: int, timeout: float, sound: bool, console: Console
) -> list[Verdict]:
    """The verdicts, in order: first the tests on an unchanged copy, but where `sound`; then `jobs` side by side."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ExitStack() as stack:
        trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for job in range(jobs):
            copy_tree(root, Path(folder) / str(job))
            trees.put(stack.enter_context(Tree(Path(folder) / str(job))))
        if not sound:
            check_sound(mutants, trees, console)

        def one(mutant: Mutant) -> Verdict:
            tree = trees.get()
            try:
                verdict = judge(tree, mutant, timeout)
            finally:
                trees.put(tree)
            progress.console.print(
                f"{verdict.result:>10} {verdict.seconds:4.0f} s  {mutant.file}: {mutant.why}",
                markup=False,
                soft_wrap=True,
            )
            progress.advance(task)
            return verdict

        with Progress(console=console) as progress, ThreadPoolExecutor(jobs) as pool:
            task = progress.add_task("mutants", total=len(mutants))
            return list(pool.map(one, mutants))


def check_sound(mutants: Sequence[Mutant], trees: queue.SimpleQueue[Tree], console: Console) -> None:
    """Raises `ListError` where the tests do not pass without a fault."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    console.print(f"{len(mutants)} mutants; first the {len(tests)} test files without a fault")
    tree = trees.get()
    status, output = tree.run_tests(tests, 3_600.0)
    trees.put(tree)
    if status:
        raise ListError(f"the tests do not pass on the unchanged tree:\n{output[-3000:]}")


# ---- telling --------------------------------------------------------------------------------------


def share(verdicts: Sequence[Verdict]) -> tuple[int, int]:
    """How many were killed, and of how many that count."""
    killed, survived = (sum(verdict.result == result for verdict in verdicts) for result in (KILLED, SURVIVED))
    return killed, killed + survived


def tell(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print a table by room, and every mutant that was not killed."""
    table = Table("room", "killed", "of", "share")
    for room in [*sorted({verdict.mutant.room for verdict in verdicts}), "all"]:
        killed, of = share([verdict for verdict in verdicts if room in ("all", verdict.mutant.room)])
        table.add_row(room, str(killed), str(of), f"{killed / of:.1%}" if of else "-")
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
    parser.add_argument("--fresh", default="", metavar="SET", help="the fresh faults of this set: first, second")
    parser.add_argument("--sound", action="store_true", help="the tests are known to pass without a fault")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants side by side")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds until a mutant's tests count as hung")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every verdict here as JSON")
    options, console = parser.parse_args(), Console()
    try:
        lists, names = (LISTS / "fresh", f"{options.fresh}*.toml") if options.fresh else (LISTS, "*.toml")
        mutants = read_mutants(lists, options.only, names)
        if not mutants:
            raise ListError(f"no mutants in {lists} match {options.only!r}")
        check(mutants, ROOT)
        jobs = min(max(options.jobs, 1), len(mutants))
        verdicts = judge_all(mutants, ROOT, jobs, options.timeout, options.sound, console)
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
