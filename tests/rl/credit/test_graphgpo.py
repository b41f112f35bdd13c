"""GraphGPO against numbers worked out by hand; test_rational.py holds it against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from closures import TIGHT
from strategies import group, rollout

from anchors import Rollout, RolloutGroup
from crbc_rl import credit

STEP = {"w_group": 0.0}


HAND = group("s:a m:b +", "s:b u:a s:a u:c -")
"""d(s) = 2 by m, d(m) = 1, d(u) = 3 by s; what is beyond has d = 4. At omega 1/2 a step into them earns
2.5, 5, 1.25 and 0.625; at s: 5, 1.25, 1.25; at u: 2.5 and 0.625."""


def test_distances_by_hand():
    got = credit.advantages(HAND, "graphgpo", omega=0.5, mode="mean_norm", **STEP)
    np.testing.assert_allclose(got[0], [2.5, 0], **TIGHT)
    np.testing.assert_allclose(got[1], [-1.25, 0.9375, -1.25, -0.9375], **TIGHT)


def test_a_failure_may_end_where_others_went_on():
    played = [*HAND.rollouts[:1], Rollout(HAND.rollouts[1].steps, False, final_anchor="m")]
    # The last step at u now leads to m: d(u) = 2, it earns 5 there and 2.5 on the way to s.
    got = credit.advantages(RolloutGroup(played), "graphgpo", omega=0.5, mode="mean_norm", **STEP)
    np.testing.assert_allclose(got[1], [2.5 - 10 / 3, -1.25, 2.5 - 10 / 3, 1.25], **TIGHT)


@pytest.mark.parametrize("final", [None, "never left"])
def test_a_failure_that_ends_off_the_graph_is_as_far_as_nothing_else(final):
    steps = HAND.rollouts[1].steps
    moved = RolloutGroup([HAND.rollouts[0], Rollout(steps, False, final_anchor=final)])
    for one, other in zip(credit.advantages(moved, "graphgpo"), credit.advantages(HAND, "graphgpo"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_success_ignores_where_it_stood_at_the_end():
    steps = rollout("s:a m:b +").steps
    for final in (None, "s", "m"):
        ended = RolloutGroup([Rollout(steps, True, final_anchor=final), HAND.rollouts[1]])
        for one, other in zip(credit.advantages(ended, "graphgpo"), credit.advantages(HAND, "graphgpo"), strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_farthest_anchor_of_one_group_is_no_matter_to_another():
    near, far = group("s:a +", "s:b -"), group("s:a m:a u:a v:a w:a +", "s:b -")
    together = credit.advantages_batch([near, far], "graphgpo", omega=0.5)
    for alone, values in zip((near, far), together, strict=True):
        for one, other in zip(credit.advantages(alone, "graphgpo", omega=0.5), values, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("mode", ["mean_std_norm", "mean_norm"])
@pytest.mark.parametrize(
    "flat",
    [
        group("s:a m:b -", "s:b -", "s:a s:a m:a -"),
        group(*["s:a m:b s:a m:b +"] * 7),
        group("s:a m:b +"),
        group("s:<invalid> -"),
    ],
    ids=["all fail", "equal successes", "one success", "one failure"],
)
def test_a_flat_group_gets_exact_zeros(mode, flat):
    # In the second the visits to m lead to s and to success, so they differ: only s is flat there.
    got = credit.advantages(flat, "graphgpo", mode=mode, success_reward=0.1)
    zero = [v[::2] for v in got] if len(flat) == 7 else got
    assert not np.concatenate(zero).any()
