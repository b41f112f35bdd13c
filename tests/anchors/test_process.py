"""The empirical process: integer counts and the frequencies they induce (eqs. 5 and 8)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import group, groups

from anchors import (
    FAILURE,
    SUCCESS,
    EmpiricalProcess,
    GroupError,
    Rollout,
    RolloutGroup,
    Step,
    TransitionCounts,
    sum_by,
)
from crbc_rl import credit

BY_HAND = group("s:a s:a m:b +", "s:b m:b -", "s:a m:c -")


def counted(group):
    """N(s, a, x) by key, straight from the definition."""
    counts = Counter()
    for played in group.rollouts:
        for here, there in pairwise(played.steps):
            counts[here.anchor, here.action, there.anchor] += 1
        counts[played.steps[-1].anchor, played.steps[-1].action, SUCCESS if played.success else FAILURE] += 1
    return counts


def by_key(process):
    """N(s, a, x) by key, as the process holds it."""
    columns = [*process.anchors, SUCCESS, FAILURE]
    n = process.counts
    pairs = [process.pairs[row] for row in n.row]
    names = [(process.anchors[s], action, columns[x]) for (s, action), x in zip(pairs, n.col, strict=True)]
    assert len(set(names)) == len(names), "an entry is listed twice"
    return dict(zip(names, n.data.tolist(), strict=True))


def test_a_group_by_hand_has_the_counts_and_frequencies_of_equation_five():
    process = EmpiricalProcess.from_group(BY_HAND)
    assert process.anchors == ("s", "m")
    assert process.pairs == ((0, "a"), (0, "b"), (1, "b"), (1, "c"))
    np.testing.assert_array_equal(process.counts.toarray(), [[1, 2, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]])
    np.testing.assert_allclose(process.mu, [3 / 4, 1 / 4, 2 / 3, 1 / 3], rtol=1e-15)
    np.testing.assert_allclose(process.P.toarray()[0], [1 / 3, 2 / 3, 0, 0], rtol=1e-15)
    np.testing.assert_allclose(process.M.toarray(), [[1 / 4, 3 / 4], [0, 0]], rtol=1e-15)
    np.testing.assert_allclose(process.b(0.9), [0, 0.9 / 3], rtol=1e-15)
    np.testing.assert_allclose(process.backup(np.array([0.2, 0.4]), 0.9), [0.3, 0.36, 0.45, 0], rtol=1e-15)
    np.testing.assert_array_equal(process.actions_per_anchor, [2, 2])


@given(groups())
def test_frequencies_are_those_of_the_counts(drawn):
    process = EmpiricalProcess.from_group(drawn)
    size = len(process.anchors)
    assert process.counts.data.dtype == np.int64
    assert process.state_counts.data.dtype == np.int64
    assert by_key(process) == counted(drawn)
    dense = process.counts.toarray()
    np.testing.assert_allclose(process.P.toarray(), dense / dense.sum(1, keepdims=True), rtol=1e-15)
    np.testing.assert_allclose(process.P.toarray().sum(1), 1, rtol=1e-14)
    np.testing.assert_allclose(sum_by(process.pair_anchor, process.mu, size), 1, rtol=1e-14)
    M, b = process.M.toarray(), process.b(0.9)
    assert M.min() >= 0
    assert M.sum(1).max() <= 1 + 1e-15
    assert b.min() >= 0
    lost = [sum(n for (s, _, x), n in counted(drawn).items() if s == a and x == FAILURE) for a in process.anchors]
    np.testing.assert_allclose(M.sum(1) + b / 0.9 + lost / process.anchor_count, 1, rtol=1e-14)


@given(groups(), st.integers(0, 6))
def test_merging_counts_equals_counting_together(drawn, cut):
    whole = TransitionCounts.from_rollouts(drawn.rollouts)
    one = TransitionCounts.from_rollouts(drawn.rollouts[:cut])
    other = TransitionCounts.from_rollouts(drawn.rollouts[cut:])
    assert one + other == other + one == whole
    assert dict(whole.items()) == counted(drawn)
    assert whole.total == sum(len(played) for played in drawn.rollouts)
    assert one.total + other.total == whole.total  # merging left both as they were


@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_rollouts_does_not_matter(drawn, random):
    shuffled = RolloutGroup(random.sample(drawn.rollouts, len(drawn)))
    assert TransitionCounts.from_rollouts(shuffled.rollouts) == TransitionCounts.from_rollouts(drawn.rollouts)
    assert by_key(EmpiricalProcess.from_group(shuffled)) == by_key(EmpiricalProcess.from_group(drawn))


def test_the_order_of_counting_changes_no_byte_of_the_process():
    # beta = 0.9. V(m) = 0.9 / 2, Q(s, a) = 0.9 V(m) = 0.405, Q(s, b) = 0.9, V(s) = (2 * 0.405 + 0.9) / 3 = 0.57.
    counts = {("s", "a", "m"): 2, ("s", "b", SUCCESS): 1, ("m", "c", FAILURE): 1, ("m", "c", SUCCESS): 1}
    seen = set()
    for order in permutations(counts.items()):
        parts = TransitionCounts(dict(order[:2])), TransitionCounts(dict(order[2:]))
        for process in (TransitionCounts(dict(order)).process(), (parts[0] + parts[1]).process()):
            assert (process.anchors, process.pairs) == (("m", "s"), ((0, "c"), (1, "a"), (1, "b")))
            result = credit.closure(process, beta=0.9)
            np.testing.assert_allclose(result.V, [0.45, 0.57], rtol=1e-15)
            np.testing.assert_allclose(result.Q, [0.45, 0.405, 0.9], rtol=1e-15)
            seen.add(result.V.tobytes() + result.Q.tobytes() + process.counts.toarray().tobytes())
    assert len(seen) == 1


@given(groups())
def test_counts_alone_give_the_process_of_the_group(drawn):
    process = TransitionCounts.from_rollouts(drawn.rollouts).process()
    assert process.rollouts is None
    assert by_key(process) == by_key(EmpiricalProcess.from_group(drawn))
    assert [anchor for anchor, _ in process.pairs] == sorted(process.pair_anchor)


def test_counts_by_hand_equal_those_of_rollouts():
    counts = TransitionCounts(counted(BY_HAND))
    assert counts == TransitionCounts.from_rollouts(BY_HAND.rollouts)
    assert counts != TransitionCounts()
    assert (len(counts), counts.total) == (6, 7)


@pytest.mark.parametrize("count", [0, -1, 1.5, 2.0, True, "1", np.int64(0), np.float64(2), np.bool_(True)], ids=repr)
def test_a_count_is_a_positive_integer(count):
    with pytest.raises(GroupError, match=r"transition \(s, a, m\): a count is a positive integer"):
        TransitionCounts({("s", "a", "m"): count})


def test_a_count_may_be_an_integer_of_numpy():
    counts = TransitionCounts({("s", "a", "m"): np.int32(2), ("m", "b", SUCCESS): np.uint8(1)})
    assert counts == TransitionCounts({("s", "a", "m"): 2, ("m", "b", SUCCESS): 1})
    assert {type(n) for _, n in counts.items()} == {int}


@pytest.mark.parametrize("boundary", [SUCCESS, FAILURE])
def test_counts_refuse_a_boundary_as_an_anchor(boundary):
    with pytest.raises(GroupError, match="boundary name is used as an anchor"):
        TransitionCounts({(boundary, "a", "m"): 1})


def test_merging_counts_with_anything_else_is_a_type_error():
    with pytest.raises(TypeError):
        TransitionCounts() + {("s", "a", SUCCESS): 1}


def test_an_anchor_that_was_never_left_is_refused_with_the_way_there():
    counts = TransitionCounts({("s", "a", "m"): 1, ("s", "b", SUCCESS): 1})
    with pytest.raises(GroupError, match="anchor m, reached from s by 'a', was never left"):
        counts.process()


def test_empty_counts_and_no_groups_are_refused():
    with pytest.raises(GroupError, match="the counts are empty"):
        TransitionCounts().process()
    with pytest.raises(GroupError, match="no groups given"):
        EmpiricalProcess.from_groups([])


@pytest.mark.parametrize("depth", [0, 3])
def test_a_finite_depth_cannot_be_told_from_counts(depth):
    process = TransitionCounts.from_rollouts(BY_HAND.rollouts).process()
    with pytest.raises(GroupError, match="a finite depth needs rollouts"):
        credit.closure(process, depth=depth)


@given(st.lists(groups(max_members=3, max_steps=5), min_size=1, max_size=4))
def test_several_groups_make_a_block_diagonal_process(drawn):
    together = EmpiricalProcess.from_groups(drawn)
    alone = [EmpiricalProcess.from_group(group) for group in drawn]
    assert together.anchors == sum((p.anchors for p in alone), ())
    M, b, at, pair_at = together.M.toarray(), together.b(0.9), 0, 0
    for process in alone:
        block = slice(at, at + len(process.anchors))
        np.testing.assert_array_equal(M[block, block], process.M.toarray())
        np.testing.assert_array_equal(b[block], process.b(0.9))
        actions = [(anchor - at, action) for anchor, action in together.pairs if block.start <= anchor < block.stop]
        # Which of one anchor's actions comes first depends on who was seen first; which there are does not.
        assert sorted(actions) == sorted(process.pairs)
        M[block, block] = 0
        at, pair_at = block.stop, pair_at + len(process.pairs)
    assert not M.any()
    assert (at, pair_at) == (len(together.anchors), len(together.pairs))


def test_visits_lead_back_from_every_step_to_its_rollout():
    process = EmpiricalProcess.from_groups([BY_HAND, group("s:a -")])
    visits = process.rollouts
    assert visits is not None
    assert visits.length.tolist() == [3, 2, 2, 1]
    assert visits.group.tolist() == [0, 0, 0, 1]
    assert visits.remaining.tolist() == [3, 2, 1, 2, 1, 2, 1, 1]
    taken = [(process.anchors[process.pairs[p][0]], process.pairs[p][1]) for p in process.pair]
    steps = [s for g in (BY_HAND, group("s:a -")) for r in g.rollouts for s in r.steps]
    assert taken == [(s.anchor, s.action) for s in steps]
    parts = visits.split(np.arange(8.0))
    assert [[part.tolist() for part in parts_of] for parts_of in parts] == [[[0, 1, 2], [3, 4], [5, 6]], [[7]]]


def test_only_a_rollout_that_was_cut_leads_on_to_its_final_anchor():
    """Both fail at "m", which the third left for success: the first was cut there, the second ended there."""
    steps = [Step("s", "a")], [Step("s", "b")], [Step("s", "a"), Step("m", "c")]
    cut, ended, won = Rollout(steps[0], False, True, "m"), Rollout(steps[1], False, False, "m"), Rollout(steps[2], True)
    process = EmpiricalProcess.from_group(RolloutGroup([cut, ended, won]))
    pairs = [("s", "a"), ("s", "b"), ("m", "c")]
    assert [(process.anchors[s], a) for s, a in process.pairs] == pairs
    #                                           s  m  +  -
    assert process.counts.toarray().tolist() == [[0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 1, 0]]
    assert process.with_successors().counts.toarray().tolist() == [[0, 2, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
