"""`crbc webshop serve`: the shop as a web site."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from crbc_rl.errors import ConfigError


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
