"""Frames in shared memory: the same bytes, with room and without."""

from __future__ import annotations

import os
from contextlib import closing

import numpy as np
import pytest
from worker_play import plain, play

from crbc_envs import GroupVectorEnv
from crbc_envs.core import Outcome
from crbc_envs.vector.workers.memory import lend, new_memory, take


def outcome(observations):
    flags = np.zeros(2, dtype=np.bool_)
    return Outcome(observations, np.zeros(2), flags, flags, {})


FRAMES = np.random.default_rng(0).integers(256, size=(2, 96, 96, 3), dtype=np.uint8)


@pytest.fixture
def memory():
    made = new_memory()
    if made is None:
        pytest.skip("this system has no memory without a name")
    yield made
    os.close(made)


SEEN = {
    **{"batch": FRAMES, "list": list(FRAMES), "fortran": np.asfortranarray(FRAMES), "strided": FRAMES[:, ::-2]},
    **{"dicts": [{"board": frame, "text": "here"} for frame in FRAMES], "text": ["text", "more"], "none": []},
    **{"tuples": [(frame.astype(np.float32), None) for frame in FRAMES], "big endian": FRAMES.astype(">i4")},
    "objects": np.array([{"a": 1}, "object"] * 4096, dtype=object),
}


@pytest.mark.parametrize("observations", SEEN.values(), ids=SEEN)
def test_observations_come_back_as_they_were(observations, memory):
    received = take(*lend(outcome(observations), memory), memory).observations
    assert plain(received) == plain(observations)
    assert plain(take(*lend(observations, memory), memory)) == plain(observations)


def test_frames_are_lent_and_the_next_answer_changes_none_of_them(memory):
    lent = lend(outcome(FRAMES), memory)
    assert lent[1] == [FRAMES.nbytes]
    received = take(*lent, memory).observations
    take(*lend(outcome(255 - FRAMES), memory), memory)
    assert (received == FRAMES).all()
    assert received.flags.writeable


def test_frames_are_sent_where_the_memory_has_no_room():
    full = os.open("/dev/full", os.O_RDWR)
    result = outcome(FRAMES)
    for none in (full, None):
        pickled, sizes = lend(result, none)
        assert not sizes and (take(pickled, sizes, none).observations == FRAMES).all()
    os.close(full)


def test_groups_play_alike_where_frames_are_sent(monkeypatch):
    monkeypatch.setattr("crbc_envs.vector.workers.process.new_memory", lambda: None)
    options = {"observation": "rgb", "max_steps": 3}
    with (
        closing(GroupVectorEnv("CRBC-Sokoban-v0", 2, 2, backend="process", num_workers=2, **options)) as sent,
        closing(GroupVectorEnv("CRBC-Sokoban-v0", 2, 2, **options)) as local,
    ):
        assert play(sent, 0) == play(local, 0)
