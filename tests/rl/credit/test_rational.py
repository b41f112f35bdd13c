"""Every estimator and option against rational arithmetic, on random groups and to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest
import rational
from effort import effort
from rational import ANCHORS, random_group

from anchors import EmpiricalProcess, Rollout, RolloutGroup, Step
from crbc_rl import credit

TRAJECTORY = ("grpo", "drgrpo", "rloo")
METHODS = (*TRAJECTORY, "gigpo", "hgpo", "g2po", "rtmc", "gagpo", "graft", "graphgpo")
PLUS = {"horizon": "auto", "truncation": "successor", "sigma_min": 0.2, "w_group": 0.05}
"""What `crbc_plus` stands for."""


def pick(rng, *choices):
    return choices[rng.integers(len(choices))]


def random_options(rng, update):
    """Options of `crbc`, all of them and in any combination."""
    longest = max(len(played) for group in update for played in group.rollouts)
    how = pick(rng, {}, {}, {"depth": int(rng.integers(6))}, {"horizon": pick(rng, "auto", longest, longest + 3)})
    options = {
        **how,
        "beta": pick(rng, "auto", "auto", 0.5, 0.9, 0.95, 0.98, 1.0),
        "truncation": pick(rng, "failure", "successor"),
        "reward": pick(rng, "outcome", "score", "step"),
        "normalise": pick(rng, "anchor", "group", None),
        "sigma_min": pick(rng, 0.1, 0.5),
        "w_group": pick(rng, 0.0, 1.0, 0.25),
        "w_step": pick(rng, 5.0, 1.0),
        **outer_options(rng),
        "group": pick(rng, "grpo", "drgrpo", "rloo"),
    }
    if options["reward"] == "step" and options["beta"] == 1.0 and "depth" not in how:
        options["truncation"] = "failure"  # with rewards on a cycle that nothing leaves there is no value
    return options


def outer_options(rng):
    return {
        "success_reward": pick(rng, 10.0, 1.0),
        "invalid_penalty": pick(rng, 0.1, 0.0),
        "weighting": pick(rng, "rollout", "step"),
    }


def method_options(rng, method):
    rewards = {"g2po": ("outcome", "score"), "graphgpo": ("outcome",)}.get(method, ("outcome", "score", "step"))
    options = {**outer_options(rng), "reward": pick(rng, *rewards)}
    if method in ("hgpo", "rtmc", "gagpo"):
        del options["weighting"]
    if method in ("gagpo", "graft"):
        options["lam"] = pick(rng, 0.0, 0.5, 0.95, 1.0)
    if method in ("gigpo", "g2po", "graphgpo", "graft"):
        options |= {"w_group": pick(rng, 0.0, 1.0, 2.0), "w_step": pick(rng, 1.0, 3.0)}
    if method == "graft":
        options |= {"beta": pick(rng, "auto", 0.9), "truncation": pick(rng, "failure", "successor")}
    elif method not in TRAJECTORY:
        options["mode"] = pick(rng, "mean_std_norm", "mean_norm")
        options |= {"omega": pick(rng, 0.1, 0.2, 0.8)} if method == "graphgpo" else {"gamma": pick(rng, 0.5, 0.95, 1.0)}
    if method == "rtmc":
        options |= {"pooling": pick(rng, "state", "pair"), "prior": pick(rng, 2.0, 0.5, 0.0)}
    if method == "hgpo":
        options |= {"history": pick(rng, 0, 2, 4), "alpha": pick(rng, 1.0, 2.0), "first_weight": pick(rng, 1.0, 2.0)}
    return options


def assert_rows(update, found, wanted, what, whole=False):
    """Errors are relative to each value, or with `whole` to the largest of the group, and to 1 at least."""
    for group, got, rows in zip(update, found, wanted, strict=True):
        told = [np.array([rows[i, t] for t in range(len(played))]) for i, played in enumerate(group.rollouts)]
        for i, (one, other) in enumerate(zip(got, told, strict=True)):
            size = max(map(abs, rows.values())) if whole else np.abs(other)
            error = np.abs(one - other) / np.maximum(1.0, size)
            assert error.max() <= 1e-12, (what, f"rollout {i}", one, other, group)


def check_values(group, options):
    """V, Q, A and sigma of `closure`."""
    options = {name: options[name] for name in ("beta", "depth", "horizon", "truncation", "reward") if name in options}
    process = EmpiricalProcess.from_group(group)
    got, wanted = credit.closure(process, **options), rational.Closure(group, **options)
    pairs = [(process.anchors[s], a) for s, a in process.pairs]
    for values, told, keys in (
        (got.V, wanted.V, process.anchors),
        (got.Q, wanted.Q, pairs),
        (got.A, wanted.A, pairs),
        (got.sigma**2, wanted.variance, process.anchors),
    ):
        assert set(told) == set(keys)
        exactly = np.array([float(told[key]) for key in keys])
        assert (np.abs(values - exactly) <= 1e-12 * np.maximum(1.0, np.abs(exactly))).all(), (options, group)


def check_crbc(rng):
    """One update: three draws of the options of `crbc`, one of `crbc_plus`; also the values."""
    update = [random_group(rng) for _ in range(rng.integers(1, 3))]
    for _ in range(3):
        options = random_options(rng, update)
        told = {**options, "method": options["group"]}
        del told["group"]
        wanted = [rational.crbc(group, **told) for group in update]
        assert_rows(update, credit.advantages_batch(update, **options), wanted, options)
        check_values(update[0], options)
    reward = pick(rng, "outcome", "score", "step")
    wanted = [rational.crbc(group, **PLUS, reward=reward) for group in update]
    assert_rows(update, credit.advantages_batch(update, "crbc_plus", reward=reward), wanted, ("crbc_plus", reward))
    return len(update)


def check_method(rng, method):
    """One update and one draw of the method's options."""
    update = [random_group(rng) for _ in range(rng.integers(1, 4))]
    options = method_options(rng, method)
    told = rational.trajectory if method in TRAJECTORY else getattr(rational, method)
    named = {"method": method} if method in TRAJECTORY else {}
    wanted = [told(group, **named, **options) for group in update]
    found = credit.advantages_batch(update, method, **options)
    # Where all outcomes are equal RTMC's "mean_std_norm" divides differences by 1e-6, rounding included.
    assert_rows(update, found, wanted, (method, options), whole=method == "rtmc")
    return len(update)


