"""`crbc serve model` and `crbc serve webshop`: a model as an endpoint, and the shop as a web site."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from crbc_rl.errors import ConfigError

if TYPE_CHECKING:
    from crbc_rl.policies.transformers import TransformersPolicy


def serve_model(
    folder: Path,
    which: str | None,
    name: str | None,
    host: str,
    port: int,
    exposed: bool,
    key_variable: str | None,
    seed: int,
    console: Console,
) -> None:
    """Serve a model folder, or the policy `which` of a run folder, until Ctrl-C.

    Raises `ConfigError` for what is neither, a host that other machines can reach, a port in use, or a missing key.
    """
    from crbc_lab.model_server.server import address, bind, server
    from crbc_rl.policies.chat import read_key

    key = "" if key_variable is None else read_key(key_variable)
    with bind(host, port, exposed) as sock:
        policy = load(folder, which)
        name = name or folder.resolve().name
        served = server(policy, name, sock, seed=seed, key=key, exposed=exposed)
        login = "" if key else ", without a login" if exposed else ""
        cut = policy.max_prompt_tokens
        limit = f", prompts of at most {cut:,} tokens as in the run" if cut else ""
        place = f"[bold]{escape(address(sock))}[/] on {policy.device}"
        console.print(
            f"model {escape(name)} at {place}{limit}{login}  (Ctrl-C ends it)",
            soft_wrap=True,
            highlight=False,
        )
        with suppress(KeyboardInterrupt):
            served.run(sockets=[sock])
        console.print("closed")


def load(folder: Path, which: str | None) -> TransformersPolicy:
    """The policy of a model folder, or `which` of a run folder. Raises `ConfigError` where it is neither."""
    import torch

    from crbc_rl.policies.load import load_policy
    from crbc_rl.runs.folder import Run

    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder: name a model folder or a run folder")
    if (folder / "config.yaml").is_file():
        run = Run.open(folder)
        torch.set_num_threads(run.config.threads)
        policy = run.policy(which or "last")
    elif which is not None:
        raise ConfigError(f"--policy {which}: {folder} is no run folder, leave the option out")
    elif not (folder / "config.json").exists():
        raise ConfigError(f"{folder} is neither a model folder nor a run folder: no config.json, no config.yaml")
    else:
        policy = load_policy(folder)
    if torch.cuda.is_available():
        policy.model.to("cuda")
    return policy


def serve_shop(shop: dict[str, Any], host: str, port: int, exposed: bool, seed: int, console: Console) -> None:
    """Serve the shop of `WebShopEnv(**shop)` until Ctrl-C.

    Raises `ConfigError` for an invalid argument, a host that other machines can reach, or a port in use, and
    `DataError` where products are missing.
    """
    from crbc_envs.webshop.env import WebShopEnv
    from crbc_envs.webshop.site.server import Site, SiteServer

    try:
        env = WebShopEnv(**shop)
        server = SiteServer(Site(env.shop, env.panel, seed), host, port, exposed)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(f"cannot serve at {host} port {port}: {error.strerror}; choose another --port") from error
    console.print(
        f"{len(env.shop.catalogue):,} products and {len(env.panel):,} goals at [bold]{escape(server.url)}[/]  "
        "(Ctrl-C ends it)",
        soft_wrap=True,
        highlight=False,
    )
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        console.print("closed")
    finally:
        server.server_close()
