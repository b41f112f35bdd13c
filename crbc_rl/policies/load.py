"""Loads checkpoints as policies. An adapter and its base are merged once, into an ordinary model's folder: so whatever
takes a model takes an adapter, and the reference of a training is base plus adapter.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import torch
from transformers import AutoTokenizer, PreTrainedModel

from crbc_envs.storage.datasets import data_home
from crbc_envs.storage.files import WriteErrors, clear_left, read_json, replacing_folder
from crbc_rl.config import RolloutConfig
from crbc_rl.config.revisions import MADE_OF, model_digest, model_files, weights_digest
from crbc_rl.errors import ConfigError
from crbc_rl.names import ADAPTER, WARMSTART
from crbc_rl.policies.files import (
    CONFIG,
    SAFE,
    as_config_error,
    base_of,
    check_weights,
    family,
    model_folder,
    positions,
    quiet,
    read_config,
    shape,
)
from crbc_rl.policies.lora import merge_adapter
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.policies.vision import VisionPolicy, image_processor

MERGED = 4
"""So many merged folders are kept."""


def load_policy(
    source: Path | str,
    device: torch.device | str = "cpu",
    rollout: RolloutConfig | None = None,
    attention: str | None = None,
) -> TransformersPolicy:
    """Load `source`, a checkpoint folder or a model of the Hugging Face hub, in float32 to `device`; a vision-language
    model as a `VisionPolicy`. `rollout` limits its prompts; where it sets no limit, the model's positions less a
    reply's do. `attention` is a name of the library's implementations; None is its own choice.

    A model is data: no code beside it runs, its weights are safetensors, and it is checked before memory is taken for
    it. Raises `ConfigError` where the model is missing, or its weights do not match its architecture.
    """
    with quiet():  # errors say in one line what the library would print
        folder = model_folder(source)
        config = read_config(folder)
        check_weights(folder, shape(config, str(folder)))
    with quiet(), as_config_error(f"{source} cannot be loaded as a causal language model"):
        tokenizer = AutoTokenizer.from_pretrained(folder, **SAFE)
        model, report = family(config).from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            attn_implementation=attention,
            use_safetensors=True,
            output_loading_info=True,
            **SAFE,
        )
        processor = image_processor(folder) if hasattr(config, "vision_config") else None
    wrong = [*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]]
    if wrong:
        raise ConfigError(
            f"{source}: the weights are not those of the architecture in config.json "
            f"({len(wrong)} tensors differ, the first is {wrong[0]})"
        )
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight.sum()):
            raise ConfigError(f"{source}: {name} has weights that are not finite: restore the file")
    model = own_memory(model).to(device)
    with as_config_error(f"{source} cannot be used"):
        policy = VisionPolicy(model, tokenizer, processor) if processor else TransformersPolicy(model, tokenizer)
        policy.encode_text("Go.")
        if not tokenizer("Go.", add_special_tokens=False)["input_ids"]:
            raise ConfigError(f"{source}: its tokenizer has no vocabulary: fetch tokenizer.json again")
    if rollout is not None:
        limit(policy, rollout)
    return policy


def load_player(
    source: Path | str, rollout: RolloutConfig | None = None, precision: str = "float32"
) -> TransformersPolicy:
    """As `load_policy`, on the first GPU where there is one, with weights of `precision` there, as a training plays."""
    if not torch.cuda.is_available():
        return load_policy(source, rollout=rollout)
    policy = load_policy(source, "cuda", rollout)
    policy.cast(getattr(torch, precision))
    return policy


def limit(policy: TransformersPolicy, rollout: RolloutConfig) -> None:
    """Limit a policy's prompts and thoughts as `rollout` says; where it sets no limit of prompts, the model's positions
    less a reply's do. Raises `ConfigError` where no position is left for a prompt."""
    room = positions(policy.model.config) - rollout.max_new_tokens
    if room < 1:
        raise ConfigError(
            f"a reply of {rollout.max_new_tokens:,} new tokens leaves no room for a prompt: the model has "
            f"{positions(policy.model.config):,} positions"
        )
    policy.max_prompt_tokens, policy.truncation = rollout.max_prompt_tokens or room, rollout.truncation
    policy.think_at_most(rollout.max_thought_tokens, rollout.max_new_tokens)


def merged(adapter: Path, base: str | None = None) -> Path:
    """The folder of `base` with the factors of `adapter` added, in bfloat16; made where it is not there yet. Of these
    folders the `MERGED` made last are kept.

    Raises `ConfigError` where the adapter is not one of this base.
    """
    name, folder = base_of(adapter, base)
    files = [path for place in (adapter, folder) for path in model_files(place)]
    told = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]
    place = data_home() / "models" / f"merged-{hashlib.sha256(chr(10).join(told).encode()).hexdigest()[:16]}"
    if (place / CONFIG).is_file():
        return place
    digests = {"base": weights_digest(folder), "adapter": model_digest(adapter)}
    with as_config_error(f"{adapter / WARMSTART} cannot be read"):
        recipe = dict(read_json(adapter / WARMSTART)) if (adapter / WARMSTART).is_file() else {}
    if (wanted := recipe.get("base_digest")) not in (None, digests["base"]):
        raise ConfigError(
            f"{adapter} is no adapter of {name}: its base has weights of digest {str(wanted)[:12]}, and {folder} has "
            f"{digests['base'][:12]}; name its own, model: {{base, adapter}}"
        )
    policy = _adapted(adapter, folder)
    place.parent.mkdir(parents=True, exist_ok=True)
    clear_left(place.with_name("merged-*"))
    with WriteErrors(place), replacing_folder(place) as fresh:
        policy.model.to(torch.bfloat16)
        policy.save(fresh)
        origin = {"base": name, "adapter": adapter.name, **{f"{key}_digest": of for key, of in digests.items()}}
        (fresh / MADE_OF).write_text(json.dumps(origin, indent=2) + "\n", "utf-8")
        if recipe:
            (fresh / WARMSTART).write_text(json.dumps(recipe, indent=2) + "\n", "utf-8")
    for made in sorted(place.parent.glob(f"merged-*/{MADE_OF}"), key=lambda made: made.stat().st_mtime)[:-MERGED]:
        (made.parent / CONFIG).unlink(missing_ok=True)  # first, since with it the folder counts as whole
        shutil.rmtree(made.parent, ignore_errors=True)
    return place


def _adapted(adapter: Path, base: Path) -> TransformersPolicy:
    """The policy of `base` with the factors of `adapter` added, and with its tokenizer if it has one of its own."""
    policy = load_policy(base)
    with as_config_error(f"{adapter / ADAPTER} cannot be read"):
        about = dict(read_json(adapter / ADAPTER))
    merge_adapter(policy.model, adapter, about)
    if (adapter / "tokenizer_config.json").is_file() and not isinstance(policy, VisionPolicy):
        with quiet(), as_config_error(f"{adapter}: its tokenizer cannot be used"):
            policy = TransformersPolicy(policy.model, AutoTokenizer.from_pretrained(adapter, **SAFE))
    return policy


def own_memory(model: PreTrainedModel) -> PreTrainedModel:
    """The model with its weights copied into newly allocated memory. Views into a file have arbitrary alignment, which
    changes the rounding of sums, and a resumed run would not be byte-equal."""
    for weight in model.parameters():
        weight.data = weight.data.clone()
    return model
