"""A key-value cache with room for the tokens to come.

That of the transformers library copies all keys and values for each new token, which takes most of the time of a
small model's sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

ROOM = 32
"""Tokens that a layer of the cache has room for when it was copied."""


class RoomyLayer(DynamicLayer):
    """A layer whose keys and values are the beginnings of larger tensors."""

    keys: Tensor | None
    values: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self._keys, self._values = _Room(), _Room()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        self.keys, self.values = (
            self._keys.append(self.keys, key_states),
            self._values.append(self.values, value_states),
        )
        return self.keys, self.values


def roomy_cache(config: PreTrainedConfig) -> DynamicCache:
    """A cache for a model of this config. Only its layers of full attention have room."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


@dataclass(slots=True)
class _Room:
    """A tensor with room, `whole`, and `used`, its beginning as it was handed out last."""

    whole: Tensor | None = None
    used: Tensor | None = None

    def append(self, old: Tensor, new: Tensor) -> Tensor:
        """`old` (B, H, n, D), which may be empty, with `new` (B, H, m, D) behind it."""
        start = old.shape[-2] if old.numel() else 0
        end = start + new.shape[-2]
        whole = self.whole if old is self.used else None  # another tensor: rows were chosen, or there is none yet
        if whole is None or whole.shape[-2] < end:
            whole = new.new_empty(*new.shape[:-2], end + ROOM, new.shape[-1])
            if start:
                whole[..., :start, :] = old
        whole[..., start:end, :] = new
        self.whole, self.used = whole, whole[..., :end, :]
        return self.used
