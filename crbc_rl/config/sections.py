"""The sections of a config and their keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from anchors import Rollout, RolloutGroup, Step
from crbc_envs.actions import Replies
from crbc_rl import credit
from crbc_rl.config.extensions import Module, is_extension, load, registered_id
from crbc_rl.credit import Estimator, Method
from crbc_rl.errors import nearest

KEEP = 2
"""Checkpoints of a run that are kept, the newest."""
CRITIC = "gae"
"""The credit method that learns a critic instead of comparing the members of a group."""

_INSTEAD = {
    "ppo": "; PPO with a critic is 'gae'",
    "scores": "; nobody hands scores to a run: name a function of yours that computes them, as module:attribute",
}
"""What to write for a name that is no estimator of a run."""

SMALLEST = RolloutGroup([Rollout([Step("anchor", "action")], success=True)])
"""A group to try an estimator's options on."""
_passed: set[str] = set()
"""Sections of methods that were tried, as text: a study reads hundreds of configs with the same ones."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_no_booleans(cls, data: Any) -> Any:
        """Python counts True as 1, and YAML reads "yes" and "on" as True."""
        for key, value in data.items() if isinstance(data, dict) else ():
            field = cls.model_fields.get(str(key))
            if isinstance(value, bool) and field is not None and field.annotation in (int, float, int | None):
                raise ValueError(f"{key} is {str(value).lower()}, and a number is wanted")
        return data


class EnvConfig(Section):
    id: str = "CRBC-Sokoban-v0"
    """A registered id, or "module:Id-v0", where importing the module registers the id."""
    revision: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    """The digest of the official data, as `crbc data NAME` prints it; data with another are refused."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the environment; `split` is set by the learner and the evaluation."""
    prompt: str = "compact"
    """A style of the environment's `templates` or a generic one ("text", "compact"), or "module:attribute", a function
    from a `crbc_envs.View` to text, or a Jinja file "name.j2", relative to the config file."""
    template: str | None = None
    """The text of a Jinja template, which replaces `prompt`; `load_config` fills it in from a file "name.j2"."""
    history: int = Field(2, ge=0)
    """Records of earlier steps, at most, that a template gets."""
    system: str | None = None
    """The system message before every prompt. None: the default of the model's chat template."""
    replies: Replies | None = None
    """The grammar by which replies are read (`crbc_envs.actions`): "tags", verl-agent's four tags, or "thought", for
    models that somebody else trained. None: "tags" in training, and "thought" for a model behind an endpoint."""

    @field_validator("id")
    @classmethod
    def _one_module_at_most(cls, value: str) -> str:
        if value.count(":") > 1:
            raise ValueError("write it as Id-v0 or as module:Id-v0")
        return value

    @field_validator("kwargs")
    @classmethod
    def _split_is_not_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "split" in value:
            raise ValueError("env.kwargs.split is set by the command: training uses 'train'; see eval.split")
        if "replies" in value:
            raise ValueError("env.kwargs.replies: write env.replies, which training and evaluation read too")
        if "unsafe_root" in value:  # a config may come from anybody
            raise ValueError("env.kwargs.unsafe_root is not for a config to allow: set CRBC_UNSAFE_ROOT=1 yourself")
        return value


class PolicyConfig(Section):
    """Precision, sharding and adapters of the trained weights."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: passes in bfloat16 over float32 weights, which are sharded over all ranks."""
    gradient_checkpointing: bool = False  # Compute activations anew in the backward pass, to save memory.
    attention: str | None = None
    """transformers' implementation of attention, such as "flash_attention_2", with which a pass has no padding. It
    wants its package, a GPU and bfloat16. None: the library's choice."""
    lora_rank: int = Field(0, ge=0)
    """Rank of LoRA factors for every block, which are trained instead of the weights; 0 trains the weights."""
    offload_reference: bool = False
    """Keep the shards of the reference in main memory."""


class GeneratorConfig(Section):
    """The engine that samples."""

    engine: str = "transformers"
    """A name of `crbc_rl.policies.engines.ENGINES`, or "module:attribute", an `Engine` or a function that makes one's
    generator."""
    tensor_parallel: int = Field(1, ge=1)
    """Ranks over which one copy of the weights is split; vllm only."""
    memory: float = Field(0.6, gt=0, lt=1)
    """The fraction of a GPU's memory that vllm uses while it samples."""
    prefix_cache: float = Field(1.0, ge=0, allow_inf_nan=False)
    """GiB of keys and values of prompts that "transformers" keeps while an update samples. vllm has its own."""


