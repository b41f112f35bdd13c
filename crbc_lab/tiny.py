"""A tiny agent: the Qwen2 architecture with about a million parameters, and its own tokenizer.

It is saved as an ordinary transformers checkpoint, so the same code trains it and Qwen2.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import torch
from tokenizers import AddedToken
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from crbc_lab import induction
from crbc_rl.policies.chat_tokens import TAGS
from crbc_rl.policies.transformers import TransformersPolicy

VOCABULARY = 384
SHAPE = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4}
PLAIN = {"num_attention_heads": 4, "num_key_value_heads": 2}
"""Of a model without an induction head."""
COPYING = {
    "num_attention_heads": induction.HEADS,
    "num_key_value_heads": induction.HEADS,
    "head_dim": induction.HEAD_DIM,
}
START_OF_TURN, END_OF_TURN, PADDING = "<|im_start|>", "<|im_end|>", "<|endoftext|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY, apart: Sequence[str] = ()) -> Qwen2Tokenizer:
    """Train a byte-level BPE on the environments' text, with Qwen's chat markers.

    Each text of `apart` is always a token of its own. With " " and "[" apart, a word has the same tokens wherever it
    stands, and can be copied from one place to another.

    It keeps Qwen's pre-tokenizer, since AutoTokenizer would silently replace any other by that one.
    """
    between = re.compile("|".join(map(re.escape, sorted((*TAGS, *apart), key=len, reverse=True))))
    texts = chain.from_iterable(map(between.split, texts))
    # The chat template's words, repeated so that each becomes one token.
    texts = chain(texts, ["user\n", "assistant\n", "system\n"] * 100)
    base = Qwen2Tokenizer(eos_token=END_OF_TURN, pad_token=PADDING, model_max_length=2048)
    tokenizer = base.train_new_from_iterator(texts, vocabulary, show_progress=False)
    tokenizer.add_tokens([START_OF_TURN], special_tokens=True)
    # Each tag is one token, as <think> is in newer Qwen tokenizers.
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in (*TAGS, *apart)])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build(
    tokenizer: Qwen2Tokenizer, generator: torch.Generator, copies: bool = False, shape: Mapping[str, int] = SHAPE
) -> TransformersPolicy:
    """A policy with fresh weights, about 0.84 million parameters, drawn from `generator`.

    With `copies` it starts with an induction head (`induction.install`). It can then copy names from its prompt, which
    text environments require at every step.
    """
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        **shape,
        **(COPYING if copies else PLAIN),
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": induction.ROPE_THETA if copies else 10_000.0},
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():  # the constructor drew from the global generator; draw again from ours
        for name, weight in sorted(model.named_parameters()):
            if weight.dim() > 1:
                weight.normal_(0.0, config.initializer_range, generator=generator)
            else:
                weight.fill_(0.0 if name.endswith("bias") else 1.0)
        if copies:
            induction.install(model, generator)
    return TransformersPolicy(model, tokenizer)
