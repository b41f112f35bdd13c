"""An induction head by construction: a fresh model that can already copy from its prompt.

What followed the current token when it last occurred is likely to follow it again: two heads in two layers
compute this (Olsson et al. 2022, "In-context Learning and Induction Heads"). Large models find them
by themselves. A model of a million parameters, taught for minutes, does not, and then guesses names that
its prompt spells out. So it is given them: a head of the first layer writes down which token came
before, and one of the second looks for the place where that is the current token and copies what stands there.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import apply_rotary_pos_emb

ROPE_THETA = 1e6
"""As in Qwen2.5: most frequencies are then so slow that tokens match over hundreds of positions."""

REACH = 300
"""Tokens over which a frequency may turn by at most one radian to take part in the match."""

BACK = 6.0
"""The key bias by which the first head finds its place; larger is sharper."""

WRITE, MATCH, COPY, OTHERS = 0.05, 6.0, 0.5, 0.1
"""Gains: of what the first head writes, of the second's look-up and of its copy, and the factor by which
everything else that writes into the residual stream is damped at first, so as not to drown these."""


@torch.no_grad()
def install(model: Qwen2ForCausalLM, generator: torch.Generator) -> None:
    """Build the two heads into the first heads of layers 0 and 1, in place.

    The model is freshly drawn, with weights of standard deviation near 0.02 and biases 0, rotary base
    `ROPE_THETA`, and a width of at least three heads.
    """
    first, second = (model.model.layers[i].self_attn for i in range(2))
    size = first.head_dim
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(OTHERS)
        layer.mlp.down_proj.weight.mul_(OTHERS)
    # Three orthogonal views of the residual stream: which token it is, which came before, what to say.
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
    """The query that finds this key so many places away: a rotary key at position n and query at m
    score q R(n - m) k, which for q = R(d) k is largest at n - m = d."""
    cos, sin = model.model.rotary_emb(key, torch.tensor([[places]]))
    query, _ = apply_rotary_pos_emb(key, key, cos, sin)
    return query


def _slow(model: Qwen2ForCausalLM, size: int) -> Tensor:
    """(size, size): sends features to the coordinates that rotate slowly, as many as there are of these."""
    pairs = (model.model.rotary_emb.inv_freq < 1 / REACH).nonzero().flatten()
    coordinates = torch.cat([pairs, pairs + size // 2])
    route = torch.zeros(size, size)
    route[coordinates, torch.arange(len(coordinates))] = 1.0
    return route
