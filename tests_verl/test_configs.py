"""`configs/verl`: each is composed and validated by verl, and beside the config of our own learner.

pytest tests_verl/test_configs.py -s    # prints what differs, and why
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hydra
import pytest
import verl  # noqa: F401 (it imports the adapter)
from command import CONFIGS, ROOT
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.config import omega_conf_to_dataclass, validate_config

from crbc_rl.adapters.verl import credit_options
from crbc_rl.adapters.verl_rollouts import played
from crbc_rl.config import load_config

OURS = {
    "alfworld_qwen_1b5": "paper/alfworld_qwen2.5_1.5b",
    "alfworld_qwen_7b": "paper/alfworld_qwen2.5_7b",
    "webshop_qwen_1b5": "paper/webshop_qwen2.5_1.5b",
    "webshop_qwen_7b": "paper/webshop_qwen2.5_7b",
    "sokoban_qwen_vl_3b": "paper/sokoban_qwen2.5_vl_3b",
    "two_nodes": "paper/webshop_qwen2.5_7b",
    "sokoban_boxes": "sokoban_boxes",
}
"""The config of our learner that each has its numbers from."""

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

KEYS: dict[str, str | Callable[[Any], Any]] = {
    "updates": "trainer.total_training_steps",
    "save_every": "trainer.save_freq",
    "rollout.num_groups": "data.train_batch_size",
    "rollout.group_size": f"{ROLLOUT}.n",
    "rollout.temperature": f"{ROLLOUT}.temperature",
    "rollout.max_prompt_tokens": "data.max_prompt_length",
    "rollout.max_new_tokens": "data.max_response_length",
    "eval.every": "trainer.test_freq",
    "eval.episodes": "data.val_max_samples",
    "eval.temperature": f"{ROLLOUT}.val_kwargs.temperature",
    "optim.lr": f"{ACTOR}.optim.lr",
    "optim.weight_decay": f"{ACTOR}.optim.weight_decay",
    "optim.grad_clip": f"{ACTOR}.optim.clip_grad",
    "optim.schedule": f"{ACTOR}.optim.lr_scheduler_type",
    "optim.epochs": f"{ACTOR}.ppo_epochs",
    "optim.minibatch": lambda c: c.actor_rollout_ref.actor.ppo_mini_batch_size * c.actor_rollout_ref.rollout.n,
    "loss.kl": lambda c: c.actor_rollout_ref.actor.use_kl_loss and c.actor_rollout_ref.actor.kl_loss_coef,
    "loss.clip": f"{ACTOR}.clip_ratio_low",
    "loss.clip_high": lambda c: None if (a := c.actor_rollout_ref.actor).clip_ratio_high == a.clip_ratio_low else a,
    "loss.dual_clip": f"{ACTOR}.clip_ratio_c",
    "loss.entropy": f"{ACTOR}.entropy_coeff",
    "loss.aggregation": lambda c: {"token-mean": "token"}[c.actor_rollout_ref.actor.loss_agg_mode],
    "loss.ratio": lambda c: {"vanilla": "token"}[c.actor_rollout_ref.actor.policy_loss.loss_mode],
    "loss.correction": lambda c: "none" if c.algorithm.rollout_correction.rollout_is is None else "truncate",
    "generator.tensor_parallel": f"{ROLLOUT}.tensor_model_parallel_size",
    "generator.memory": f"{ROLLOUT}.gpu_memory_utilization",
    "policy.gradient_checkpointing": "actor_rollout_ref.model.enable_gradient_checkpointing",
    "env.kwargs": lambda c: played(c.data).env.kwargs,
    "env.prompt": lambda c: played(c.data).env.prompt,
    "env.history": lambda c: played(c.data).env.history,
    "env.replies": lambda c: played(c.data).replies,
    "credit": credit_options,
}
"""A key of our configs, and what says the same in verl's."""

ALWAYS = {
    "optim.order": "verl balances rows by length over its ranks, and fills the last mini-batch with rows that count "
    "nothing; verl-agent filled it with copies",
    "optim.microbatch": "verl fills passes up to ppo_max_token_len_per_gpu tokens, whatever their number of rows",
    "rollout.truncation": "a prompt that is too long fails its session: its group gets no credit and is counted",
    "eval.test_episodes": "verl has no test after training: crbc eval on the checkpoint's folder",
    "seed": "verl's rollouts have no seeds of their own: two runs of one command differ",
}
"""What differs in each, and has no key of the same meaning."""

