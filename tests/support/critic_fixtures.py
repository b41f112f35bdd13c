"""A table of two groups, for tests of the critic."""

from __future__ import annotations

from pathlib import Path

from learner_fixtures import small
from strategies import group

from anchors import InternedRollouts
from crbc_rl.batches import RolloutBatch, Turn


def ppo(model: Path, **changes: object):
    return small(model, credit={"method": "gae"}, critic={"lr": 1e-2}, **changes)


BATCH = RolloutBatch.of(
    InternedRollouts.from_groups([group("s:a m:b +"), group("s:a -")]),
    [Turn([3, 4], [5, 6, 7], [0.0] * 3), Turn([3], [5], [0.0]), Turn([9, 8, 7], [5, 2], [0.0] * 2)],
)
