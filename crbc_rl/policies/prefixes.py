"""The keys and values of prompts that were read, as a tree over token ids: a prefix is read once while weights stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

from crbc_rl.batches import Ints, pad_left, positions_of, spans
from crbc_rl.trees import common

Path = list[int]
"""The nodes of a prompt's first tokens."""
Forward = Callable[[Tensor, Tensor | None, Tensor | None, DynamicCache], Tensor]
"""The logits (n, V) after new token ids (n, S), with the mask (n, P + S), positions (n, S) and a cache of P tokens."""

ROOM = 32
"""Tokens that a layer of the cache has room for when it was copied."""
PASS = 48
"""What a pass costs beside its tokens, in tokens; of small models, whose passes it matters for."""


@dataclass(slots=True)
class Counts:
    """Tokens of prompts: `asked` in all, `found` in the cache, `read` by the model, and `padding` beside these."""

    asked: int = 0
    found: int = 0
    read: int = 0
    padding: int = 0


@dataclass(slots=True, eq=False)
class Prefixes:
    """Each node is a token after a prefix; its number is the place of its keys and values in `keys` and `values`.

    Beyond `most_bytes` the nodes used longest ago are dropped. During a call all of its prompts are kept.
    A call touches every node on the way to another, so a node is never dropped before those behind it.
    """

    empty: Callable[[], DynamicCache]
    """Makes a cache without tokens."""
    most_bytes: int
    counts: Counts = field(default_factory=Counts)
    keys: list[Tensor] = field(default_factory=list)
    """Of each layer, (nodes, heads, head size)."""
    values: list[Tensor] = field(default_factory=list)
    _next: dict[tuple[int, int], int] = field(default_factory=dict)
    _edge: list[tuple[int, int]] = field(default_factory=list)
    _free: list[int] = field(default_factory=list)
    _depth: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _used: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The call that a node was used in last; 0 for a free one."""
    _call: int = 0

    def __len__(self) -> int:
        return len(self._next)

    @property
    def bytes(self) -> int:
        return len(self) * self._node_bytes()

    def metrics(self) -> dict[str, float]:
        """What was read since the last call, for the record of an update."""
        counts, self.counts = self.counts, Counts()
        return {
            "rollout/prefill_tokens": counts.read,
            "rollout/prefill_found": counts.found / max(1, counts.asked),
            "rollout/prefill_padding": counts.padding / max(1, counts.read + counts.padding),
            "rollout/prefix_bytes": self.bytes,
        }

    def clear(self) -> None:
        """Forget every prompt and what was counted, and free the memory."""
        self.counts = Counts()
        self._next, self._edge, self._free, self.keys, self.values = {}, [], [], [], []
        self._depth, self._used = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)

    def read(self, prompts: Sequence[Sequence[int]], forward: Forward) -> tuple[Tensor, list[Path]]:
        """Read n different prompts: the logits after each, (n, V), and its nodes."""
        self._call += 1
        paths = [self._walk(ids) for ids in prompts]
        self.counts.asked += sum(map(len, prompts))
        self.counts.found += sum(map(len, paths))
        logits: dict[int, Tensor] = {}
        waiting = list(range(len(prompts)))
        while waiting:
            now, waiting = _sharing(waiting, prompts, paths)
            for rows in _buckets(now, [len(prompts[row]) - len(paths[row]) for row in now]):
                last = self._pass(rows, prompts, paths, forward)
                logits |= zip(rows, last, strict=True)
            for row in waiting:
                paths[row] = self._walk(prompts[row])
        return torch.stack([logits[row] for row in range(len(prompts))]), paths

    def gather(self, paths: Sequence[Path], rows: Iterable[int]) -> tuple[DynamicCache, Tensor | None]:
        """A cache with the tokens of `rows` of `paths`, padded on the left, and its mask; None without padding."""
        nodes, mask = pad_left([paths[row] for row in rows], 0)
        cache = self.empty()
        if nodes.shape[1]:
            for layer, *pools in zip(cache.layers, self.keys, self.values, strict=True):
                where = nodes.to(pools[0].device)
                layer.lazy_initialization(*(pool[:0] for pool in pools))
                parts = (pool.index_select(0, where.flatten()).unflatten(0, where.shape) for pool in pools)
                layer.keys, layer.values = (part.transpose(1, 2) for part in parts)
        return cache, mask

    def trim(self, new: int = 0) -> None:
        """Drop what was used longest ago beyond `most_bytes`: to have room for `new` nodes, nothing of this call."""
        over = len(self) + new - self._most_nodes()
        if over > 0:
            used = np.flatnonzero((self._used > 0) & (self._used < self._call + (new == 0)))
            for node in used[np.lexsort((-self._depth[used], self._used[used]))][:over].tolist():
                del self._next[self._edge[node]]
                self._used[node] = 0
                self._free.append(node)

    def _walk(self, ids: Sequence[int]) -> Path:
        """The nodes of the known beginning of a prompt, but its last token's, whose logits are wanted."""
        path: Path = []
        node = -1
        for token in ids[:-1]:
            found = self._next.get((node, token))
            if found is None:
                break
            path.append(found)
            node = found
        self._used[path] = self._call
        return path

    def _pass(
        self, rows: Sequence[int], prompts: Sequence[Sequence[int]], paths: list[Path], forward: Forward
    ) -> Tensor:
        """One pass of the model over the tokens of `rows` that are not known; their paths are then whole."""
        cache, before = self.gather(paths, rows)
        rest = [prompts[row][len(paths[row]) :] for row in rows]
        ids, new = pad_left(rest, 0)
        past, width = cache.get_seq_length(), ids.shape[1]
        mask = positions = None
        if before is not None or new is not None:
            left = ids.new_ones(len(rows), past) if before is None else before
            mask = torch.cat([left, torch.ones_like(ids) if new is None else new], dim=1)
            positions = positions_of(mask)[:, past:]
        logits = forward(ids, mask, positions, cache)
        new_tokens = sum(map(len, rest))
        self.counts.read += new_tokens
        self.counts.padding += ids.numel() - new_tokens
        self.trim(new_tokens)
        kept: list[tuple[int, int, int]] = []
        for place, (row, some) in enumerate(zip(rows, rest, strict=True)):
            paths[row], nodes = self._nodes(paths[row], some)
            kept += [(place, width - len(some) + index, node) for index, node in nodes]
        self._copy(torch.tensor(kept, dtype=torch.long).reshape(-1, 3), cache, past)
        return logits

    def _nodes(self, path: Path, rest: Sequence[int]) -> tuple[Path, list[tuple[int, int]]]:
        """The whole path of a prompt, and the new nodes on it, each with its index in `rest`."""
        path, new = list(path), []
        for index, token in enumerate(rest):
            before = path[-1] if path else -1
            node = self._next.get((before, token))
            if node is None:  # not read by another row of this pass
                node = self._node(before, token, len(path))
                new.append((index, node))
            path.append(node)
        self._used[path] = self._call
        return path, new

    def _copy(self, new: Tensor, cache: DynamicCache, past: int) -> None:
        """Copy keys and values of `new` tokens (n, 3), each a row, a column behind `past`, and its node."""
        row, column, node = new.unbind(1)
        for number, layer in enumerate(cache.layers):
            for pools, tensor in ((self.keys, layer.keys), (self.values, layer.values)):
                if number == len(pools):
                    pools.append(tensor.new_empty((0, tensor.shape[1], tensor.shape[3])))
                pools[number] = self._grown(pools[number])
                pools[number][node.to(tensor.device)] = tensor.transpose(1, 2)[row, past + column]

    def _grown(self, pool: Tensor) -> Tensor:
        """The pool with room for every node, doubled within the bound so that it rarely grows."""
        if len(pool) >= len(self._edge):
            return pool
        grown = pool.new_empty((max(len(self._edge), min(2 * len(pool), self._most_nodes())), *pool.shape[1:]))
        grown[: len(pool)] = pool
        return grown

    def _node(self, before: int, token: int, depth: int) -> int:
        if self._free:
            node = self._free.pop()
            self._edge[node] = (before, token)
        else:
            node = len(self._edge)
            self._edge.append((before, token))
            if node == len(self._used):
                self._used, self._depth = (np.resize(old, 2 * node + 64) for old in (self._used, self._depth))
                self._used[node:] = 0
        self._next[before, token] = node
        self._depth[node] = depth
        return node

    def _most_nodes(self) -> int:
        return self.most_bytes // max(1, self._node_bytes())

    def _node_bytes(self) -> int:
        return sum(pool[0].numel() * pool.element_size() for pool in (*self.keys, *self.values) if len(pool))


