"""Turns that share a row: nothing is lost, no token sees another turn's, and the cut is the cheapest."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from learner_fixtures import fresh_policy
from tables import table

from crbc_rl.batches import RolloutBatch, TokenBatch, Turn, collate, micro_batches
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.trees import trees

BRANCHES = [[1, 2, 3, 4], [1, 2, 5], [1, 2, 5, 6]]


def _drawn(count: int, seed: int = 0, words: int = 3) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    drawn = [tuple(rng.integers(1, 1 + words, rng.integers(2, 9)).tolist()) for _ in range(count)]
    return [list(turn) for turn in dict.fromkeys(drawn)]


def test_turns_that_begin_alike_are_one_row() -> None:
    (tree,) = trees(BRANCHES, reach=1e9)
    assert tree.ids == [1, 2, 3, 4, 5, 6]
    assert tree.position(7).tolist() == [0, 1, 2, 3, 2, 3, 0]
    assert tree.mask(7).astype(int).tolist() == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 0, 0, 1, 0, 0],
        [1, 1, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 1],
    ]


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("tokens", [None, 1, 20])
@pytest.mark.parametrize("reach", [1.0, 30.0, 1e9])
def test_every_turn_is_read_and_sees_itself_alone(reach: float, tokens: int | None, size: int | None) -> None:
    turns = _drawn(60)
    made = trees(turns, reach, size, tokens)
    assert sorted(turn for tree in made for turn in tree.turns) == list(range(len(turns)))
    for tree in made:
        assert size is None or len(tree.turns) <= size
        assert tokens is None or len(tree) <= max(tokens, *(len(turns[turn]) for turn in tree.turns))
        position, mask = tree.position(len(tree) + 2), tree.mask(len(tree) + 2)
        for turn, path in zip(tree.turns, tree.paths, strict=True):
            assert [tree.ids[place] for place in path] == turns[turn]
            assert position[path].tolist() == list(range(len(path)))
            assert [np.flatnonzero(mask[place]).tolist() for place in path] == [
                path[: k + 1].tolist() for k in range(len(path))
            ]


def test_no_cut_of_the_ordered_turns_costs_less() -> None:
    turns = sorted(_drawn(9, seed=1))

    def cost(part: list[list[int]]) -> float:
        tokens = len({tuple(turn[: k + 1]) for turn in part for k in range(len(turn))})
        return tokens * (1 + tokens / 12.0)

    every = []
    for many in range(len(turns)):
        for cuts in combinations(range(1, len(turns)), many):
            ends = [0, *cuts, len(turns)]
            every.append(sum(cost(turns[start:end]) for start, end in pairwise(ends)))
    made = trees(turns, 12.0)
    assert sum(len(tree) * (1 + len(tree) / 12.0) for tree in made) == pytest.approx(min(every))
    assert 1 < len(made) < len(turns)
    assert len(every) == 2 ** (len(turns) - 1)


def _turns(count: int = 40) -> list[Turn]:
    """Turns whose prompts begin alike, with replies that may: some turns are equal, and some replies are one token."""
    rng, turns = np.random.default_rng(3), []
    for _ in range(count):
        prompt = [5, 6, 7, 8, *rng.integers(4, 6, rng.integers(1, 6)).tolist()]
        reply = rng.integers(4, 6, rng.integers(1, 4)).tolist()
        turns.append(Turn(prompt, reply, [-0.5] * len(reply)))
    return turns


@pytest.mark.parametrize(("size", "ranks", "tokens"), [(None, 1, None), (6, 1, None), (4, 2, 60), (None, 3, 1)])
def test_passes_of_trees_have_every_row_once_and_fewer_tokens(size: int | None, ranks: int, tokens: int | None) -> None:
    whole = table(turns := _turns(), advantage=list(range(40)))
    made = [
        list(micro_batches(whole, np.arange(40), None, 0, size, rank, ranks, tokens, 200.0)) for rank in range(ranks)
    ]
    assert len({len(passes) for passes in made}) == 1
    passes = [one for own in made for one in own]
    assert sorted(row for one in passes for row in one.rows) == list(range(40))
    for one in passes:
        assert tokens is None or one.ids.numel() <= tokens or len(one.ids) == 1
        assert size is None or ranks > 1 or len(one.real) <= size
        spoken = torch.zeros(one.real.shape, dtype=torch.long).masked_scatter(one.real, one.ids[one.row, one.column])
        ahead = torch.zeros(one.real.shape, dtype=torch.long).masked_scatter(one.real, one.ids[one.row, one.before])
        for k, row in enumerate(one.rows):
            turn, n = turns[row], len(turns[row].response)
            assert spoken[one.turn[k], :n].tolist() == turn.response
            assert ahead[one.turn[k], :n].tolist() == (turn.prompt + turn.response)[len(turn.prompt) - 1 : -1]
            assert one.advantages[k, 0] == row and one.response_mask[k].sum() == n
    read, alone = (
        sum(one.ids.numel() for one in passes),
        sum(turn.key[0] for turn in {t.key: t for t in turns}.values()),
    )
    assert 0.6 * alone <= read if tokens == 1 else read < (0.6 if size is None else 1.0) * alone


def test_turns_with_frames_have_rows_of_their_own() -> None:
    frame = (np.zeros((2, 2, 3), np.uint8),)
    turns = [Turn([1, 2], [n], [0.0], images=frame) for n in range(4)]
    (one,) = micro_batches(RolloutBatch.of_turns(turns), np.arange(4), None, 0, reach=1e9)
    assert len(one.ids) == 4 and one.mask is None


@pytest.fixture(scope="module", params=[torch.float32, torch.float64])
def policy(request: pytest.FixtureRequest) -> TransformersPolicy:
    policy = fresh_policy()
    policy.model.to(request.param)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.mul_(3.0 if weight.dim() > 1 else 1.0)
    return policy


def _found(policy: TransformersPolicy, passes: list[TokenBatch]) -> tuple[dict[int, list[float]], list[torch.Tensor]]:
    """Each row's log-probabilities, and the gradients of their weighted sum and of the entropies."""
    policy.model.zero_grad()
    by_row = {}
    for one in passes:
        logprobs, entropy = policy.logprobs(one, 0.7)
        weights = torch.tensor(one.rows)[:, None] % 5 - 2.0
        ((logprobs * weights - 0.3 * entropy) * one.response_mask).sum().backward()
        by_row |= dict(zip(one.rows, logprobs.tolist(), strict=True))
    return by_row, [weight.grad.clone() for weight in policy.model.parameters()]


