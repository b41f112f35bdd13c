"""The process that opens what attackers made. It imports the package once, and forks for each case.

It reads one request per line from its input, as JSON, and answers each with one line.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_VERBOSITY": "error"}

import pyarrow.parquet
import torch
import transformers.models.qwen2

import crbc_rl.commands.table
import crbc_rl.learner
from crbc_rl import cli
from hostile.corpus import CASES

CPU_SECONDS = 10
WALL_SECONDS = 30
ADDRESS_SPACE = 4 << 30
"""Bytes that a case may reserve beyond what this process has: a bound for the machine's sake, above the test's."""


def run(request: dict[str, str | list[str]]) -> dict[str, float]:
    """Fork, let the child do what the victim does, and measure it."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_victim(request)
    while not (ended := os.wait4(child, os.WNOHANG))[0]:
        if time.monotonic() - began > WALL_SECONDS:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.005)
    _, status, used = ended
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return {
        "status": code,
        "seconds": time.monotonic() - began,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "megabytes": used.ru_maxrss / 1024,
    }


def _be_the_victim(request: dict[str, str | list[str]]) -> None:
    case, folder = CASES[request["name"]], Path(request["folder"])
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + ADDRESS_SPACE,) * 2)
    os.chdir(folder / "here")
    os.environ |= case.env | {"HOME": str(folder / "here"), "CRBC_DATA": str(folder / "here" / "data")}
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(folder / name, flags), number)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, "r" if n == 0 else "w", closefd=False) for n in range(3))
    status = 0
    try:
        if case.probe is None:
            cli.main(request["argv"])
        else:
            with cli.mistakes_told():
                case.probe(folder)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:  # noqa: BLE001  the end of a process
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def main() -> None:
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    print(json.dumps({"package": str(Path(crbc_rl.__file__).parents[1])}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), file=answers, flush=True)


__all__ = ["main", "pyarrow", "transformers"]

if __name__ == "__main__":
    main()
