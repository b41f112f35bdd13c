"""G2PO against numbers worked out by hand and against the definition, row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from naive import TIGHT, agrees, by_key, episode, listed, penalty, places, step_at
from strategies import group

from crbc_rl import credit

STEP = {"w_group": 0.0}


def naive(group, mode="mean_std_norm", gamma=0.95, w_group=1.0, w_step=1.0):
    suffixes = {}
    for i, t in places(group):
        played = group.rollouts[i]
        suffix = 10.0 * gamma ** (len(played) - t) * played.success
        suffixes.setdefault(played.steps[t].anchor, []).append(suffix)
    V = {anchor: math.fsum(some) / len(some) for anchor, some in suffixes.items()}

    def reached(row):
        i, t = row
        played = group.rollouts[i]
        return V[played.steps[t + 1].anchor] if t + 1 < len(played) else 10.0 * played.success

    rows = places(group)
    edge = {row: reached(row) - penalty(group, row) for row in rows}
    gain = {row: reached(row) - V[step_at(group, row).anchor] for row in rows}
    edge = by_key(edge, lambda row: step_at(group, row).anchor, mode)
    gain = by_key(gain, lambda _: None, mode)
    whole = episode(group, mode)
    return listed(group, lambda row: w_group * whole[row[0]] + w_step * (edge[row] + gain[row]))


@pytest.mark.parametrize("options", [{}, {"gamma": 0.5, "w_step": 3.0}, {"w_group": 0.0}])
def test_it_is_the_definition_row_by_row(options):
    agrees(naive, "g2po", mode="mean_norm", **options)


def test_it_is_the_standardised_definition_row_by_row():
    # Mathematically equal values may differ by an ulp, which 1e-6 turns into 1e-9 in flat company.
    agrees(naive, "g2po", mode="mean_std_norm", gamma=0.5)


def test_edges_and_gains_by_hand():
    # gamma 1/2: V(s) = (2.5 + 0) / 2 = 1.25, V(m) = 5. Edges at s: 5 and 0. Gains: 3.75, 5 and -1.25, mean 2.5.
    hand = group("s:a m:b +", "s:b -")
    got = credit.advantages(hand, "g2po", gamma=0.5, mode="mean_norm", **STEP)
    np.testing.assert_allclose(np.concatenate(got), [2.5 + 1.25, 2.5, -2.5 - 3.75], **TIGHT)
    got = credit.advantages(hand, "g2po", gamma=0.5, **STEP)
    edge, gain = 5 / np.sqrt(2) + 1e-6, np.sqrt((1.25**2 + 2.5**2 + 3.75**2) / 2) + 1e-6
    np.testing.assert_allclose(
        np.concatenate(got), [2.5 / edge + 1.25 / gain, 2.5 / gain, -2.5 / edge - 3.75 / gain], **TIGHT
    )
    got = credit.advantages(hand, "g2po", gamma=0.5, mode="mean_norm", w_step=2.0)
    np.testing.assert_allclose(np.concatenate(got), [7.5 + 5, 5 + 5, -12.5 - 5], **TIGHT)


def test_equal_rollouts_differ_by_their_gains_alone():
    got = credit.advantages(group(*["s:a m:b +"] * 3), "g2po", gamma=0.5, mode="mean_norm")
    for values in got:
        np.testing.assert_allclose(values, [2.5 - 3.75, 5 - 3.75], **TIGHT)


def test_one_malformed_reply_among_failures():
    got = credit.advantages(group("s:<invalid> m:a -", "s:a m:a -"), "g2po", mode="mean_norm", **STEP)
    np.testing.assert_allclose(np.concatenate(got), [-0.05, 0, 0.05, 0], **TIGHT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 2.0}, r"gamma must lie in \(0, 1\], got 2.0"),
        ({"mode": "std"}, "mode must be one of"),
        ({"w_step": -1.0}, "w_group and w_step must be finite"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(credit.CreditError, match=message):
        credit.advantages(group("s:a +"), "g2po", **options)
