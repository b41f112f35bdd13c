"""Checks a run before anything is written: what can never work, and what is missing on this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anchors import INVALID, Rollout, RolloutGroup, Step
from crbc_envs.storage.files import read_json
from crbc_envs.tasks import SPLITS
from crbc_lab.plan.environment import EnvCheck, check_env
from crbc_lab.plan.findings import Finding, allocators, package, tracker
from crbc_lab.plan.lengths import Lengths, expert_lengths
from crbc_rl import credit
from crbc_rl.config import CLIPPED, CRITIC, TrainConfig
from crbc_rl.config.revisions import MADE_OF, model_digest, other_data
from crbc_rl.config.sections import SMALLEST
from crbc_rl.errors import ConfigError, nearest
from crbc_rl.policies.copying import MadeUpWords
from crbc_rl.pretrained import command_for
from crbc_rl.rollout.panel import why_not
from crbc_rl.runs.metric_table import METRICS
from crbc_rl.runs.model import initial

if TYPE_CHECKING:
    from crbc_lab.plan.architecture import Architecture
    from crbc_rl.policies.engines import Engine

log = logging.getLogger(__name__)

MIXED = RolloutGroup(
    [
        Rollout([Step("start", "on", reward=1.0), Step("end", "take", reward=1.0)], success=True),
        Rollout([Step("start", INVALID), Step("start", "on"), Step("end", "drop")], success=False),
    ]
)
"""A group in which everything differs that an estimator compares: outcomes, rewards, actions and malformed replies."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A config that can work, with the limit of replies that is derived where it names none.

    `findings` say what is missing for it on this machine.
    """

    config: TrainConfig
    env: EnvCheck
    model: Architecture | None
    """None where its shape cannot be read on this machine."""
    lengths: Lengths | None
    """Of the environment's expert; None for an evaluation, and where they cannot be measured here."""
    findings: tuple[Finding, ...]

    def require(self) -> None:
        """Raise `ConfigError` with everything that is missing here and would stop the run."""
        missing = [f"{finding.name}: {finding.fix}" for finding in self.findings if not finding.optional]
        if missing:
            raise ConfigError(_lines(f"{self.config.name} cannot start here", missing))


def check_run(
    config: TrainConfig, *, gpus: int = 1, online: bool = False, evaluation: tuple[str, int] | None = None
) -> Checked:
    """Check a config for training on `gpus` ranks, or for an `evaluation` of (split, episodes) with any policy.

    Training needs every split, a model, an engine and an estimator too. `online` looks up a model on the Hugging Face
    hub that is not on this machine, as a start must. Raises `ConfigError` naming everything that can never work.
    """
    env = check_env(config, SPLITS if evaluation is None else evaluation[:1])
    errors, findings = [*env.errors, *_panels(config, env, evaluation)], [*env.findings]
    model: Architecture | None = None
    lengths: Lengths | None = None
    if evaluation is None:
        from crbc_lab.plan.architecture import find_architecture  # an evaluation is checked before torch is imported
        from crbc_lab.plan.batches import contradictions
        from crbc_rl.policies.engines import engine_of

        model = find_architecture(str(initial(config)), online, config.revision)
        if model is None and Path(config.model).is_dir() and not command_for(Path(config.model)):
            errors.append(f"model: {config.model} is a folder without a transformers checkpoint; name another")
        findings += _model(config, model)
        try:
            findings += _packages(config, engine_of(config), online)
            errors += contradictions(config, gpus, model)
        except ConfigError as error:  # an unknown engine: there is no more to say about sizes
            errors.append(str(error))
        errors += [*_credit(config), *_objective(config), *_learning(config, env, model)]
        if not (errors or env.findings):
            lengths = expert_lengths(config, online)
            config = fitting(config, lengths)
            errors += contradictions(config, gpus, model)  # with the limit of replies that was derived
    if not env.findings:
        errors += _revisions(config, model is not None and evaluation is None)
    if errors:
        raise ConfigError(_lines(f"{config.name} can never work", errors))
    return Checked(config, env, model, lengths, tuple(findings))


