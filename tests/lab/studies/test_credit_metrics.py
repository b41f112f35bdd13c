"""The metrics of the accuracy study: by hand, and against scipy and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from anchors import EmpiricalProcess
from crbc_lab.studies import credit_metrics as metrics
from crbc_lab.studies.mdp import TabularMDP, evaluate, sample
from crbc_lab.studies.worlds import WORLDS, behaviour
from crbc_rl import credit


def played(mdp: TabularMDP, policy, methods, groups=4, size=6, seed=0) -> list[metrics.Group]:
    """Groups of a process, with the values of some methods: names, or functions of the process."""
    drawn = sample([(mdp, policy, np.random.default_rng(seed))], groups, size)
    process = EmpiricalProcess.from_interned(drawn.rollouts)
    values = np.stack([(credit.METHODS[m] if isinstance(m, str) else m)(process) for m in methods])
    return list(metrics.groups_of(drawn, process, values, [(mdp, policy, evaluate(mdp, policy))] * groups))


@pytest.fixture(scope="module")
def sokoban() -> list[metrics.Group]:
    mdp = WORLDS["sokoban"].make(0, 5)
    return played(mdp, behaviour(mdp, "soft0.7", np.random.default_rng(1)), ["crbc", "grpo"])


def test_rank_correlations_are_scipys():
    rng = np.random.default_rng(3)
    truth, rows = rng.integers(4, size=9).astype(float), rng.integers(3, size=(5, 9)).astype(float)
    ranks, true = rankdata(rows, axis=1), rankdata(truth)
    np.testing.assert_allclose(metrics.spearman(ranks, true), [spearmanr(r, truth).statistic for r in rows])
    flat = np.ones((1, 9))
    assert metrics.spearman(flat, true).tolist() == [0.0]


def test_groups_hold_what_was_drawn(sokoban):
    for group in sokoban:
        np.testing.assert_array_equal(group.pair_anchor[group.pair], group.mdp.anchor[group.state])
        np.testing.assert_array_equal(group.pair_action[group.pair], group.action)
        np.testing.assert_array_equal(group.count, np.bincount(group.pair))
        assert (group.state[group.time == 0] == 0).all() and group.rollout.max() == len(group.won) - 1 == 5
        actions = [set(group.pair_action[group.pair_anchor == o]) for o in group.pair_anchor]
        np.testing.assert_array_equal(group.gated, [len(seen) >= 2 for seen in actions])


def test_the_truth_scores_perfectly_and_its_negative_the_opposite(sokoban):
    group = metrics.with_truth(sokoban[0])
    true = group.values[-1:]
    changed = {name: getattr(group, name) for name in metrics.Group.__slots__}
    scores = metrics.identification(metrics.Group(**{**changed, "values": np.vstack([true, -true, 0 * true])}))
    np.testing.assert_allclose(scores["rank"], [1, -1, 0], atol=1e-12)
    assert scores["sign"].tolist() == [1, 0, 0] and scores["zero"].tolist() == [0, 0, 1]


def test_pairs_of_equal_truth_have_signs_and_no_order():
    mdp = TabularMDP(np.array([[[1], [1], [2]]]), np.ones((1, 3, 1)), 1)
    (group,) = played(mdp, np.array([[0.495, 0.495, 0.01]]), ["crbc"], groups=1, seed=1)
    assert set(group.action) == {0, 1} and metrics.identification(group).keys() == {"sign", "zero"}


def test_a_groups_gradient_is_the_sum_over_its_steps(sokoban):
    group = sokoban[1]
    anchors, found = metrics.gradient(group)
    dense = np.zeros((group.mdp.num_anchors, group.mdp.num_actions))
    for value, state, action in zip(group.values[0], group.state, group.action, strict=True):
        dense[group.mdp.anchor[state], action] += value
        dense[group.mdp.anchor[state]] -= value * group.policy[state]
    np.testing.assert_allclose(found[0], dense[anchors], atol=1e-12)
    assert not np.delete(dense, anchors, axis=0).any()


def test_leakage_is_the_share_on_idle_steps():
    mdp = WORLDS["needle"].make(0, 0)
    policy = behaviour(mdp, "mix0", np.random.default_rng(0))

    def first(process):
        return (process.rollouts.step == 0).astype(float)

    # The first of 16 steps decides, the others change nothing.
    for group in played(mdp, policy, [first, lambda process: np.ones_like(first(process))]):
        np.testing.assert_allclose(metrics.leakage(group)["leakage"], [0.0, 15 / 16])


def test_repaired_paths_by_hand():
    mdp = WORLDS["repair"].make(0, 0)
    policy = behaviour(mdp, "mix0", np.random.default_rng(0))

    def blame_and_praise(process):
        rollouts = process.rollouts
        return np.where(rollouts.length[rollouts.rollout] == 1, 0.0, np.where(rollouts.step == 0, -1.0, 3.0))

    found = 0
    for group in played(mdp, policy, [blame_and_praise, "grpo"], groups=8):
        scores = metrics.repaired(group)
        repairs = group.won & (np.bincount(group.rollout) == 2)
        assert bool(scores) == repairs.any()
        if scores:
            size = np.sqrt((group.values[0] ** 2).mean())
            assert scores["bad"][0] == pytest.approx(-1 / size) and scores["repair"][0] == pytest.approx(3 / size)
            # One number for a whole rollout cannot blame one step of it and praise another.
            assert scores["repaired"].tolist() == [1.0, 0.0]
            found += 1
    assert found > 3


def test_parts_of_the_mean_gradient_are_unbiased():
    """Noisy copies of a known vector, in many samples of three: the parts average to their definitions."""
    mdp = WORLDS["stop"].make(0, 0)
    truth = evaluate(mdp, behaviour(mdp, "mix0", np.random.default_rng(0)))
    rng = np.random.default_rng(2)
    u = metrics.unit(truth)
    expected = 0.6 * u + 0.3 * np.flip(u)
    draws = expected + 0.5 * rng.normal(size=(4_000, 3, 1, *u.shape))
    size = (draws**2).sum(axis=(2, 3, 4)).mean()
    aligned, kept = [], []
    for groups in draws:
        squares = (groups**2).sum(axis=(0, 2, 3))
        parts = metrics.mean_gradient(groups.sum(axis=0), (groups * u).sum(axis=(2, 3)), squares, truth)
        mean_square = squares / 3
        aligned.append(parts["aligned"] * mean_square)
        kept.append(parts["kept"] * mean_square)
    assert np.mean(aligned) == pytest.approx((expected * u).sum() ** 2, abs=0.02)
    assert np.mean(kept) == pytest.approx((expected**2).sum(), abs=0.02)
    assert size > 2 * (expected**2).sum()  # so that the plain |mean|^2 would be far off
