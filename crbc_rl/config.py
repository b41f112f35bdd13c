"""Configs: one YAML file defines a whole run. An unknown key is an error that names the nearest known key."""

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
"""The credit method that learns a critic instead of comparing the members of a group."""

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
    """Precision, sharding and adapters of the trained weights."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: passes in bfloat16 over float32 weights, which are sharded over all ranks."""
    gradient_checkpointing: bool = False
    lora_rank: int = Field(0, ge=0)
    """Rank of LoRA factors for every block, which are trained instead of the weights; 0 trains the weights."""
    offload_reference: bool = False
    """Keep the shards of the reference in main memory."""


class GeneratorConfig(Section):
    """The engine that samples."""

    engine: Literal["transformers", "vllm"] = "transformers"
    tensor_parallel: int = Field(1, ge=1)
    """Ranks over which one copy of the weights is split; vllm only."""
    memory: float = Field(0.6, gt=0, lt=1)
    """The fraction of a GPU's memory that vllm uses while it samples."""


class RolloutConfig(Section):
    num_groups: int = Field(16, ge=1)
    group_size: int = Field(8, ge=1)
    temperature: float = Field(1.0, gt=0)
    max_new_tokens: int = Field(16, ge=1)
    max_prompt_tokens: int | None = Field(None, ge=1)
    """Longer prompts are cut at the beginning, as in public trainers. None: no limit but the model's."""
    rounds: int = Field(1, ge=1)
    """Groups are sampled up to this many times, until `num_groups` of them have mixed outcomes (dynamic sampling of
    Yu et al. 2025, DAPO). A group that all won or all lost gives no group advantage."""
    waves: int = Field(1, ge=1)
    """Number of parts into which the groups are split. With two, the environments of one part step while the replies
    of the other are sampled. For slow environments and the engine "transformers"; vllm takes each prompt when it is
    ready."""
    backend: Literal["sync", "process", "ray"] = "sync"
    """Where environments run: in this process, in worker processes or in Ray actors. Results do not differ."""
    num_workers: int | None = Field(None, ge=1)
    """Number of workers of "process" and "ray"; one per CPU core by default."""


class CreditConfig(BaseModel):
    """`method` selects the estimator: one of `crbc_rl.credit.METHODS`, or "gae", PPO with a learned critic.

    A section named after a method holds that method's options. One config may thus hold the settings of several.
    """

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
    """The critic of the method "gae"; other methods ignore it."""

    lr: float = Field(1e-5, gt=0)


class LossConfig(Section):
    clip: float = Field(0.2, gt=0, lt=1)
    dual_clip: float = Field(3.0, gt=1)
    """Where A < 0 the objective is at least `dual_clip` * A; public trainers use 3."""
    kl: float = Field(0.01, ge=0)
    """Coefficient of the low-variance KL to the frozen reference (lambda_KL)."""
    entropy: float = Field(0.0, ge=0)
    ratio: Literal["token", "response"] = "token"
    """Importance ratio per token, as in the paper's launcher family, or per response, as eq. 2 writes it."""
    aggregation: Literal["token", "step", "group"] = "token"
    """What has equal weight: every token, every environment step, or every group and within it every step (eq. 2)."""
    correction: Literal["auto", "none", "truncate"] = "auto"
    """Truncated importance sampling where the sampling engine is not the trained model. Each token's loss is
    multiplied by pi_old / pi_sampled, at most `correction_cap`. "auto": "truncate" with vllm, else "none"."""
    correction_cap: float = Field(2.0, ge=1)


class OptimConfig(Section):
    lr: float = Field(1e-6, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    grad_clip: float = Field(1.0, gt=0)
    minibatch: int = Field(256, ge=1)
    """Environment steps per optimizer step."""
    microbatch: int | None = Field(None, ge=1)
    """Distinct environment steps per rank and pass; all at once by default."""
    score_microbatch: int | None = Field(None, ge=1)
    """The same for passes without gradients, which compute old log-probabilities and a critic's values; `microbatch`
    by default. The reference is computed in the training passes."""
    epochs: int = Field(1, ge=1)


class EvalConfig(Section):
    every: int = Field(5, ge=1)
    """Updates between validations on the first `episodes` tasks of the validation split."""
    episodes: int = Field(128, ge=1)
    temperature: float = Field(0.4, gt=0)
    test_episodes: int = Field(512, ge=1)
    """Tasks of the test split, played by the first and by the last policy."""


class TrainConfig(Section):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    model: str
    """Folder of a transformers checkpoint, absolute or relative to the config file; or a name on the Hugging Face
    hub, such as Qwen/Qwen2.5-1.5B-Instruct."""
    seed: int = Field(0, ge=0)
    updates: int = Field(150, ge=1)
    save_every: int = Field(5, ge=1)
    record_every: int = Field(0, ge=0)
    """Every update whose number is a multiple of this writes its rollouts to RUN/rollouts/UPDATE.parquet; 0: none."""
    threads: int = Field(2, ge=1)
    """CPU threads of torch. It is part of the config because it determines the order of float sums."""
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
    """Read a config file and apply `section.key=value` overrides.

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
    """Validate plain data; a relative `model` is taken from `base`. Raises `ConfigError` naming `where` and the key."""
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
    """One line on what is wrong in the config `where`: each key, its value, and the nearest known key."""
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