@pytest.mark.parametrize("seed", range(5))
def test_every_option_on_some_random_groups(seed):
    rng = np.random.default_rng(seed)
    for _ in range(effort(20, full=60)):
        check_crbc(rng)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_its_definition_row_by_row(method):
    rng = np.random.default_rng(0)
    for _ in range(effort(40, full=120)):
        check_method(rng, method)


@pytest.mark.full
def test_every_option_on_thousands_of_random_groups():
    rng = np.random.default_rng(20261122)
    groups = 0
    while groups < effort(2_000, full=10_000):
        groups += check_crbc(rng) + check_method(rng, pick(rng, *METHODS))


# ---- by hand: the reference and the library ---------------------------------------------------------

A, B, C, D = (Step(*names) for names in (("s", "a"), ("s", "b"), ("m", "c"), ("m", "d")))
CUT = RolloutGroup([Rollout([A, C], True), Rollout([B], False, True, "m", 0.75), Rollout([A, D], False, score=0.5)])
"""From s by a to m, where c succeeds and d fails with score 1/2; b was cut at m, with score 3/4."""
PAID = RolloutGroup(
    [
        Rollout([Step("s", "a", 1.0), Step("m", "c", 2.0), Step("s", "b", 3.0)], True),
        Rollout([Step("s", "b", -1.0)], False),
    ]
)
"""From s by a to m for 1, back by c for 2, and out by b for 3 or -1."""


def by_hand(members, wanted, **options):
    """`wanted` are the advantages, rollout by rollout."""
    options = {"w_group": 0, "w_step": 1, "normalise": None, **options}
    told = {"method": options["group"]} if "group" in options else {}
    rows = rational.crbc(members, **{k: v for k, v in options.items() if k != "group"}, **told)
    np.testing.assert_allclose(list(rows.values()), wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.concatenate(credit.advantages(members, **options)), wanted, rtol=0, atol=1e-12)


def test_truncation_by_hand():
    # beta = 1/2. V(m) = (1/2 + 0) / 2 = 1/4, so A(m, c) = 1/4 and A(m, d) = -1/4. Q(s, a) = V(m) / 2 = 1/8.
    # Failure: Q(s, b) = 0, V(s) = 1/12, A(s, a) = 1/24, A(s, b) = -1/12. Successor: Q(s, b) = 1/8 too.
    by_hand(CUT, [1 / 24, 1 / 4, -1 / 12, 1 / 24, -1 / 4], beta=0.5)
    by_hand(CUT, [0, 1 / 4, 0, 0, -1 / 4], beta=0.5, truncation="successor")