class RolloutConfig(Section):
    num_groups: int = Field(16, ge=1)  # Tasks of an update.
    group_size: int = Field(8, ge=1)  # Rollouts of each task, G.
    temperature: float = Field(1.0, gt=0)  # Of the policy's distribution in training.
    max_new_tokens: int = Field(16, ge=1)
    """The limit of a reply, thought included. Not named: 16, or the expert's longest and a quarter more."""
    max_thought_tokens: int | None = Field(None, ge=1)
    """For reasoning models: a reply that has not closed its thought after so many tokens goes on with `</think>`, which
    is not trained. So its answer has the rest of `max_new_tokens`. None: thoughts have no limit of their own."""
    max_prompt_tokens: int | None = Field(None, ge=1)
    """The limit of a prompt, with the chat template's tokens. None: what the model's positions leave for it."""
    truncation: Literal["shorten", "error"] = "shorten"
    """A longer prompt loses its oldest records, then the first lines of its observation; or it is an error."""
    rounds: int = Field(1, ge=1)
    """Groups are sampled up to this many times, until `num_groups` of them have mixed outcomes (dynamic sampling of
    Yu et al. 2025, DAPO). A group that all won or all lost gives no group advantage by its outcomes."""
    made_up: float = Field(0.0, ge=0, le=1)
    """The share of the training prompts whose words are exchanged for made-up ones, so that copying is learned and not
    the words of the training tasks. What the policy replies is exchanged back. The model's folder must have a
    words.json, which `crbc warmstart` writes where its config says `made_up`."""
    waves: int = Field(1, ge=1)
    """For slow environments: the number of parts into which the groups are split. With two, the environments of one
    part step while the replies of the other are sampled. The engine vllm takes each prompt when it is ready; above 1
    it gives the environments an eighth of the waiting replies at a time, and 1 each at once."""
    backend: Literal["sync", "process", "ray"] = "sync"
    """Where environments run: in this process, in worker processes or in Ray actors. Results do not differ."""
    num_workers: int | None = Field(None, ge=1)
    """Number of workers of "process" and "ray"; one per CPU core by default."""
    dynamics: Literal["shared", "independent"] | None = None
    """What the copies of a group share beyond their start: one stream of noise, or one each. None: one each where the
    environment declares that it is stochastic."""

    @property
    def limit_named(self) -> bool:
        """Whether the config names `max_new_tokens`: else a run derives it by its model."""
        return "max_new_tokens" in self.model_fields_set


class CreditConfig(BaseModel):
    """`method` selects the estimator: one of `crbc_rl.credit.METHODS`, "gae", PPO with a learned critic, or
    "module:attribute", a function like those of `METHODS`.

    A section named after a method (for the last kind, after its attribute) holds that method's options. One config may
    thus hold the settings of several. All methods share `reward` and `weighting`; what a section says goes before them.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    method: str = "crbc"  # One of the methods below, `gae`, or `module:attribute`.
    reward: Literal["outcome", "environment"] = "outcome"
    """What the group advantage and step returns are of: 10 for a success, or the sum of the environment's own rewards.
    With "environment", a step term that is defined on success alone keeps the outcome: those of crbc, crbc_plus, g2po
    and graphgpo."""
    weighting: Literal["rollout", "step"] = "rollout"
    """What counts once in a group's mean and deviation: every rollout, with the penalties of its malformed replies
    summed, or every environment step, with the penalty on the malformed one, as in verl-agent. Methods without a group
    advantage ignore it."""

    @property
    def options(self) -> dict[str, Any]:
        """The options of the chosen method. `TrainConfig.credit_options` has those of one in a module."""
        return self.options_of(credit.METHODS.get(self.method))

    def options_of(self, estimator: Estimator | None) -> dict[str, Any]:
        """The options of the chosen method, where that is `estimator`: what all methods share, and its section's."""
        section, shared = (self.model_extra or {}).get(self.method.rpartition(":")[2]), dict[str, Any]()
        if self.reward == "environment" and self.method != CRITIC:
            shared["group_reward" if estimator and estimator.on_success else "reward"] = self.earns
        if self.weighting == "step" and estimator:
            shared["weighting"] = self.weighting
        return {**shared, **(section if isinstance(section, dict) else {})}

    @property
    def earns(self) -> Literal["outcome", "step"]:
        """`reward` as `crbc_rl.credit` calls it."""
        return "step" if self.reward == "environment" else "outcome"

    @model_validator(mode="after")
    def _known(self) -> CreditConfig:
        sections = dict(self.model_extra or {})
        estimators = [*credit.METHODS, CRITIC]
        if not is_extension(self.method) and self.method not in estimators:
            instead = _INSTEAD.get(self.method.lower()) or nearest(self.method, estimators)
            raise ValueError(f"credit.method: no estimator {self.method!r}{instead}")
        if is_extension(self.method):
            sections.pop(self.method.rpartition(":")[2], None)  # `check_run` checks it: its module may not run yet
        elif isinstance(sections.get(self.method, {}), dict):
            sections[self.method] = self.options
        known = ", ".join(credit.METHODS)
        if sections.pop(CRITIC, None):
            raise ValueError(f"{CRITIC!r} has no options; its critic's learning rate is critic.lr")
        for name, options in sections.items():
            if name in _INSTEAD:
                raise ValueError(f"no estimator {name!r}{_INSTEAD[name]}")
            if not isinstance(options, dict):
                raise ValueError(f"{name!r} must be a section with a method's options; known: {known}")
            if (section := f"{name} {options!r}") in _passed:
                continue
            credit.check_options(name, options)
            try:
                credit.advantages(SMALLEST, name, **options)  # each method checks its own options
            except credit.CreditError as error:
                raise ValueError(f"{name}: {error}") from error
            except TypeError as error:
                raise ValueError(f"{name}: an option is of the wrong type: {error}") from error
            _passed.add(section)
        return self


