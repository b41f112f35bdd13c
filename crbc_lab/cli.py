"""The `crbc` command: runs a command of `commands/table.py`, and prints what went wrong in one line.

This file imports the standard library alone, since it also says which packages are missing.
"""

from __future__ import annotations

import errno
import faulthandler
import logging
import os
import shutil
import sys
import sysconfig
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from crbc_envs.errors import DataError, EnvError, RequirementError, install_extra, packages, remove_stranger, version
from crbc_envs.printable import one_line
from crbc_rl.errors import ConfigError, RankError, redacted
from crbc_rl.version import __version__

REMEDIES = {
    errno.ENOSPC: "free some space on that disk, then run the same command again; `crbc train` needs --resume",
    errno.EDQUOT: "free some of your quota, then run the same command again; `crbc train` needs --resume",
    errno.EMFILE: "raise the limit of open files: ulimit -n 4096",
    errno.ENOMEM: "close other programs, or take fewer groups or workers",
}
"""What helps, by the system's number of the fault."""

WRONG_PATHS = {
    errno.EACCES: "you may not read or write there; choose another folder, or change its permissions",
    errno.EPERM: "you may not write there; choose another folder, or change its permissions",
    errno.EROFS: "choose a folder on a disk that can be written",
    errno.ENOENT: "there is no such folder; make it first, or choose another",
    errno.EEXIST: "a file is there, and a folder is wanted; choose another name",
    errno.ENOTDIR: "a part of that path is a file, not a folder; choose another",
    errno.EISDIR: "it is a folder, and a file is wanted",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "its links lead in a circle",
}
"""Mistakes in a path that somebody gave."""
REMEDIES |= WRONG_PATHS

EXTRAS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("model", "get"): ("train", "models"),
    ("serve", "model"): ("train", "serve"),
    ("serve", "openenv"): ("openenv",),
}
"""The extras of this package that commands need, where these are not those of training alone."""

LONGEST = 1_900
"""Characters of a line that tells what went wrong."""

LONGEST_READ = 200_000
"""Characters of an error that are searched for keys."""

NARROWEST = 40
"""Columns that help and tables are laid out for, at least: on a single one the layout of the help does not end."""


def main(args: Sequence[str] | None = None) -> None:
    """Entry point. Exits with 2 after a person's mistake, with 1 after a fault of the machine, each told in one line
    on stderr, and with 130 after Ctrl-C. A bug keeps its traceback, in a file that the line names."""
    sys.excepthook = report_bug
    if sys.__stderr__ is not None and not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__)  # a crash of native code shows the lines it came from
    warnings.formatwarning = lambda message, *others: f"warning: {_line(str(message))}\n"
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Line())
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without Unicode
    # Must be set before torch is imported. OpenMP's threads spin while they wait for each other, by default for so
    # long that on two cores with one other busy process a generation of half a second took nine.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if shutil.get_terminal_size().columns < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # each retry of the hub's client would be a line
    args = sys.argv[1:] if args is None else list(args)
    with errors_in_one_line():
        if args[:1] in (["--version"], ["-V"], ["version"]):
            print(f"crbc {__version__}")
            return
        words = tuple(args[:2])
        for extra in EXTRAS.get(words, ("train",)):
            require(extra, f"crbc {' '.join(words)}" if words in EXTRAS else "the crbc command")
        from crbc_lab.commands.parse import parse
        from crbc_lab.commands.table import COMMANDS

        parse(COMMANDS, args, "Train LLM agents with CRBC.")()


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Turn a mistake, a fault of the machine or Ctrl-C into one line and an exit status."""
    try:
        yield
    except (ConfigError, EnvError, DataError, RequirementError) as error:
        tell(str(error))
        sys.exit(2)
    except ImportError:
        if not (cure := remove_stranger()):
            raise
        tell(f"the installed package `anchors` of another project hides crbc's own: {cure}")
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has gone, as in `crbc ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        remedy = REMEDIES.get(error.errno or 0)
        tell(f"{place}{error.strerror or error}" + (f": {remedy}" if remedy else f" (details: {_keep(error)})"))
        sys.exit(2 if error.errno in WRONG_PATHS else 1)
    except RankError as error:
        tell(f"{error} (details: {_keep(error)})")
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":  # torch's, of a GPU
            raise
        less = "optim.microbatch_tokens, generator.memory or prefix_cache"
        tell(f"out of memory: smaller {less} needs less, also with --resume (details: {_keep(error)})")
        sys.exit(1)
    except KeyboardInterrupt:
        tell("interrupted")
        sys.exit(130)


def tell(message: str) -> None:
    """Print one line to stderr, in red on a terminal."""
    line = _line(message)
    red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    print(f"{red}error:{plain} {line}", file=sys.stderr)


def _line(message: str) -> str:
    """The message in one line without keys, as a terminal may print it."""
    parts = map(str.strip, redacted(message[:LONGEST_READ]).splitlines())
    return one_line("; ".join(part for part in parts if part), LONGEST)


class _Line(logging.Formatter):
    """A record in one line. It may quote a file or a server."""

    def format(self, record: logging.LogRecord) -> str:
        return _line(super().format(record))


def require(extra: str, purpose: str) -> None:
    """Raise `RequirementError` where a package of one of our extras is not installed."""
    missing = [name for name in packages(extra) if version(name) is None]
    if missing:
        raise RequirementError(f"{purpose} needs {', '.join(missing)}, not installed here: {install_extra(extra)}")


def report_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """`sys.excepthook` of the command: one line, and the traceback in a file.

    What a module of the person's own raises is their mistake, and the line names its place.
    """
    place = _own_place(trace)
    if place:
        tell(f"{place}: {kind.__name__}: {error} (details: {_keep(error)})")
        sys.exit(2)
    tell(f"{kind.__name__}: {error} (a bug in crbc; please report it with {_keep(error)})")


def _own_place(trace: TracebackType | None) -> str:
    """Where the error was raised, "FILE, line N", if neither this package, Python nor an installed package did."""
    frames = traceback.extract_tb(trace)
    if not frames:
        return ""
    file = Path(frames[-1].filename).resolve()
    others = [Path(__file__).resolve().parents[1] / name for name in ("anchors", "crbc_envs", "crbc_rl", "crbc_lab")]
    others += [Path(place).resolve() for place in sysconfig.get_paths().values()]
    outside = file.is_file() and not any(file.is_relative_to(other) for other in others)
    return f"{file}, line {frames[-1].lineno}" if outside else ""


def _keep(error: BaseException) -> str:
    """Write an error's traceback, without keys, to a file of its own, and return the file's name."""
    text = f"crbc {__version__}, Python {sys.version}\n{sys.argv}\n{''.join(traceback.format_exception(error))}"
    text = redacted(text[-LONGEST_READ:])
    for folder in (tempfile.gettempdir(), os.getcwd()):
        try:
            number, path = tempfile.mkstemp(".log", f"crbc-error-{time.strftime('%Y%m%d-%H%M%S')}-", folder)
            with open(number, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except OSError:  # a full disk, for example
            continue
        return path
    return "no file, as none could be written: " + text.strip().splitlines()[-1]


if __name__ == "__main__":
    main()
