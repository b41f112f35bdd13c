"""GRAFT against numbers worked out by hand, and against Q - V; test_rational.py holds it against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from closures import TIGHT
from effort import effort
from rational import random_group
from strategies import group

from anchors import EmpiricalProcess
from crbc_rl import credit

KINDS = [
    {},
    {"beta": "auto"},
    {"beta": 1.0, "truncation": "failure"},
    {"truncation": "successor"},
    {"truncation": "successor", "reward": "score", "beta": 0.9},
    {"truncation": "successor", "reward": "step", "beta": 0.9},
    {"reward": "step", "beta": "auto"},
]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_without_lambda_its_mean_over_the_visits_to_a_pair_is_q_minus_v(options):
    """So GRAFT and the raw step credit have one expected gradient: a pair's visits share their policy's gradient."""
    rng = np.random.default_rng(18)
    for _ in range(effort(8, full=30)):
        update = [random_group(rng) for _ in range(3)]
        process = EmpiricalProcess.from_groups(update)
        raw = credit.step_credit(
            process,
            options.get("beta", 0.98),
            normalise=None,
            **{name: value for name, value in options.items() if name != "beta"},
        )
        mine = np.concatenate([one for got in credit.advantages_batch(update, "graft", **options) for one in got])
        mean = np.bincount(process.pair, weights=mine) / np.bincount(process.pair)
        np.testing.assert_allclose(mean, raw, rtol=0, atol=1e-11)
        # Hence the mean over an anchor's visits is 0: a graph average of such differences adds nothing downstream.
        anchor = process.rollouts.anchor
        np.testing.assert_allclose(np.bincount(anchor, weights=mine), 0.0, rtol=0, atol=1e-10)


def test_differences_by_hand():
    # beta 1/2: V(m) = 1/2 (1 + 0) / 2 = 1/4, V(s) = 1/2 (2/4) / 2 = 1/8.
    hand = group("s:a m:b +", "s:a m:b -")
    got = credit.advantages(hand, "graft", beta=0.5)
    np.testing.assert_allclose(np.concatenate(got), [0, 1 / 4, 0, -1 / 4], **TIGHT)
    got = credit.advantages(hand, "graft", beta=0.5, lam=0.5)
    np.testing.assert_allclose(np.concatenate(got), [1 / 16, 1 / 4, -1 / 16, -1 / 4], **TIGHT)
    # lam = 1: the rollout's own discounted return, 1/4 and 0 from s, minus V.
    got = credit.advantages(hand, "graft", beta=0.5, lam=1.0)
    np.testing.assert_allclose(np.concatenate(got), [1 / 8, 1 / 4, -1 / 8, -1 / 4], **TIGHT)
    # Dr. GRPO's relatives come on top where they are asked for: GRPO of 10 and 0 is +-1 / sqrt 2.
    got = credit.advantages(hand, "graft", beta=0.5, w_group=2.0, w_step=3.0)
    np.testing.assert_allclose(np.concatenate(got), [2**0.5, 2**0.5 + 0.75, -(2**0.5), -(2**0.5) - 0.75], atol=1e-6)