class CriticConfig(Section):
    """The critic of the method "gae"; other methods ignore it."""

    lr: float = Field(1e-5, gt=0, le=1)  # Learning rate of the critic.


CLIPPED = "clipped"


class LossConfig(Section):
    objective: str = CLIPPED
    """The policy's loss: "clipped", the paper's, or "module:attribute", a function in its place
    (`crbc_rl.training.loss.Objective`), which gets this section."""
    clip: float = Field(0.2, gt=0, lt=1)
    """Ratios count between 1 - `clip` and 1 + `clip_high`."""
    clip_high: float | None = Field(None, gt=0)
    """None: as `clip`. A larger one leaves unlikely replies more room to grow (clip-higher of Yu et al. 2025, DAPO)."""
    mask_truncated: bool = False
    """Leave replies out of the policy's loss that were cut at `rollout.max_new_tokens`."""
    dual_clip: float | None = Field(3.0, gt=1)
    """Where A < 0 the objective is at least `dual_clip` * A; public trainers use 3. null: no such bound."""
    kl: float = Field(0.01, ge=0)
    """Coefficient of the low-variance KL to the frozen reference (lambda_KL)."""
    entropy: float = Field(0.0, ge=0)  # Coefficient of the entropy bonus.
    ratio: Literal["token", "response"] = "token"
    """Importance ratio per token, as in verl-agent, or per response, as eq. 2 writes it."""
    aggregation: Literal["token", "step", "group"] = "token"
    """What has equal weight: every token, every environment step, or every group and within it every step (eq. 2)."""
    correction: Literal["auto", "none", "truncate"] = "auto"
    """Truncated importance sampling where the sampling engine is not the trained model. Each token's loss is
    multiplied by pi_old / pi_sampled, at most `correction_cap`. "auto": "truncate" with any engine but transformers."""
    correction_cap: float = Field(2.0, ge=1)  # Largest weight of a token there.

    @field_validator("objective")
    @classmethod
    def _known(cls, value: str) -> str:
        if value != CLIPPED and not is_extension(value):
            raise ValueError(f"no objective {value!r}: use {CLIPPED!r}, or a function of yours, as module:attribute")
        return value


class OptimConfig(Section):
    lr: float = Field(1e-6, gt=0, le=1)  # Learning rate of AdamW.
    weight_decay: float = Field(0.01, ge=0)  # AdamW's.
    grad_clip: float = Field(1.0, gt=0)  # Largest norm of the gradient.
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after `warmup`: constant, or down to 0 behind the last update."""
    warmup: int = Field(0, ge=0)
    """Updates over which the learning rate rises to `lr`."""
    minibatch: int = Field(256, ge=1)
    """Environment steps per optimizer step, about."""
    order: Literal["spread", "group", "ranks"] = "spread"
    """Which steps meet in a mini-batch: some of every group; all of a few groups; or those that verl-agent's trainer
    brings together on eight GPUs, where the last mini-batch is filled with copies."""
    microbatch: int | None = Field(None, ge=1)
    """Distinct environment steps per rank and pass at most; by default as many as cost least."""
    microbatch_tokens: int | None = Field(None, ge=1)
    """Tokens per rank and pass, padding included, as far as a pass has more than one step."""
    score_microbatch: int | None = Field(None, ge=1)
    """The same for passes without gradients, which compute old log-probabilities and a critic's values; `microbatch`
    by default. The reference is computed in the training passes."""
    epochs: int = Field(1, ge=1)  # Passes over the rollouts of an update.

    @model_validator(mode="after")
    def _eight_ranks_share(self) -> OptimConfig:
        if self.order == "ranks" and self.minibatch % 8:
            raise ValueError(f"minibatch: {self.minibatch} is no multiple of 8, and order: ranks divides it among 8")
        return self


class EvalConfig(Section):
    every: int = Field(5, ge=1)
    """Updates between validations on `episodes` tasks of the validation split."""
    episodes: int = Field(128, ge=1)  # Tasks of a validation.
    panel: Literal["first", "even", "paper"] | None = None
    """Which tasks of a split are played (`crbc_rl.rollout.panel`): the first ones; as many of every kind; or draws in
    the paper's proportions, with its repeats. None: "even" where a split is in the order of names, as ALFWorld's
    published games are, else "first"."""
    temperature: float = Field(0.4, gt=0)  # Of the policy's distribution in evaluation.
    test_episodes: int = Field(512, ge=1)
    """Tasks of the test split, played by the first and by the last policy."""


class RunConfig(Section):
    """What a config has that plays an environment."""

    env: EnvConfig = EnvConfig(kwargs={"observation": "text"})
    modules: dict[str, Module] = Field(default_factory=dict)
    """The modules that the config names, by name: filled in by `load_config`, and kept in the run folder."""

    def extensions(self) -> Iterator[tuple[str, str]]:
        """(key, value) of each key whose value is "module:attribute"."""
        for key, value in self._names():
            if is_extension(value):
                yield key, value

    @property
    def replies(self) -> Replies:
        """The grammar by which training and evaluation read replies."""
        return self.env.replies or "tags"

    def registered_id(self) -> str:
        """The environment's id, registered: the module that `env.id` may name is imported, if that is permitted."""
        return registered_id(self.env.id, self.modules, "env.id")

    def member(self, split: str, **kwargs: Any) -> Any:
        """One environment on a split, with `kwargs` besides the config's (`make_member`)."""
        from crbc_envs.vector.members import make_member  # here, because a config can be read without Gymnasium

        return make_member(self.registered_id(), {**self.env.kwargs, "split": split, **kwargs})

    def _names(self) -> Iterator[tuple[str, str]]:
        yield "env.id", self.env.id
        if self.env.template is None:
            yield "env.prompt", self.env.prompt


