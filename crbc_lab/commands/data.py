"""`crbc data`: installs or checks a benchmark's official data, or generates a large shop."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import gymnasium
import tyro
from rich.console import Console

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.errors import DataError
from crbc_envs.storage.datasets import Dataset, install, read_manifest, verify
from crbc_envs.vector.members import creator, declared
from crbc_lab.commands.console import console, print_line, progress_bar
from crbc_lab.commands.parse import Count, Index, MaybePath, Repeated, SomePath
from crbc_rl.errors import ConfigError, nearest

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
        generate_shop(to, products, seed or 0)
        return
    if what is not None or not (products is to is seed is None):
        raise ConfigError(f"crbc data {name} takes --from alone; to generate a shop: {_GENERATE}")
    install_or_verify(name, tuple(Path(source) for source in chain(*sources)), console)


def datasets() -> dict[str, Dataset]:
    """The datasets that the suite's environments declare, by name."""
    own = (spec for spec in gymnasium.registry.values() if spec.id.startswith("CRBC-"))
    declarations = (declared(creator(spec), "dataset") for spec in own)
    return {dataset.name: dataset for dataset in declarations if dataset is not None}


def install_or_verify(name: str, sources: Sequence[Path], console: Console) -> None:
    """Install `sources`, or without sources compare every installed file with its checksum. Prints the result.

    Raises `ConfigError` for an unknown name, and `DataError` as `install` and `verify` do.
    """
    from crbc_rl.config.revisions import digest_of

    known = datasets()
    if name not in known:
        raise ConfigError(f"there is no dataset {name!r}{nearest(name, known)}")
    dataset = known[name]
    with progress_bar(console, f"{'installing' if sources else 'checking'} {name}") as progress:
        result = install(dataset, sources, progress) if sources else verify(dataset, progress)
    digest = digest_of(read_manifest(dataset.folder))
    print_line(console, f"{result}\n{dataset.folder}\nenv.revision: {digest}")


def generate_shop(folder: Path, num_products: int, seed: int) -> None:
    """Make a generated shop in `folder`. Raises `ConfigError` and `DataError` as `make_shop` does, and `OSError`."""
    from crbc_envs.webshop.shop.stored import make_shop

    begun = time.monotonic()
    with progress_bar(console, "making a shop") as progress:
        try:
            size = make_shop(folder, num_products, seed, lambda what, done, total: progress(done, total))
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            raise ConfigError(f"--products {num_products}: {error}") from error
    took = f"{num_products:,} products, {size / 1e6:,.0f} MB, {time.monotonic() - begun:.0f} s"
    use = f'gymnasium.make("CRBC-WebShop-v0", data_dir={str(folder)!r})'
    print_line(console, f"{took}\n{folder}\n{use}")
