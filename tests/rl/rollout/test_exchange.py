"""What ranks hand each other."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from strategies import group

from anchors import InternedRollouts, Rollout, RolloutGroup, Step
from crbc_rl.batches import RolloutBatch, Turn
from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError

DICE = np.random.default_rng(0)
FRAMES = [DICE.integers(256, size=shape, dtype=np.uint8) for shape in ((2, 3, 3), (4, 1, 3), (3, 2, 3), (1, 1, 3))]
TEXTS = ["", "é", "a\ud83d", "\ude00b", "\0", "😀 <action>up</action>"]

GROUPS = [
    RolloutGroup(
        [
            Rollout([Step("s", "up", 0.5, "start"), Step("m", "<invalid>", -0.1, "middle")], False, True, "s", 0.25),
            Rollout([Step("s", "down", 0.0, "start")], True, False, "nobody left it", 1.0),
        ],
        "one",
    ),
    RolloutGroup([Rollout([Step("s", "up"), Step("s", "up"), Step("t", "go")], False)]),
]

TURNS = [
    Turn([1, 2, 3], [4], [-0.5], TEXTS[0], (FRAMES[0], FRAMES[1])),
    Turn([], [5, 6], [-1.0 / 3.0, -0.0], TEXTS[1]),
    Turn([7], [8], [-1e-300], TEXTS[2], (FRAMES[2],)),
    Turn([9], [], [], TEXTS[3]),
    Turn([2**40], [1, 2, 3], [-1.0, -2.0, -3.0], TEXTS[4], (FRAMES[3], FRAMES[0], FRAMES[0])),
    Turn([9], [1], [-0.25], TEXTS[5]),
]

COLUMNS = ("rollout", "step", "anchor", "action", "valid", "reward", "group", "length", "success", "score", "truncated")
NAMES = ("anchor_names", "anchor_labels", "action_names", "final_names", "tasks")


def sent(batch: RolloutBatch) -> RolloutBatch:
    """As bytes, and back."""
    return pickle.loads(pickle.dumps(batch))  # noqa: S301 - made here


def assert_same(found: RolloutBatch, batch: RolloutBatch) -> None:
    for name in (*COLUMNS, "final_anchor"):
        one, other = getattr(found.rollouts, name), getattr(batch.rollouts, name)
        np.testing.assert_array_equal(one, other, err_msg=name)
        assert one.dtype == other.dtype, name
    for name in NAMES:
        one, other = getattr(found.rollouts, name), getattr(batch.rollouts, name)
        assert (one and list(one)) == (other and list(other)), name
    assert found.turns == batch.turns
    assert [turn.key for turn in found.turns] == [turn.key for turn in batch.turns], "frames too"
    for turn in found.turns:
        assert all(image.dtype == np.uint8 for image in turn.images)
        assert {type(value) for value in (*turn.prompt, *turn.response)} <= {int}
    for name in ("response_length", "advantage", "old"):
        np.testing.assert_array_equal(getattr(found, name), getattr(batch, name))


def test_a_table_comes_back_as_it_was() -> None:
    batch = RolloutBatch.of(InternedRollouts.from_groups(GROUPS), TURNS)
    found = sent(batch)
    assert_same(found, batch)
    assert repr(found.rollouts.groups()) == repr(GROUPS)


def test_a_table_without_names_comes_back_without_names() -> None:
    drawn = InternedRollouts.from_groups([group("s:a m:b -", "s:b +")])
    bare = {name: getattr(drawn, name) for name in (*COLUMNS, "final_anchor")}
    turns = [Turn([1], [2], [-1.0], f"{n}") for n in range(3)]
    batch = RolloutBatch.of(InternedRollouts(**bare), turns)
    found = sent(batch)
    assert_same(found, batch)
    assert all(getattr(found.rollouts, name) is None for name in NAMES)


# ---- one process --------------------------------------------------------------------------------------


def test_a_process_alone_has_everything() -> None:
    alone = Distributed()
    assert alone.main and (alone.rank, alone.size) == (0, 1)
    assert alone.gather({"loss": 0.1, "kl": 2.0}) == [{"loss": 0.1, "kl": 2.0}] and alone.gather(None) == [None]
    assert alone.any(True) is True and alone.any(False) is False
    assert alone.sum(np.array([0.1, -2.0])).tolist() == [0.1, -2.0]
    assert alone.part_of(5, "groups") == range(5)
    alone.barrier()
    alone.leave()


def test_parts_are_even_and_in_order_of_rank() -> None:
    assert [Distributed(rank, 3).part_of(6, "groups") for rank in range(3)] == [range(2), range(2, 4), range(4, 6)]
    assert [Distributed(rank, 3).main for rank in range(3)] == [True, False, False]
    with pytest.raises(ConfigError, match="7 groups cannot be divided among 3 processes"):
        Distributed(2, 3).part_of(7, "groups")
