"""Anchor keys: stable names, equal exactly when the payloads are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchors import ANCHOR_VERSION, anchor_key

GRID = np.arange(6, dtype=np.int32).reshape(2, 3)
GOLDEN = [
    ("", "bc236060f7956ac06b55e8c28230cae2"),
    ("up", "d35f762848506c891e9d15d38edc1aaa"),
    ("café \U0001f600", "93aacf16d5bdf91baf8c5fe3f7bb3ac2"),
    ("\ud800", "6d443b780862dd4f2c7842179d28a0be"),
    (b"", "cb872045b6262217b32d19b7444276e4"),
    (b"up", "8f848dc73ab401c009d5ec044ef67538"),
    (GRID, "853ec8712abc14d235a725b41329191c"),
    (np.zeros(0), "eb7f2893443f3b7a3bb452969ac5c2dd"),
    (np.array(3.5), "2e9741e6935567a4b7763135c2aef2dd"),
    (np.array([True, False]), "193606ee6cc2edb6b6951f6282d28435"),
]
"""Frozen for ANCHOR_VERSION 1: changing one of them silently renames every stored anchor."""


@pytest.mark.parametrize(("payload", "key"), GOLDEN, ids=repr)
def test_a_key_is_the_frozen_digest(payload, key):
    assert ANCHOR_VERSION == 1
    assert anchor_key(payload) == key


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_keys_are_equal_in_other_processes_whatever_the_hash_seed(run_python, hash_seed):
    code = """
import numpy as np
from anchors import anchor_key
grid = np.arange(6, dtype=np.int32).reshape(2, 3)
print(anchor_key("up"), anchor_key(b"up"), anchor_key(grid))
"""
    assert run_python(code, hash_seed).split() == [anchor_key("up"), anchor_key(b"up"), anchor_key(GRID)]


@given(st.text(max_size=30))
def test_text_bytes_and_arrays_never_collide(text):
    raw = text.encode("utf-8", "surrogatepass")
    array = np.frombuffer(raw, dtype=np.uint8)
    assert len({anchor_key(text), anchor_key(raw), anchor_key(array)}) == 3


def test_a_payload_cannot_forge_the_prefix_of_another_type():
    forged = [f"array:<i4:(2, 3):{GRID.tobytes().decode('latin1')}", "bytes:up", "str:up", b"str:up", b"up", "up"]
    assert len({anchor_key(p) for p in forged} | {anchor_key(GRID)}) == len(forged) + 1


@given(st.text(max_size=20), st.text(max_size=20))
def test_two_texts_share_a_key_exactly_when_they_are_equal(one, other):
    assert (anchor_key(one) == anchor_key(other)) == (one == other)


def test_dtype_and_shape_count():
    same_bytes = [GRID, GRID.reshape(3, 2), GRID.ravel(), GRID.view(np.uint32), GRID.view(np.float32), GRID[None]]
    assert len({anchor_key(array) for array in same_bytes}) == len(same_bytes)
    assert anchor_key(GRID) != anchor_key(GRID.astype(np.int64))
    assert anchor_key(np.zeros((0, 3))) != anchor_key(np.zeros((3, 0)))


def test_memory_layout_and_byte_order_do_not_count():
    key = anchor_key(GRID)
    assert anchor_key(np.asfortranarray(GRID)) == key
    assert anchor_key(GRID.T.copy().T) == key
    assert anchor_key(np.repeat(GRID, 2, axis=1)[:, ::2]) == key
    assert anchor_key(GRID.astype(">i4")) == key
    assert anchor_key(GRID.T) == anchor_key(GRID.T.copy()) != key


def test_making_a_key_leaves_the_array_alone():
    array = GRID.astype(">i4")
    before = array.copy()
    anchor_key(array)
    assert array.dtype == before.dtype
    np.testing.assert_array_equal(array, before)


def test_lone_surrogates_are_names_like_any_other():
    assert len({anchor_key("\ud800"), anchor_key("\udfff"), anchor_key("?"), anchor_key("\ud800\udfff")}) == 4


@pytest.mark.parametrize(
    "payload",
    [None, 3, 3.5, ["up"], ("up",), {"a": 1}, bytearray(b"up"), memoryview(b"up"), np.float64(1), np.array([None])],
    ids=lambda payload: type(payload).__name__,
)
def test_other_types_are_refused_by_name(payload):
    kind = "array of object" if isinstance(payload, np.ndarray) else type(payload).__name__
    with pytest.raises(TypeError, match=f"not from {kind}"):
        anchor_key(payload)


@pytest.mark.parametrize(
    "payload",
    [np.array(["2020-01-01"], dtype="datetime64[D]"), np.array([(1, 2)], dtype=[("a", "<i4"), ("b", "<i4")])],
    ids=["datetime", "structured"],
)
def test_arrays_that_are_not_numeric_are_refused(payload):
    with pytest.raises(TypeError, match="an array of numbers or text"):
        anchor_key(payload)
