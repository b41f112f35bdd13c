"""Estimators as their papers put them, one row at a time: what the vectorised ones are held against."""

from __future__ import annotations

import math

import numpy as np
from effort import effort
from strategies import ANCHORS, random_group

from anchors import Rollout, RolloutGroup
from crbc_rl import credit

TIGHT = {"rtol": 0, "atol": 1e-12}
MODES = ("mean_std_norm", "mean_norm")

EPSILON = 1e-6


def random_update(rng, groups=3):
    """Groups of one update; about half of the rollouts know the anchor after their last step."""
    update = []
    for _ in range(groups):
        rollouts = []
        for played in random_group(rng).rollouts:
            final = rng.choice([None, None, None, *ANCHORS[:3], "never left"])
            rollouts.append(Rollout(played.steps, played.success, final_anchor=final))
        update.append(RolloutGroup(rollouts))
    return update


def agrees(naive, method, seed=0, **config):
    """Hold `method` against naive(group, **config) -> one list per rollout, on 120 random groups."""
    rng = np.random.default_rng(seed)
    for _ in range(effort(40, full=120)):
        update = random_update(rng)
        for group, got in zip(update, credit.advantages_batch(update, method, **config), strict=True):
            for one, other in zip(got, naive(group, **config), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def deviations(values):
    """Each value minus the mean; zero where nothing but rounding is left."""
    mean = math.fsum(values) / len(values)
    scale = math.fsum(map(abs, values)) / len(values)
    return [0.0 if abs(x - mean) <= 1e-12 * scale else x - mean for x in values]


def normalised(values, mode, ddof=1):
    apart = deviations(values)
    if mode == "mean_norm":
        return apart
    std = math.sqrt(math.fsum(x * x for x in apart) / max(len(apart) - ddof, 1))
    return [x / (std + EPSILON) for x in apart]


def by_key(rows, key, mode, ddof=1):
    """Normalise {row: value} among the rows with equal key(row)."""
    members = {}
    for row in rows:
        members.setdefault(key(row), []).append(row)
    out = {}
    for some in members.values():
        out.update(zip(some, normalised([rows[row] for row in some], mode, ddof), strict=True))
    return out


def places(group):
    """(i, t) of every step, t from 0."""
    return [(i, t) for i, played in enumerate(group.rollouts) for t in range(len(played))]


def step_at(group, row):
    return group.rollouts[row[0]].steps[row[1]]


def penalty(group, row, size=0.1):
    return 0.0 if step_at(group, row).valid else size


def episode(group, mode):
    """A_E of each rollout."""
    returns = [10.0 * played.success - 0.1 * played.invalid for played in group.rollouts]
    return normalised(returns, mode)


def step_returns(group, gamma):
    return {
        (i, t): 10.0 * group.rollouts[i].success * gamma ** (len(group.rollouts[i]) - 1 - t) - penalty(group, (i, t))
        for i, t in places(group)
    }


def listed(group, value):
    """value(row) of every row, one list per rollout."""
    return [[value((i, t)) for t in range(len(played))] for i, played in enumerate(group.rollouts)]
