"""A `RolloutBatch` as plain arrays and back. Ranks exchange their rollouts in this form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchors import InternedRollouts
from crbc_rl.batches import RolloutBatch, Turn

Columns = dict[str, NDArray[Any]]

_NUMBERS = ("rollout", "step", "anchor", "action", "valid", "reward")
_PER_ROLLOUT = ("group", "length", "success", "score", "truncated", "final_anchor")
_NAMES = ("anchor_names", "anchor_labels", "action_names", "final_names", "tasks")


def pack(batch: RolloutBatch) -> Columns:
    """The columns of a newly sampled batch, by name.

    A column of n lists becomes two arrays: the concatenated values, and the n lengths. A text is a list of UTF-8 bytes.
    """
    rollouts, turns = batch.rollouts, batch.turns
    columns = {name: getattr(rollouts, name) for name in (*_NUMBERS, *_PER_ROLLOUT)}
    for name in _NAMES:
        columns |= texts(name, getattr(rollouts, name) or ())
    columns |= _lists("prompt", [turn.prompt for turn in turns], np.int64)
    columns |= _lists("response", [turn.response for turn in turns], np.int64)
    columns |= _lists("logprobs", [turn.logprobs for turn in turns], np.float64)
    columns |= texts("text", [turn.text for turn in turns])
    frames = [image for turn in turns for image in turn.images]
    columns |= _lists("pixels", [image.ravel() for image in frames], np.uint8)
    columns["shape"] = np.array([image.shape for image in frames], dtype=np.int64).reshape(len(frames), 3)
    columns["images"] = np.array([len(turn.images) for turn in turns], dtype=np.int64)
    columns["shortened"] = np.array([turn.shortened for turn in turns], dtype=np.bool_)
    columns |= texts("cause", [turn.cause for turn in turns])
    return columns


def unpack(columns: Mapping[str, NDArray[Any]]) -> RolloutBatch:
    """The batch of these columns, the inverse of `pack`."""
    numbers: dict[str, Any] = {name: columns[name] for name in (*_NUMBERS, *_PER_ROLLOUT)}
    named: dict[str, Any] = {name: read_texts(name, columns) or None for name in _NAMES}
    rollouts = InternedRollouts(**numbers, **named)
    shapes = columns["shape"].tolist()
    frames = [pixels.reshape(shape) for pixels, shape in zip(_cut("pixels", columns), shapes, strict=True)]
    images = [tuple(frames[a:b]) for a, b in pairwise(accumulate(columns["images"].tolist(), initial=0))]
    lists = ([values.tolist() for values in _cut(name, columns)] for name in ("prompt", "response", "logprobs"))
    beside = (read_texts("text", columns), images, columns["shortened"].tolist(), read_texts("cause", columns))
    turns = [Turn(*turn) for turn in zip(*lists, *beside, strict=True)]
    return RolloutBatch.of(rollouts, turns)


def _lists(name: str, lists: Sequence[Any], dtype: type) -> Columns:
    flat = np.concatenate([np.asarray(values, dtype=dtype) for values in lists]) if lists else np.zeros(0, dtype)
    return {name: flat, f"{name}_length": np.array([len(values) for values in lists], dtype=np.int64)}


def _cut(name: str, columns: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    ends = accumulate(columns[f"{name}_length"].tolist(), initial=0)
    return [columns[name][a:b] for a, b in pairwise(ends)]


def texts(name: str, values: Sequence[str]) -> Columns:
    """A column of texts as arrays."""
    # A reply may contain half a surrogate pair, which plain UTF-8 refuses.
    return _lists(name, [np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8) for text in values], np.uint8)


def read_texts(name: str, columns: Mapping[str, NDArray[Any]]) -> list[str]:
    """The texts of a column of `texts`."""
    return [part.tobytes().decode("utf-8", "surrogatepass") for part in _cut(name, columns)]
