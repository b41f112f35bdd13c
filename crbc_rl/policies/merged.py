"""An adapter and its base as one ordinary model's folder, merged once and kept in the user's data folder.

So whatever takes a model takes an adapter, and the reference of a training is base plus adapter.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch

from crbc_envs.storage.datasets import data_home
from crbc_envs.storage.files import WriteErrors, read_json, replacing_folder
from crbc_rl.config.revisions import model_digest, model_files
from crbc_rl.errors import ConfigError
from crbc_rl.names import WARMSTART
from crbc_rl.policies.files import CONFIG, base_of
from crbc_rl.policies.load import load_adapted

ORIGIN = "merged.json"
"""What a merged folder was made of: both names, and the digests of both folders."""


def merged(adapter: Path, base: str | None = None) -> Path:
    """The folder of `base` with the factors of `adapter` added, in bfloat16; made where it is not there yet.

    Raises `ConfigError` where the adapter is not one of this base.
    """
    name, folder = base_of(adapter, base)
    files = [path for place in (adapter, folder) for path in model_files(place)]
    told = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]
    place = data_home() / "models" / f"merged-{hashlib.sha256(chr(10).join(told).encode()).hexdigest()[:16]}"
    if (place / CONFIG).is_file():
        return place
    digests = {"base": model_digest(folder), "adapter": model_digest(adapter)}
    recipe = read_json(adapter / WARMSTART) if (adapter / WARMSTART).is_file() else {}
    if (wanted := recipe.get("base_digest")) not in (None, digests["base"]):
        raise ConfigError(
            f"{adapter} was trained on another {name}: files of digest {str(wanted)[:12]}, and {folder} has "
            f"{digests['base'][:12]}"
        )
    policy = load_adapted(adapter, str(folder))
    place.parent.mkdir(parents=True, exist_ok=True)
    with WriteErrors(place), replacing_folder(place) as fresh:
        policy.model.to(torch.bfloat16)
        policy.save(fresh)
        origin = {"base": name, "adapter": adapter.name, **{f"{key}_digest": of for key, of in digests.items()}}
        (fresh / ORIGIN).write_text(json.dumps(origin, indent=2) + "\n", "utf-8")
        if recipe:
            (fresh / WARMSTART).write_text(json.dumps(recipe, indent=2) + "\n", "utf-8")
    return place
