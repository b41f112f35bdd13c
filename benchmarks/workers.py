"""Measures worker processes with frames in shared memory and sent: `python -m benchmarks.workers`.

One step of all members, wall time, in this process and in workers. The three take turns, so that a busy machine affects
all of them alike. The last column is what the workers add to the step of this process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from statistics import median

import numpy as np

from crbc_envs.vector import workers
from crbc_envs.vector.workers import process

WAYS = ("this process", "workers, frames sent", "workers, shared memory")


@contextmanager
def memory(way: str) -> Iterator[None]:
    """Workers that are made meanwhile have shared memory, or none."""
    made: Callable[[], int | None] = process.new_memory
    if way == "workers, frames sent":
        process.new_memory = lambda: None
    try:
        yield
    finally:
        process.new_memory = made


def milliseconds(members: int, num_workers: int, steps: int, rounds: int) -> dict[str, float]:
    """The median wall time of a step of Sokoban with frames, in milliseconds."""
    options = {"observation": "rgb", "max_steps": 10**6}
    everyone = list(range(members))
    zeros = [0] * members
    made = {}
    for way in WAYS:
        backend = "sync" if way == "this process" else "process"
        with memory(way):
            made[way] = workers.make_backend(
                backend, "CRBC-Sokoban-v0", options, num_workers, members // num_workers, num_workers, 60.0
            )
    spent: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, envs in made.items():
            envs.reset(everyone, zeros, zeros)
            replies = np.resize(["up", "down"], (steps, members)).tolist()
            for actions in replies:
                start = time.perf_counter()
                envs.step(everyone, actions)
                spent[way].append(time.perf_counter() - start)
    for envs in made.values():
        with closing(envs):
            pass
    return {way: 1e3 * median(times) for way, times in spent.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[8, 128, 1024])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    print(f"Sokoban, frames of 96x96x3, {given.workers} workers: milliseconds per step of all members")
    for members in given.members:
        found = milliseconds(members, given.workers, 10, given.rounds)
        here, sent, shared = (found[way] for way in WAYS)
        print(
            f"{members:>6,} members: {here:8.2f} here {sent:8.2f} sent {shared:8.2f} shared; "
            f"sent / shared {sent / shared:.2f}, what workers add {(sent - here) / (shared - here):.2f} times"
        )


if __name__ == "__main__":
    main()
