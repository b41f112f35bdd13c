"""On the recorded groups every method's defaults are what they were, to the bit.

The digests are those of commit 00360bb, before CRBC had options beyond the paper's. A change of definition changes them
and is then written down here; a change of speed or form does not.

GraphGPO's was bf416f67eca04ca7 on processors where NumPy's powers are others by one bit, until all powers were exact.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import recorded_groups

from anchors import RolloutGroup
from crbc_rl import credit

GROUPS = [RolloutGroup([played.rollout() for played in g.rollouts]) for g in recorded_groups.read()]
DIGESTS = [
    ("crbc", {}, "ceb3df94973bd223"),
    ("crbc", {"depth": 0}, "76e4449d62595c37"),
    ("crbc", {"depth": 2}, "c6e24502c41bdfd0"),
    ("crbc", {"beta": 1.0}, "3a609a7106f7959a"),
    ("grpo", {}, "83c9ed388b31fed4"),
    ("drgrpo", {}, "80825d1753eb119b"),
    ("rloo", {}, "efa3f3fc0858698e"),
    ("gigpo", {}, "357462623b087dca"),
    ("hgpo", {}, "61b88d75201b7663"),
    ("graphgpo", {}, "4b638d8ebfa45937"),
    ("g2po", {}, "015a51883ed09e3b"),
    ("rtmc", {}, "c57502ccc63a5e68"),
]


def digest(values):
    return hashlib.sha256((np.concatenate(values) + 0.0).tobytes()).hexdigest()[:16]  # + 0.0: no negative zeros


@pytest.mark.parametrize(("method", "options", "told"), DIGESTS)
def test_the_defaults_are_equal_to_the_bit(method, options, told):
    update = credit.advantages_batch(GROUPS, method, **options)
    assert digest([values for group in update for values in group]) == told
    alone = [credit.advantages(group, method, **options) for group in GROUPS]
    assert digest([values for group in alone for values in group]) == told


def test_the_digests_tell_the_methods_apart():
    assert len({told for _, _, told in DIGESTS}) == len(DIGESTS)
