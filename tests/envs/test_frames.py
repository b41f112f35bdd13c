"""Arrays of frames: one that somebody holds, in whatever way, is never written again."""

from __future__ import annotations

import numpy as np
import pytest

from crbc_envs import GroupVectorEnv
from crbc_envs.core import LINE, aligned_empty
from crbc_envs.vector.frames import MOST_KEPT, FrameArrays

ID = "CRBC-Sokoban-v0"


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(3, 5), (1024, 96), (1,)])
def test_an_aligned_array_is_an_array_like_any_other(shape, dtype):
    array = aligned_empty(shape, dtype)
    assert (array.shape, array.dtype, array.ctypes.data % LINE) == (shape, dtype, 0)
    assert array.flags.c_contiguous and array.flags.writeable
    array[:] = 7
    assert (array == 7).all()


WAYS = {
    "a name": lambda array: array,
    "a container": lambda array: {"frames": [array]},
    "a row": lambda array: array[0],
    "a view of a view": lambda array: array[1:].transpose()[::2],
    "another type": lambda array: array.view(np.uint8).reshape(-1),
    "an iterator": iter,
    "a buffer": memoryview,
    "the interface": lambda array: np.asarray(memoryview(array)),
    "a closure": lambda array: lambda: array,
}


@pytest.mark.parametrize("hold", WAYS.values(), ids=WAYS)
def test_an_array_is_taken_again_only_when_nobody_holds_it(hold):
    arrays = FrameArrays((4, 6), np.dtype(np.float64))
    first = arrays.take()
    place = first.ctypes.data
    held = hold(first)
    del first
    assert all(arrays.take().ctypes.data != place for _ in range(3))
    del held
    assert place in {arrays.take().ctypes.data for _ in range(3)}


def test_a_tensor_that_shares_the_memory_holds_it():
    torch = pytest.importorskip("torch")
    arrays = FrameArrays((4, 6), np.dtype(np.float64))
    tensor = torch.from_numpy(arrays.take())
    place = tensor.data_ptr()
    row = tensor[2:].T
    del tensor
    assert all(arrays.take().ctypes.data != place for _ in range(3))
    del row
    assert arrays.take().ctypes.data == place


def test_who_keeps_the_last_array_uses_two_in_turn():
    arrays = FrameArrays((4, 6), np.dtype(np.uint8))
    places = []
    kept = None
    for _ in range(6):
        kept = arrays.take()
        places.append(kept.ctypes.data)
    assert len(set(places)) == 2 == MOST_KEPT
    assert places[::2] == [places[0]] * 3 != places[1::2]


def test_who_keeps_all_arrays_gets_new_ones():
    arrays = FrameArrays((4, 6), np.dtype(np.uint8))
    kept = [arrays.take() for _ in range(5)]
    assert len({array.ctypes.data for array in kept}) == 5
    assert not any(np.shares_memory(one, other) for i, one in enumerate(kept) for other in kept[:i])


HOLDS = {"every batch": lambda obs: obs, "one row": lambda obs: obs[1], "nothing": lambda obs: None}


@pytest.mark.parametrize("pixels", [None, 32])
@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_no_batch_that_was_kept_ever_changes(hold, pixels):
    envs = GroupVectorEnv(ID, num_groups=2, group_size=3, max_steps=8, pixels=pixels)
    rng = np.random.default_rng(0)
    kept = []
    for episode in range(3):
        obs, _ = envs.reset(seed=episode)
        kept.append((hold(obs), np.array(hold(obs))))
        while envs.active.any():
            obs = envs.step([("up", "down", "left", "right")[i] for i in rng.integers(4, size=6)])[0]
            kept.append((hold(obs), np.array(hold(obs))))
        obs = envs.reset(options={"reset_mask": np.arange(6) < 3})[0]
        kept.append((hold(obs), np.array(hold(obs))))
    for held, was in kept:
        assert np.array_equal(held, was)


@pytest.mark.parametrize("copied", [False, True], ids=["drawn", "copied"])
@pytest.mark.parametrize("pixels", [None, 32])
def test_a_batch_shows_what_each_member_saw_last(pixels, copied):
    """However they stepped, whether the batch is drawn anew or, as with workers, made of copies."""
    envs = GroupVectorEnv(ID, num_groups=3, group_size=2, max_steps=9, pixels=pixels)
    if copied:
        envs._frames = None
    rng = np.random.default_rng(1)
    shown = np.array(envs.reset(seed=2)[0])
    for round_ in range(40):
        live = np.flatnonzero(envs.active)
        actions = [("up", "down", "left", "right", "?")[i] for i in rng.integers(5, size=6)]
        if round_ % 7 == 6 or not live.size:
            chosen = np.repeat(rng.random(3) < 0.6, 2)
            batch = envs.reset(options={"reset_mask": chosen})[0]
            assert np.array_equal(batch[~chosen], shown[~chosen])
        elif round_ % 3 == 2:
            members = rng.permutation(live)[: 1 + len(live) // 2].tolist()
            shown[members] = envs.step_members(members, [actions[m] for m in members]).observations
            continue
        else:
            batch = envs.step(actions)[0]
            ended = np.setdiff1d(np.arange(6), live)
            assert np.array_equal(batch[ended], shown[ended])
        shown = batch.copy()
        batch[:] = 7  # the caller's array is the caller's
