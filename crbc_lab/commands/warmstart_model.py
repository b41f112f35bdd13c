"""Warm starts from a model that somebody else pretrained: whole, or by LoRA factors in a folder as peft writes it."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from crbc_envs.storage.files import read_json, replace_file
from crbc_lab.commands.warmstart_config import WarmstartConfig
from crbc_rl.config.revisions import weights_digest
from crbc_rl.errors import ConfigError
from crbc_rl.names import ADAPTER
from crbc_rl.policies.files import as_config_error, named_folder
from crbc_rl.policies.load import load_player
from crbc_rl.policies.lora import OF_PEFT, adapt
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.policies.vision import VisionPolicy

EVERY = 10
"""Steps between two checkpoints of a warm start."""
MOMENTS = ("exp_avg", "exp_avg_sq")
"""What AdamW keeps of each weight."""

CARD_FILE = "README.md"
CARD = """---
base_model: {base}
library_name: peft
license: {licence}
tags: [crbc, lora]
---
# {name}

LoRA factors of rank {rank} that teach {base} the replies of {env} by imitation of its expert: {steps} steps of {batch}
lessons. `crbc warmstart` made them; warmstart.json has the config and how it plays.

    from peft import PeftModel
    PeftModel.from_pretrained(base, "{name}")
"""

NOTICE = """The factors in this folder were trained on the model {base} (sha256 of its weights {digest}).
That model's own licence applies to it: {licence}.
"""


def start_from(config: WarmstartConfig) -> TransformersPolicy:
    """The policy to train, with fresh factors where `config.lora_rank` asks for them.

    Raises `ConfigError` for a model that is missing, or that reads frames.
    """
    assert config.model is not None
    policy = load_player(named_folder(config.model))
    if isinstance(policy, VisionPolicy):
        raise ConfigError(f"model: {config.model} reads frames, and lessons are text: take a model of text")
    if config.lora_rank:
        adapt(policy.model, config.lora_rank, config.seed)
        policy.adapted = True
    return policy


def trained(policy: TransformersPolicy) -> dict[str, Tensor]:
    """The weights that are trained, by name: all of them, or the factors."""
    return {name: weight for name, weight in policy.model.named_parameters() if weight.requires_grad}


class Partial:
    """What a warm start has done so far, beside its folder, so that it goes on after it was stopped."""

    def __init__(self, config: WarmstartConfig) -> None:
        out = Path(config.out)
        self.place = out.parent / f".{out.name}.partial.safetensors"
        asked = config.model_dump(exclude={"out", "threads", "eval", "max_new_tokens"})
        self.of = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()

    def read(self, policy: TransformersPolicy, optimizer: torch.optim.Optimizer) -> int:
        """Restore weights and optimizer where they were kept by the same config. Returns the step that was done."""
        if not self.place.is_file():
            return 0
        with as_config_error(f"{self.place} cannot be read: remove it to begin again"):
            with safe_open(self.place, "pt") as file:
                told = file.metadata()
            kept = load_file(self.place)
        if told["of"] != self.of:
            raise ConfigError(f"{self.place} is of another config: remove it to begin again, or choose another --out")
        for name, weight in trained(policy).items():
            weight.data.copy_(kept[name])
            moments = {key: kept[f"{key}.{name}"].to(weight.device) for key in MOMENTS}
            optimizer.state[weight] = {"step": torch.tensor(float(told["step"])), **moments}
        return int(told["step"])

    def write(self, policy: TransformersPolicy, optimizer: torch.optim.Optimizer, step: int) -> None:
        kept: dict[str, Tensor] = {}
        for name, weight in trained(policy).items():
            kept |= {name: weight.detach(), **{f"{key}.{name}": optimizer.state[weight][key] for key in MOMENTS}}
        told = {"of": self.of, "step": str(step)}
        replace_file(self.place, save({name: tensor.contiguous() for name, tensor in kept.items()}, told))

    def remove(self) -> None:
        self.place.unlink(missing_ok=True)


def save_adapter(policy: TransformersPolicy, folder: Path, config: WarmstartConfig) -> None:
    """Write the factors as peft does, in bfloat16, with a model card and a notice. The policy's become those."""
    from peft import LoraConfig

    factors = {}
    with torch.no_grad():
        for name, factor in trained(policy).items():
            rounded = factor.to(torch.bfloat16)
            factor.copy_(rounded)
            factors[f"base_model.model.{name.replace('.default.', '.')}"] = rounded.contiguous()
    (folder / OF_PEFT).write_bytes(save(factors, metadata={"format": "pt"}))  # save_file lets nobody else read it
    modules = sorted({name.partition(".lora_")[0].rpartition(".")[2] for name in trained(policy)})
    LoraConfig(
        r=config.lora_rank,
        lora_alpha=2 * config.lora_rank,
        target_modules=modules,
        base_model_name_or_path=config.model,
        task_type="CAUSAL_LM",
        inference_mode=True,
    ).save_pretrained(str(folder))
    about = read_json(folder / ADAPTER)
    about["target_modules"] = modules  # peft writes a set, in any order
    (folder / ADAPTER).write_text(json.dumps(about, indent=2, sort_keys=True) + "\n", "utf-8")
    assert config.model is not None
    base = named_folder(config.model)
    told: dict[str, Any] = {"base": config.model, "rank": config.lora_rank, "licence": licence(base)}
    told |= {"name": Path(config.out).name, "env": config.env.id, "steps": config.steps, "batch": config.batch}
    (folder / CARD_FILE).write_text(CARD.format(**told), "utf-8")
    (folder / "NOTICE.txt").write_text(NOTICE.format(**told, digest=weights_digest(base)), "utf-8")


def licence(base: Path) -> str:
    """The licence that a model's folder names."""
    for name in (CARD_FILE, "NOTICE.txt", "NOTICE"):
        path = base / name
        if path.is_file() and (
            told := re.search(r"(?i)\blicen[cs]e: *([\w.+-]*\w)", path.read_text("utf-8", "replace"))
        ):
            return told[1]
    return "see the model's own page"
