"""The sizes of a model, found without its weights: parameters, layers, vocabulary, context.

They come from its config.json where available. For the paper's models the published shapes are included here. The
architecture is built on torch's meta device, where a tensor has a shape but no memory, and its parameters are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from transformers import AutoConfig, PretrainedConfig

from crbc_rl.errors import ConfigError, nearest
from crbc_rl.policies.files import CONFIG, check_weights, positions, read_config, shape, weight_files

_SMALL = {"num_key_value_heads": 2, "vocab_size": 151_936}
_VISION = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "out_hidden_size": 2048,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}

PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-1.5B-Instruct": {
        "model_type": "qwen2",
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": True,
        **_SMALL,
    },
    "Qwen/Qwen2.5-7B-Instruct": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152_064,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": False,
    },
    "Qwen/Qwen2.5-VL-3B-Instruct": {
        "model_type": "qwen2_5_vl",
        "tie_word_embeddings": True,
        "text_config": {
            "hidden_size": 2048,
            "intermediate_size": 11_008,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "max_position_embeddings": 128_000,
            **_SMALL,
        },
        "vision_config": _VISION,
    },
}
"""The shapes of the paper's models, from their published config.json."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes of a model and its decoder.

    `block` is the number of parameters of its largest block, `outside` that of the parameters in no block; they are
    sharded in these units. `context` is the maximum number of positions. `source` is where the shape was read.
    """

    source: str
    parameters: int
    block: int
    outside: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int
    vision: bool
    head_dim: int | None = None
    """Where it is not the head's share of the hidden size."""
    norms_heads: bool = False
    """Whether queries and keys are normalised, as in Qwen3."""

    @property
    def head(self) -> int:
        """The size of a head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def kv_bytes(self) -> int:
        """Bytes of one token in a key-value cache in bfloat16."""
        return 2 * 2 * self.layers * self.kv_heads * self.head


INTERMEDIATE = ("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
"""Names of a block's inner size in configs of transformers; where none is set, it is four times the hidden size."""


def find_architecture(model: str, online: bool = False, revision: str | None = None) -> Architecture | None:
    """The architecture of a model folder or of a name on the Hugging Face hub; None where its shape is not available.

    The hub is contacted only with `online`. Raises `ConfigError` for a config.json that is not of a language model.
    """
    if Path(model).is_absolute():
        folder = Path(model)
        return measure(read_config(folder), f"its {CONFIG}", folder) if (folder / CONFIG).exists() else None
    cached = try_to_load_from_cache(model, CONFIG, revision=revision)
    if isinstance(cached, str):
        return measure(read_config(Path(cached).parent), "the hub's cache")
    if online:
        return measure(_from_hub(model, revision), "the hub")
    return _published(model) if model in PUBLISHED else None


@cache
def _published(model: str) -> Architecture:
    """A study at the paper's scale asks for the same few models for each of its trainings."""
    sizes = dict(PUBLISHED[model])
    return measure(AutoConfig.for_model(sizes.pop("model_type"), **sizes), "its published shape")


def measure(config: PretrainedConfig, source: str, folder: Path | None = None) -> Architecture:
    """The sizes of an architecture, from the meta device; weights in `folder` must be those of such a model.

    Raises `ConfigError` where it is no language model, or the weights cannot be its own.
    """
    model = shape(config, source)
    if folder is not None and weight_files(folder):
        check_weights(folder, model)
    vision = hasattr(config, "vision_config")
    text = config.get_text_config()
    kinds = model._no_split_modules or ()
    blocks = [_count(module) for module in model.modules() if type(module).__name__ in kinds]
    return Architecture(
        source=source,
        parameters=_count(model),
        block=max(blocks, default=0),
        outside=_count(model) - sum(blocks),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        intermediate=next(filter(None, (getattr(text, name, None) for name in INTERMEDIATE)), 4 * text.hidden_size),
        heads=text.num_attention_heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or text.num_attention_heads,
        vocabulary=text.vocab_size,
        context=positions(config),
        vision=vision,
        head_dim=getattr(text, "head_dim", None),
        norms_heads=any(name.endswith("q_norm") for name, _ in model.named_modules()),
    )


def has_weights(model: str, revision: str | None = None) -> bool:
    """Whether all weight files are in the model's folder or in the hub's cache."""
    if Path(model).is_absolute():
        return bool(weight_files(Path(model)))
    cached = try_to_load_from_cache(model, CONFIG, revision=revision)
    return isinstance(cached, str) and bool(weight_files(Path(cached).parent))


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _from_hub(model: str, revision: str | None = None) -> PretrainedConfig:
    with TemporaryDirectory() as folder:
        try:
            hf_hub_download(model, CONFIG, revision=revision, local_dir=folder)
        except RepositoryNotFoundError as error:
            raise ConfigError(
                f"model: the hub has no {model!r}, or requires a login for it: hf auth login{_hint(model)}"
            ) from error
        except (HfHubHTTPError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(
                f"model: {model!r} is not on this machine, and the hub cannot be reached; a plan without --online "
                f"needs neither ({reason}){_hint(model)}"
            ) from error
        return read_config(Path(folder))


def _hint(model: str) -> str:
    """The published name that a name nearly is."""
    near = get_close_matches(model, PUBLISHED, n=1, cutoff=0.8)
    return nearest(model, near) if near else ""
