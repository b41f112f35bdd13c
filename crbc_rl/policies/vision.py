"""A policy that sees: Qwen2.5-VL and its like, with frames in the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil as ImageProcessor

from crbc_envs.prompts import IMAGE, Prompt
from crbc_rl.errors import ConfigError
from crbc_rl.policies.transformers import TransformersPolicy

BEFORE, PLACE, AFTER = "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"


class VisionPolicy(TransformersPolicy):
    """Replies to prompts with frames; `processor` cuts frames into patches.

    A frame stands in the ids as one token for every `merge_size` squared patches. Those tokens say nothing: a reply
    cannot hold them. Positions have three axes, and are handed to every pass: left to itself a model remembers
    those of its last batch.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Tokenizer, processor: ImageProcessor) -> None:
        super().__init__(model, tokenizer)
        self.processor = processor
        marks = [tokenizer.convert_tokens_to_ids(token) for token in (BEFORE, PLACE, AFTER)]
        if None in marks or len(set(marks)) < 3 or marks[1] != model.config.image_token_id:
            raise ConfigError(f"the tokenizer does not know {BEFORE}, {PLACE} and {AFTER} as this model has them")
        self.place: int = marks[1]
        self.unsayable = marks

    def encode(self, prompt: Prompt) -> list[int]:
        """As for text; a frame takes as many places as the model has tokens for it, and may not be cut.

        Raises `ConfigError` where `max_prompt_tokens` leaves no room for the frames.
        """
        if prompt.text.count(IMAGE) != len(prompt.images):
            raise ValueError(f"{len(prompt.images)} frames for {prompt.text.count(IMAGE)} places in the prompt")
        ids = self.encode_text(prompt.text.replace(IMAGE, BEFORE + PLACE + AFTER))
        sizes = iter([self._tokens(image) for image in prompt.images])
        whole = [token for i in ids for token in ([i] * next(sizes) if i == self.place else [i])]
        left = self.cut(whole)
        if left.count(self.place) < whole.count(self.place):
            limit = f"rollout.max_prompt_tokens={self.max_prompt_tokens}"
            raise ConfigError(f"{limit} cuts a frame out of a prompt of {len(whole)} tokens")
        return left

    def _tokens(self, image: np.ndarray) -> int:
        height, width = image.shape[:2]
        patches = self.processor.get_number_of_image_patches(height, width, {})
        return int(patches) // self.processor.merge_size**2

    def layout(
        self, ids: Tensor, mask: Tensor | None, images: Sequence[Sequence[Any]], response_length: int = 0
    ) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Positions (3, U, L), the patches of all frames, their grids, and which tokens stand for them."""
        frames = [Image.fromarray(image) for row in images for image in row]
        if not frames:
            return super().layout(ids, mask, images, response_length)
        seen = self.processor(images=frames, return_tensors="pt").to(ids.device)
        kinds = (ids == self.place).to(torch.int32)
        kinds[:, ids.shape[1] - response_length :] = 0
        grid = seen["image_grid_thw"]
        positions, _ = self.model.model.get_rope_index(ids, kinds, grid, attention_mask=mask)
        beside = {"pixel_values": seen["pixel_values"], "image_grid_thw": grid, "mm_token_type_ids": kinds}
        return positions, beside

    def save(self, folder: Path, main: bool = True) -> None:
        """As for text, and the processor's settings."""
        super().save(folder, main)
        if main:
            self.processor.save_pretrained(folder)


def image_processor(source: Path | str, local: bool) -> ImageProcessor:
    """The processor saved beside a model."""
    return ImageProcessor.from_pretrained(source, local_files_only=local)
