"""Model folders of others are data: what the transformers library would run, follow or build is checked before.

Every model is read from a folder here; one of the Hugging Face hub, from its folder in the hub's cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PretrainedConfig,
    PreTrainedModel,
)

from crbc_envs.storage.files import read_json
from crbc_rl.errors import ConfigError

CONFIG, INDEX, WEIGHTS = "config.json", "model.safetensors.index.json", "model.safetensors"
TOKENIZER, TOKENIZER_CONFIG, ADAPTER = "tokenizer.json", "tokenizer_config.json", "adapter_config.json"
BESIDE = (
    TOKENIZER,
    TOKENIZER_CONFIG,
    "vocab.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
)
"""Other files that the library reads, each an object."""

FROM_HUB = ["*.json", "*.jinja", "*.txt", "*.model", WEIGHTS, "model-*.safetensors"]

SAFE = {"local_files_only": True, "trust_remote_code": False}
"""Options of every `from_pretrained`: code beside a model never runs, and nothing is looked up elsewhere."""

FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    SafetensorError,
    StrictDataclassError,
)
"""What the libraries raise about a damaged model; tokenizers also raises `Exception` itself, and worse."""

LARGEST_CONFIG, LARGEST_FILE = 4 << 20, 40 << 20
"""Bytes of config.json, and of a tokenizer's file."""
WIDEST, LARGEST_HEADER = 8, 100 << 20
"""Bytes of a weight, and of the header of a safetensors file, as its format bounds it."""


def model_folder(source: Path | str, revision: str | None = None) -> Path:
    """The folder of a model: `source` itself, or for a name of the Hugging Face hub its folder in the cache, where the
    files that are needed are downloaded, those of a `revision` or of the newest. Raises `ConfigError` where there is
    none."""
    if Path(source).is_dir() or Path(source).is_absolute():
        return Path(source)
    with as_config_error(f"{source} is no model folder, and not on the hub"):
        return Path(snapshot_download(str(source), revision=revision, allow_patterns=FROM_HUB, ignore_patterns=["*/*"]))


def commit_of(model: str, revision: str | None) -> str:
    """The commit of a model of the hub that a revision names now; None: the newest. Raises `ConfigError`."""
    with as_config_error(f"model: {model} at revision {revision or 'main'} is not on the hub, nor in its cache"):
        return Path(hf_hub_download(model, CONFIG, revision=revision)).parent.name


def read_config(folder: Path) -> PretrainedConfig:
    """The config.json of a model. Raises `ConfigError` where it is damaged, or names code."""
    place = folder / CONFIG
    if not place.exists():
        raise ConfigError(
            f"{folder} is no model folder: it has no config.json; set `model` to a transformers checkpoint"
        )
    data = _object(place, LARGEST_CONFIG)
    if data.get("quantization_config") is not None:
        raise ConfigError(
            f"{place}: quantization_config: crbc trains weights that are not quantized: take the original"
        )
    if data.get("auto_map") and data.get("model_type") not in CONFIG_MAPPING:
        kind = str(data.get("model_type"))[:80]
        raise ConfigError(f"{place}: a model of the type {kind!r} needs the code beside it, and crbc runs no such code")
    for key, value in _leaves(data):
        if isinstance(value, str) and "implementation" in key and "/" in value:
            raise ConfigError(f"{place}: {key.removeprefix('.')}: {value[:80]!r} is code on the hub: remove the key")
    with as_config_error(f"{place} cannot be read"):
        return AutoConfig.from_pretrained(folder, **SAFE)


def family(config: PretrainedConfig) -> type[AutoModelForCausalLM] | type[AutoModelForImageTextToText]:
    """The library's class of such models: those that see images, or of text alone."""
    return AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM


def shape(config: PretrainedConfig, source: str) -> PreTrainedModel:
    """The model of a config on torch's meta device, where a tensor has a shape but no memory.

    Raises `ConfigError` naming `source` where it is no language model.
    """
    with as_config_error(f"model: no language model can be built of {source}"), torch.device("meta"):
        model: PreTrainedModel = family(config).from_config(deepcopy(config), trust_remote_code=False)
    return model


def weight_files(folder: Path) -> list[Path]:
    """The files with a model's weights; none where they are not all there. Raises `ConfigError` for a wrong index."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (place := folder / INDEX).is_file():
        return []
    weights = _object(place, LARGEST_FILE).get("weight_map")
    names = set(map(str, weights.values())) if isinstance(weights, dict) else set()
    if wrong := sorted(name for name in names or {""} if not re.fullmatch(r"[\w-][\w.-]*\.safetensors", name)):
        raise ConfigError(f"{place}: weight_map: {wrong[0][:80]!r} is no name of a file of safetensors beside it")
    files = [folder / name for name in sorted(names)]
    return files if all(file.is_file() for file in files) else []


def check_weights(folder: Path, model: PreTrainedModel) -> None:
    """Raise `ConfigError` unless the weights are safetensors and may be those of the shape `model`.

    The shape is compared by its size alone, before memory is taken for it.
    """
    files = weight_files(folder)
    if not files:
        pickles = sorted(path.name for path in folder.glob("*.bin"))
        why = f"; {pickles[0]} is a pickle, which may run code: save the model as safetensors" if pickles else ""
        raise ConfigError(f"{folder} has no weights in safetensors{why}")
    parameters, held = sum(weight.numel() for weight in model.parameters()), sum(file.stat().st_size for file in files)
    if not parameters <= held <= WIDEST * parameters + len(files) * LARGEST_HEADER:
        raise ConfigError(
            f"{folder}: the weights are not those of the architecture in {CONFIG}: it has {parameters:,} parameters, "
            f"and the files have {held:,} bytes"
        )


def check_tokenizer(folder: Path) -> None:
    """Raise `ConfigError` where the files of a model's tokenizer, and others beside it, are damaged or too large."""
    if (folder / ADAPTER).exists():
        raise ConfigError(f"{folder / ADAPTER}: an adapter, whose base may be anywhere: merge it into a model")
    for name in BESIDE:
        if (folder / name).exists():
            _object(folder / name, LARGEST_FILE if name in (TOKENIZER, "vocab.json") else LARGEST_CONFIG)
    settings = _object(folder / TOKENIZER_CONFIG, LARGEST_CONFIG) if (folder / TOKENIZER_CONFIG).exists() else {}
    kind = settings.get("tokenizer_class") or "Tokenizer"
    if not re.fullmatch(r"\w*Tokenizer(Fast)?|TokenizersBackend", str(kind)):
        raise ConfigError(f"{folder / TOKENIZER_CONFIG}: tokenizer_class: {str(kind)[:80]!r} is no tokenizer")


class as_config_error:
    """Turns what a library raises about a file of others into one `ConfigError` that begins with `what`."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        odd = kind is Exception or getattr(kind, "__name__", "") == "PanicException"  # of tokenizers, written in Rust
        if error is not None and (isinstance(error, FAULTS) or odd) and not isinstance(error, ConfigError):
            raise ConfigError(f"{self.what}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """What an error of a library says, in one short line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _object(place: Path, most: int) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        data = read_json(place, most)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{place} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{place} cannot be read: it is no object of names and values")
    return data


def _leaves(data: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each value in an object, with the names that lead to it."""
    left: list[tuple[str, Any]] = [("", data)]
    while left:
        key, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, list):
            left += [(key, inner) for inner in value]
        else:
            yield key, value
