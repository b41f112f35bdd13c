"""Model folders of others are data: what the transformers library would run, follow or build is checked before.

Every model is read from a folder here; one of the Hugging Face hub, from its folder in the hub's cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import TracebackType

import torch
from huggingface_hub import hf_hub_download, snapshot_download
from safetensors import safe_open
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging as hf_logging

from crbc_envs.storage.files import read_json
from crbc_rl.errors import ConfigError
from crbc_rl.names import ADAPTER, known
from crbc_rl.pretrained import command_for, folder_of, require_whole

CONFIG, INDEX, WEIGHTS = "config.json", "model.safetensors.index.json", "model.safetensors"

FROM_HUB = ["*.json", "*.jinja", "*.txt", "*.model", WEIGHTS, "model-*.safetensors"]

SAFE = {"local_files_only": True, "trust_remote_code": False}
"""Options of every `from_pretrained`: code beside a model never runs, and nothing is looked up elsewhere."""

WIDEST, LARGEST_HEADER = 8, 100 << 20
"""Bytes of a weight, and of the header of a safetensors file, as its format bounds it."""


def model_folder(source: Path | str, revision: str | None = None) -> Path:
    """The folder of a model: `source` itself, that of a pretrained model, or for a name of the Hugging Face hub its
    folder in the cache, where the files that are needed are downloaded, those of a `revision` or of the newest. Raises
    `ConfigError` where there is none."""
    if Path(source).is_dir() or Path(source).is_absolute():
        return Path(source)
    if fetched := folder_of(str(source)):
        return fetched
    with as_config_error(f"{source} is no model folder, and not on the hub"):
        return Path(snapshot_download(str(source), revision=revision, allow_patterns=FROM_HUB, ignore_patterns=["*/*"]))


def named_folder(name: str, revision: str | None = None) -> Path:
    """The folder of a model that crbc has by that name, of a folder itself, or of one of the hub."""
    found = known(Path(name), "model")
    return found.path if found is not None else model_folder(name, revision)


def base_of(adapter: Path, base: str | None = None) -> tuple[str, Path]:
    """The name and the folder of an adapter's base, by default the one that it names: a folder, a model that crbc has
    by that name, or one of the hub. Raises `ConfigError` where there is none."""
    with as_config_error(f"{adapter / ADAPTER} cannot be read"):
        about = dict(read_json(adapter / ADAPTER))
    named = base or about.get("base_model_name_or_path")
    if not isinstance(named, str) or not named:
        raise ConfigError(f"{adapter / ADAPTER}: the adapter names no base model: say which, model: {{base, adapter}}")
    folder = named_folder(named, None if base else about.get("revision"))
    if not folder.is_dir():
        fetch = command_for(folder)
        raise ConfigError(f"{adapter}: its base model {named} is not here" + f"; fetch it: {fetch}" * bool(fetch))
    return named, folder


def commit_of(model: str, revision: str | None) -> str:
    """The commit of a model of the hub that a revision names now; None: the newest. Raises `ConfigError`."""
    with as_config_error(f"model: {model} at revision {revision or 'main'} is not on the hub, nor in its cache"):
        return Path(hf_hub_download(model, CONFIG, revision=revision)).parent.name


def positions(config: PretrainedConfig) -> int:
    """The positions of a text. Of those of "longrope", where longer texts have frequencies of their own, the first: a
    longer row would change the rows beside it."""
    text = config.get_text_config()
    room: int = getattr(text, "max_position_embeddings", 2**20)  # those of ALiBi have no limit
    rope = getattr(text, "rope_parameters", None) or {}
    return min(room, rope["original_max_position_embeddings"]) if rope.get("rope_type") == "longrope" else room


def read_config(folder: Path) -> PretrainedConfig:
    """The config.json of a model. Raises `ConfigError` where it is damaged, or names code."""
    place = folder / CONFIG
    if (folder / ADAPTER).exists():
        raise ConfigError(f"{folder / ADAPTER}: an adapter, whose base may be anywhere: merge it into a model")
    require_whole(folder)
    if not place.exists():
        raise ConfigError(
            f"{folder} is no model folder: it has no config.json; set `model` to a transformers checkpoint"
        )
    with as_config_error(f"{place} cannot be read"):
        data = read_json(place)
        if data.get("quantization_config") is not None:
            raise ConfigError(
                f"{place}: quantization_config: crbc runs weights that are not quantized: take the original, or "
                "serve this one with `vllm serve` or `transformers serve`"
            )
        kind = data.get("model_type")
        if data.get("auto_map") and kind not in CONFIG_MAPPING:
            raise ConfigError(f"{place}: a model of the type {kind!r} needs the code beside it, and crbc runs none")
        if code := re.search(r'implementation": (?:"[^"]*|[{\[][^}\]]*)/', json.dumps(data)):
            raise ConfigError(f"{place}: {code[0][:80]}... is code on the hub: remove the key")
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
    """The files with a model's weights; none where they are not all there. Raises `ConfigError` for a wrong index, and
    for a file that is not whole by its header."""
    files = [folder / WEIGHTS] if (folder / WEIGHTS).is_file() else _indexed(folder)
    if not all(file.is_file() for file in files):
        return []
    for file in files:
        with as_config_error(f"{file} cannot be read (fetch it again)"), safe_open(file, "pt"):
            pass
    return files


def _indexed(folder: Path) -> list[Path]:
    if not (place := folder / INDEX).is_file():
        return []
    with as_config_error(f"{place} cannot be read"):
        names = set(map(str, read_json(place)["weight_map"].values()))
    if wrong := sorted(name for name in names or {""} if not re.fullmatch(r"[\w-][\w.-]*\.safetensors", name)):
        raise ConfigError(f"{place}: weight_map: {wrong[0][:80]!r} is no name of a file of safetensors beside it")
    return [folder / name for name in sorted(names)]


def check_weights(folder: Path, model: PreTrainedModel) -> None:
    """Raise `ConfigError` unless the weights are safetensors and may be those of the shape `model`.

    The shape is compared by its size alone, before memory is taken for it.
    """
    files = weight_files(folder)
    if not files:
        pickles = sorted(path.name for path in folder.glob("*.bin"))
        why = f"; {pickles[0]} is a pickle, which may run code: save the model as safetensors" if pickles else ""
        raise ConfigError(f"{folder} has no weights in safetensors{why or '; fetch it again'}")
    parameters, held = sum(weight.numel() for weight in model.parameters()), sum(file.stat().st_size for file in files)
    if not parameters <= held <= WIDEST * parameters + len(files) * LARGEST_HEADER:
        raise ConfigError(
            f"{folder}: the weights are not those of the architecture in {CONFIG}: it has {parameters:,} parameters, "
            f"and the files have {held:,} bytes"
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress progress bars and load reports of the transformers library."""
    before = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(before)
        hf_logging.enable_progress_bar()


class as_config_error:
    """Turns what a library raises about a file of others into one `ConfigError` that begins with `what`.

    The libraries raise errors of many kinds about a damaged file: tokenizers raises `Exception` itself, and a
    `BaseException` of its own. So nothing but the library is called inside.
    """

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None and not isinstance(error, ConfigError | MemoryError | KeyboardInterrupt | SystemExit):
            raise ConfigError(f"{self.what}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """What an error of a library says, in one short line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def write_model(model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]], folder: Path, main: bool) -> None:
    """Write config and safetensors. All ranks iterate over `weights`; the `main` rank writes them."""
    kept = {name: tensor.cpu() for name, tensor in weights if main}
    if main:
        with quiet():
            model.save_pretrained(folder, state_dict=kept)
