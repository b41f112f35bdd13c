"""A long training takes no more memory at its end than at its beginning."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from learner_fixtures import small

from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run
from crbc_rl.training.clock import Callback, Record

UPDATES, SETTLED = 100, 25


class Resident(Callback):
    """The bytes of this process in memory after each update."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def record(self, record: Record) -> None:
        pages = Path("/proc/self/statm").read_text().split()[1]
        self.seen.append(int(pages) * os.sysconf("SC_PAGESIZE"))


@pytest.mark.full
def test_a_hundred_updates_take_the_memory_of_the_first(model: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    config = small(model, updates=UPDATES, env={"id": "CRBC-Sokoban-v0", "kwargs": {"observation": "text"}})
    resident = Resident()
    Learner(config, Run.start(tmp_path / "run", config, resume=False), resident).train()
    assert len(resident.seen) == UPDATES + 1
    early, late = max(resident.seen[5:SETTLED]), max(resident.seen[-SETTLED:])
    print(f"{early / 2**20:,.0f} MiB by update {SETTLED}, {late / 2**20:,.0f} MiB by update {UPDATES}")
    assert late < 1.1 * early
