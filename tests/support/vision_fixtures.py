"""A vision-language policy of the Qwen2.5-VL architecture, small enough to train in seconds."""

from __future__ import annotations

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer

from crbc_lab import tiny
from crbc_rl.policies.vision import IMAGE_PAD, VISION_END, VISION_START, ImageProcessor, VisionPolicy


def fresh_vision_policy(seed: int = 0) -> VisionPolicy:
    """Random weights, drawn from `seed`."""
    texts = ["You see <image> and move up down left right <think>box</think><action>up</action>"] * 50
    return build_vision(tiny.train_tokenizer(texts), torch.Generator().manual_seed(seed))


def build_vision(tokenizer: Qwen2Tokenizer, generator: torch.Generator) -> VisionPolicy:
    """A tiny policy of the Qwen2.5-VL architecture with fresh weights, drawn from `generator`.

    The tokenizer gets the tokens that stand for images.
    """
    tokenizer.add_tokens([VISION_START, IMAGE_PAD, VISION_END, "<|video_pad|>"], special_tokens=True)
    before, place = (tokenizer.convert_tokens_to_ids(token) for token in (VISION_START, IMAGE_PAD))
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 128,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]},
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 128,
            "fullatt_block_indexes": [1],
            "window_size": 56,
        },
        image_token_id=place,
        vision_start_token_id=before,
        video_token_id=len(tokenizer) - 1,
        tie_word_embeddings=True,
    )
    model = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            if weight.dim() > 1:
                weight.normal_(0.0, 0.06, generator=generator)
    return VisionPolicy(model, tokenizer, ImageProcessor())
