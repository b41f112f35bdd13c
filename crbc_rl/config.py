"""Configs: one YAML file says everything a run is. A key nobody knows is an error that names its neighbour."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from anchors import Rollout, RolloutGroup, Step
from crbc_rl import credit
from crbc_rl.errors import ConfigError

CRITIC = "gae"
"""The method that learns a critic instead of comparing a group's members."""

_SMALLEST = RolloutGroup([Rollout([Step("anchor", "action")], success=True)])


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EnvConfig(Section):
    id: str = "CRBC-Sokoban-v0"
    kwargs: dict[str, Any] = Field(default_factory=lambda: {"observation": "text"})
    """Keyword arguments of the environment; `split` is set by the learner and the evaluation."""
    prompt: str = "compact"
    """Prompt style, one of the environment's `templates`."""

    @field_validator("kwargs")
    @classmethod
    def _split_is_not_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "split" in value:
            raise ValueError("env.kwargs.split is set by the command: training uses 'train'; see eval.split")
        return value


class PolicyConfig(Section):
    """How the trained weights are held."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: passes in it, over float32 weights that are sharded over all processes."""
    gradient_checkpointing: bool = False
    lora_rank: int = Field(0, ge=0)
    """Train factors of this rank beside the weights of every block, and not the weights; 0 trains these."""
    offload_reference: bool = False
    """Keep the reference's shards in main memory."""


class GeneratorConfig(Section):
    """What samples."""

    engine: Literal["transformers", "vllm"] = "transformers"
    tensor_parallel: int = Field(1, ge=1)
    """Processes that hold one copy of the weights together; vllm only."""
    memory: float = Field(0.6, gt=0, lt=1)
    """The share of a GPU's memory that vllm takes while it samples."""


class RolloutConfig(Section):
    num_groups: int = Field(16, ge=1)
    group_size: int = Field(8, ge=1)
    temperature: float = Field(1.0, gt=0)
    max_new_tokens: int = Field(16, ge=1)
    max_prompt_tokens: int | None = Field(None, ge=1)
    """A longer prompt loses its beginning, as public trainers have it; None leaves it to the model."""
    rounds: int = Field(1, ge=1)
    """Up to so many times groups are played, until `num_groups` of them are mixed: those that all won or all
    lost teach nothing (dynamic sampling of Yu et al. 2025, DAPO)."""
    waves: int = Field(1, ge=1)
    """Groups are played in so many parts by turns: with two, one's environments step while the other's replies are
    sampled. For slow environments and the engine "transformers"; vllm need not be shown its prompts together."""
    backend: Literal["sync", "process", "ray"] = "sync"
    """Where environments run: in this process, in worker processes or in Ray actors. What is played is the same."""
    num_workers: int | None = Field(None, ge=1)
    """Workers of "process" and "ray"; one per processor by default."""


class CreditConfig(BaseModel):
    """`method` chooses the estimator: one of `crbc_rl.credit`, or "gae", PPO with a learned critic. Beside it, a
    section named as a method holds that method's options, so that one config may keep the settings of several."""

    model_config = ConfigDict(extra="allow", frozen=True)
    method: str = "crbc"

    @property
    def options(self) -> dict[str, Any]:
        """The options of the chosen method."""
        section = (self.model_extra or {}).get(self.method)
        return dict(section) if isinstance(section, dict) else {}

    @model_validator(mode="after")
    def _known(self) -> CreditConfig:
        known = ", ".join(credit.METHODS)
        for name, options in {self.method: {}, **(self.model_extra or {})}.items():
            if name == CRITIC and not options:
                continue
            if not isinstance(options, dict):
                raise ValueError(f"{name!r} must be a section with a method's options; known: {known}")
            try:
                credit.advantages(_SMALLEST, name, **options)  # each method checks its own options
            except TypeError as error:
                raise ValueError(f"{name}: an option is of the wrong type: {error}") from error
        return self


class CriticConfig(Section):
    """Of the method "gae" alone."""

    lr: float = Field(1e-5, gt=0)


