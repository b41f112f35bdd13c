"""Mini-batches: which rows meet in an optimizer step, and what each weighs. The schedule of the learning rate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_fixtures import small
from tables import table

from crbc_envs.prompts import Prompt
from crbc_envs.tasks import rng
from crbc_rl.batches import RolloutBatch, Turn, equal_turns, token_weights
from crbc_rl.config import OptimConfig
from crbc_rl.distributed import Distributed
from crbc_rl.training.actor import Actor
from crbc_rl.training.minibatches import MiniBatch, balanced, has_gradient, mini_batches
from crbc_rl.training.trainable import mean, rate


def cut(batch: RolloutBatch, size: int, order: str = "spread", aggregation: str = "token") -> list[MiniBatch]:
    config = small(Path("unused"), optim={"minibatch": size, "order": order}, loss={"aggregation": aggregation})
    return mini_batches(batch, config, rng("cut"))


def turn(token: int, length: int = 1) -> Turn:
    return Turn([token], [7] * length, [0.0] * length)


@st.composite
def updates(draw: st.DrawFn) -> RolloutBatch:
    """Updates of one-step rollouts, in which turns repeat each other and most groups are flat."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=8))
    turns, group, advantage = [], [], []
    for g, size in enumerate(sizes):
        flat = draw(st.booleans())
        for _ in range(size):
            turns.append(turn(draw(st.integers(0, 9)), draw(st.integers(1, 3))))
            group.append(g)
            advantage.append(0.0 if flat else float(draw(st.integers(-2, 2))))
    return table(turns, group=group, advantage=advantage)


