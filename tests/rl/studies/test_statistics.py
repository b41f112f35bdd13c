"""Statistics over seeds and clustered tasks: by hand, beside scipy, and by simulation where the truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage_of_intervals import Design, study, truth
from crbc_envs.checking.intervals import wilson
from crbc_rl.errors import ConfigError
from crbc_rl.studies import statistics as st
from crbc_rl.studies.statistics.resampling import cluster_counts


def rng(seed=0):
    return np.random.default_rng(seed)


def table(values, cluster=None):
    """Outcomes from rows of values, (S, T); each task its own cluster unless told otherwise."""
    values = np.asarray(values, dtype=float)
    seeds, tasks = np.indices(values.shape)
    of_task = np.arange(values.shape[1]) if cluster is None else np.asarray(cluster)
    return st.Outcomes.of(seeds.ravel(), tasks.ravel(), of_task[tasks.ravel()], values.ravel())


# ---- outcomes ------------------------------------------------------------------------------------


def test_outcomes_come_in_any_order_and_keep_their_labels():
    rows = [(7, "b", "x", 1.0), (5, "a", "x", 0.0), (5, "b", "x", 0.5), (7, "a", "x", 0.0), (5, "c", "y", 1.0)]
    rows.append((7, "c", "y", 1.0))
    one, other = (st.Outcomes.of(*zip(*some, strict=True)) for some in (rows, rows[::-1]))
    assert one.seeds.tolist() == [5, 7] and one.tasks.tolist() == ["a", "b", "c"] and one.cluster.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(one.values, [[0.0, 0.5, 1.0], [0.0, 1.0, 1.0]])
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.sums, [[0.5, 1.0], [1.0, 1.0]])
    assert one.sizes.tolist() == [2, 1] and one.mean == pytest.approx(3.5 / 6) and not one.binary


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([0, 0], [0, 1], [0, 1], [1.0, np.nan]), "row 1 of the outcomes has the value nan"),
        (([0, 0], [0, 1], [0, 1], [1.0]), "unequal lengths"),
        (([], [], [], []), "there are no outcomes"),
        (([0, 0], [3, 3], [0, 0], [1.0, 1.0]), "seed 0 played task 3 twice"),
        (([0, 0, 1], [3, 4, 3], [0, 0, 0], [1.0, 1.0, 1.0]), "seed 1 played task 4 never"),
        (([0, 1], [3, 3], ["a", "b"], [1.0, 1.0]), "task 3 is in two clusters"),
    ],
)
def test_what_is_no_table_of_outcomes_is_refused_in_one_line(columns, message):
    with pytest.raises(ConfigError, match=message) as raised:
        st.Outcomes.of(*columns)
    assert "\n" not in str(raised.value)


def test_methods_are_compared_on_the_same_tasks_only():
    with pytest.raises(ConfigError, match="b and a differ in their tasks"):
        st.paired({"a": table(np.zeros((2, 3))), "b": table(np.zeros((2, 4)))})


# ---- figures beside scipy ------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 4, 5, 8, 11])
def test_the_interquartile_mean_is_scipys(count):
    values = rng(count).normal(size=(6, count))
    np.testing.assert_allclose(st.interquartile_mean(values), stats.trim_mean(values, 0.25, axis=1), rtol=1e-12)
    often = cluster_counts(6, count, rng(1))
    ordered = np.sort(values, axis=1)
    repeated = [stats.trim_mean(np.repeat(row, n.astype(int)), 0.25) for row, n in zip(ordered, often, strict=True)]
    np.testing.assert_allclose(st.interquartile_mean(ordered, often), repeated, rtol=1e-12)


def test_estimates_of_the_interquartile_mean_are_scipys_too():
    scores = table(rng(2).random((5, 40)))
    over_seeds, over_scores = (st.estimate(scores, rng(), statistic=s, resamples=300) for s in ("iqm", "iqm_scores"))
    assert over_seeds.value == pytest.approx(stats.trim_mean(scores.per_seed, 0.25), abs=1e-12)
    assert over_scores.value == pytest.approx(stats.trim_mean(scores.values.ravel(), 0.25), abs=1e-12)
    assert over_seeds.low < over_seeds.value < over_seeds.high and over_scores.low < 0.5 < over_scores.high
    with pytest.raises(ConfigError, match="not defined for successes"):
        st.estimate(table(np.eye(3)), rng(), statistic="iqm_scores")


def test_the_probability_of_improvement_is_that_of_mann_and_whitney():
    mine, theirs = table(rng(3).integers(0, 3, (5, 4))), table(rng(4).integers(0, 3, (5, 4)))
    found = st.improvement(mine, theirs, rng(), resamples=500)
    assert found.value == pytest.approx(stats.mannwhitneyu(mine.per_seed, theirs.per_seed).statistic / 25)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert st.improvement(mine, mine, rng(), resamples=10).value == 0.5


def test_holms_correction_by_hand():
    np.testing.assert_allclose(st.holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(st.holm([0.9, 0.8]), [1.0, 1.0])
    assert st.holm([]).shape == (0,)


# ---- intervals and errors ------------------------------------------------------------------------


def test_the_crossed_error_by_hand():
    """Two seeds of mean 0.75 and 0.25, two clusters of one task: V_seed = 0.0625, V_cluster = 2 * 2 * 0.25 * 0.0625."""
    error, freedom = st.crossed_error(table([[1.0, 0.5], [0.5, 0.0]]))
    assert error == pytest.approx(np.sqrt(0.0625 + 0.0625)) and freedom == pytest.approx(2.0)
    assert st.crossed_error(table([[1.0, 0.0]]))[1] == 1.0, "one seed: clusters alone"
    assert st.crossed_error(table(np.ones((3, 4)))) == (0.0, 2.0)
    with pytest.raises(ConfigError, match="one cluster"):
        st.crossed_error(table([[1.0, 0.0]], cluster=[0, 0]))


def test_the_error_is_that_of_repeated_studies():
    """Scores with effects of seed and cluster, of unequal cluster sizes: the error against the spread of the means."""
    cluster, draws = np.repeat(np.arange(20), np.arange(1, 21) % 5 + 1), rng(5)
    found = []
    for _ in range(600):
        effects = draws.normal(0, 0.5, (4, 1)) + draws.normal(0, 1.0, 20)[cluster]
        one = table(effects + draws.normal(0, 0.3, (4, len(cluster))), cluster)
        found.append((one.mean, st.crossed_error(one)[0] ** 2))
    means, squares = np.array(found).T
    assert 0.9 < squares.mean() / means.var() < 1.2


def test_one_seed_gives_the_same_interval_again_and_identical_methods_do_not_differ():
    one = table(rng(6).random((3, 30)) < 0.5, np.arange(30) // 3)
    assert st.estimate(one, rng(1), resamples=400) == st.estimate(one, rng(1), resamples=400)
    draws = st.resample([one, one], rng(), resamples=100)
    np.testing.assert_array_equal(draws[0], draws[1])
    assert draws.shape == (2, 100) and draws.std() > 0


def test_where_all_succeed_the_interval_is_of_clusters():
    found = st.estimate(table(np.ones((3, 30)), np.arange(30) // 3), rng())
    assert (found.low, found.high) == (wilson(10, 10)[0], 1.0) and found.low < 0.75


def test_intervals_of_success_stay_within_0_and_1_and_one_seed_will_do():
    found = st.estimate(table([[1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1]]), rng(), resamples=500)
    assert 0 <= found.low < found.value < found.high <= 1


def test_the_interval_covers_where_wilsons_does_not():
    design, draws = Design(seeds=5, training=0.3), rng(8)
    true, held = truth(design), np.zeros(2)
    for _ in range(200):
        one = study(design, draws)[0]
        low, high = wilson(one.values.sum(), one.values.size)
        found = st.estimate(one, draws, resamples=400)
        held += low <= true <= high, found.low <= true <= found.high
    naive, ours = held / 200
    assert naive < 0.75 < 0.90 <= ours <= 1.0


# ---- comparisons ---------------------------------------------------------------------------------


def compared(shift, seeds=5, seed=9, training=0.2):
    """Two methods on 60 clusters of two tasks, the second better by `shift`."""
    draws, cluster = rng(seed), np.arange(120) // 2
    hard = draws.normal(0, 1.0, 60)[cluster]
    mine, theirs = (hard + draws.normal(0, training, (seeds, 1)) + draws.normal(0, 0.5, (seeds, 120)) for _ in range(2))
    return table(mine, cluster), table(theirs + shift, cluster)


def test_a_large_difference_is_separated_and_none_is_not():
    reference, better = compared(1.0)
    same, large = st.compare({"r": reference, "same": reference, "better": better}, "r", rng(), resamples=500)
    assert large.separated and large.difference.low > 0 and "not separated" not in str(large)
    assert large.difference.value == pytest.approx(better.mean - reference.mean)
    assert large.corrected == pytest.approx(2 * large.p) and large.improvement.value == 1.0
    assert (same.p, same.difference.value, same.separated) == (1.0, 0.0, False) and "not separated" in str(same)


def test_a_few_equal_differences_are_no_proof():
    """Two seeds and two tasks, all won by one and lost by the other: no spread at all, but four pairs only."""
    found = st.compare({"r": table(np.zeros((2, 2))), "better": table(np.ones((2, 2)))}, "r", rng(), resamples=50)[0]
    assert (found.error, found.p, found.separated) == (0.0, 0.125, False)


def test_separation_wants_both_the_p_value_and_the_size():
    assert st.separated(-0.1, 0.01, 0.08)
    assert not st.separated(0.1, 0.06, 0.08)
    assert not st.separated(0.1, 0.01, 0.12)


def test_pairing_by_task_takes_off_what_tasks_have_in_common():
    reference, better = compared(0.3, training=0.02)
    paired = st.compare({"r": reference, "better": better}, "r", rng(), resamples=200)[0].error
    assert paired < 0.5 * np.hypot(st.crossed_error(reference)[0], st.crossed_error(better)[0])


def test_one_seed_is_no_comparison():
    with pytest.raises(ConfigError, match="one seed says nothing about another training"):
        st.compare(dict(zip("ab", compared(1.0, seeds=1), strict=True)), "a", rng())


def test_the_smallest_difference_is_found_in_four_studies_of_five():
    seen = [st.crossed_error(delta(*compared(0.0, seed=seed))) for seed in range(300)]
    shift = float(np.mean([st.smallest_difference(*one) for one in seen]))
    found = 0
    for seed in range(300, 600):
        moved = delta(*compared(shift, seed=seed))
        found += st.p_value(moved.mean, *st.crossed_error(moved)) < 0.05
    assert 0.70 < found / 300 < 0.93


def delta(reference, method):
    return replace(method, values=method.values - reference.values)


# ---- curves --------------------------------------------------------------------------------------


def test_a_band_is_over_the_updates_that_all_share():
    curves = [([0, 10, 20], [0.0, 1.0, 1.0]), ([5, 15, 30], [0.5, 0.5, 0.5]), ([0, 20], [0.0, 2.0])]
    found = st.band(curves, rng(), resamples=200)
    np.testing.assert_allclose(found.updates, [5, 10, 15, 20])
    np.testing.assert_allclose(found.centre, np.mean([[0.5, 1, 1, 1], [0.5] * 4, [0.5, 1, 1.5, 2]], axis=0))
    np.testing.assert_allclose(found.areas, [np.trapezoid([0.5, 1, 1, 1], found.updates) / 15, 0.5, 1.25])
    assert found.low[0] == found.centre[0] == found.high[0], "all seeds agree there"
    assert (found.low[1:] < found.centre[1:]).all() and (found.centre[1:] < found.high[1:]).all()
    middle = st.band(curves, rng(), statistic="iqm", resamples=50)
    np.testing.assert_allclose(middle.centre, found.centre, err_msg="of three seeds a quarter is none")


def test_the_area_is_the_mean_height():
    assert st.area([0, 10, 40], [1.0, 1.0, 1.0]) == 1.0
    assert st.area([0, 10, 20], [0.0, 1.0, 0.0]) == 0.5
    assert st.area([3], [0.7]) == 0.7


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ([], "there are no curves"),
        ([([0, 1], [1.0])], "give one value per update"),
        ([([0, 0], [1.0, 1.0])], "do not increase"),
        ([([0, 1], [1.0, np.nan])], "no finite number"),
        ([([0, 1], [0.0, 0.0]), ([2, 3], [0.0, 0.0])], "share no updates"),
    ],
)
def test_curves_that_cannot_be_joined_are_refused(curves, message):
    with pytest.raises(ConfigError, match=message):
        st.band(curves, rng())