SMALL = "20 updates of 32 rollouts, which a CPU makes in half an hour"
PAPER = "as in the paper's runs, for the comparison with verl-agent's protocol"
OWN: dict[str, dict[str, str]] = {
    "sokoban_boxes": {
        "updates": SMALL,
        "save_every": SMALL,
        "rollout.num_groups": SMALL,
        "rollout.max_prompt_tokens": "verl wants a number; our learner takes what the model has",
        "optim.schedule": "verl's constant rate: 20 updates are too few to end at 0",
        "loss.kl": PAPER,
        "loss.entropy": PAPER,
        "loss.correction": "our learner's auto is none with the engine transformers",
        "policy.gradient_checkpointing": "verl's base config, for large models",
        "credit": PAPER + ": weighting by step",
    },
}
"""What differs by key in one of them, with the reason."""


def composed(name: str) -> Any:
    with hydra.initialize_config_dir(str(CONFIGS), version_base=None):
        return hydra.compose(name, ["hydra.searchpath=[pkg://verl.trainer.config]"])


def of_verl(theirs: Any, key: str) -> Any:
    place = KEYS[key]
    found = OmegaConf.select(theirs, place) if isinstance(place, str) else place(theirs)
    return {**found, "scale": 1.0} if key == "credit" else found


def of_ours(ours: Any, key: str) -> Any:
    if key == "credit":
        return {**ours.credit.options, "method": ours.credit.method, "scale": 1.0}
    if key == "env.replies":
        return ours.replies
    for name in key.split("."):
        ours = getattr(ours, name)
    return ours


def test_every_config_is_compared() -> None:
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == {*OURS, "base"}


@pytest.mark.parametrize("name", OURS)
def test_a_config_is_valid_and_says_what_ours_says(name: str) -> None:
    theirs, ours = composed(name), load_config(ROOT / f"configs/{OURS[name]}.yaml")
    validate_config(theirs, need_reference_policy(theirs), need_critic(theirs))
    assert need_reference_policy(theirs) and not need_critic(theirs)
    omega_conf_to_dataclass(theirs.actor_rollout_ref.actor)
    trainer = get_trainer_cls(theirs.trainer.v1.trainer_mode)(theirs)
    trainer.global_steps, gpus = 1, theirs.trainer.n_gpus_per_node * theirs.trainer.nnodes
    rows = trainer._get_required_batch_multiple(gpus)
    assert rows % (8 * theirs.actor_rollout_ref.actor.ppo_mini_batch_size) == 0 and rows % gpus == 0
    assert OmegaConf.select(theirs, "ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES")
    known, differs = OWN.get(name, {}), {}
    for key in KEYS:
        mine, other = of_ours(ours, key), of_verl(theirs, key)
        if mine != other:
            differs[key] = f"{mine} here, {other} in verl: {known.get(key, 'NO REASON')}"
    print(f"\n{name}, beside configs/{OURS[name]}.yaml")
    for key, told in {**differs, **ALWAYS}.items():
        print(f"  {key}: {told}")
    assert not differs.keys() - known.keys(), differs
    assert not known.keys() - differs.keys(), "a reason for what does not differ"


def test_estimators_change_by_one_key() -> None:
    with hydra.initialize_config_dir(str(CONFIGS), version_base=None):
        for method in ("grpo", "rloo", "gigpo", "hgpo", "graphgpo", "crbc_plus"):
            more = ["hydra.searchpath=[pkg://verl.trainer.config]", f"algorithm.credit.method={method}"]
            config = hydra.compose("alfworld_qwen_1b5", more)
            assert credit_options(config)["method"] == method
            # A second method does not go on with the first one's checkpoint.
            assert config.trainer.default_local_dir == f"checkpoints/crbc/alfworld_qwen_1b5_{method}"


def test_the_paper_s_configs_are_for_eight_gpus_a_node() -> None:
    sizes = {name: (c.trainer.nnodes, c.trainer.n_gpus_per_node) for name in OURS for c in (composed(name),)}
    assert sizes == dict.fromkeys(OURS, (1, 8)) | {"two_nodes": (2, 8), "sokoban_boxes": (1, 1)}
