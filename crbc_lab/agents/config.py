"""The config of a prompting agent, and how it is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from crbc_rl.config import EnvConfig, RunConfig, Section, parse, read_mapping, set_value
from crbc_rl.config.revisions import model_digest
from crbc_rl.errors import ConfigError
from crbc_rl.names import find_config
from crbc_rl.pretrained import command_for, local_model

OWN_FIELDS = frozenset({"model", "messages", "n", "stream"})
"""Fields of a request that `model.options` may not replace: the cache and the accounting rest on them."""


class ModelSection(Section):
    """The model that is asked, and how its replies are sampled."""

    name: str = ""
    """Its name at the endpoint. Without an endpoint: the folder of a transformers checkpoint, relative to the config
    file."""
    endpoint: str | None = None
    """The address of an OpenAI-compatible server, such as http://localhost:8000/v1."""
    key_variable: str | None = None
    """The environment variable that holds the server's API key."""
    temperature: float = Field(0.4, ge=0, le=2)
    """The default is the paper's for validation. ReAct and Reflexion were published with 0."""
    max_tokens: int = Field(4_096, ge=1)
    """New tokens of one reply, its thought included."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each request's body, such as {stop: ["\\n"]}; null removes a field."""

    @field_validator("options")
    @classmethod
    def _fields_are_free(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in sorted(OWN_FIELDS & set(value)):
            raise ValueError(f"{name!r} is set by the command; leave it out")
        return value


class ReactSection(Section):
    """The transcript of `react` and `reflexion`."""

    style: Literal["line", "bracket"] = "line"
    """line: "> think: ..." and "> go to desk 1", as published for ALFWorld. bracket: "Action: think[...]" and
    "Action: search[...]", as published for WebShop."""
    instruction: str = "Solve a task by interacting with its environment."
    """The first sentence of the prompt."""
    examples: int = Field(2, ge=0)
    """Episodes of the environment's expert on training tasks that stand before the task, of its kind where tasks have
    kinds."""
    file: str | None = None
    """A text file with examples of your own, relative to the config file; it replaces `examples`."""
    text: str | None = None
    """What that file holds; it is filled in when the config is read."""
    admissible: bool = False
    """Whether the current admissible actions stand below the current observation. The published prompts have none."""
    turns: int | None = Field(None, ge=1)
    """Most replies of a trial, thoughts included. None: as many as the environment has steps, as published."""
    longest: int = Field(60_000, ge=500)
    """Characters of a prompt. A longer one loses its oldest turns, never the examples, the memory or the task."""


class ReflexionSection(Section):
    """The trials and the memory of `reflexion`."""

    trials: int = Field(3, ge=1)
    """Most trials of a task; a success ends them."""
    memory: int = Field(3, ge=0)
    """Reflections that a prompt has, the newest."""
    stuck: int = Field(3, ge=0)
    """A trial is given up when the same action has had the same answer more often than this in a row; 0: never."""


class LimitsSection(Section):
    """What ends a request, a call, an episode or the run. All of it may change when a run is continued."""

    concurrency: int = Field(8, ge=1)
    """Episodes that are played side by side, each with one call at a time."""
    retries: int = Field(5, ge=0)
    """Repetitions of a request after a fault."""
    pause: float = Field(1.0, ge=0)
    """Seconds before the first repetition, then twice as many each time; or what the server asks for, up to 60."""
    attempt_seconds: float = Field(120.0, gt=0)
    """For one request and its whole answer."""
    call_seconds: float = Field(600.0, gt=0)
    """For a call with all its repetitions."""
    episode_seconds: float = Field(3_600.0, gt=0)
    """For all calls of an episode together."""
    tokens: int | None = Field(None, ge=1)
    """The budget in tokens, of prompts and replies together. It ends the run."""
    money: float | None = Field(None, gt=0)
    """The budget in the currency of `prices`."""


class PricesSection(Section):
    """What the server asks for a million tokens."""

    input: float = Field(0.0, ge=0)  # For a million tokens of prompts.
    output: float = Field(0.0, ge=0)  # For a million tokens of replies.
    currency: str = Field("USD", pattern=r"^[A-Z]{3}$")  # Its three letters.


class AgentsConfig(RunConfig):
    """One YAML file: an agent, an environment, a model, and what they may cost."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the run folder."""
    agent: Literal["direct", "react", "reflexion"]  # How the model is asked.
    env: EnvConfig = EnvConfig(prompt="text")
    """`env.prompt` is the prompt of `direct`. The others show observations in the style "transcript", where the
    environment has one."""
    split: Literal["train", "validation", "test"] = "test"  # Whose tasks are played.
    episodes: int = Field(128, ge=1)
    """So many tasks of the split are played, those that `crbc eval` plays by default."""
    seeds: tuple[int, ...] = (0,)
    """The tasks are played once with each seed."""
    model: ModelSection = ModelSection()
    react: ReactSection = ReactSection()
    reflexion: ReflexionSection = ReflexionSection()
    limits: LimitsSection = LimitsSection()
    prices: PricesSection = PricesSection()

    @model_validator(mode="after")
    def _possible(self) -> AgentsConfig:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError("seeds: name different whole numbers of at least 0, such as [0, 1, 2]")
        if self.limits.money is not None and not (self.prices.input or self.prices.output):
            raise ValueError("limits.money: a budget in money needs prices.input and prices.output")
        if self.agent != "direct" and self.env.kwargs.get("observation") == "rgb":
            raise ValueError(f"agent: {self.agent} keeps a transcript of texts: set env.kwargs.observation=text")
        return self

    @property
    def trials(self) -> int:
        """Most trials of a task."""
        return self.reflexion.trials if self.agent == "reflexion" else 1

    def identity(self) -> dict[str, Any]:
        """All that a result depends on. The address, the limits and the prices may change when a run is continued."""
        free = {"limits": True, "prices": True, "modules": True, "name": True}
        told = self.model_dump(mode="json", exclude={**free, "model": {"endpoint", "key_variable"}})
        if self.modules:
            told["modules"] = {name: module.sha256 for name, module in self.modules.items()}
        if self.model.endpoint is None and (folder := Path(self.model.name)).is_dir():
            told["weights"] = model_digest(folder)
        return told


def load_agents_config(
    path: Path,
    overrides: Sequence[str] = (),
    endpoint: str | None = None,
    model: str | None = None,
    key_variable: str | None = None,
) -> AgentsConfig:
    """Read a config file, or one that comes with the package, and replace values.

    `model` alone, without an `endpoint` anywhere, is a folder relative to the current one. Raises `ConfigError` naming
    the file and the key.
    """
    path = find_config(path)
    data = read_mapping(path)
    if "agent" not in data:
        raise ConfigError(f"{path} is no config of a prompting agent: it has no key 'agent'; see configs/agents/")
    for override in overrides:
        set_value(data, override)
    where = f"{path} with --set" if overrides else str(path)
    config = parse(AgentsConfig, data, where, path.parent)
    typed = {"endpoint": endpoint, "name": model, "key_variable": key_variable}
    section = config.model.model_copy(update={name: value for name, value in typed.items() if value is not None})
    if not section.name:
        raise ConfigError(f"{where}: model.name: name a model: --endpoint URL --model NAME, or --model DIR")
    if section.endpoint is None:
        folder = local_model(Path() if model is not None else path.parent, section.name)
        if not folder.is_dir():
            fix = command_for(folder) or "for one behind a server add --endpoint URL"
            raise ConfigError(f"{section.name} is no folder with a model; {fix}")
        section = section.model_copy(update={"name": str(folder)})
    else:
        require_url(section.endpoint)
    react = config.react
    if react.file is not None:
        react = react.model_copy(update={"text": _examples(path.parent / react.file, where)})
    return config.model_copy(update={"model": section, "react": react})


def require_url(endpoint: str) -> None:
    """Raise `ConfigError` unless an endpoint is an address."""
    if not endpoint.startswith(("http://", "https://")):
        shown = endpoint.rpartition("@")[2]  # before it there may be a password
        raise ConfigError(f"--endpoint {shown!r}: write it as http://HOST:PORT/v1, or with https")


def _examples(path: Path, where: str) -> str:
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: react.file: {path} cannot be read: {error}") from error
    if not text:
        raise ConfigError(f"{where}: react.file: {path} is empty; write examples there")
    return text
