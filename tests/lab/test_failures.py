"""What the command says when something fails that nobody typed wrong: the machine, a module of one's own, or we."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from refusals import refusal
from warm import Ended, Warm

from crbc_envs.errors import EnvError
from crbc_lab import cli
from crbc_lab.commands import table
from crbc_rl.version import __version__

FAILING = """
import errno, os, sys
from crbc_lab import cli
from crbc_lab.commands import table

def fail():
    "Fails."
    {failure}

table.COMMANDS["doctor"] = fail
cli.main(["doctor"])
"""


@pytest.fixture
def run(warm: Warm, tmp_path: Path) -> Callable[[str], Ended]:
    """The command, where it fails with this code."""
    return lambda failure: warm.run(["-c", FAILING.format(failure=failure)], tmp_path, {"TMPDIR": str(tmp_path)})


def test_a_bug_of_ours_is_one_line_and_keeps_its_traceback_in_a_file(run: Callable[[str], Ended]) -> None:
    done = run('{}["lost"]')
    assert done.status == 1 and not done.out
    told = re.fullmatch(r"error: KeyError: 'lost' \(a bug in crbc; please report it with (.*)\)\n", done.err)
    assert told is not None, done.err
    kept = Path(told[1]).read_text()
    assert "Traceback (most recent call last)" in kept and f"crbc {__version__}" in kept and "in fail" in kept


def test_a_crash_of_native_code_shows_the_lines_that_it_came_from(run: Callable[[str], Ended]) -> None:
    done = run("os.kill(os.getpid(), 11)")
    assert done.status == -signal.SIGSEGV
    assert "Segmentation fault" in done.err and "in fail" in done.err


def test_what_a_module_of_ones_own_raises_names_its_file_and_line(run: Callable[[str], Ended], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make():\n    return 1 / 0\n")
    done = run("import mine; mine.make()")
    assert done.status == 2
    assert done.err.startswith(f"error: {tmp_path / 'mine.py'}, line 2: ZeroDivisionError: division by zero")
    assert done.err.count("\n") == 1 and "bug in crbc" not in done.err


def told_of(error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """Status and message of a command in which this is raised."""

    def fail() -> None:
        """Fails."""
        raise error

    monkeypatch.setitem(table.COMMANDS, "doctor", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor"])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (errno.ENOSPC, 1, "free some space"),
        (errno.EACCES, 2, "change its permissions"),
        (errno.EROFS, 2, "a disk that can be written"),
        (errno.EMFILE, 1, "ulimit -n"),
        (errno.EIO, 1, "details: "),
        (errno.ENOTDIR, 2, "is a file, not a folder"),
    ],
)
def test_faults_of_the_machine_name_the_file_and_what_helps(
    number: int, status: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = told_of(OSError(number, os.strerror(number), "some/file"), capsys, monkeypatch)
    assert code == status and said in told
    assert told.startswith(f"error: some/file: {os.strerror(number)}") and told.count("\n") == 1


def test_a_disk_too_full_for_the_details_still_gets_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> tuple[int, str]:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    _, told = told_of(OSError(errno.EIO, "Input/output error", "disk"), capsys, monkeypatch)
    assert "error: disk: Input/output error (details: no file" in told


@pytest.mark.parametrize("error", [MemoryError(), type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory")])
def test_too_little_memory_says_what_needs_less(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = told_of(error, capsys, monkeypatch)
    assert code == 1 and "out of memory: smaller optim.microbatch_tokens" in told and "with --resume" in told


def test_what_an_environment_of_ones_own_returns_is_no_bug_of_ours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "mine, step 3: phi returned None; return text"
    assert told_of(EnvError(said), capsys, monkeypatch) == (2, f"error: {said}\n")


def test_ctrl_c_is_one_word(run: Callable[[str], Ended]) -> None:
    done = run(f"os.kill(os.getpid(), {int(signal.SIGINT)})")
    assert done.status == 130 and done.err == "error: interrupted\n"


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    shown = FAILING.format(failure="[print('line', i, flush=True) for i in range(100_000)]")
    (tmp_path / "many.py").write_text(shown)
    command = f"{sys.executable} many.py | head -1"
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.stdout == "line 0\n" and not done.stderr


def test_what_a_message_holds_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    cli.tell("the name 'a\nb' and \x1b[31mred\x07")
    assert capsys.readouterr().err == "error: the name 'a; b' and \ufffd[31mred\ufffd\n"


def test_a_core_install_is_told_which_extra_it_lacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "version", lambda name: None if name == "tyro" else "1.0")
    told = refusal(capsys, "doctor")
    assert told.startswith("error: the crbc command needs tyro, not installed here: ")
    assert told.rstrip().endswith("[train]'")
