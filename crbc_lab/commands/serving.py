"""The commands of `crbc serve` with their options: model, openenv, webshop."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Annotated, Any, Literal

import tyro

from crbc_lab.commands.console import PlainConsole
from crbc_lab.commands.parse import Count, Group, Index, ModelPath, Port, Size
from crbc_rl.errors import ConfigError

console = PlainConsole()


def model(
    folder: ModelPath,
    /,
    policy: Literal["best", "last", "start"] | None = None,
    name: str | None = None,
    port: Port = 8000,
    host: str = "127.0.0.1",
    exposed: bool = False,
    key_variable: str | None = None,
    seed: Index = 0,
) -> None:
    """Serve a model as an OpenAI-compatible endpoint: chats, completions, log-probabilities and seeds. Ctrl-C ends it.

    Args:
        folder: a model folder, or a run folder.
        policy: of a run: the best policy on validation, the last one saved, or the initial one; default last.
        name: the model's name for clients; default the folder's.
        port: the port; 0 selects a free one.
        host: 127.0.0.1 or ::1, which only this machine can reach.
        exposed: allow other hosts, and requests from other machines.
        key_variable: the environment variable with the key that requests must have; default none is asked for.
        seed: seed of the seeds that requests without one get.
    """
    from crbc_lab.commands.serve import serve_model

    serve_model(folder, policy, name, host, port, exposed, key_variable, seed or 0, console)


def openenv(
    env: tyro.conf.Positional[str],
    /,
    prompt: str = "text",
    set: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = (),
    port: Port = 8000,
    host: str = "127.0.0.1",
    exposed: bool = False,
    sessions: Count = 64,
    idle_seconds: Size = 600.0,
) -> None:
    """Serve an environment to OpenEnv's clients, such as TRL and verifiers. Ctrl-C ends it.

    Args:
        env: an environment id such as CRBC-ALFWorld-v0.
        prompt: the style of the prompts.
        set: options of the environment, each as KEY=VALUE.
        port: the port; 0 selects a free one.
        host: 127.0.0.1 or ::1, which only this machine can reach.
        exposed: allow other hosts, and clients on other machines; there is no login.
        sessions: how many clients may play at once.
        idle_seconds: a session without a message for so long ends.
    """
    options = {"prompt": prompt, **_options(chain(*set))}
    from crbc_rl.adapters.openenv_server import serve

    serve(
        env,
        options,
        host=host,
        port=port,
        sessions=sessions or 64,
        idle_seconds=idle_seconds or 600.0,
        exposed=exposed,
        console=console,
    )


def webshop(
    port: Port = 3000,
    host: str = "127.0.0.1",
    exposed: bool = False,
    data: Literal["generated", "official"] = "generated",
    data_dir: str | None = None,
    goals: Literal["synthetic", "human"] = "synthetic",
    panel: Literal["by_kind", "official", "by_product", "verl"] | None = None,
    split: Literal["train", "validation", "test"] = "train",
    price_seed: Index = 0,
    show_attributes: bool = False,
    seed: Index = 0,
) -> None:
    """Serve the shop as a web site for people on this machine. Ctrl-C ends it.

    Args:
        port: the port; 0 selects a free one.
        host: 127.0.0.1 or ::1, which only this machine can reach.
        exposed: allow other hosts, and requests from other machines; there is no login.
        data: the embedded catalogue, or the official products.
        data_dir: a folder of official products, default the installed ones; or of a generated shop.
        goals: instructions generated from products, or written by people.
        panel: how goals are divided into splits; default by_kind for the embedded catalogue, else official.
        split: the split whose goals are served.
        price_seed: seed of prices and price limits.
        show_attributes: pages also list the attributes of products.
        seed: seed of the goals of "Draw a goal".
    """
    from crbc_lab.commands.serve import serve_shop

    shop = {"data": data, "data_dir": data_dir, "goals": goals, "panel": panel, "split": split}
    serve_shop(
        {**shop, "price_seed": price_seed, "show_attributes": show_attributes}, host, port, exposed, seed or 0, console
    )


def _options(words: Iterable[str]) -> dict[str, Any]:
    """Options of an environment by name, with values as in a config. Raises `ConfigError` for what is no KEY=VALUE."""
    from crbc_rl.config.text import parse_yaml

    options = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"--set {word!r}: write an option of the environment as KEY=VALUE")
        options[key] = parse_yaml(value, f"--set {word}: the value is not YAML")
    return options


SERVE = Group(
    "Serve a model, an environment or the shop: crbc serve model | openenv | webshop.",
    {"model": model, "openenv": openenv, "webshop": webshop},
)
