"""The config of a warm start, and how it is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from pydantic import Field, model_validator

from crbc_rl.config import RolloutConfig, RunConfig, TrainConfig, parse, read_mapping, set_value
from crbc_rl.config.sections import EvalConfig, Section
from crbc_rl.errors import ConfigError
from crbc_rl.names import WARMSTART, find_config, installed


class Lapse(Section):
    """A mistake to teach: where `action` is admissible, a `share` of the lessons says it, with this thought.

    What the expert says instead reaches the environment, so that no later lesson is lost.
    """

    action: str = Field(min_length=1)  # Said too often.
    thought: str = ""  # Before it.
    share: float = Field(gt=0, le=1)  # Of the lessons where it is admissible.


class WarmstartConfig(RunConfig):
    out: str
    """Folder to write, relative to the config file, or absolute."""
    model: str | None = None
    """A pretrained model to begin with: a name that `crbc model get` fetches, a folder, or a name on the hub. None: a
    tiny policy with fresh weights and a tokenizer of its own."""
    lora_rank: int = Field(0, ge=0)
    """Of a `model`: the rank of LoRA factors, which are trained in the place of its weights and alone are kept."""
    seed: int = Field(0, ge=0, lt=2**63)  # Of every random draw.
    threads: int = Field(2, ge=1)  # CPU threads of torch.
    teacher: dict[str, Any] = Field(default_factory=dict)
    """Keyword options of the environment's `expert`, such as how often it errs."""
    slips: float = Field(0.0, ge=0, lt=1)
    """The share of the expert's replies that reach the environment malformed, so that it shows how to go on."""
    strays: float = Field(0.0, ge=0, lt=1)
    """The share of the expert's replies in whose place a random admissible action reaches the environment, so that it
    shows the way back. The lesson is its own reply."""
    dagger: float = Field(0.0, ge=0, le=1)
    """From the middle of the training on, the share of lessons at states that the policy itself came to, at temperature
    1 (Ross et al. 2011)."""
    lapse: Lapse | None = None
    """What the policy is to do too often, so that reinforcement learning has something to improve."""
    random_episodes: int = Field(2000, ge=1)
    """Without an expert: episodes of random play, whose successes are the demonstrations."""
    copies: bool = False
    """Start with an induction head, which text environments need."""
    also: list[dict[str, Any]] = Field(default_factory=list, max_length=100)
    """Arguments that replace some of `env.kwargs`. Lessons are taken in turn from the environment and from each of
    these."""
    made_up: float = Field(0.0, ge=0, le=1)
    """The share of lessons whose words are exchanged for made-up ones, so that copying is learned and not the words."""
    vocabulary: int = Field(384, ge=300, le=1 << 20)  # Tokens of the tokenizer that is made.
    apart: list[str] = Field(default_factory=list, max_length=1_000)
    """Texts that are always tokens of their own."""
    steps: int = Field(700, ge=1)  # Optimizer steps.
    batch: int = Field(128, ge=1)  # Lessons of a step.
    parts: int = Field(1, ge=1)
    """Split a batch into this many parts of similar prompt length, since prompts are padded to the longest."""
    lr: float = Field(1e-3, gt=0, le=1)  # Learning rate of AdamW.
    warmup: int = Field(50, ge=1)  # Steps in which the learning rate rises to `lr`.
    decay: int = Field(1, ge=1)
    """Last steps, in which the learning rate falls to 0."""
    eval: EvalConfig = EvalConfig(test_episodes=128)
    """How the trained policy is tested, which warmstart.json then states."""
    max_new_tokens: int | None = Field(None, ge=1)
    """Of a reply in that test. None: 64, and with a `model` as many as the longest of its lessons has, and a quarter
    more."""

    @model_validator(mode="after")
    def _of_a_model(self) -> WarmstartConfig:
        if self.model is None and self.lora_rank:
            raise ValueError("lora_rank: a tiny policy is trained whole; name a model")
        for name in ("vocabulary", "apart", "copies", "made_up", "dagger") if self.model is not None else ():
            if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                raise ValueError(f"{name}: of no use with a pretrained model, whose tokenizer and blocks are its own")
        return self

    def environments(self) -> list[WarmstartConfig]:
        """This config, and one for each of `also` with that environment."""
        kwargs = [{}, *self.also]
        envs = [self.env.model_copy(update={"kwargs": {**self.env.kwargs, **more}}) for more in kwargs]
        return [self.model_copy(update={"env": env, "also": []}) for env in envs]

    def as_run(self) -> TrainConfig:
        """A run in the same environment, which says how the policy is to play there."""
        return TrainConfig(
            name="warmstart",
            model=self.out,
            env=self.env,
            modules=self.modules,
            rollout=RolloutConfig(max_new_tokens=self.max_new_tokens or 64),
            eval=self.eval,
        )


def load_warmstart_config(path: Path, overrides: Sequence[str] = ()) -> WarmstartConfig:
    """Read a warm start's config, or the shipped one of that name, and replace values.

    Raises `ConfigError` naming the file and the key.

    Its output folder is relative to the file; for a config that was installed with the package, to the current folder.
    So is a `model` that is a folder there.
    """
    path = find_config(path)
    data = read_mapping(path)
    if "model" in data and "out" not in data:
        raise ConfigError(f"{path} is the config of a training: crbc train {quote(str(path))}")
    for override in overrides:
        set_value(data, override)
    config = parse(WarmstartConfig, data, f"{path} with --set" if overrides else str(path), path.parent)
    base = Path("configs") if installed(path) else path.parent
    place = base / config.out
    # A link at the very end is kept, to be refused: what is there would be replaced.
    out = place.resolve() if place.name in ("", "..") else place.parent.resolve() / place.name
    model = config.model
    if model is not None and (base / model).is_dir():
        model = str((base / model).resolve())
    return config.model_copy(update={"out": str(out), "model": model})


def read_recipe(folder: Path) -> TrainConfig:
    """How the warm start in a model folder plays, by its warmstart.json. Raises `ConfigError` where there is none."""
    place = folder / WARMSTART
    if not place.is_file():
        raise ConfigError(f"{folder} has no {WARMSTART}: name a config, crbc eval CONFIG --model {quote(str(folder))}")
    data = {name: value for name, value in read_mapping(place).items() if name in WarmstartConfig.model_fields}
    return parse(WarmstartConfig, {**data, "out": str(folder.resolve())}, str(place), folder).as_run()
