"""Rows into passes: nothing is lost, nothing is read twice, like lengths stand together."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tables import by_turn, table

from crbc_rl.batches import RolloutBatch, Turn, collate, micro_batches, pad_left, positions_of, token_weights


def _rows(count: int, seed: int = 0) -> RolloutBatch:
    rng = np.random.default_rng(seed)
    turns, advantages = [], []
    for _ in range(count):
        prompt = rng.integers(1, 4, size=rng.integers(1, 6)).tolist()
        response = rng.integers(1, 4, size=rng.integers(1, 4)).tolist()
        turn = Turn(prompt, response, rng.normal(size=len(response)).tolist())
        turns.append(turn)
        advantages.append(float(rng.normal()))
    return table(turns, group=sorted(i % 7 for i in range(count)), advantage=advantages)


@pytest.mark.parametrize(("size", "ranks"), [(None, 1), (4, 1), (3, 2), (1, 4), (100, 3)])
def test_every_row_is_in_one_pass_of_one_process(size: int | None, ranks: int) -> None:
    whole = _rows(60)
    old = by_turn(whole, whole.old)
    passes = [list(micro_batches(whole, np.arange(60), None, 0, size, rank, ranks)) for rank in range(ranks)]
    distinct = len({turn.key for turn in whole.turns})
    assert {len(made) for made in passes} == {1 if size is None else math.ceil(distinct / (size * ranks))}
    batches = [batch for made in passes for batch in made]
    assert sorted(row for batch in batches for row in batch.rows) == list(range(60))
    for batch in batches:
        assert size is None or len(batch.ids) <= size
        for k, row in enumerate(batch.rows):
            turn, n = whole.turns[row], len(whole.turns[row].response)
            ids = batch.ids[batch.turn[k]].tolist()
            assert ids == turn.prompt + turn.response + [0] * (batch.ids.shape[1] - len(turn.prompt) - n)
            assert batch.response_mask[k].tolist() == [1.0] * n + [0.0] * (batch.response_length - n)
            assert batch.old_logprobs[k, :n].tolist() == pytest.approx(old[row])
            assert batch.advantages[k, 0].item() == pytest.approx(whole.advantage[row])


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("tokens", [1, 12, 40, 10_000])
def test_a_pass_has_so_many_tokens_or_one_turn(tokens: int, ranks: int) -> None:
    whole = _rows(60)
    passes = [list(micro_batches(whole, np.arange(60), None, 0, 16, rank, ranks, tokens)) for rank in range(ranks)]
    assert len({len(made) for made in passes}) == 1
    batches = [batch for made in passes for batch in made]
    assert sorted(row for batch in batches for row in batch.rows) == list(range(60))
    assert all(batch.ids.numel() <= tokens or len(batch.ids) == 1 for batch in batches)
    assert all(len(batch.ids) <= 16 for batch in batches)
    if tokens == 1:
        assert {len(batch.ids) for batch in batches} == {1}


def test_at_the_papers_sizes_little_is_padding() -> None:
    """Prompts of 472 +- 120 tokens and replies of 127 on average: the recorded lengths of ALFWorld."""
    rng = np.random.default_rng(0)
    lengths = zip(np.maximum(rng.normal(472, 120, 256), 60).astype(int), rng.geometric(1 / 127, 256), strict=True)
    turns = [Turn([i] * prompt, [i] * min(int(reply), 512), []) for i, (prompt, reply) in enumerate(lengths)]
    batch = RolloutBatch.of_turns([replace(turn, logprobs=[0.0] * len(turn.response)) for turn in turns])
    for size, ranks, most in ((32, 1, 0.18), (32, 8, 0.18), (4, 8, 0.18)):
        passes = [
            one for rank in range(ranks) for one in micro_batches(batch, np.arange(256), None, 0, size, rank, ranks)
        ]
        real = sum(len(turn.prompt) + len(turn.response) for turn in turns)
        print(size, ranks, 1 - real / sum(one.ids.numel() for one in passes))
        assert 1 - real / sum(one.ids.numel() for one in passes) <= most


def test_the_tokens_of_a_pass_are_those_of_one_process() -> None:
    whole = RolloutBatch.of_turns([Turn([n] * 9, [1], [0.0]) for n in range(8)])
    assert [len(part.ids) for part in micro_batches(whole, np.arange(8), None, 0, None, 0, 2, 40)] == [4]


def test_one_batch_has_all_rows_however_long_they_are() -> None:
    turns = [Turn([1] * length, [length % 7], [0.0]) for length in (3, 5_000, 40, 900, 3)]
    whole = RolloutBatch.of_turns(turns)
    assert len(list(micro_batches(whole, np.arange(5), None, 0))) > 1
    assert sorted(collate(whole, 0).rows) == list(range(5))


def test_some_rows_in_any_order_are_read_with_their_own_weights() -> None:
    whole, rows = _rows(60), np.random.default_rng(1).permutation(60)[:25]
    weight, old = dict(zip(rows.tolist(), range(1, 26), strict=True)), by_turn(whole, whole.old)
    batches = list(micro_batches(whole, rows, np.arange(1.0, 26.0), 0, 4))
    assert sorted(row for batch in batches for row in batch.rows) == sorted(rows.tolist())
    for batch in batches:
        assert batch.weights.tolist() == [weight[row] for row in batch.rows]
        assert batch.advantages[:, 0].tolist() == pytest.approx([whole.advantage[row] for row in batch.rows])
        for k, row in enumerate(batch.rows):
            assert batch.old_logprobs[k].tolist() == pytest.approx(
                old[row] + [0.0] * (batch.response_length - len(old[row]))
            )


def test_an_idle_process_reads_a_turn_that_counts_for_nothing() -> None:
    (idle,) = micro_batches(_rows(1), np.arange(1), None, 0, size=1, rank=1, ranks=2)
    assert len(idle.ids) == 1
    assert idle.advantages.shape == idle.old_logprobs.shape == (0, idle.response_length)


def test_like_lengths_stand_together() -> None:
    lengths = [batch.ids.shape[1] for batch in micro_batches(_rows(80), np.arange(80), None, 0, size=8)]
    assert lengths[-1] > lengths[0]
    padded = sum(batch.ids.numel() for batch in micro_batches(_rows(80), np.arange(80), None, 0, size=8))
    assert padded < collate(_rows(80), 0).ids.numel()


def test_a_value_per_token_is_an_advantage_too() -> None:
    turns = [Turn([1], [2, 3], [0.0, 0.0]), Turn([1], [2, 4], [0.0, 0.0])]
    advantages = collate(table(turns, token_advantage=[[1.0, -1.0], [3.0, 3.0]]), 0).advantages
    assert torch.equal(advantages.sort(dim=0).values, torch.tensor([[1.0, -1.0], [3.0, 3.0]]))


def test_frames_of_the_same_bytes_and_other_shapes_are_other_turns() -> None:
    flat = np.arange(48, dtype=np.uint8)
    turns = [Turn([1], [2], [0.0], images=(flat.reshape(shape),)) for shape in ((2, 8, 3), (8, 2, 3), (4, 4, 3))]
    turns += [Turn([1], [2], [0.0], images=(flat.reshape(2, 8, 3).copy(),))]
    assert len({turn.key for turn in turns}) == 3 and turns[0].key == turns[3].key
    batch = collate(table(turns), 0)
    assert sorted(images[0].shape for images in batch.images) == [(2, 8, 3), (4, 4, 3), (8, 2, 3)]
    for k, row in enumerate(batch.rows):
        assert batch.images[batch.turn[k]][0].shape == turns[row].images[0].shape


def test_turns_that_a_model_could_tell_apart_are_other_turns() -> None:
    frames = [np.full((2, 2, 3), value, np.uint8) for value in (0, 1)]
    turns = [
        Turn([1, 2], [3], [0.0]),
        Turn([1], [2, 3], [0.0] * 2),
        Turn([2, 1], [3], [0.0]),
        Turn([1, 2], [4], [0.0]),
        Turn([1, 2, 3], [4], [0.0]),
        Turn([1, 2], [3], [0.0], images=(frames[0],)),
        Turn([1, 2], [3], [0.0], images=(frames[0], frames[1])),
        Turn([1, 2], [3], [0.0], images=(frames[1], frames[0])),
    ]
    assert len({turn.key for turn in turns}) == len(turns)
    assert Turn([1, 2], [3], [0.0], "a").key == Turn([1, 2], [3], [-1.0], "b").key


def test_a_batch_stands_as_it_is_written_here() -> None:
    """A response follows its prompt; what is behind it is padding."""
    turns = [Turn([5, 6, 7], [8], []), Turn([5], [8, 9], [])]
    columns = {"old": [[-0.5], [-1.0, -2.0]], "correction": [[2.0], [1.0, 1.0]]}
    by_step = table(turns, group=[0, 1], advantage=[1.0, 2.5], **columns)
    by_token = table(turns, group=[0, 1], token_advantage=[[1.0], [2.0, 3.0]], **columns)
    batch = collate(by_token, 99, np.array([0.25, 0.5]))
    assert batch.rows == (1, 0)  # the shorter first
    assert batch.ids.tolist() == [[5, 8, 9, 99], [5, 6, 7, 8]]
    assert batch.prompt.tolist() == [1, 3] and batch.real.tolist() == [[True, True], [True, False]]
    assert batch.row.tolist() == [0, 0, 1] and batch.column.tolist() == [1, 2, 3]
    assert batch.turn.tolist() == [0, 1]
    assert batch.response_mask.tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert batch.old_logprobs.tolist() == [[-1.0, -2.0], [-0.5, 0.0]]
    assert batch.advantages.tolist() == [[2.0, 3.0], [1.0, 0.0]]
    assert collate(by_step, 99).advantages.tolist() == [[2.5, 2.5], [1.0, 1.0]]
    assert batch.weights.tolist() == [0.5, 0.25]
    assert batch.correction[1].tolist() == [2.0, 0.0]


def test_weights_are_those_of_a_hand_count() -> None:
    """Replies of 1, 2 and 4 tokens, the first two of one group."""
    for aggregation, weights in (
        ("token", [1 / 7, 1 / 7, 1 / 7]),
        ("step", [1 / 3, 1 / 6, 1 / 12]),
        ("group", [1 / 4, 1 / 8, 1 / 8]),
    ):
        assert token_weights(np.array([1, 2, 4]), np.array([3, 3, 5]), aggregation).tolist() == pytest.approx(weights)


def test_prompts_of_one_length_have_no_mask_and_others_are_padded_on_the_left() -> None:
    ids, mask = pad_left([[1, 2], [3, 4]], 0)
    assert ids.tolist() == [[1, 2], [3, 4]] and mask is None
    ids, mask = pad_left([[1, 2], [3]], 7)
    assert ids.tolist() == [[1, 2], [7, 3]] and mask.tolist() == [[1, 1], [0, 1]]
    assert positions_of(torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]])).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 3]]
