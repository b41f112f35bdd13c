"""Transcripts that a run keeps by itself, so that everybody can see why an agent fails.

In RUN/transcripts/, each a recording of `crbc_envs.storage.rollouts`:

test-000000.parquet       up to `transcripts` held-out tasks as the policy played them before training
test-000060.parquet       the same tasks in the same order, as the last policy played them: half of them those that it
                          lost, half those that it won, as far as there are, with the kinds of tasks in turn. Each task
                          is a group of one rollout.
training-000010.parquet   a group of the update before each validation, one with mixed outcomes if there is one

`crbc eval --out F.json` writes F.transcripts.parquet, one file of the same form as the test's. `crbc agents` writes
FOLDER/transcripts/test-000000.parquet. Both keep `--transcripts` tasks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FOLDER = "transcripts"
_NAME = re.compile(r"(training|validation|test)-(\d{6,9})\.parquet")


class Kept(NamedTuple):
    """A file of transcripts: after which update, and what was played: "training", "validation" or "test"."""

    update: int
    kind: str
    path: Path


def kept(folder: Path) -> list[Kept]:
    """The transcripts of a run folder, by update and kind; none where there are none."""
    found = [(match, path) for path in (folder / FOLDER).glob("*.parquet") if (match := _NAME.fullmatch(path.name))]
    return sorted(Kept(int(match[2]), match[1], path) for match, path in found)
