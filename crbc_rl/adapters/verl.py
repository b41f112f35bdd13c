"""verl: groups of episodes in its v1 trainer, one row and one advantage per environment step.

    VERL_USE_EXTERNAL_MODULES=crbc_rl.adapters.verl python -m verl.trainer.main_ppo \\
        trainer.v1.trainer_mode=crbc algorithm.adv_estimator=crbc \\
        actor_rollout_ref.rollout.agent.default_agent_loop=crbc \\
        data.custom_cls.path=pkg://crbc_rl.adapters.verl data.custom_cls.name=Tasks \\
        data.train_files=train data.val_files=validation data.val_max_samples=128 \\
        +data.env.id=CRBC-Sokoban-v0 +data.env.kwargs.observation=text +algorithm.credit.method=crbc ...

`data.env` and `algorithm.credit` are the sections `env` and `credit` of our own configs. `trainer_mode` is crbc,
crbc_colocate_async or crbc_separate_async. See docs/adapters/verl.md.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from crbc_rl import credit
from crbc_rl.adapters import require
from crbc_rl.adapters.verl_folder import PLAYED
from crbc_rl.config import extensions
from crbc_rl.config.read import explain
from crbc_rl.config.sections import CreditConfig
from crbc_rl.credit.api import check_scale
from crbc_rl.errors import ConfigError

require("verl", "0.9.1", "0.9.2", "verl")

import numpy as np
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf, open_dict
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1 import PPOTrainerColocateAsync, PPOTrainerSeparateAsync, PPOTrainerSync, register_trainer

from crbc_rl.adapters.verl_rollouts import ChatLoop, Tasks, played, section

__all__ = ["ChatLoop", "Tasks", "advantages", "credit_options"]

NEEDED = {
    "algorithm.adv_estimator": "crbc",
    "actor_rollout_ref.rollout.agent.default_agent_loop": "crbc",
    "data.custom_cls.path": "pkg://crbc_rl.adapters.verl",
    "data.custom_cls.name": "Tasks",
    "algorithm.use_kl_in_reward": False,  # without effect on credit, which takes no rewards by token
    "reward.reward_model.enable": False,
    "reward.custom_reward_function.path": None,
}
"""verl's keys that go with our trainers."""

_VALUES: ContextVar[Any] = ContextVar("crbc")
"""One advantage per row of the batch that verl asks about, in its order."""


def credit_options(config: DictConfig) -> dict[str, Any]:
    """`algorithm.credit` as options of `credit.advantages_of_update`. It takes `scale` besides the keys of our configs.

    Raises `ConfigError` for what is unknown, and for a key of `NEEDED` with another value.
    """
    for key, value in NEEDED.items():
        if (found := OmegaConf.select(config, key)) != value:
            raise ConfigError(f"{key}={found}: trainer.v1.trainer_mode=crbc needs {key}={value}")
    if config.actor_rollout_ref.rollout.n < 2:
        raise ConfigError("actor_rollout_ref.rollout.n=1: credit compares the rollouts of a group: set it to 2 or more")
    if config.data.train_files == config.data.val_files:
        raise ConfigError(f"data.val_files={config.data.val_files}: held-out tasks are those of another split")
    if odd := [key for key in config.algorithm if key.startswith("cred") and key != "credit"]:
        raise ConfigError(f"algorithm.{odd[0]} is read by nobody: credit has its options in algorithm.credit")
    given = section(config.algorithm, "credit")
    scale = given.pop("scale", 1.0)
    check_scale(scale)
    try:
        ours = CreditConfig.model_validate(given)
    except ValidationError as error:
        raise ConfigError(explain("algorithm.credit", CreditConfig, error)) from error
    method: Any = ours.method
    if extensions.is_extension(method):
        module, key = method.partition(":")[0], "algorithm.credit.method"
        extensions.allow()
        method = extensions.load(method, {module: extensions.locate(module, [Path.cwd()], key)}, key)
    options = ours.options_of(credit.estimator_of(method))
    credit.check_options(method, options)
    return {**options, "method": method, "scale": scale}


@register_adv_est("crbc")
def advantages(token_level_rewards: Any, response_mask: Any, **_: Any) -> tuple[Any, Any]:
    """What `StepCredit` has found, (B, T) of each token. Raises `ConfigError` in another trainer."""
    if (values := _VALUES.get(None)) is None:
        raise ConfigError("algorithm.adv_estimator=crbc needs trainer.use_v1=True and trainer.v1.trainer_mode=crbc")
    per_token = credit.per_token(values, response_mask)
    return per_token, per_token


class StepCredit:
    """A trainer of verl's with step credit in the place of its advantages."""

    mode: str
    """The name of the trainer of verl's, by which it chooses its replay buffer and its data loader."""

    def __init__(self, config: DictConfig) -> None:
        self.credit_options = credit_options(config)
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.mode
        super().__init__(config)  # type: ignore[call-arg]

    def _compute_advantage(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        kept = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        rows = [
            None if tag.get("is_padding") else row["crbc"]
            for tag, row in zip(batch.tags, list(kept["extra_fields"]), strict=True)
        ]
        sizes = {"group_size": self.config.actor_rollout_ref.rollout.n}
        sizes["num_groups"] = self.config.data.train_batch_size // self.parameter_sync_step
        values, figures = credit.advantages_of_update(rows, **sizes, **self.credit_options)
        metrics.update({f"crbc/{name}": value for name, value in figures.items()})
        token = _VALUES.set(values)
        try:
            return super()._compute_advantage(batch, metrics)  # type: ignore[misc]
        finally:
            _VALUES.reset(token)

    def _save_checkpoint(self: Any) -> None:
        """How the policy plays, for `crbc_rl.adapters.verl_folder`, and then verl's checkpoint."""
        told = {
            "env": played(self.config.data).env.model_dump(),
            "max_new_tokens": self.config.actor_rollout_ref.rollout.response_length,
            "chat_template_kwargs": section(self.config.data, "apply_chat_template_kwargs"),
        }
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PLAYED).write_text(json.dumps(told, indent=2) + "\n", "utf-8")
        super()._save_checkpoint()  # type: ignore[misc]

    def _val_metrics_update(
        self: Any, sources: Any, uids: Any, told: dict[str, list[Any]], *args: Any, **kw: Any
    ) -> Any:
        """verl's validation figures, and success by rollout, also of each kind of task. A session that has failed is
        a 0 in verl's `acc`; here it is left out and counted."""
        won, kinds = np.array(told["acc"]), np.array(told.pop("kind"))
        expected = sum((kw.get("expected_acc_counts") or {}).values()) or len(won)
        ours = {"success": won.mean(), "score": np.mean(told["score"]), "failed_sessions": expected - len(won)}
        ours |= {f"success/{kind}": won[kinds == kind].mean() for kind in sorted({*kinds.tolist()} - {""})}
        figures = {f"val-crbc/{name}": float(value) for name, value in ours.items()}
        return {**super()._val_metrics_update(sources, uids, told, *args, **kw), **figures}  # type: ignore[misc]


for base in (PPOTrainerSync, PPOTrainerColocateAsync, PPOTrainerSeparateAsync):
    mode = {PPOTrainerSync: "sync", PPOTrainerColocateAsync: "colocate_async"}.get(base, "separate_async")
    name = "crbc" if mode == "sync" else f"crbc_{mode}"
    register_trainer(name)(type(f"Crbc{base.__name__}", (StepCredit, base), {"mode": mode, "__module__": __name__}))
