"""The commands of `crbc serve`: a model as an endpoint, an environment for OpenEnv, the shop as a web site."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro
from rich.markup import escape

from crbc_lab.commands.console import console, serve_pages
from crbc_lab.commands.parse import Count, Group, Index, ModelPath, Port, Settings, Size
from crbc_rl.errors import ConfigError
from crbc_rl.names import ADAPTER, WARMSTART, Found, find

if TYPE_CHECKING:
    from crbc_rl.policies.transformers import TransformersPolicy


def model(
    folder: ModelPath,
    /,
    policy: Literal["best", "last", "start"] | None = None,
    base: str | None = None,
    name: str | None = None,
    port: Port = 8000,
    host: str = "127.0.0.1",
    exposed: bool = False,
    key_variable: str | None = None,
    seed: Index = 0,
) -> None:
    """Serve a model as an OpenAI-compatible endpoint: chats, completions, log-probabilities and seeds. Ctrl-C ends it.

    Args:
        folder: a model folder, a run, the folder of a LoRA adapter that peft wrote, or a config for its initial model:
            a path, or a name such as sokoban-tiny.
        policy: of a run: the best policy on validation, the last one saved, or the initial one; default last.
        base: of an adapter: the folder of its base model or a name of the hub; default the one that it names.
        name: the model's name for clients; default the folder's.
        port: the port; 0 selects a free one.
        host: 127.0.0.1 or ::1, which only this machine can reach.
        exposed: allow other hosts, and requests from other machines.
        key_variable: the environment variable with the key that requests must have; default none is asked for.
        seed: seed of the seeds that requests without one get.
    """
    found = named(folder, policy, base)  # before torch is imported
    from crbc_lab.model_server.server import address, bind, server
    from crbc_rl.policies.chat import OURS, read_key

    key = "" if key_variable is None else read_key(key_variable)
    with bind(host, port, exposed) as sock:
        served = load(folder, policy, base)
        name = name or folder.resolve().name
        # Its success by an endpoint is then that of `crbc eval`.
        ours = found.kind != "model" or (found.path / WARMSTART).is_file()
        owner = OURS if ours else "user"
        app = server(served, name, owner, seed=seed or 0, key=key, exposed=exposed)
        login = "" if key else ", without a login" if exposed else ""
        cut = served.max_prompt_tokens
        limit = f", prompts of at most {cut:,} tokens as in the run" if cut else ""
        place = f"[bold]{escape(address(sock))}[/] on {served.device}"
        console.print(
            f"model {escape(name)} at {place}{limit}{login}  (Ctrl-C ends it)", soft_wrap=True, highlight=False
        )
        with suppress(KeyboardInterrupt):
            app.run(sockets=[sock])
        console.print("closed")


def named(folder: Path, which: str | None, base: str | None) -> Found:
    """What is to be served. Raises `ConfigError` where it is nothing, and for options that it has no use for."""
    found = find(folder, "run", "model", "config")
    if which is not None and found.kind != "run":
        raise ConfigError(f"--policy {which}: {folder} is no run folder, leave the option out")
    if base is not None and not (found.path / ADAPTER).is_file():
        raise ConfigError(f"--base {base}: {folder} is no adapter, leave the option out")
    return found


def load(folder: Path, which: str | None, base: str | None = None) -> TransformersPolicy:
    """The policy of a model folder, `which` of a run, the initial one of a config, or an adapter's on its `base`."""
    import torch

    from crbc_rl.config import load_config
    from crbc_rl.policies.load import load_player, merged
    from crbc_rl.runs.folder import Run

    kind, folder = named(folder, which, base)
    if kind == "run":
        run = Run.open(folder)
        torch.set_num_threads(run.config.threads)
        return run.policy(which or "last")
    if kind == "config":
        return Run(folder, load_config(folder)).policy("start")
    return load_player(merged(folder, base) if (folder / ADAPTER).is_file() else folder)


def openenv(
    env: tyro.conf.Positional[str],
    /,
    prompt: str = "text",
    set: Settings = (),
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
    from crbc_lab.commands.bench import arguments
    from crbc_rl.adapters.openenv_server import serve

    serve(
        env,
        {"prompt": prompt, **arguments(tuple(chain(*set)))},
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
        seed: seed of the goals of "Draw a goal".
    """
    from crbc_envs.webshop.env import WebShopEnv
    from crbc_envs.webshop.site.server import Site, SiteServer

    try:
        env = WebShopEnv(split, data=data, data_dir=data_dir, goals=goals, panel=panel, price_seed=price_seed or 0)
        server = SiteServer(Site(env.shop, env.panel, seed or 0), host, port, exposed)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(f"cannot serve at {host} port {port}: {error.strerror}; choose another --port") from error
    what = f"{len(env.shop.catalogue):,} products and {len(env.panel):,} goals"
    serve_pages(console, server, what)


SERVE = Group(
    "Serve a model, an environment or the shop: crbc serve model | openenv | webshop.",
    {"model": model, "openenv": openenv, "webshop": webshop},
)
