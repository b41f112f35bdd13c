"""Runs the `crbc` command, or a piece of code, in forks of one process that has imported torch and the learner once.

A fresh interpreter spends six seconds of a core on these imports. A fork has its own folder, variables, streams and
exit status, so that a test sees what a process shows. What concerns the start of an interpreter (variables that are
read while importing, permissions, Ctrl-C while it starts) needs a process of its own.

    python -m warm MODULE...        # the server: imports the modules, then reads one request per line, as JSON
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

SUPPORT = Path(__file__).resolve().parent  # not from `paths`, which forks of another tree import anew
ROOT = SUPPORT.parents[1]
LEARNER = ("crbc_rl.learner", "crbc_lab.commands.table", "transformers.models.qwen2", "pyarrow.parquet")
CONSTANT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_VERBOSITY": "error"}


@dataclass(frozen=True)
class Ended:
    """What a fork showed. `status` is the exit status, minus the signal's number if one ended it."""

    status: int
    out: str
    err: str
    seconds: float
    cpu_seconds: float
    megabytes: float


class Fork:
    """A process that runs: its `pid`, and `wait` for its end."""

    def __init__(self, warm: Warm, pid: int, streams: Path) -> None:
        self.pid = pid
        self._warm = warm
        self._streams = streams

    def wait(self, seconds: float = 300.0) -> Ended:
        """What it showed, after its end; after so many seconds it is killed, with all of its process group."""
        used = self._warm.ask({"wait": self.pid, "seconds": seconds})
        out, err = (
            (self._streams / name).read_text(encoding="utf-8", errors="replace") for name in ("stdout", "stderr")
        )
        return Ended(out=out, err=err, **used)

    def shown(self) -> str:
        """What it has printed so far."""
        return (self._streams / "stdout").read_text(encoding="utf-8")

    def until(self, reached: Callable[[], bool], seconds: float = 300.0) -> None:
        """Wait until something is so. Raises `AssertionError` where the process ends before."""
        end = time.monotonic() + seconds
        while not reached():
            assert self.is_running() and time.monotonic() < end, self.wait(0.0)
            time.sleep(0.01)

    def is_running(self) -> bool:
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"


class Warm:
    """Context manager: the server. `modules` are imported once, for all forks."""

    def __init__(self, modules: Sequence[str] = LEARNER, tree: Path = ROOT) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CRBC_")}
        path = os.pathsep.join((str(tree), str(SUPPORT)))
        self._server = subprocess.Popen(
            [sys.executable, "-m", "warm", *modules],
            env={**kept, **CONSTANT, "PYTHONPATH": path},
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._folder = tempfile.TemporaryDirectory(prefix="warm-", ignore_cleanup_errors=True)
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()
        self._folder.cleanup()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdin is not None and self._server.stdout is not None
        print(json.dumps(request), file=self._server.stdin, flush=True)
        answer = self._server.stdout.readline()
        assert answer, "the warm process has ended"
        return dict(json.loads(answer))

    def start(
        self, words: Sequence[object], cwd: Path, env: Mapping[str, str | None] | None = None, stdin: str = ""
    ) -> Fork:
        """Start `crbc WORDS`, or with "-c" first the code that follows. `env` changes this process's variables."""
        self._count += 1
        streams = Path(self._folder.name) / str(self._count)
        streams.mkdir()
        for name in ("stdin", "stdout", "stderr"):
            (streams / name).write_text(stdin if name == "stdin" else "", encoding="utf-8")
        variables = {**os.environ, **CONSTANT, **(env or {})}
        variables = {name: value for name, value in variables.items() if value is not None}
        request = {"words": list(map(str, words)), "cwd": str(cwd), "env": variables, "streams": str(streams)}
        return Fork(self, self.ask(request)["pid"], streams)

    def run(
        self, words: Sequence[object], cwd: Path, env: Mapping[str, str | None] | None = None, stdin: str = ""
    ) -> Ended:
        """Start it, and wait for its end."""
        return self.start(words, cwd, env, stdin).wait()


# ---- the server --------------------------------------------------------------------------------------


def start(request: dict[str, Any]) -> dict[str, Any]:
    if (child := os.fork()) == 0:
        become(request)
    return {"pid": child}


def wait(request: dict[str, Any]) -> dict[str, Any]:
    child, began = request["wait"], time.monotonic()
    while not (ended := os.wait4(child, os.WNOHANG))[0]:
        if time.monotonic() - began > request["seconds"]:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.005)
    _, status, used = ended
    return {
        "status": os.waitstatus_to_exitcode(status),
        "seconds": time.monotonic() - began,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "megabytes": used.ru_maxrss / 1024,
    }


def become(request: dict[str, Any]) -> NoReturn:
    """Be the process that was asked for, to its end."""
    os.setsid()
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    tempfile.tempdir = None  # the next that asks reads TMPDIR
    sys.path.remove(str(SUPPORT))
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", *sys.path)]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(Path(request["streams"]) / name, flags), number)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, "r" if n == 0 else "w", closefd=False) for n in range(3))
    status = 0
    try:
        execute(request["words"])
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:  # noqa: BLE001  the end of a process
        sys.excepthook(type(error), error, error.__traceback__)
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def execute(words: list[str]) -> None:
    if words[0] == "-c":
        sys.path.insert(0, "")
        sys.argv = words[:1] + words[2:]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102  a test's own code
    elif words[0].endswith(".py"):
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
    else:
        from crbc_lab import cli

        sys.argv = ["crbc", *words]
        cli.main(words)


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # so that no fork looks at all that was imported in each full collection, and copies its pages
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(wait(request) if "wait" in request else start(request)), file=answers, flush=True)


if __name__ == "__main__":
    main()
