"""A sample of two groups and its rows, for tests of the critic."""

from __future__ import annotations

from pathlib import Path

from learner_fixtures import small
from strategies import group

from anchors import InternedRollouts
from crbc_rl.batches import Row, Turn


def ppo(model: Path, **changes: object):
    return small(model, credit={"method": "gae"}, critic={"lr": 1e-2}, **changes)


SAMPLE = InternedRollouts.from_groups([group("s:a m:b +"), group("s:a -")])
ROWS = [
    [Row(Turn([3, 4], [5, 6, 7], [0.0] * 3), 0, 0.0, [0.0] * 3), Row(Turn([3], [5], [0.0]), 0, 0.0, [0.0])],
    [Row(Turn([9, 8, 7], [5, 2], [0.0] * 2), 1, 0.0, [0.0] * 2)],
]
