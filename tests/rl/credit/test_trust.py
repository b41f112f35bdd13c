"""`trust`: the closure where its slope allows it, and each visit's own return where anchors hide state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from strategies import group

from anchors import INVALID, EmpiricalProcess, Rollout, RolloutGroup, Step
from crbc_lab.studies.mdp import sample
from crbc_lab.studies.worlds import WORLDS
from crbc_lab.studies.worlds.behaviours import behaviour
from crbc_rl import credit
from crbc_rl.credit.gigpo import gigpo
from crbc_rl.credit.metrics import NO_SLOPE, Slope, calibration
from crbc_rl.credit.trust import MEMORY, own_returns, pooled

STEP = {"w_group": 0.0, "w_step": 1.0}


def played(world: str, groups: int = 8, seed: int = 0) -> EmpiricalProcess:
    """Groups of a moderate behaviour in eight processes of a world."""
    plays = []
    for index in range(8):
        mdp, rng = WORLDS[world].make(2, index), np.random.default_rng([seed, index])
        plays.append((mdp, behaviour(mdp, "soft0.3", rng), rng))
    return EmpiricalProcess.from_interned(sample(plays, groups, 8).rollouts)


def values(process: EmpiricalProcess, **options: Any) -> Any:
    return credit.estimator_of("crbc")(process, **{**STEP, **options})


def test_without_trust_nothing_changes_and_trusted_anchors_change_nothing() -> None:
    process = played("sokoban-h20", 16)
    plain = values(process)
    assert not calibration(process).fails
    np.testing.assert_array_equal(values(process, trust=None), plain)
    np.testing.assert_array_equal(values(process, trust="slope"), plain)


def test_where_anchors_hide_state_a_step_has_its_own_return() -> None:
    process = played("alfworld-observation", 16)
    assert calibration(process).fails
    found = values(process, trust="slope")
    rollouts = process.steps()[0]
    own = 0.98**rollouts.remaining * rollouts.success[rollouts.rollout]
    for anchor in np.unique(rollouts.anchor):
        here = rollouts.anchor == anchor
        spread = own[here].std(ddof=1) if here.sum() > 1 else 0.0
        expected = (own[here] - own[here].mean()) / (spread + 1e-6) if spread > 1e-9 else 0.0
        np.testing.assert_allclose(found[here], expected, rtol=2e-4, atol=1e-6)
    # GiGPO's step term, up to what is added to a deviation.
    options = {"gamma": 0.98, "w_group": 0.0, "invalid_penalty": 0.0}
    np.testing.assert_allclose(found, gigpo(process, **options), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("w_step", "weight"), [(5.0, 1.0), (1.0, 1.0), (0.5, 0.5), (0.0, 0.0)])
def test_own_returns_have_gigpos_weight_or_the_steps_where_that_is_less(w_step: float, weight: float) -> None:
    process = played("alfworld-observation", 16)
    found = values(process, trust="slope", w_step=w_step)
    np.testing.assert_allclose(found, weight * own_returns(process, _earned(process)), atol=1e-15)
    plain = credit.estimator_of("crbc")(process, w_step=w_step)
    joined = credit.estimator_of("crbc")(process, trust="slope", w_step=w_step)
    closed = values(process, w_step=w_step)
    np.testing.assert_allclose(joined - found, plain - closed, atol=1e-9, err_msg="the group's term stays")


def test_a_slope_of_updates_before_decides_with_these_groups() -> None:
    markov, hidden = played("sokoban-h20"), played("alfworld-observation", 16)
    distrust = pooled(NO_SLOPE, hidden, {})
    assert distrust.fails and not pooled(NO_SLOPE, markov, {}).fails
    few = EmpiricalProcess.from_interned(markov.steps()[0].select([0]))
    np.testing.assert_array_equal(values(few, trust=distrust), own_returns(few, _earned(few)))
    np.testing.assert_array_equal(values(few, trust=NO_SLOPE), values(few))
    later = pooled(pooled(NO_SLOPE, hidden, {"beta": 0.9}), markov, {"beta": 0.9})
    assert later.sums.shape[1] == 128 + 64, "nothing is forgotten, and the older weighs less"
    np.testing.assert_allclose(later.sums[:, :128], MEMORY * calibration(hidden, 0.9).sums)


@pytest.mark.parametrize(
    ("lower", "upper", "fails"),
    [
        pytest.param([0.1] * 8, [0.1] * 8, True, id="hidden"),
        pytest.param([0.1] * 7, [0.1] * 7, False, id="few groups"),
        pytest.param([0.9] * 8, [1.1] * 8, False, id="they err to either side"),
        pytest.param([0.85] * 8, [0.99] * 8, True, id="their mean"),
        pytest.param([0.7, 1.1] * 4, [0.7, 1.1] * 4, False, id="a large error"),
        pytest.param([0.98] * 8, [0.98] * 8, False, id="little is hidden"),
    ],
)
def test_the_slopes_fail_by_their_mean_and_error(lower: list[float], upper: list[float], fails: bool) -> None:
    assert Slope(np.array([lower, upper, [1.0] * len(lower)])).fails == fails


@pytest.mark.parametrize(
    ("lower", "upper", "hidden"),
    [
        pytest.param([0.5] * 32, [0.5] * 32, True, id="hidden"),
        pytest.param([0.5] * 31, [0.5] * 31, False, id="few groups"),
        pytest.param([0.5] * 32, [1.1] * 32, False, id="one slope alone"),
        pytest.param([0.0, 1.8] * 16, [0.0, 1.8] * 16, False, id="a large error"),
    ],
)
def test_state_is_hidden_where_both_slopes_say_so(lower: list[float], upper: list[float], hidden: bool) -> None:
    assert Slope(np.array([lower, upper, [1.0] * len(lower)])).hidden == hidden


def test_of_a_long_run_the_latest_groups_count_and_older_ones_less() -> None:
    found = Slope(np.ones((3, 4096))).then(Slope(np.full((3, 1), 7.0)), 1.0)
    assert found.sums.shape == (3, 4096) and found.sums[0, -2:].tolist() == [1.0, 7.0]
    assert Slope(np.ones((3, 1))).then(Slope(np.ones((3, 1)))).sums[0].tolist() == [0.8, 1.0]


def test_malformed_steps_cost_where_the_closure_is_not_trusted_and_its_reward_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    malformed = Rollout([Step("s", "a"), Step("m", INVALID)], success=True)
    process = EmpiricalProcess.from_groups([RolloutGroup([malformed, *group("s:a m:b +", "s:b -").rollouts])])
    distrust = Slope(np.array([[0.1] * 64, [0.1] * 64, [1.0] * 64]))
    found = values(process, trust=distrust, beta=0.9, invalid_cost=0.3)
    # Own returns: s .9 (0 + .9 (1 - .3)), .81, 0; m .9 (1 - .3), .9.
    for where, own in (([0, 2, 4], [0.567, 0.81, 0.0]), ([1, 3], [0.63, 0.9])):
        expected = (np.array(own) - np.mean(own)) / (np.std(own, ddof=1) + 1e-6)
        np.testing.assert_allclose(found[where], expected, rtol=1e-6)
    asked: list[Any] = []
    monkeypatch.setattr("crbc_rl.credit.trust.run_calibration", lambda *given: asked.append(given[2]) or NO_SLOPE)
    values(process, trust="slope", reward="step", invalid_cost=0.3)
    assert asked[0]["reward"] == "step" and asked[0]["invalid_cost"] == 0.3


def test_another_value_is_refused() -> None:
    with pytest.raises(credit.CreditError, match='trust must be None, "slope" or a Slope'):
        values(played("house", 1), trust="always")
    with pytest.raises(credit.CreditError, match="no option 'trsut'"):
        values(played("house", 1), trsut="slope")


def _earned(process: EmpiricalProcess) -> Any:
    from crbc_rl.credit.rewards import Earned

    return Earned(process.steps()[0])