def _lines(title: str, messages: list[str]) -> str:
    """One line for one message, else a list."""
    return f"{title}: {messages[0]}" if len(messages) == 1 else "\n".join([f"{title}:", *(f"  {m}" for m in messages)])


def _panels(config: TrainConfig, env: EnvCheck, evaluation: tuple[str, int] | None) -> Iterator[str]:
    """Where more episodes are wanted than there are tasks, or a panel that the environment does not have."""
    asked = [
        ("validation", "eval.episodes", config.eval.episodes),
        ("test", "eval.test_episodes", config.eval.test_episodes),
    ]
    if evaluation is not None:
        asked = [(evaluation[0], "--episodes", evaluation[1])]
    for split, key, episodes in asked:
        source = env.tasks.get(split)
        wrong = why_not(source, split, episodes, config.eval.panel) if source is not None else None
        if wrong is not None:
            yield wrong if wrong.startswith("eval.") else f"{key}: {wrong}"


def _learning(config: TrainConfig, env: EnvCheck, model: Architecture | None) -> Iterator[str]:
    """Combinations from which nothing can be learned."""
    if config.rollout.group_size == 1 and config.credit.method in credit.METHODS:
        yield (
            f"rollout.group_size: 1, and {config.credit.method} compares the rollouts of a group, so every advantage "
            "would be 0: use 2 or more, or credit.method=gae"
        )
    elif _flat(config):
        given = ", ".join(f"{name}={value}" for name, value in config.credit.options.items())
        yield (
            f"credit.{config.credit.method}: {given}: with these options every advantage is 0, also in a group of a "
            "success and a failure, so nothing would be learned: raise a weight or a reward"
        )
    if config.rollout.rounds > 1 and config.rollout.group_size == 1:
        yield "rollout.rounds: a group of one is never of mixed outcome, so every further round is in vain: set it to 1"
    if config.rollout.made_up:
        try:
            MadeUpWords.load(Path(config.model))
        except ConfigError as error:
            yield str(error)
    method, horizon = config.credit.method, config.credit.options.get("horizon")
    if isinstance(horizon, int) and env.bounded and horizon < env.max_steps:
        least = f"set it to {env.max_steps} or more"
        yield f"credit.{method}.horizon: {horizon}, and an episode may have {env.max_steps} steps: {least}"
    if config.rollout.max_thought_tokens is not None:
        if not config.rollout.limit_named:
            yield "rollout.max_thought_tokens: it is a part of max_new_tokens: set that too"
        if method == CRITIC:
            yield "rollout.max_thought_tokens: PPO's critic has no value for a token that was not sampled: remove it"
    if env.prompt is not None and env.prompt.images and model is not None and not model.vision:
        yield (
            f"env.prompt: {config.env.prompt!r} shows frames, and {config.model} sees no images: choose another style, "
            "a text observation, or a vision model"
        )


def fitting(config: TrainConfig, lengths: Lengths | None) -> TrainConfig:
    """The config, with room for the expert's replies and a quarter more where it says nothing of it; else a warning
    where it has none."""
    limit = config.rollout.max_new_tokens
    if lengths is not None and not config.rollout.limit_named:
        rollout = config.rollout.model_copy(update={"max_new_tokens": max(limit, lengths.suggested)})
        return config.model_copy(update={"rollout": rollout})
    if lengths is not None and lengths.longest > limit:
        log.warning(
            "rollout.max_new_tokens: %d, and in this model's tokens a reply of the environment's expert has up to %d: "
            "such replies are cut, and then invalid. Raise it to that or more, or leave it out",
            *(limit, lengths.longest),
        )
    return config