def _sharing(
    rows: Sequence[int], prompts: Sequence[Sequence[int]], paths: Sequence[Path]
) -> tuple[list[int], list[int]]:
    """The rows to read now, and those that wait, since they share more of what is unknown with one of the others than a
    pass costs, all together."""
    now, later = list[int](), list[int]()
    before, saved = np.zeros(0, dtype=np.int64), 0
    for row in sorted(rows, key=lambda row: tuple(prompts[row])):
        ids = np.array(prompts[row])
        shared = common(before, ids) - len(paths[row])  # in this order, none is the beginning of one before it
        if shared > 0:
            later.append(row)
            saved += shared
        else:
            now.append(row)
            before = ids
    return (now, later) if saved > PASS else (list(rows), [])


def _buckets(rows: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """The rows in passes of similar `lengths`."""
    order = np.argsort(lengths, kind="stable")
    ordered = [rows[i] for i in order.tolist()]
    return [ordered[start:end] for start, end in spans(np.array(lengths)[order].tolist(), PASS)]


# ---- a key-value cache with room for the tokens to come -------------------------------------------------
#
# That of the transformers library copies all keys and values for each new token, which takes most of the time of a
# small model's sampling.


class RoomyLayer(DynamicLayer):
    """A layer whose keys and values are the beginnings of larger tensors."""

    _whole: Sequence[Tensor] = ()
    _used: Tensor | None = None  # the keys as they were handed out last

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        new, start = (key_states, value_states), self.get_seq_length()
        end = start + key_states.shape[-2]
        if self.keys is not self._used or self._whole[0].shape[-2] < end:  # others came, or no room is left
            self._whole = [part.new_empty(*part.shape[:-2], end + ROOM, part.shape[-1]) for part in new]
            if start:
                for whole, old in zip(self._whole, (self.keys, self.values), strict=True):
                    whole[..., :start, :] = old
        for whole, part in zip(self._whole, new, strict=True):
            whole[..., start:end, :] = part
        return self._hand_out(end)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Whole rows are copied, with their room: to index a part of each takes twenty times as long on a CPU."""
        if end := self.get_seq_length():
            whole = self._whole if self.keys is self._used else (self.keys, self.values)
            self._whole = [part.index_select(0, indices) for part in whole]
            self._hand_out(end)

    def _hand_out(self, end: int) -> tuple[Tensor, Tensor]:
        keys, values = (whole[..., :end, :] for whole in self._whole)
        self.keys, self.values, self._used = keys, values, keys
        return keys, values


def roomy_cache(config: PreTrainedConfig) -> DynamicCache:
    """A cache for a model of this config. Only its layers of full attention have room."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def joined(cache: DynamicCache, other: DynamicCache, width: int) -> DynamicCache:
    """The rows of both, of `width` tokens: they are padded or cut on the left. The first cache is changed."""
    for layer, more in zip(cache.layers, other.layers, strict=True):
        layer.keys, layer.values = (
            torch.cat([pad(part, (0, 0, width - part.shape[-2], 0)) for part in parts])
            for parts in ((layer.keys, more.keys), (layer.values, more.values))
        )
    return cache