def _require_like_alone(policy: TransformersPolicy, passes: list[TokenBatch], whole: RolloutBatch) -> None:
    """The log-probabilities and gradients of these passes are those of one where each row is a turn."""
    exact = policy.model.dtype == torch.float64
    values, gradients = _found(policy, passes)
    expected, plain = _found(policy, [collate(whole, policy.pad)])
    for row, turn in enumerate(whole.turns):
        n = len(turn.response)
        assert values[row][:n] == pytest.approx(expected[row][:n], abs=1e-6 if exact else 1e-4)
    largest = max(gradient.abs().max().item() for gradient in plain)
    for one, other in zip(gradients, plain, strict=True):
        assert (one - other).abs().max() <= (1e-6 if exact else 1e-5) * largest


def test_log_probabilities_and_gradients_are_those_of_turns_alone(policy: TransformersPolicy) -> None:
    whole = table(_turns())
    shared = list(micro_batches(whole, np.arange(40), None, policy.pad, reach=policy.reach))
    assert any(one.mask is not None and len(one.ids) < len(one.real) for one in shared)
    _require_like_alone(policy, shared, whole)


def test_packed_turns_are_read_like_turns_alone(policy: TransformersPolicy) -> None:
    """The library finds packed turns by their positions, with kernels for GPUs as with this one."""
    whole = table(turns := _turns())
    passes = list(micro_batches(whole, np.arange(40), None, policy.pad, 9, packs=True))
    assert all(len(one.ids) == 1 and one.mask is None for one in passes) and max(len(one.real) for one in passes) == 9
    distinct = {turn.key: turn.key[0] for turn in turns}
    assert sum(one.ids.numel() for one in passes) == sum(distinct.values()), "nothing is padding"
    _require_like_alone(policy, passes, whole)


def test_passes_are_packed_where_the_config_asks_for_kernels_that_take_them() -> None:
    policy = fresh_policy()
    assert not policy.packs
    policy.model.config._attn_implementation_internal = "flash_attention_2"  # its package wants a GPU
    assert policy.packs and policy.reach is None


def test_only_layers_that_attend_to_all_tokens_share_rows() -> None:
    policy = fresh_policy()
    assert policy.reach == 6.0 * policy.model.config.hidden_size
    policy.prefixes = None
    assert policy.reach is None
    policy = fresh_policy()
    policy.model.set_attn_implementation("eager")
    assert policy.reach is None
