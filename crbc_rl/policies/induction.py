"""An induction head by construction: a fresh model that can already copy from its prompt.

The token that followed the last occurrence of the current token is likely to follow it again. Two heads in two layers
compute this (Olsson et al. 2022, "In-context Learning and Induction Heads"). Large models learn them. A model of a
million parameters does not learn them in minutes of training, and then guesses names that its prompt spells out. So
they are constructed: a head of the first layer writes the previous token into the residual stream. A head of the second
layer attends to the position whose previous token is the current token, and copies the token there.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import apply_rotary_pos_emb

ROPE_THETA = 1e6
"""As in Qwen2.5. Most frequencies are then slow enough to match tokens over hundreds of positions."""

REACH = 300
"""A frequency takes part in the match if it turns by at most one radian over this many tokens."""

BACK = 6.0
"""The key bias of the first head; a larger value makes its attention sharper."""

WRITE, MATCH, COPY, OTHERS = 0.05, 6.0, 0.5, 0.1
"""Gains of the first head's output, of the second head's match and of its copy, and the initial factor of all other
weights that write into the residual stream, which would otherwise drown out these heads."""


@torch.no_grad()
def install(model: Qwen2ForCausalLM, generator: torch.Generator) -> None:
    """Build the two heads into the first heads of layers 0 and 1, in place.

    The model must be newly initialised, with weights of standard deviation near 0.02, biases 0, rotary base
    `ROPE_THETA`, and a width of at least three heads.
    """
    first, second = (model.model.layers[i].self_attn for i in range(2))
    size = first.head_dim
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(OTHERS)
        layer.mlp.down_proj.weight.mul_(OTHERS)
    # Three orthogonal subspaces of the residual stream: the current token, the previous one, and the output.
    square = torch.randn(model.config.hidden_size, 3 * size, generator=generator)
    token, before, say = torch.linalg.qr(square)[0].T.contiguous().split(size)

    key = torch.full((1, 1, 1, size), BACK)
    first.k_proj.bias[:size] = key.flatten()
    first.q_proj.bias[:size] = _turned(model, key, -1).flatten()
    first.v_proj.weight[:size] = token
    first.o_proj.weight[:, :size] = WRITE * before.T

    slow = _slow(model, size)
    second.q_proj.weight[:size] = MATCH * slow @ token
    second.k_proj.weight[:size] = slow @ before
    second.v_proj.weight[:size] = say
    second.o_proj.weight[:, :size] = COPY * say.T


def _turned(model: Qwen2ForCausalLM, key: Tensor, places: int) -> Tensor:
    """The query that attends to this key at an offset of `places`. A rotary key at position n and a query at m have the
    score q R(n - m) k, which for q = R(d) k is largest at n - m = d."""
    cos, sin = model.model.rotary_emb(key, torch.tensor([[places]]))
    query, _ = apply_rotary_pos_emb(key, key, cos, sin)
    return query


def _slow(model: Qwen2ForCausalLM, size: int) -> Tensor:
    """A (size, size) matrix that maps features to the slowly rotating coordinates, one feature to each."""
    pairs = (model.model.rotary_emb.inv_freq < 1 / REACH).nonzero().flatten()
    coordinates = torch.cat([pairs, pairs + size // 2])
    route = torch.zeros(size, size)
    route[coordinates, torch.arange(len(coordinates))] = 1.0
    return route
