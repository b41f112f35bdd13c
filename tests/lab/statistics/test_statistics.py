"""Statistics over seeds and clustered tasks: by hand, beside scipy, and by simulation where the truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage_of_intervals import Design, study, truth
from crbc_lab import statistics as st
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


# ---- corrections ---------------------------------------------------------------------------------


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


STUDENT = {1: np.tan(0.475 * np.pi), 2: 0.95 / np.sqrt(2 * 0.975 * 0.025)}
"""The 97.5 % quantiles of Student's t with one and two degrees of freedom, in closed form; the normal's is 1.95996."""


def test_an_interval_is_student_s():
    for freedom, t in ((np.inf, 1.959964), *STUDENT.items()):
        found = st.interval(0.4, 0.1, freedom)
        assert (found.value, found.low, found.high) == pytest.approx((0.4, 0.4 - 0.1 * t, 0.4 + 0.1 * t), rel=1e-6)


@pytest.mark.parametrize("seeds", [2, 3])
def test_few_seeds_have_wide_intervals_and_bands(seeds):
    """Seeds at 0, 2 and perhaps 4, whatever the task or update."""
    values, middle = 2.0 * np.arange(seeds), seeds - 1.0
    away = STUDENT[seeds - 1] * values.std(ddof=1) / np.sqrt(seeds)
    found = st.estimate(table(np.repeat(values[:, None], 3, axis=1)))
    assert (found.low, found.high) == pytest.approx((middle - away, middle + away), rel=1e-6)
    drawn = st.band([([0, 5], [value, value]) for value in values])
    np.testing.assert_allclose([drawn.low, drawn.high], [[middle - away] * 2, [middle + away] * 2], rtol=1e-6)
    alone = st.band([([0, 5], [1.0, 2.0])])
    np.testing.assert_array_equal([alone.low, alone.high], [[1.0, 2.0]] * 2)


def test_where_all_succeed_the_interval_is_of_clusters():
    found = st.estimate(table(np.ones((3, 30)), np.arange(30) // 3))
    assert (found.low, found.high) == (wilson(10, 10)[0], 1.0) and found.low < 0.75


def test_intervals_of_success_stay_within_0_and_1_and_one_seed_will_do():
    found = st.estimate(table([[1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1]]))
    assert 0 <= found.low < found.value < found.high <= 1


def test_the_interval_covers_where_wilsons_does_not():
    design, draws = Design(seeds=5, training=0.3), rng(8)
    true, held = truth(design), np.zeros(2)
    for _ in range(200):
        one = study(design, draws)[0]
        low, high = wilson(one.values.sum(), one.values.size)
        found = st.estimate(one)
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
    (large,) = st.compare({"r": reference, "better": better}, "r")
    assert large.separated and large.difference.low > 0
    assert large.difference.value == pytest.approx(better.mean - reference.mean)
    assert (large.error, large.freedom) == pytest.approx(st.crossed_error(delta(reference, better)))
    assert st.compare({"r": reference}, "r") == []
    assert large.p == st.p_value(large.difference.value, large.error, large.freedom) > 2.0**-299
    assert large.smallest == st.smallest_difference(large.error, large.freedom)


def test_equal_differences_are_no_proof_where_there_are_few_seeds_and_clusters():
    """One wins every task by 0.25: no spread at all, but 2 x 2 signs of seeds and clusters that could have differed."""
    reference = table(rng().random((2, 6)).round(2), cluster=[0, 0, 0, 0, 1, 1])
    better = replace(reference, values=reference.values + 0.25)
    same, found = st.compare({"r": reference, "same": reference, "better": better}, "r")
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
    assert st.smallest_difference(0.1, np.inf) == pytest.approx(0.1 * (1.959964 + 0.841621), rel=1e-6)


@pytest.mark.parametrize("level", [0.05, 0.05 / 11])
@pytest.mark.parametrize("freedom", [1, 2, 4, 19])
def test_the_smallest_difference_is_found_in_four_draws_of_five(freedom, level):
    rng = np.random.default_rng(freedom)
    error = 0.1 * np.sqrt(rng.chisquare(freedom, 20_000) / freedom)
    difference = rng.normal(st.smallest_difference(0.1, freedom, level), 0.1, 20_000)
    found = difference / error > stats.t.isf(level / 2, freedom)
    assert np.mean(found) == pytest.approx(0.8, abs=0.012)


def test_the_interval_excludes_0_exactly_where_p_is_below_5_percent():
    for shift in np.linspace(0.0, 0.6, 25):
        reference, better = compared(shift)
        (found,) = st.compare({"r": reference, "better": better}, "r")
        assert (found.difference.low > 0 or found.difference.high < 0) == (found.p < 0.05) == found.separated
        assert found.difference.high - found.difference.value == pytest.approx(
            stats.t.ppf(0.975, found.freedom) * found.error
        )


def test_trainings_that_differ_alike_are_learned_from_all_methods():
    """Of three methods and two seeds, residuals are +-1 for two methods and 0 for the third: 2 (4 * 1) / (2 * 1)."""
    methods = [table([[mean + left] * 3, [mean - left + 5] * 3]) for mean, left in ((0, 1.0), (3, -1.0), (7, 0.0))]
    assert st.between_trainings(methods) is None  # the third one differs less
    found = st.between_trainings(methods, level=0.0)
    assert found is not None and (found.value, found.freedom) == (pytest.approx(4.0), 2)
    draws = rng(4).normal(size=(3, 5))
    for seeds in (3, 4, 5):  # fewer than five show nothing of how they spread
        few = [table(np.repeat(row[:seeds, None], 3, axis=1)) for row in draws]
        assert (st.between_trainings(few) is None) == (seeds < 5)
    one, other = compared(0.2)
    own = st.between_trainings([one, other])
    assert own is not None and own.freedom == 4
    assert own.value == pytest.approx((one.per_seed - other.per_seed).var(ddof=1))


def test_a_method_whose_trainings_differ_more_tells_its_own_error():
    draws, cluster = rng(2), np.arange(120) // 2
    spreads = {"r": 0.01, "a": 0.01, "b": 0.01, "wild": 1.0}
    methods = {
        name: table(draws.normal(0, spread, (12, 1)) + draws.normal(0, 0.1, (12, 120)), cluster)
        for name, spread in spreads.items()
    }
    assert st.between_trainings([*methods.values()]) is None
    found = {one.name: one for one in st.compare(methods, "r")}
    for name in ("a", "wild"):
        assert (found[name].error, found[name].freedom) == st.crossed_error(delta(methods["r"], methods[name]))
    alike = st.between_trainings([methods[name] for name in "rab"])
    assert alike is not None and alike.freedom == 2 * 11
    pooled = st.compare({name: methods[name] for name in "rab"}, "r")[0]
    assert (pooled.error, pooled.freedom) == st.crossed_error(delta(methods["r"], methods["a"]), alike)


def test_what_could_be_seen_is_at_the_level_of_the_family():
    reference, better = compared(0.3)
    alone = st.compare({"r": reference, "better": better}, "r")[0]
    same = {"r": reference, "better": better, "c": better, "d": better}
    family = st.compare(same, "r")[0]
    assert family.smallest == st.smallest_difference(family.error, family.freedom, 0.05 / 3)
    assert alone.smallest == st.smallest_difference(alone.error, alone.freedom)
    for one, level in ((alone, 0.05), (family, 0.05 / 3)):
        assert st.power(one.smallest, one.error, one.freedom, level) == pytest.approx(0.8)
    assert st.power(0.05, 0.001, 9, 0.01) == 1.0  # the chance to miss it underflows
    assert st.power(0.0, 0.1, 9) == pytest.approx(0.025) and (st.power(0.1, 0.0, 9), st.power(0.0, 0.0, 9)) == (1, 0)


@pytest.mark.parametrize("reference", ["crcb", {"grpo": "crcb"}, {"gigpo": "grpo"}])
def test_an_unknown_reference_is_said(reference):
    one, other = compared(0.1)
    with pytest.raises(ConfigError, match=r"is none of the methods.*; there are grpo, crbc"):
        st.compare({"grpo": one, "crbc": other}, reference)


def test_pairing_by_task_takes_off_what_tasks_have_in_common():
    reference, better = compared(0.3, training=0.02)
    paired = st.compare({"r": reference, "better": better}, "r")[0].error
    assert paired < 0.5 * np.hypot(st.crossed_error(reference)[0], st.crossed_error(better)[0])


def test_methods_whose_tasks_are_clustered_otherwise_are_no_pair():
    one, other = (table([[0, 1, 1], [1, 0, 1]], cluster) for cluster in ([0, 0, 1], [0, 1, 1]))
    st.paired({"one": one, "same": one})
    with pytest.raises(ConfigError, match="other and one differ in their cluster: evaluate both"):
        st.paired({"one": one, "other": other})


def test_one_seed_is_no_comparison():
    with pytest.raises(ConfigError, match="one seed says nothing about another training"):
        st.compare(dict(zip("ab", compared(1.0, seeds=1), strict=True)), "a")


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
    found = st.band(curves)
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
        st.band(curves)