class LossConfig(Section):
    clip: float = Field(0.2, gt=0, lt=1)
    dual_clip: float = Field(3.0, gt=1)
    """Bound on -ratio * A where A < 0; public trainers use 3."""
    kl: float = Field(0.01, ge=0)
    """Weight of the low-variance KL to the frozen reference (lambda_KL)."""
    entropy: float = Field(0.0, ge=0)
    ratio: Literal["token", "response"] = "token"
    """Importance ratio per token, as the paper's launcher family runs, or per response, as eq. 2 writes it."""
    aggregation: Literal["token", "step", "group"] = "token"
    """Every token weighs the same, every environment step, or every group and in it every step (as eq. 2 has it)."""
    correction: Literal["auto", "none", "truncate"] = "auto"
    """Truncated importance sampling where the engine that samples is not the model that is trained: each token's
    loss is multiplied by pi_old / pi_sampled, at most `correction_cap`. "auto": with vllm."""
    correction_cap: float = Field(2.0, ge=1)


class OptimConfig(Section):
    lr: float = Field(1e-6, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    grad_clip: float = Field(1.0, gt=0)
    minibatch: int = Field(256, ge=1)
    """Environment steps per optimizer step."""
    microbatch: int | None = Field(None, ge=1)
    """Distinct ones of them per process and pass; all at once by default."""
    score_microbatch: int | None = Field(None, ge=1)
    """The same for passes that only read, for log-probabilities to start from and a critic's values; as `microbatch`
    by default. The reference is read in the passes that train."""
    epochs: int = Field(1, ge=1)


class EvalConfig(Section):
    every: int = Field(5, ge=1)
    """Updates between validations on the first `episodes` tasks of the validation split."""
    episodes: int = Field(128, ge=1)
    temperature: float = Field(0.4, gt=0)
    test_episodes: int = Field(512, ge=1)
    """Tasks of the test split played by the first and the last policy."""


class TrainConfig(Section):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    model: str
    """Folder of a transformers checkpoint, relative to the config file or absolute; or a name on the Hugging Face
    hub, such as Qwen/Qwen2.5-1.5B-Instruct."""
    seed: int = Field(0, ge=0)
    updates: int = Field(150, ge=1)
    save_every: int = Field(5, ge=1)
    record_every: int = Field(0, ge=0)
    """Updates between the ones whose rollouts are kept in full, RUN/rollouts/UPDATE.parquet; 0 keeps none."""
    threads: int = Field(2, ge=1)
    """CPU threads of torch; part of the config because it decides the order of float sums."""
    env: EnvConfig = EnvConfig()
    policy: PolicyConfig = PolicyConfig()
    generator: GeneratorConfig = GeneratorConfig()
    rollout: RolloutConfig = RolloutConfig()
    credit: CreditConfig = CreditConfig()
    critic: CriticConfig = CriticConfig()
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    eval: EvalConfig = EvalConfig()


def load_config(path: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a config file, with `section.key=value` overrides applied on top.

    Raises `ConfigError` naming the file and the key.
    """
    data = read_mapping(path)
    for override in overrides:
        _set(data, override)
    return parse_config(data, str(path), path.parent)


def read_mapping(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file. Raises `ConfigError` naming the file."""
    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a config is a mapping of keys to values")
    return data


def parse_config(data: dict[str, Any], where: str, base: Path = Path()) -> TrainConfig:
    """Validate plain data; a relative `model` is taken from `base`."""
    try:
        config = TrainConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(where, TrainConfig, error)) from error
    folder = (base / config.model).resolve()
    on_hub = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", config.model) and not folder.is_dir()
    return config if on_hub else config.model_copy(update={"model": str(folder)})


def _set(data: dict[str, Any], override: str) -> None:
    name, equals, value = override.partition("=")
    if not equals:
        raise ConfigError(f"--set {override}: write it as section.key=value")
    *sections, key = name.split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise ConfigError(f"--set {override}: {section!r} is not a section")
    data[key] = yaml.safe_load(value)


def explain(where: str, model: type[BaseModel], error: ValidationError) -> str:
    """One line on what is wrong in the config `where`: each key, its value, and its nearest neighbour."""
    return f"{where}: " + "; ".join(_explain(model, problem) for problem in error.errors())


def _explain(model: type[BaseModel], problem: Any) -> str:
    *sections, key = problem["loc"] or ("",)
    name = ".".join(map(str, problem["loc"]))
    if problem["type"] != "extra_forbidden":
        cause = problem.get("ctx", {}).get("error", problem["msg"])
        shown = "" if isinstance(problem["input"], dict) else f" (got {problem['input']!r})"
        return f"{name}: {cause}{shown}" if name else str(cause)
    for section in sections:
        annotation = model.model_fields[str(section)].annotation
        assert isinstance(annotation, type)
        model = annotation
    near = difflib.get_close_matches(str(key), model.model_fields, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(model.model_fields)}"
    return f"unknown key {name!r}; {hint}"