class TrainConfig(RunConfig):
    name: str
    """Names the run folder: letters, digits and . _ -"""
    protocol: Literal["verl-agent", "paper"] | None = None
    """Whose choices fill the keys that the config does not name (`crbc_rl.config.protocols`): the public trainer's, or
    the paper's equations to the letter. None: this project's defaults."""
    model: str
    """Folder of a transformers checkpoint, absolute or relative to the config file; or a name on the Hugging Face
    hub, such as Qwen/Qwen2.5-1.5B-Instruct."""
    base: str | None = None
    """Of a `model` that is an adapter of peft's: its base, a folder or a name; None: the one that it names. A config
    may write both as `model: {base: ..., adapter: ...}`."""
    revision: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
    """Which model it is: for one of the hub a commit, a tag or a branch; for a folder the digest of its files, which
    RUN/versions.json of an earlier run has. None: what is there now."""
    seed: int = Field(0, ge=0, lt=2**63)  # Of every random draw of the run.
    updates: int = Field(150, ge=1)  # Updates of the policy in all.
    save_every: int = Field(5, ge=1)  # Updates between checkpoints.
    record_every: int = Field(0, ge=0)
    """Every update whose number is a multiple of this writes its rollouts to RUN/rollouts/UPDATE.parquet; 0: none."""
    transcripts: int = Field(16, ge=0, le=128)
    """How many held-out tasks the run keeps in RUN/transcripts as they were played before and after training, with a
    training group at each validation (`crbc_rl.runs.transcripts`); 0: nothing."""
    tracking: Literal["wandb"] | None = None
    """Where metrics and config go besides the run folder: Weights & Biases. It may change in a resumed run."""
    threads: int = Field(2, ge=1)
    """CPU threads of torch, which determine the order of float sums. They may change in a resumed run."""
    policy: PolicyConfig = PolicyConfig()
    generator: GeneratorConfig = GeneratorConfig()
    rollout: RolloutConfig = RolloutConfig()
    credit: CreditConfig = Field(default_factory=CreditConfig)  # made when used: its trial of options takes scipy
    critic: CriticConfig = CriticConfig()
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    eval: EvalConfig = EvalConfig()

    @field_validator("name")
    @classmethod
    def _name_of_a_folder(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
            raise ValueError("it names a folder: use the letters a to z, digits and . _ -")
        return value

    def method(self) -> str | Method:
        """The credit estimator: its name, or the function that `credit.method` names in a module."""
        name = self.credit.method
        return load(name, self.modules, "credit.method") if is_extension(name) else name

    def credit_options(self) -> dict[str, Any]:
        """The options of the credit estimator. One that `credit.method` names in a module is imported."""
        method = self.method()
        return self.credit.options if isinstance(method, str) else self.credit.options_of(credit.estimator_of(method))

    def _names(self) -> Iterator[tuple[str, str]]:
        yield from super()._names()
        yield "credit.method", self.credit.method
        yield "loss.objective", self.loss.objective
        yield "generator.engine", self.generator.engine
