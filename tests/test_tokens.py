"""Rows into passes: nothing is lost, nothing is read twice, like lengths stand together."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from crbc_rl.batches import Row, Turn, collate, micro_batches, pad_left, positions_of, weigh


def _rows(count: int, seed: int = 0) -> list[Row]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        prompt = rng.integers(1, 4, size=rng.integers(1, 6)).tolist()
        response = rng.integers(1, 4, size=rng.integers(1, 4)).tolist()
        turn = Turn(prompt, response, rng.normal(size=len(response)).tolist())
        rows.append(Row(turn, i % 7, float(rng.normal()), turn.logprobs))
    return rows


@pytest.mark.parametrize("aggregation", ["token", "step", "group"])
def test_the_weights_of_all_tokens_sum_to_one(aggregation: str) -> None:
    rows = weigh(_rows(50), aggregation)
    assert sum(row.weight * len(row.turn.response) for row in rows) == pytest.approx(1.0)


@pytest.mark.parametrize(("size", "ranks"), [(None, 1), (4, 1), (3, 2), (1, 4), (100, 3)])
def test_every_row_is_in_one_pass_of_one_process(size: int | None, ranks: int) -> None:
    rows = _rows(60)
    passes = [list(micro_batches(rows, 0, size, rank, ranks)) for rank in range(ranks)]
    distinct = len({row.turn.key for row in rows})
    assert {len(made) for made in passes} == {1 if size is None else math.ceil(distinct / (size * ranks))}
    batches = [batch for made in passes for batch in made]
    assert sorted(place for batch in batches for place in batch.places) == list(range(60))
    for batch in batches:
        assert size is None or len(batch.ids) <= size
        for k, place in enumerate(batch.places):
            row, n = rows[place], len(rows[place].turn.response)
            ids = batch.ids[batch.turn[k]].tolist()
            width = batch.ids.shape[1] - batch.response_length
            assert ids[width - len(row.turn.prompt) : width + n] == row.turn.prompt + row.turn.response
            assert batch.response_mask[k].tolist() == [1.0] * n + [0.0] * (batch.response_length - n)
            assert batch.old_logprobs[k, :n].tolist() == pytest.approx(row.old)
            assert batch.advantages[k, 0].item() == pytest.approx(row.advantage)


def test_an_idle_process_reads_a_turn_that_counts_for_nothing() -> None:
    (idle,) = micro_batches(_rows(1), 0, size=1, rank=1, ranks=2)
    assert len(idle.ids) == 1
    assert idle.advantages.shape == idle.old_logprobs.shape == (0, idle.response_length)


def test_turns_with_other_frames_are_other_turns() -> None:
    frames = [np.full((2, 2, 3), value, np.uint8) for value in (0, 1, 0)]
    rows = [Row(Turn([1], [2], [0.0], images=(frame,)), 0, 0.0, [0.0]) for frame in frames]
    assert len(collate(rows, 0).ids) == 2


def test_like_lengths_stand_together() -> None:
    lengths = [batch.ids.shape[1] for batch in micro_batches(_rows(80), 0, size=8)]
    assert lengths[-1] > lengths[0]
    padded = sum(batch.ids.numel() for batch in micro_batches(_rows(80), 0, size=8))
    assert padded < collate(_rows(80), 0).ids.numel()


def test_a_value_per_token_is_an_advantage_too() -> None:
    rows = [Row(Turn([1], [2, 3], [0.0, 0.0]), 0, [1.0, -1.0], [0.0, 0.0]), Row(Turn([1], [2], [0.0]), 0, 3.0, [0.0])]
    table = collate(rows, 0).advantages
    assert torch.equal(table.sort(dim=0).values, torch.tensor([[1.0, -1.0], [3.0, 3.0]]))


def test_frames_of_the_same_bytes_and_other_shapes_are_other_turns() -> None:
    flat = np.arange(48, dtype=np.uint8)
    turns = [Turn([1], [2], [0.0], images=(flat.reshape(shape),)) for shape in ((2, 8, 3), (8, 2, 3), (4, 4, 3))]
    turns += [Turn([1], [2], [0.0], images=(flat.reshape(2, 8, 3).copy(),))]
    assert len({turn.key for turn in turns}) == 3 and turns[0].key == turns[3].key
    batch = collate([Row(turn, 0, 0.0, [0.0]) for turn in turns], 0)
    assert sorted(images[0].shape for images in batch.images) == [(2, 8, 3), (4, 4, 3), (8, 2, 3)]
    for k, place in enumerate(batch.places):
        assert batch.images[batch.turn[k]][0].shape == turns[place].images[0].shape


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
    """Prompts end and responses begin in one column; every other place is padding."""
    rows = [
        Row(Turn([5, 6, 7], [8], []), 0, 1.0, [-0.5], [2.0], 0.25),
        Row(Turn([5], [8, 9], []), 1, [2.0, 3.0], [-1.0, -2.0], None, 0.5),
    ]
    batch = collate(rows, 99)
    assert batch.places == (1, 0)  # the shorter first
    assert batch.ids.tolist() == [[99, 99, 5, 8, 9], [5, 6, 7, 8, 99]]
    assert batch.mask.tolist() == [[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert batch.turn.tolist() == [0, 1]
    assert batch.response_mask.tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert batch.old_logprobs.tolist() == [[-1.0, -2.0], [-0.5, 0.0]]
    assert batch.advantages.tolist() == [[2.0, 3.0], [1.0, 1.0]]
    assert batch.weights.tolist() == [0.5, 0.25]
    assert batch.correction[1].tolist() == [2.0, 0.0]
    assert positions_of(batch.mask).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 3]]


def test_weights_are_those_of_a_hand_count() -> None:
    """Replies of 1, 2 and 4 tokens, the first two of one group."""
    turns = [Turn([1], [2] * n, [0.0] * n) for n in (1, 2, 4)]
    rows = [Row(turn, group, 0.0, turn.logprobs) for turn, group in zip(turns, (3, 3, 5), strict=True)]
    for aggregation, weights in (
        ("token", [1 / 7, 1 / 7, 1 / 7]),
        ("step", [1 / 3, 1 / 6, 1 / 12]),
        ("group", [1 / 4, 1 / 8, 1 / 8]),
    ):
        assert [row.weight for row in weigh(rows, aggregation)] == pytest.approx(weights)


def test_prompts_of_one_length_have_no_mask_and_others_are_padded_on_the_left() -> None:
    ids, mask = pad_left([[1, 2], [3, 4]], 0)
    assert ids.tolist() == [[1, 2], [3, 4]] and mask is None
    ids, mask = pad_left([[1, 2], [3]], 7)
    assert ids.tolist() == [[1, 2], [7, 3]] and mask.tolist() == [[1, 1], [0, 1]]