def _flat(config: TrainConfig) -> bool:
    """Whether a known estimator gives every step of `MIXED` the advantage 0 under the config's options."""
    if config.credit.method not in credit.METHODS:
        return False
    try:
        advantages = credit.advantages(MIXED, config.credit.method, **config.credit.options)
    except credit.CreditError:  # its rollouts are longer than a horizon, which is told by itself
        return False
    return not any(values.any() for values in advantages)


def _credit(config: TrainConfig) -> Iterator[str]:
    """What is wrong with an estimator that the config names in a module of its own."""
    if config.credit.method == CRITIC or config.credit.method in credit.METHODS:
        return  # checked when the config was read
    try:
        credit.advantages(SMALLEST, config.method(), **config.credit_options())
    except (ConfigError, ValueError, TypeError) as error:
        text = str(error).removeprefix("credit.method: ")  # where its module lacks it
        yield f"credit.method: {config.credit.method}: {text}"


def _objective(config: TrainConfig) -> Iterator[str]:
    """What is wrong with a loss that the config names in a module of its own."""
    if config.loss.objective != CLIPPED:
        from crbc_rl.training.loss import objective_of  # here, since a plan does without torch

        try:
            objective_of(config, {metric.key for metric in METRICS if metric.group != "loss"})
        except (ConfigError, TypeError) as error:
            yield str(error) if isinstance(error, ConfigError) else f"loss.objective: {config.loss.objective}: {error}"


def _revisions(config: TrainConfig, model: bool) -> Iterator[str]:
    """Where the model or the data here are others than the config says."""
    if model and config.revision is not None and Path(config.model).is_absolute():
        digest, origin = model_digest(Path(config.model)), Path(config.model, MADE_OF)
        # Of an adapter, also what a run says of it that has merged it with its base; and there, the adapter's own.
        known = [digest, read_json(origin)["adapter_digest"] if origin.is_file() else model_digest(initial(config))]
        if config.revision not in known:
            yield f"revision: {config.revision}, and the files of {config.model} have {digest}: restore or change one"
    if (wrong := other_data(config)) is not None:
        yield wrong


def _model(config: TrainConfig, model: Architecture | None) -> Iterator[Finding]:
    from crbc_lab.plan.architecture import has_weights

    place = Path(config.model)
    if not place.is_absolute():
        if model is None:
            fix = f"hf download {config.model}, or add --online to read its shape from the hub"
            yield Finding("model", "-", fix, "parameters, context and memory in this plan; training", optional=True)
        elif not has_weights(config.model, config.revision):  # training downloads them
            yield Finding("weights", f"only {model.source}", f"hf download {config.model}", "training", optional=True)
        return
    others = [path.parent.name for path in place.parent.glob("*/config.json")]
    hint = nearest(place.name, others) if others else ""
    if model is None:
        none = f"{place} is no transformers checkpoint{hint}; `crbc warmstart` makes a tiny one"
        fix = command_for(place) or none
        yield Finding("model", "-", fix, "parameters, context and memory in this plan; training")
    elif (fetch := command_for(place)) or not has_weights(str(initial(config))):
        fix = fetch or f"{place} has no weights: fetch them, or name another folder"
        yield Finding("weights", f"only {model.source}", fix, "training")


def _packages(config: TrainConfig, engine: Engine, online: bool) -> Iterator[Finding]:
    """Missing packages that this config needs and others do not, and settings that it cannot run with."""
    needs = [("ray", "ray", "rollout.backend=ray")] if config.rollout.backend == "ray" else []
    if config.policy.lora_rank:
        needs.append(("peft", "lora", "policy.lora_rank"))
    if config.policy.attention == "flash_attention_2":
        needs.append(("flash_attn", "", "policy.attention"))
    if engine.package:
        needs.append((engine.package, engine.extra, f"generator.engine={config.generator.engine}"))
    for name, extra, purpose in needs:
        if not (finding := package(name, extra, purpose)).ok:
            yield finding
    if config.tracking and not (finding := tracker(config.tracking, online)).ok:
        yield finding
    if engine.package == "vllm":
        yield from allocators()
