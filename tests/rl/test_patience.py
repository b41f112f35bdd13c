"""Ranks wait for one that writes, each reads its own shards, and one that ends is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from paths import ROOT, SUPPORT

from crbc_lab.cli import errors_in_one_line
from crbc_rl.distributed import Distributed


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


def test_a_rank_whose_neighbour_has_ended_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def closed(*_: object, **__: object) -> None:
        raise RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:42219")

    monkeypatch.setattr(dist, "all_gather_object", closed)
    monkeypatch.setattr(dist, "barrier", closed)
    for wait in (Distributed(1, 2).barrier, lambda: Distributed(1, 2).any(True)):
        with pytest.raises(SystemExit) as ended, errors_in_one_line():
            wait()
        assert ended.value.code == 1
        said = capsys.readouterr().err
        told = "error: another rank has ended or does not answer: its own message says why (details: "
        assert said.startswith(told) and said.count("\n") == 1
        assert "Connection closed by peer" in Path(said[len(told) : -2]).read_text()
