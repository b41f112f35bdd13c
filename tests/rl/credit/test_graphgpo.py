"""GraphGPO against numbers worked out by hand and against the definition, row by row."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from naive import MODES, TIGHT, agrees, by_key, episode, listed, penalty, places, step_at
from strategies import group, rollout

from anchors import Rollout, RolloutGroup
from crbc_rl import credit

STEP = {"w_group": 0.0}


def leads_to(group, row):
    """The node a step leads to; a fresh one for a failure that ended nobody knows where."""
    i, t = row
    played = group.rollouts[i]
    if t + 1 < len(played):
        return played.steps[t + 1].anchor
    return "+" if played.success else (played.final_anchor or ("lost", i))


def naive(group, mode="mean_std_norm", omega=0.1, w_group=1.0, w_step=1.0):
    into = {}
    for row in places(group):
        into.setdefault(leads_to(group, row), set()).add(step_at(group, row).anchor)
    d, queue = {"+": 0}, deque(["+"])
    while queue:
        node = queue.popleft()
        for before in into.get(node, ()):
            if before not in d:
                d[before] = d[node] + 1
                queue.append(before)
    beyond = max(d.values()) + 1
    earned = {row: 10.0 * omega ** d.get(leads_to(group, row), beyond) - penalty(group, row) for row in places(group)}
    step = by_key(earned, lambda row: step_at(group, row).anchor, mode)
    whole = episode(group, mode)
    return listed(group, lambda row: w_group * whole[row[0]] + w_step * step[row])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", [{}, {"omega": 0.8, "w_step": 3.0}, {"omega": 0.2, "w_group": 0.0}])
def test_it_is_the_definition_row_by_row(mode, options):
    agrees(naive, "graphgpo", mode=mode, **options)


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


@pytest.mark.parametrize("mode", MODES)
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


def test_one_malformed_reply_among_failures():
    got = credit.advantages(group("s:<invalid> m:a -", "s:a m:a -"), "graphgpo", mode="mean_norm", **STEP)
    np.testing.assert_allclose(np.concatenate(got), [-0.05, 0, 0.05, 0], **TIGHT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"omega": 0.0}, r"omega must lie in \(0, 1\], got 0.0"),
        ({"mode": "std"}, "mode must be one of"),
        ({"w_group": float("nan")}, "w_group and w_step must be finite"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(credit.CreditError, match=message):
        credit.advantages(group("s:a +"), "graphgpo", **options)
