"""A key-value cache with room for the tokens to come.

That of the transformers library copies all keys and values for each new token, which takes most of the time of a small
model's sampling.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

ROOM = 32
"""Tokens that a layer has room for when it was copied."""


class RoomyLayer(DynamicLayer):
    """A layer whose keys and values are the beginnings of larger tensors."""

    def __init__(self) -> None:
        super().__init__()
        self._whole: tuple[Tensor | None, Tensor | None] = (None, None)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        keys, values = self._whole
        self.keys, keys = append(self.keys, keys, key_states)
        self.values, values = append(self.values, values, value_states)
        self._whole = keys, values
        return self.keys, self.values


def roomy_cache(config: PreTrainedConfig) -> DynamicCache:
    """A cache for a model of this config. Only its layers of full attention have room."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def append(old: Tensor, whole: Tensor | None, new: Tensor) -> tuple[Tensor, Tensor]:
    """`old` (B, H, n, D), which may be empty, with `new` (B, H, m, D) behind it, and the larger tensor that has both.

    `whole` is that tensor if `old` is its beginning, and is then written to where it has room.
    """
    start = old.shape[-2] if old.numel() else 0
    end = start + new.shape[-2]
    if whole is None or whole.data_ptr() != old.data_ptr() or whole.shape[-2] < end:  # another tensor: rows were chosen
        whole = new.new_empty(*new.shape[:-2], end + ROOM, new.shape[-1])
        if start:
            whole[..., :start, :] = old
    whole[..., start:end, :] = new
    return whole[..., :end, :], whole
