"""Rows into passes: nothing is lost, nothing is read twice, like lengths stand together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from crbc_rl.tokens import Row, Turn, collate, micro_batches, weigh


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
    assert len({len(made) for made in passes}) == 1
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
