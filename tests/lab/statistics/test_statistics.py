"""Statistics over seeds and clustered tasks: by hand, beside scipy, and by simulation where the truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage_of_intervals import Design, study, truth
from crbc_lab import statistics as st
from crbc_lab.statistics.resampling import cluster_counts
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.intervals import wilson


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


def test_the_probability_of_improvement_is_that_of_mann_and_whitney():
    mine, theirs = table(rng(3).integers(0, 3, (5, 4))), table(rng(4).integers(0, 3, (5, 4)))
    found = st.improvement(mine, theirs, rng(), resamples=250)
    assert found.value == pytest.approx(stats.mannwhitneyu(mine.per_seed, theirs.per_seed).statistic / 25)
    draws = rng()
    counts = cluster_counts(250, 4, draws).astype(int)
    won = []
    for n, i, j in zip(counts, draws.integers(5, size=(250, 5)), draws.integers(5, size=(250, 5)), strict=True):
        x, y = (np.repeat(some, n, axis=1).mean(axis=1).round(12) for some in (mine.values[i], theirs.values[j]))
        won.append(stats.mannwhitneyu(x, y).statistic / 25)
    assert (found.low, found.high) == pytest.approx(np.quantile(won, [0.025, 0.975]))
    assert st.improvement(mine, mine, rng(), resamples=10).value == 0.5


def test_holms_correction_by_hand():
    np.testing.assert_allclose(st.holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(st.holm([0.9, 0.8]), [1.0, 1.0])
    assert st.holm([]).shape == (0,)


# ---- intervals and errors ------------------------------------------------------------------------


def test_the_crossed_error_by_hand():
    """Two seeds of mean 0.5 and 0.3, clusters of one task and of two, of mean 0.6 and 0.3.

    V_seed = (0.1^2 + 0.1^2) / 2 = 9/900 and V_cluster = 2 (0.2^2 / 9 + 4 * 0.1^2 / 9) = 16/900.
    """
    error, freedom = st.crossed_error(table([[0.9, 0.3, 0.3], [0.3, 0.3, 0.3]], cluster=[0, 1, 1]))
    assert error == pytest.approx(5 / 30) and freedom == pytest.approx(25**2 / (9**2 + 16**2))
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


def test_a_resample_is_the_mean_of_a_table_of_what_was_drawn():
    """A seed or cluster that is drawn twice counts twice, and every method has the same draws."""
    cluster = np.array([0, 1, 1, 2, 2, 2])
    methods = [table(rng(seed).random((5, 6)), cluster) for seed in (6, 7)]
    draws = st.resample(methods, rng(1), resamples=100, factor=1.0)
    same = rng(1)
    picked, counts = same.integers(5, size=(100, 5)), cluster_counts(100, 3, same).astype(int)
    assert (counts.sum(axis=1) == 3).all()
    for row, method in zip(draws, methods, strict=True):
        drawn = zip(picked, counts, strict=True)
        means = [method.values[some][:, np.repeat(np.arange(6), often[cluster])].mean() for some, often in drawn]
        np.testing.assert_allclose(row, means, rtol=1e-12)


STUDENT = {1: np.tan(0.475 * np.pi), 2: 0.95 / np.sqrt(2 * 0.975 * 0.025)}
"""The 97.5 % quantiles of Student's t with one and two degrees of freedom, in closed form; the normal's is 1.95996."""


def test_the_ends_of_an_interval_are_quantiles_moved_away_for_few_degrees_of_freedom():
    draws = np.arange(1001) / 1000
    for freedom, stretch in ((np.inf, 1.0), *((n, t / 1.959964) for n, t in STUDENT.items())):
        found = st.Estimate.from_draws(0.4, draws, freedom)
        assert (found.low, found.high) == pytest.approx((0.4 - 0.375 * stretch, 0.4 + 0.575 * stretch), rel=1e-6)


@pytest.mark.parametrize("seeds", [2, 3])
def test_few_seeds_have_wide_intervals_and_bands(seeds):
    """Seeds at 0, 2 and perhaps 4, whatever the task or update: the lowest seed is drawn alone in 1/4 or 1/27 of the
    resamples, more than 2.5 %. It lies sqrt(S / (S - 1)) times as far from the mean, and that times t / z."""
    middle = seeds - 1.0
    away = middle * np.sqrt(seeds / (seeds - 1)) * STUDENT[seeds - 1] / 1.959964
    values = 2.0 * np.arange(seeds)
    found = st.estimate(table(np.repeat(values[:, None], 3, axis=1)), rng(), resamples=2000)
    assert (found.low, found.high) == pytest.approx((middle - away, middle + away), rel=1e-6)
    drawn = st.band([([0, 5], [value, value]) for value in values], rng(), resamples=2000)
    np.testing.assert_allclose([drawn.low, drawn.high], [[middle - away] * 2, [middle + away] * 2], rtol=1e-6)


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


def test_a_large_difference_is_separated():
    reference, better = compared(1.0)
    (large,) = st.compare({"r": reference, "better": better}, "r", rng(), resamples=500)
    assert large.separated and large.difference.low > 0
    assert large.difference.value == pytest.approx(better.mean - reference.mean)
    assert large.improvement.value == 1.0
    assert (large.error, large.freedom) == pytest.approx(st.crossed_error(delta(reference, better)))
    assert large.p == st.p_value(large.difference.value, large.error, large.freedom) > 2.0**-299
    assert large.smallest == st.smallest_difference(large.error, large.freedom)


def test_equal_differences_are_no_proof_where_there_are_few_seeds_and_clusters():
    """One wins every task by 0.25: no spread at all, but 2 x 2 signs of seeds and clusters that could have differed."""
    reference = table(rng().random((2, 6)).round(2), cluster=[0, 0, 0, 0, 1, 1])
    better = replace(reference, values=reference.values + 0.25)
    same, found = st.compare({"r": reference, "same": reference, "better": better}, "r", rng(), resamples=50)
    assert found.p == 2 / 2**4 and (found.corrected, found.separated) == (0.25, False)
    assert [found.difference.low, found.difference.value, found.difference.high] == pytest.approx([0.25] * 3)
    assert found.error == pytest.approx(0, abs=1e-12) and (same.p, same.corrected) == (1.0, 1.0)


def test_p_values_and_the_smallest_difference_in_closed_form():
    """Of Student's t: 1 - 2 atan(t) / pi is two-sided for one degree of freedom, 1 - t / sqrt(2 + t^2) for two."""
    for difference in (0.3, -0.3):
        assert st.p_value(difference, 0.3, 1) == pytest.approx(0.5)
        assert st.p_value(difference, 0.1, 1) == pytest.approx(1 - 2 * np.arctan(3) / np.pi)
        assert st.p_value(difference, 0.1, 2) == pytest.approx(1 - 3 / np.sqrt(11))
    assert (st.p_value(0.0, 0.1, 2), st.p_value(0.1, 0.0, 2)) == (1.0, 0.0)
    assert st.smallest_difference(0.1, 1) == pytest.approx(0.1 * (STUDENT[1] + np.tan(0.3 * np.pi)))
    assert st.smallest_difference(0.1, 2) == pytest.approx(0.1 * (STUDENT[2] + 0.6 / np.sqrt(2 * 0.8 * 0.2)))
    assert st.smallest_difference(0.1, np.inf) == pytest.approx(0.1 * (1.959964 + 0.841621), rel=1e-6)


def test_separation_wants_both_the_p_value_and_the_size():
    assert st.separated(-0.1, 0.01, 0.08)
    assert not st.separated(0.1, 0.06, 0.08)
    assert not st.separated(0.1, 0.01, 0.12)


def test_pairing_by_task_takes_off_what_tasks_have_in_common():
    reference, better = compared(0.3, training=0.02)
    paired = st.compare({"r": reference, "better": better}, "r", rng(), resamples=200)[0].error
    assert paired < 0.5 * np.hypot(st.crossed_error(reference)[0], st.crossed_error(better)[0])


def test_methods_whose_tasks_are_clustered_otherwise_are_no_pair():
    one, other = (table([[0, 1, 1], [1, 0, 1]], cluster) for cluster in ([0, 0, 1], [0, 1, 1]))
    st.paired([one, one])
    with pytest.raises(ConfigError, match="method 1 and method 0 differ in their cluster: evaluate both"):
        st.paired([one, other])


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
    assert found.low[0] == found.centre[0] == found.high[0], "all seeds agree there"
    assert (found.low[1:] < found.centre[1:]).all() and (found.centre[1:] < found.high[1:]).all()


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
