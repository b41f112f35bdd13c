"""`crbc data`: official data put in place, or checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from crbc_envs.alfworld.games.official import DATASET as ALFWORLD
from crbc_envs.storage.datasets import Dataset, install, verify
from crbc_envs.webshop.products.official import DATASET as WEBSHOP

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in (ALFWORLD, WEBSHOP)}


def install_or_verify(name: str, sources: Sequence[Path], console: Console) -> None:
    """Install `sources`, or with none compare every installed file with its checksum; say what is there.

    Raises `DataError`, as `install` and `verify` do.
    """
    dataset = DATASETS[name]
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"{'installing' if sources else 'checking'} {name}", total=None)

        def tell(done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total)

        found = install(dataset, sources, tell) if sources else verify(dataset, tell)
    console.print(f"{found}\n{dataset.folder}", soft_wrap=True, highlight=False)
