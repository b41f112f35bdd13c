"""Ranks wait for one that writes, and each reads its own shards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT, SUPPORT


@pytest.mark.full
def test_two_ranks_wait_for_a_slow_one_and_restore_their_own_shards(tmp_path: Path) -> None:
    started = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(SUPPORT / "two_ranks.py")]
    done = subprocess.run(
        [sys.executable, *started, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)])},
    )
    assert done.returncode == 0, done.stdout + done.stderr