@settings(max_examples=effort(120, full=300), deadline=None)
@given(updates(), st.integers(1, 40), st.sampled_from(["token", "step", "group"]))
def test_spread_mini_batches_are_even_whole_and_never_without_a_gradient(
    batch: RolloutBatch, size: int, aggregation: str
) -> None:
    parts = cut(batch, size, aggregation=aggregation)
    assert sorted(row for part in parts for row in part.rows.tolist()) == list(range(len(batch)))
    home = {row: i for i, part in enumerate(parts) for row in part.rows.tolist()}
    most = max(1, size // 8)
    for rows in equal_turns(batch.turns).values():
        assert len({home[row] for row in rows}) <= -(-len(rows) // most), "equal turns move together"
    lengths = [len(part.rows) for part in parts]
    assert min(lengths) > 0
    assert max(lengths) - min(lengths) <= most, "no mini-batch is left short"
    if has_gradient(batch).any():
        assert all(part.signal.any() for part in parts)
    whole = token_weights(batch.response_length, batch.group, aggregation)
    for part in parts:
        assert part.weights == pytest.approx(whole[part.rows] * len(parts))


def test_each_mini_batch_holds_rows_of_every_group() -> None:
    batch = table([turn(row) for row in range(120)], group=[row // 12 for row in range(120)], advantage=[1.0] * 120)
    parts = cut(batch, 30)
    assert [len(part.rows) for part in parts] == [30] * 4
    for part in parts:
        assert Counter(batch.group[part.rows].tolist()) == dict.fromkeys(range(10), 3)
    assert {len(set(batch.group[part.rows])) for part in cut(batch, 30, "group")} == {3}


def test_rows_with_an_advantage_are_dealt_evenly_and_steps_are_fewer_where_they_are_few() -> None:
    advantage = [1.0 if row < 8 else 0.0 for row in range(64)]
    batch = table([turn(row) for row in range(64)], group=[row // 8 for row in range(64)], advantage=advantage)
    assert [int(has_gradient(batch)[part.rows].sum()) for part in cut(batch, 16)] == [2] * 4
    assert len(cut(batch, 4)) == 8, "one for each row with an advantage, not sixteen"
    assert sum(part.signal.any() for part in cut(batch, 8, "group")) == 1, "seven groups of eight have no advantage"


def test_a_reply_whose_tokens_have_advantages_of_either_sign_is_trained_on() -> None:
    own = [[-1.0, -1.0], [1.0, -1.0], [0.0, 0.0]]
    batch = table([turn(row, 2) for row in range(3)], token_advantage=own)
    assert has_gradient(batch).tolist() == [True, True, False]


def test_rows_of_a_group_meet_others_in_each_epoch() -> None:
    batch = table([turn(row) for row in range(16)], advantage=[1.0] * 16)
    config = small(Path("unused"), optim={"minibatch": 4, "order": "spread"})
    met = [{frozenset(part.rows.tolist()) for part in mini_batches(batch, config, rng("cut", n))} for n in range(2)]
    assert met[0] != met[1]


def test_an_update_without_any_advantage_is_cut_as_usual_and_told() -> None:
    batch = table([turn(row) for row in range(10)], advantage=[0.0] * 10)
    parts = cut(batch, 4)
    assert sorted(len(part.rows) for part in parts) == [3, 3, 4]
    assert not any(part.signal.any() for part in parts)


@pytest.mark.parametrize("order", ["spread", "group"])
def test_a_short_mini_batch_weighs_by_its_rows(order: str) -> None:
    batch = table([turn(row) for row in range(22)], group=[row // 11 for row in range(22)], advantage=[1.0] * 22)
    parts = cut(batch, 16, order)
    assert sorted(len(part.rows) for part in parts) == ([11, 11] if order == "spread" else [6, 16])
    for part in parts:
        assert part.weights.tolist() == pytest.approx([2 / 22] * len(part.rows))


def test_a_cut_reply_counts_nowhere_where_it_is_masked(model: Path) -> None:
    """The update equals one in which the cut replies are not there at all."""
    moved = {}
    for masked, leave_out in ((True, False), (False, True), (False, False)):
        actor = Actor(small(model, loss={"mask_truncated": masked, "kl": 0.0}), Distributed())
        turns = actor.policy.generate([Prompt("up")] * 8, range(8), 1.0, 4)
        whole = [Turn(t.prompt, [*t.response[:-1], actor.policy.eos], t.logprobs) for t in turns[:4]]
        short = [Turn(t.prompt, [*t.response[:-1], 5], t.logprobs) for t in turns[4:]]
        kept = whole if leave_out else [*whole, *short]
        batch = table(kept, advantage=[1.0, -1.0, 2.0, 1.0, *[3.0] * (len(kept) - 4)])
        assert batch.cut(actor.policy.ends).tolist() == [False] * 4 + [True] * (len(kept) - 4)
        figures = actor.optimise(batch, rng("x"))
        moved[masked, leave_out] = figures["grad_norm"]
    assert moved[True, False] == pytest.approx(moved[False, True], rel=1e-4) != moved[False, False]


def test_an_update_of_cut_replies_alone_is_empty(model: Path) -> None:
    actor = Actor(small(model, loss={"mask_truncated": True}), Distributed())
    turns = [Turn([3], [5, 5], [-1.0, -1.0])] * 3
    figures = actor.optimise(table(turns, advantage=[1.0] * 3), rng("x"))
    assert figures["empty_steps"] == 1.0 and figures["grad_norm"] == 0.0 and "drift" not in figures
    assert figures["advantage_abs"] == figures["advantage_max"] == 0.0


@pytest.mark.parametrize("order", ["spread", "group", "ranks"])
def test_the_figures_of_masked_updates_do_not_depend_on_how_they_are_cut(model: Path, order: str) -> None:
    found = []
    for microbatch in (1, 2):
        optim = {"minibatch": 16, "order": order, "microbatch": microbatch, "lr": 1e-12}
        actor = Actor(small(model, loss={"mask_truncated": True, "kl": 0.0}, optim=optim), Distributed())
        whole = Turn([3], [5, actor.policy.eos], [-1.0, -2.0])
        turns = [Turn([3], [5, 5], [-1.0, -1.0])] * 12 + [whole, whole] + [Turn([3], [5, 5], [-1.0, -1.0])] * 18
        group = [row // 8 for row in range(32)]
        found.append(actor.optimise(table(turns, group=group, advantage=[1.0] * 32), rng("x")))
    shown = [{name: value for name, value in one.items() if name != "empty_steps"} for one in found]
    assert shown[0] == pytest.approx(shown[1], rel=1e-4) and found[0]["drift"] > 0
    assert found[0]["advantage_abs"] == 1.0 and (order == "ranks" or found[0]["entropy"] > 5)


def test_a_metric_that_not_every_step_has_is_a_mean_over_those_that_have_it() -> None:
    assert mean([{"loss": 1.0}, {"loss": 3.0, "own": 5.0}, {"loss": 2.0, "own": 7.0}]) == {"loss": 2.0, "own": 6.0}


def test_the_record_has_the_advantages_as_the_loss_gets_them(model: Path) -> None:
    actor = Actor(small(model, optim={"minibatch": 2}), Distributed())
    turns = actor.policy.generate([Prompt("up" * n) for n in (1, 2, 3, 4)], range(4), 1.0, 4)
    figures = actor.optimise(table(turns, advantage=[3.0, -1.0, 0.0, 0.0]), rng("x"))
    found = [figures[f"advantage_{name}"] for name in ("abs", "mean", "min", "max")]
    assert found == [1.0, 0.5, -1.0, 3.0]
    assert figures["empty_steps"] == 0.0
    by_token = [[1.0, -3.0] + [0.0] * (len(t.response) - 2) if len(t.response) > 1 else [1.0] for t in turns]
    tokens = [value for row in by_token for value in row]
    figures = actor.optimise(table(turns, token_advantage=by_token), rng("x"))
    assert figures["advantage_mean"] == pytest.approx(np.mean(tokens))
    assert figures["advantage_min"] == min(tokens)
    assert figures["advantage_abs"] == pytest.approx(np.mean([np.mean(np.abs(row)) for row in by_token]))


# ---- the order of eight ranks -----------------------------------------------------------------------------


def test_eight_ranks_fill_the_last_mini_batch_with_copies_and_weigh_their_passes_alike() -> None:
    lengths = rng("lengths").integers(1, 9, size=70).tolist()
    batch = table([turn(row, n) for row, n in enumerate(lengths)], advantage=[1.0] * 70)
    optim = {"minibatch": 32, "order": "ranks", "microbatch": 2}
    parts = mini_batches(batch, small(Path("unused"), optim=optim), rng("cut"))
    assert [len(part.rows) for part in parts] == [32] * 3
    counts = Counter(row for part in parts for row in part.rows.tolist())
    assert set(counts) == set(range(70)) and sum(counts.values()) == 96 and max(counts.values()) == 2
    for part in parts:
        for start in range(0, 32, 2):  # one pass of one rank
            few = slice(start, start + 2)
            assert sum(part.weights[few] * batch.response_length[part.rows[few]]) == pytest.approx(1 / 16)
            assert len(set(part.weights[few])) == 1, "tokens of a pass weigh the same"
        for rank in range(8):
            piece = part.rows[4 * rank : 4 * rank + 4]
            first = next(k for k, row in enumerate([*piece.tolist(), -1]) if row < max(piece[: k + 1]))
            assert first >= 1
    score = mini_batches(batch, small(Path("unused"), optim=optim | {"score_microbatch": 16}), rng("cut"))
    assert sum(len(part.rows) for part in score) == 128, "passes without gradients must be full, too"


def test_more_copies_than_rows_are_drawn_where_an_update_is_small() -> None:
    batch = table([turn(row) for row in range(5)], advantage=[1.0] * 5)
    (part,) = mini_batches(batch, small(Path("unused"), optim={"minibatch": 64, "order": "ranks"}), rng("cut"))
    assert len(part.rows) == 64 and set(part.rows.tolist()) == set(range(5))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 20), st.integers(1, 9), st.integers(0, 2**32))
def test_balanced_sets_have_equally_many_items_and_nearly_equal_sums(each: int, parts: int, seed: int) -> None:
    sizes = rng("sizes", seed).integers(1, 500, size=each * parts)
    sets = balanced(sizes, parts)
    assert sorted(item for part in sets for item in part.tolist()) == list(range(each * parts))
    assert {len(part) for part in sets} == {each}
    assert all((np.diff(part) > 0).all() for part in sets)
    sums = [int(sizes[part].sum()) for part in sets]
    assert max(sums) - min(sums) <= sizes.max()


def test_the_largest_difference_is_levelled_first() -> None:
    """By hand: (1, 2), (3, 9), (10, 10) have the spreads 1, 6, 0. 9 goes with 1 and 3 with 2; then each with a 10."""
    assert [part.tolist() for part in balanced(np.array([9, 10, 1, 2, 10, 3]), 2)] == [[0, 1, 2], [3, 4, 5]]


# ---- the schedule -----------------------------------------------------------------------------------------


def test_the_rate_rises_and_falls_as_the_config_says() -> None:
    constant = OptimConfig(warmup=4)
    assert [rate(constant, u, 8) for u in range(1, 9)] == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]
    linear = OptimConfig(schedule="linear")
    assert [rate(linear, u, 4) for u in range(1, 5)] == [1, 0.75, 0.5, 0.25]
    cosine = OptimConfig(schedule="cosine", warmup=2)
    course = [rate(cosine, u, 6) for u in range(1, 7)]
    assert course[:3] == [0.5, 1.0, 1.0]
    assert course[4] == pytest.approx(0.5) and course[3] + course[5] == pytest.approx(1.0)
    assert rate(OptimConfig(schedule="linear", warmup=9), 3, 5) == pytest.approx(1 / 3), "ended while it warms up"
