"""Exactly which model and which data a run used: a commit of the hub, or digests of files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from crbc_envs.storage.datasets import MANIFEST, read_manifest, sha256_of
from crbc_envs.vector.members import creator, declared
from crbc_rl.config.sections import RunConfig
from crbc_rl.pretrained import require_whole

_SUFFIXES = {".json", ".safetensors", ".jinja", ".txt", ".model"}
MADE_OF = "merged.json"  # names and digests of the adapter and the base that a merged folder was made of


def model_files(model: Path) -> list[Path]:
    """The files of a transformers checkpoint, without the state of an optimizer beside them.

    Raises `ConfigError` for a pretrained model that is not here.
    """
    require_whole(model)
    return [
        path
        for path in sorted(model.iterdir())
        if path.suffix in _SUFFIXES and path.is_file() and not path.name.startswith(("trainer", "manifest."))
    ]


def model_digest(model: Path) -> str:
    """One digest over the files of a model folder, whose weights are all read for it."""
    return digest_of({path.name: sha256_of(path) for path in model_files(model)})


def weights_digest(model: Path) -> str:
    """One digest over a model's weights alone: its other files name the version of the library that wrote them."""
    files = [path for path in model_files(model) if path.suffix in (".safetensors", ".bin")]
    return digest_of({path.name: sha256_of(path) for path in files})


def digest_of(digests: Mapping[str, str]) -> str:
    """One SHA-256 over those of files by their names."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def data_digest(config: RunConfig) -> str | None:
    """One digest over the official data that a config plays, as their manifest lists them; None where it plays none, or
    such without a manifest."""
    if config.env.kwargs.get("data") != "official":
        return None
    dataset = declared(creator(config.registered_id()), "dataset")
    if dataset is None:
        return None
    home: Path = dataset.folder
    folder = Path(config.env.kwargs.get("data_dir") or home).expanduser().absolute()
    places = [place for place in (folder, *folder.parents) if place == folder or place.is_relative_to(home)]
    manifest_folder = next((place for place in places if (place / MANIFEST).exists()), None)
    return None if manifest_folder is None else digest_of(read_manifest(manifest_folder))


def other_data(config: RunConfig) -> str | None:
    """Why the data here are not those of `env.revision`; None where they are, or the config names none."""
    named = config.env.revision
    if named is None or named == (found := data_digest(config)):
        return None
    if found is None:
        return "env.revision: it is of installed official data, and others are played: set env.kwargs.data=official"
    return f"env.revision: {named}, and the data here have {found}: install those, or change it"
