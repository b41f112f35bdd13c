"""Loads checkpoints as policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer, PreTrainedModel

from crbc_rl.errors import ConfigError
from crbc_rl.policies.transformers import TransformersPolicy, quiet
from crbc_rl.policies.vision import VisionPolicy, image_processor


def load_policy(
    source: Path | str, device: torch.device | str = "cpu", max_prompt_tokens: int | None = None
) -> TransformersPolicy:
    """Load a checkpoint folder or a model of the Hugging Face hub in float32; a vision-language model as a
    `VisionPolicy`.

    Raises `ConfigError` where the model is missing, or its weights do not match its architecture.
    """
    local = Path(source).is_dir() or Path(source).is_absolute()
    if local and not (Path(source) / "config.json").is_file():
        raise ConfigError(
            f"{source} is no model folder: it has no config.json; set `model` to a transformers checkpoint"
        )
    options: dict[str, Any] = {"local_files_only": local}
    try:
        with quiet():  # the error below repeats in one line what the library would print
            config = AutoConfig.from_pretrained(source, **options)
            tokenizer = AutoTokenizer.from_pretrained(source, **options)
            seeing = hasattr(config, "vision_config")
            family = AutoModelForImageTextToText if seeing else AutoModelForCausalLM
            model, report = family.from_pretrained(
                source, config=config, dtype=torch.float32, output_loading_info=True, **options
            )
            processor = image_processor(source, local) if seeing else None
    except (ValueError, OSError, RuntimeError, SafetensorError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(f"{source} cannot be loaded as a causal language model: {reason}") from error
    wrong = [*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]]
    if wrong:
        raise ConfigError(
            f"{source}: the weights are not those of the architecture in config.json "
            f"({len(wrong)} tensors differ, the first is {wrong[0]})"
        )
    model = own_memory(model).to(device)
    policy = VisionPolicy(model, tokenizer, processor) if processor else TransformersPolicy(model, tokenizer)
    policy.max_prompt_tokens = max_prompt_tokens
    return policy


def own_memory(model: PreTrainedModel) -> PreTrainedModel:
    """The model with its weights copied into newly allocated memory. Views into a file have arbitrary alignment, which
    changes the rounding of sums, and a resumed run would not be byte-equal."""
    for weight in model.parameters():
        weight.data = weight.data.clone()
    return model
