"""Measures how fast a lost worker is replaced: `python -m benchmarks.envs --env sokoban --recovery`.

The recovery is the wall time of a step with a fault, minus that of a step without. A worker that is stopped or hangs
is detected by the timeout, so the timeout is part of its recovery. The start of a worker is measured separately. The
rest is the replay of its members, which here are stepped one by one.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium

from crbc_envs import GroupVectorEnv
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.vector.members import importable_spec
from crbc_envs.vector.workers.process import ProcessWorker

SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
FAULTS = ("killed", "raises", "stopped", "hangs")
GROUPS, SIZE = 16, 8


class FaultySokobanEnv(SokobanEnv):
    """A Sokoban that raises or hangs if the folder `faults` has a file of that name."""

    def __init__(self, faults: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.faults = faults

    def _execute(self, action: str) -> float:
        for path in Path(self.faults).iterdir():
            with suppress(FileNotFoundError):  # another worker took this fault first
                path.unlink()
                if path.name == "raises":
                    raise RuntimeError("a fault that was asked for")
                time.sleep(3600)
        return super()._execute(action)

    def batch(self, num_envs: int) -> None:
        return None


ENVS = {"sokoban": "benchmarks/FaultySokoban-v0"}
gymnasium.register(ENVS["sokoban"], entry_point=f"{__name__}:FaultySokobanEnv")


def step_seconds(envs: GroupVectorEnv) -> float:
    start = time.perf_counter()
    envs.step(["left"] * envs.num_envs)
    return time.perf_counter() - start


def start_seconds(env_id: str, kwargs: dict[str, Any], members: int) -> float:
    """The seconds to start a worker and make its members."""
    start = time.perf_counter()
    worker = ProcessWorker(timeout=60.0)
    worker.send((0, "make", (importable_spec(env_id), kwargs, members, [])))
    worker.receive(60.0)
    spent = time.perf_counter() - start
    worker.kill()
    return spent


def recovery(env_id: str, fault: str, steps: int, repeats: int, workers: int, timeout: float) -> list[tuple[str, str]]:
    """The median recovery time, with its parts, of a worker whose members have `steps` steps to replay."""
    plain, faulty, start = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        kwargs: dict[str, Any] = {"faults": folder, "observation": "text", "max_steps": steps + 2}
        options: dict[str, Any] = {"backend": "process", "num_workers": workers, "timeout": timeout}
        with closing(GroupVectorEnv(env_id, GROUPS, SIZE, **options, **kwargs)) as envs:
            for _ in range(repeats):
                envs.reset(seed=0)
                plain += [step_seconds(envs) for _ in range(steps)]
                if fault in SIGNALS:
                    os.kill(envs.members.supervisors[0].worker.process.pid, SIGNALS[fault])  # type: ignore[attr-defined]  # processes
                else:
                    (Path(folder) / fault).touch()
                faulty.append(step_seconds(envs))
                start.append(start_seconds(env_id, kwargs, envs.num_envs // workers))
            if envs.restarts != repeats:
                raise RuntimeError(
                    f"{envs.restarts} restarts for {repeats} faults: this machine is busy, so give a longer --timeout"
                )
    whole, silence = median(faulty) - median(plain), 0.0 if fault in ("killed", "raises") else timeout
    parts = (("in all", whole), ("  silence", silence), ("  start", median(start)))
    rest = ("  replay", whole - silence - median(start))
    return [(f"{fault:8} {name}", f"{1e3 * seconds:,.0f} ms") for name, seconds in (*parts, rest)]


@contextmanager
def _silence() -> Iterator[None]:
    """Context manager: hides the warnings about lost workers, because every fault here is intended."""
    log = logging.getLogger("crbc_envs.vector.workers")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def main(arguments: Sequence[str] | None = None) -> None:
    from benchmarks.credit import table  # here, because workers import this module and need no SciPy

    parser = argparse.ArgumentParser(prog="python -m benchmarks.envs", description=__doc__)
    parser.add_argument("--env", choices=sorted(ENVS), required=True)
    parser.add_argument("--recovery", action="store_true", required=True)
    parser.add_argument("--steps", type=int, default=10, help="steps played before the fault")
    parser.add_argument("--repeats", type=int, default=10, help="faults of each kind")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=2.0, help="seconds without an answer that count as hanging")
    given = parser.parse_args(arguments)
    for name in ("steps", "repeats", "workers"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(given, name)}")
    settings = (given.steps, given.repeats, given.workers, given.timeout)
    with _silence():
        rows = [row for fault in FAULTS for row in recovery(ENVS[given.env], fault, *settings)]
    members = f"{GROUPS * SIZE // given.workers} members a worker, {given.steps} steps each"
    table(f"Recovery of a lost worker of {given.env}, {members}: median of {given.repeats}", rows)


if __name__ == "__main__":
    main()
