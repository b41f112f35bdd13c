"""An induction head by construction: a fresh model that can already copy from its prompt.

What followed the last two tokens where they stood before is likely to follow them again. Heads in two layers compute
this (Olsson et al. 2022, "In-context Learning and Induction Heads"). Large models learn them. A model of a million
parameters does not learn them in minutes of training, and then guesses names that its prompt spells out. So they are
constructed: two heads of the first layer write the previous token and the one before it into the residual stream. The
heads of the second layer attend to the positions whose previous two tokens are the current two, and copy the token
there. One token of context would not do: after "drawer" comes a space, and many things come after a space.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import apply_rotary_pos_emb

HEADS, HEAD_DIM = 3, 64
"""Of a model that copies. One match has room for two tokens, and one head in each layer is left to learn."""

ROPE_THETA = 1e6
"""As in Qwen2.5. Most frequencies are then slow enough to match tokens over hundreds of positions."""

REACH = 300
"""A frequency takes part in the match if it turns by at most one radian over this many tokens."""

BACK = 6.0
"""The key bias of the first layer; a larger value makes its attention sharper."""

WRITE, MATCH, COPY, OTHERS = 0.05, 6.0, 0.5, 0.1
"""Gains of the first layer's output, of the second layer's match and of its copy, and the initial factor of all other
weights that write into the residual stream, which would otherwise drown out these heads."""

SPEAK = 5.0
"""The gain of the last norm. With 1, a fresh model's logits are so flat that what it copies is hardly more likely than
all else, and the first hundred steps of training go into that."""

SECOND = 0.7
"""The weight of the earlier of the two tokens in a match; the later one has 1."""


@torch.no_grad()
def install(model: Qwen2ForCausalLM, generator: torch.Generator) -> None:
    """Build the heads into layers 0 and 1, in place.

    The model must be newly initialised, with weights of standard deviation near 0.02, biases 0, rotary base
    `ROPE_THETA`, `HEADS` heads of `HEAD_DIM` with keys of their own, and a width that four divides.
    """
    first, second = (model.model.layers[i].self_attn for i in range(2))
    size, width = first.head_dim, model.config.hidden_size // 4
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(OTHERS)
        layer.mlp.down_proj.weight.mul_(OTHERS)
    model.model.norm.weight.fill_(SPEAK)
    # Four orthogonal subspaces of the residual stream: the current token, the two before it, and the output.
    square = torch.randn(4 * width, 4 * width, generator=generator)
    token, *before, say = torch.linalg.qr(square)[0].T.contiguous().split(width)
    later, earlier = (_slow(model, width, generator) for _ in range(2))

    key = torch.full((1, 1, 1, size), BACK)
    match = MATCH * (later @ token + SECOND * earlier @ before[0])
    for head, copied in enumerate((say, token)):
        rows, own = slice(head * size, (head + 1) * size), slice(head * size, head * size + width)
        first.k_proj.bias[rows] = key.flatten()
        first.q_proj.bias[rows] = _turned(model, key, -1 - head).flatten()
        first.v_proj.weight[own] = token
        first.o_proj.weight[:, own] = WRITE * before[head].T

        second.q_proj.weight[rows] = match
        second.k_proj.weight[rows] = later @ before[0] + earlier @ before[1]
        second.v_proj.weight[own] = copied
        second.o_proj.weight[:, own] = COPY * copied.T


def _turned(model: Qwen2ForCausalLM, key: Tensor, places: int) -> Tensor:
    """The query that attends to this key at an offset of `places`. A rotary key at position n and a query at m have the
    score q R(n - m) k, which for q = R(d) k is largest at n - m = d."""
    cos, sin = model.model.rotary_emb(key, torch.tensor([[places]]))
    query, _ = apply_rotary_pos_emb(key, key, cos, sin)
    return query


def _slow(model: Qwen2ForCausalLM, width: int, generator: torch.Generator) -> Tensor:
    """A (head size, width) matrix that turns features at random into the slowly rotating coordinates."""
    pairs = (model.model.rotary_emb.inv_freq < 1 / REACH).nonzero().flatten()
    coordinates = torch.cat([pairs, pairs + HEAD_DIM // 2])
    route = torch.zeros(HEAD_DIM, width)
    route[coordinates] = torch.linalg.qr(torch.randn(len(coordinates), width, generator=generator))[0]
    return route