def test_scores_by_hand():
    # beta = 1/2. Q(m, c) = 1/2, Q(m, d) = 1/4, V(m) = 3/8, Q(s, a) = 3/16. Failure: Q(s, b) = 3/8, V(s) = 1/4.
    by_hand(CUT, [-1 / 16, 1 / 8, 1 / 8, -1 / 16, -1 / 8], beta=0.5, reward="score")
    # Successor: the score at the cut gives way to V(m). Q(s, b) = 3/16 as well.
    by_hand(CUT, [0, 1 / 8, 0, 0, -1 / 8], beta=0.5, reward="score", truncation="successor")
    # Depth 0: G(s) = 1/4, 0 and 1/8, so V(s) = 1/8, Q(s, a) = 3/16, Q(s, b) = 0.
    rows = [1 / 16, 1 / 8, -1 / 8, 1 / 16, -1 / 8]
    by_hand(CUT, rows, beta=0.5, reward="score", truncation="successor", depth=0)


def test_step_rewards_on_a_cycle_by_hand():
    # beta = 1/2. V(m) = (2 + V(s)) / 2, Q(s, a) = (1 + V(m)) / 2 = 1 + V(s) / 4, Q(s, b) = (3 - 1) / 2 / 2 = 1/2.
    # V(s) = (1 + V(s) / 4 + 2 * 1/2) / 3 = 8/11, so Q(s, a) = 13/11. m has one action: 0.
    by_hand(PAID, [5 / 11, 0, -5 / 22, -5 / 22], beta=0.5, reward="step")
    # Horizon 3, beta = 1. h = 1: Q(a) = 1, Q(b) = 1, V(s) = 1, V(m) = 2. h = 2: Q(a) = 3, Q(b) = 1, V(s) = 5/3,
    # V(m) = 3. h = 3: Q(a) = 4, Q(b) = 1, V(s) = 2. The visits to s have 3, 1 and 3 steps left:
    # A(a) = (2 + 0 + 2) / 3 and A(b) = (-1 + 0 - 1) / 3.
    by_hand(PAID, [4 / 3, 0, -2 / 3, -2 / 3], beta=1.0, horizon=3, reward="step")


def test_a_group_with_a_limit_is_no_trouble_to_one_without():
    # The first goes round at u for a reward until it is cut, so at beta = 1 it has no fixed point. It needs none.
    round_and_round = [Step("s", "b", 0.0), Step("u", "c", 1.0), Step("u", "c", 1.0)]
    cut = RolloutGroup([PAID.rollouts[1], Rollout(round_and_round, False, True, "u")])
    options = {"beta": 1.0, "horizon": "auto", "truncation": "successor", "reward": "step"}
    together = credit.advantages_batch([cut, PAID], **options)
    assert_rows([cut, PAID], together, [rational.crbc(group, **options) for group in (cut, PAID)], options)


def test_the_scale_and_the_group_term_by_hand():
    # "auto": the one success has two steps, so beta = 1/2 and the step credit is that of the truncation test.
    # sigma_g^2 = (2/24^2 + 1/12^2 + 2/4^2) / 5 = (1/288 + 2/288 + 36/288) / 5 = 13/480.
    # RLOO of 1, 0, 0: 1 and -1/2.
    scale = (13 / 480) ** 0.5
    step = [1 / 24, 1 / 4, -1 / 12, 1 / 24, -1 / 4]
    outer = [1, 1, -1 / 2, -1 / 2, -1 / 2]
    rows = [3 * x + 2 * y / scale for x, y in zip(outer, step, strict=True)]
    options = {"success_reward": 1.0, "invalid_penalty": 0.0, "w_group": 3, "w_step": 2, "group": "rloo"}
    by_hand(CUT, rows, beta="auto", normalise="group", **options)
    # Per anchor: sigma(m) = 1/4 and sigma(s) = sqrt(1/288) < 0.1.
    scales = [0.1, 1 / 4, 0.1, 0.1, 1 / 4]
    rows = [3 * x + 2 * y / z for x, y, z in zip(outer, step, scales, strict=True)]
    by_hand(CUT, rows, beta="auto", normalise="anchor", **options)


def test_gains_of_nothing_are_nothing():
    # gamma = 1 and equal scores: V is 0.1 everywhere, and both of G2PO's terms are 0. Their rounding is not.
    steps = [Step(ANCHORS[t % 3], "a") for t in range(7)]
    same = RolloutGroup([Rollout(steps[:length], False, score=0.1) for length in (3, 5, 7)])
    found = credit.advantages(same, "g2po", reward="score", success_reward=1.0, gamma=1.0)
    assert not np.concatenate(found).any()
