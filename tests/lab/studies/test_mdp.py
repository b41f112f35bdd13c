"""Tabular processes: exact values by hand and by finite differences, and sampling against them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anchors import EmpiricalProcess
from crbc_lab.studies.mdp import TabularMDP, evaluate, sample, visits


def two_rooms(horizon: int = 3) -> TabularMDP:
    """State 0: go on to 1, or lose. State 1: win or fall back with even chances, or lose."""
    successor = np.array([[[1, 1], [3, 3]], [[2, 0], [3, 3]]])
    probability = np.array([[[1.0, 0.0], [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]])
    return TabularMDP(successor, probability, horizon)


def drawn(rng: np.random.Generator, n: int = 9, actions: int = 3, horizon: int = 6) -> TabularMDP:
    """A random process in which some states share an anchor and some actions do not exist."""
    chance = rng.dirichlet(np.ones(3), size=(n, actions))
    anchor = np.concatenate([np.arange(n - 3), [1, 1, 2]])
    admissible = np.ones((n, actions), dtype=np.bool_)
    admissible[4, 1] = False
    return TabularMDP(rng.integers(n + 2, size=(n, actions, 3)), chance, horizon, anchor, admissible)


def softmax(mdp: TabularMDP, logits: np.ndarray) -> np.ndarray:
    weight = np.where(mdp.admissible, np.exp(logits[mdp.anchor]), 0.0)
    return weight / weight.sum(axis=1, keepdims=True)


def test_values_by_hand():
    mdp = two_rooms()
    uniform = np.full((2, 2), 0.5)
    truth = evaluate(mdp, uniform)
    # V with 1, 2, 3 steps left: (0, 1/4), (1/8, 1/4), (1/8, ...)
    assert truth.success == pytest.approx(1 / 8, abs=1e-15)
    # State 0 at t = 0 (Q 1/4, 0) and, with chance 1/8, at t = 2, where nothing can be won any more.
    np.testing.assert_allclose(visits(mdp, uniform), [[1, 0], [0, 1 / 2], [1 / 8, 0]])
    np.testing.assert_allclose(truth.credit[0], np.array([1 / 8, -1 / 8]) / (1 + 1 / 8))
    np.testing.assert_allclose(truth.credit[1], [1 / 4, -1 / 4])
    np.testing.assert_allclose(truth.gradient, [[1 / 16, -1 / 16], [1 / 16, -1 / 16]])
    assert truth.idle.tolist() == [[False, False], [False, False], [True, False]]


def test_the_gradient_is_that_of_the_exact_success():
    rng = np.random.default_rng(0)
    mdp = drawn(rng)
    logits = rng.normal(size=(mdp.num_anchors, mdp.num_actions))
    truth = evaluate(mdp, softmax(mdp, logits))
    step = 1e-5
    for o, a in np.ndindex(*logits.shape):
        shift = np.zeros_like(logits)
        shift[o, a] = step
        two = [evaluate(mdp, softmax(mdp, logits + sign * shift)).success for sign in (1, -1)]
        assert truth.gradient[o, a] == pytest.approx((two[0] - two[1]) / (2 * step), abs=1e-9)


def test_samples_have_the_exact_frequencies():
    mdp, rng = drawn(np.random.default_rng(2)), np.random.default_rng(3)
    policy = softmax(mdp, rng.normal(size=(mdp.num_anchors, mdp.num_actions)))
    count = 40_000
    found = sample([(mdp, policy, rng)], 2, count // 2)
    rollouts = found.rollouts
    assert rollouts.success.mean() == pytest.approx(evaluate(mdp, policy).success, abs=0.01)
    times = np.zeros((mdp.horizon, len(mdp)))
    np.add.at(times, (rollouts.step, found.state), 1 / count)
    np.testing.assert_allclose(times, visits(mdp, policy), atol=0.01)
    taken = np.zeros_like(policy)
    np.add.at(taken, (found.state, found.action), 1)
    often = taken.sum(axis=1) > 5_000
    np.testing.assert_allclose(taken[often] / taken[often].sum(axis=1, keepdims=True), policy[often], atol=0.03)
    np.testing.assert_array_equal(found.anchor, mdp.anchor[found.state])


def test_groups_are_apart_and_only_the_horizon_truncates():
    mdp = two_rooms(2)
    uniform = np.full((2, 2), 0.5)
    found = sample([(mdp, uniform, np.random.default_rng(i)) for i in range(3)], 4, 5).rollouts
    assert found.num_groups == 12 and (found.length <= 2).all()
    # After two steps that were not the end the agent is back at the start; nothing else is cut.
    assert found.truncated.any() and (found.length[found.truncated] == 2).all()
    starts = found.anchor[found.starts]
    np.testing.assert_array_equal(found.final_anchor[found.truncated], starts[found.truncated])
    assert (found.final_anchor[~found.truncated] == -1).all()
    assert len(set(starts.tolist())) == 12
    EmpiricalProcess.from_interned(found)


def test_a_play_draws_from_its_own_generator():
    mdp, other = two_rooms(), drawn(np.random.default_rng(4))
    uniform = np.full((2, 2), 0.5)
    policy = softmax(other, np.zeros((other.num_anchors, other.num_actions)))
    alone = sample([(mdp, uniform, np.random.default_rng(5))], 3, 4)
    after = sample([(other, policy, np.random.default_rng(6)), (mdp, uniform, np.random.default_rng(5))], 3, 4)
    np.testing.assert_array_equal(after.state[-len(alone.state) :], alone.state)
    np.testing.assert_array_equal(after.action[-len(alone.action) :], alone.action)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probability": np.ones((2, 2, 2))}, "add up to 1"),
        ({"anchor": np.array([0, 2])}, "without gaps"),
    ],
)
def test_columns_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(two_rooms(), **change)
