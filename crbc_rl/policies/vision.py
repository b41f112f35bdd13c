"""A policy over vision-language models such as Qwen2.5-VL, with frames in the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil as ImageProcessor

from crbc_envs.prompts import IMAGE, Prompt
from crbc_rl.errors import ConfigError
from crbc_rl.policies.chat_tokens import ChatTokens
from crbc_rl.policies.files import SAFE
from crbc_rl.policies.transformers import TransformersPolicy

VISION_START, IMAGE_PAD, VISION_END = "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"

KEPT = 2**30
"""Bytes of the frames' patches that are kept: 700 frames of 256 x 256 pixels."""


class Frames:
    """The patches of frames, as `processor` cuts them. Those of equal frames are cut once, for every policy that cuts
    alike: what samples, what is trained and its reference see the same frames several times an update. The first that
    were kept go first."""

    _by_settings: ClassVar[WeakValueDictionary[str, Frames]] = WeakValueDictionary()

    def __init__(self, processor: ImageProcessor) -> None:
        self.processor, self.bytes = processor, 0
        self._kept: dict[tuple[tuple[int, ...], bytes], tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, processor: ImageProcessor) -> Frames:
        """Those that all policies with such a processor share."""
        return cls._by_settings.setdefault(processor.to_json_string(), cls(processor))

    def patches(self, frame: np.ndarray) -> tuple[Tensor, Tensor]:
        """The patches of a frame (patches, values), and their grid (1, 3), on the CPU."""
        key = frame.shape, blake2b(frame.tobytes(), digest_size=16).digest()
        if key not in self._kept:
            seen = self.processor(images=[Image.fromarray(frame)], return_tensors="pt")
            self._kept[key] = seen["pixel_values"], seen["image_grid_thw"]
            self.bytes += seen["pixel_values"].nbytes
            while self.bytes > KEPT and len(self._kept) > 1:
                self.bytes -= self._kept.pop(next(iter(self._kept)))[0].nbytes
        return self._kept[key]


class VisionPolicy(TransformersPolicy):
    """Replies to prompts with frames, by a `model` and its `tokenizer`; `processor` cuts frames into patches.

    A frame is represented in the ids by one token for every `merge_size` squared patches. A reply cannot contain these
    tokens. Positions have three axes and are passed to every forward pass: otherwise the model would use those that
    it stored for its last batch. Raises `ConfigError` for a tokenizer without the model's image tokens.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Tokenizer, processor: ImageProcessor) -> None:
        super().__init__(model, tokenizer)
        self.processor, self.frames = processor, Frames.of(processor)
        marks = [tokenizer.convert_tokens_to_ids(token) for token in (VISION_START, IMAGE_PAD, VISION_END)]
        if None in marks or len(set(marks)) < 3 or marks[1] != model.config.image_token_id:
            raise ConfigError(f"the tokenizer's {VISION_START}, {IMAGE_PAD} and {VISION_END} are not the model's")
        self.image_token: int = marks[1]
        self.suppressed_tokens = marks

    def encode(self, prompt: Prompt, earlier: Sequence[str] = ()) -> list[int]:
        """Token ids of `prompt` after `earlier`, as for text; the image token is repeated for each token of its frame.

        Raises `ValueError` where the prompt's places and frames differ in number.
        """
        places = sum(text.count(IMAGE) for text in (*earlier[::2], prompt.text))
        if prompt.images and places != len(prompt.images):
            raise ValueError(f"{len(prompt.images)} frames for {places} places in the prompt")
        ids = self.encode_text(prompt.text, prompt.system, len(prompt.images), *earlier)
        sizes = iter([self._tokens(image) for image in prompt.images])
        return [token for i in ids for token in ([i] * next(sizes) if i == self.image_token else [i])]

    def _chat_tokens(self) -> ChatTokens:
        return ChatTokens(self.tokenizer, IMAGE, VISION_START + IMAGE_PAD + VISION_END)

    def _tokens(self, image: np.ndarray) -> int:
        height, width = image.shape[:2]
        patches = self.processor.get_number_of_image_patches(height, width, {})
        return int(patches) // self.processor.merge_size**2

    def layout(
        self, ids: Tensor, mask: Tensor | None, images: Sequence[Sequence[Any]], prompt: Tensor | None = None
    ) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Positions (3, U, L), and by name: the patches of all frames, their grids, and a mask of image tokens. `ids`,
        `mask`, `images` and `prompt` are as in `TransformersPolicy.layout`, which serves rows without frames."""
        frames = [self.frames.patches(image) for row in images for image in row]
        if not frames:
            return super().layout(ids, mask, images, prompt)
        patches, grid = (torch.cat(parts).to(ids.device) for parts in zip(*frames, strict=True))
        kinds = (ids == self.image_token).to(torch.int32)
        if prompt is not None:
            kinds *= torch.arange(ids.shape[1], device=ids.device) < prompt[:, None]
        positions, _ = self.model.model.get_rope_index(ids, kinds, grid, attention_mask=mask)
        beside = {"pixel_values": patches, "image_grid_thw": grid, "mm_token_type_ids": kinds}
        return positions, beside

    def save(self, folder: Path, main: bool = True) -> None:
        """Write the checkpoint to `folder` as for text, and as the `main` rank the processor's settings."""
        super().save(folder, main)
        if main:
            self.processor.save_pretrained(folder)


def image_processor(folder: Path) -> ImageProcessor:
    """The processor saved beside a model. Raises what the library does for one that cannot cut a frame."""
    processor = ImageProcessor.from_pretrained(folder, **SAFE)
    processor(images=[Image.new("RGB", (64, 64))], return_tensors="pt")
    return processor
