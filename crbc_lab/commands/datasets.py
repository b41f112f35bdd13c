"""Declares the command `crbc data` with its options."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import tyro

from crbc_lab.commands.console import console
from crbc_lab.commands.parse import Count, Index, MaybePath, Repeated, SomePath
from crbc_rl.errors import ConfigError

_GENERATE = "crbc data generate webshop --products 1000000 --to FOLDER"


def data(
    name: tyro.conf.Positional[str],
    what: tyro.conf.Positional[str | None] = None,
    /,
    sources: Annotated[tuple[tuple[SomePath, ...], ...], Repeated, tyro.conf.arg(name="from")] = (),
    products: Count = None,
    to: MaybePath = None,
    seed: Index = None,
) -> None:
    """Install a benchmark's official data, or check the installed data, or generate a large shop.

    `crbc data generate webshop --products 1000000 --to FOLDER` makes a shop that CRBC-WebShop-v0 opens with
    data_dir=FOLDER.

    Args:
        name: alfworld: the published games (json_2.1.1, release 2.1.1 or 2.1.2); webshop: the products and
            instructions, the small set of 1,000 or the full one; generate: make a generated shop instead.
        what: generate: webshop.
        sources: a folder with the data, or .tar, .tar.gz, .tar.xz or .zip archives of it; without sources,
            every installed file is compared with its checksum.
        products: generate: the number of products.
        to: generate: the new folder. A generated shop that is there is replaced.
        seed: generate: seed of the products; default 0, that of the embedded shop.
    """
    if name == "generate":
        if what != "webshop" or products is None or to is None or sources:
            raise ConfigError(f"crbc data generate makes a shop, with a number of products, in a folder: {_GENERATE}")
        from crbc_lab.commands.data import generate_shop

        generate_shop(to, products, seed or 0, console)
        return
    if what is not None or not (products is to is seed is None):
        raise ConfigError(f"crbc data {name} takes --from alone; to generate a shop: {_GENERATE}")
    from crbc_lab.commands.data import install_or_verify

    install_or_verify(name, tuple(Path(source) for source in chain(*sources)), console)
