"""Makes and opens generated shops on disk, which may have millions of products.

Such a shop is a folder: a store of products, its search index in `index`, and `generated.json`. Its prices and goals
are drawn when they are asked for (`goals.DrawnGoals`), so that it opens in a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from crbc_envs.errors import DataError
from crbc_envs.storage.files import clear_left, refuse_link, replacing_folder
from crbc_envs.webshop.products.catalogue import Product, product_of
from crbc_envs.webshop.products.generate import EDITION, generate_entries
from crbc_envs.webshop.products.store import StoredCatalogue, is_store, write_store
from crbc_envs.webshop.search import engine as search
from crbc_envs.webshop.shop.official import GENERATED, INDEX

MOST = 3_000_000
"""The most products of a shop."""

COMMAND = "crbc data generate webshop --products 1000000 --to FOLDER"

Progress = Callable[[str, int, int], None]
"""Called with what is being made, the products done, and their number."""


def make_shop(
    folder: Path, num_products: int, seed: int = 0, on_progress: Progress = lambda what, done, total: None
) -> int:
    """Make a shop of generated products in `folder`. Returns its bytes on disk.

    It is made in a temporary folder beside it and then renamed, so an interrupted run leaves nothing that opens.
    Raises `ValueError` for a number of products that is out of range, and `DataError` where a folder or a link is in
    the way.
    """
    if not 1 <= num_products <= MOST:
        raise ValueError(f"a shop has 1 to {MOST:,} products, not {num_products:,}")
    folder = refuse_link(folder).absolute()
    if folder.exists() and not (folder / GENERATED).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder}: not empty, and no generated shop; name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    clear_left(folder)
    with replacing_folder(folder) as fresh:
        write_store(fresh, _products(seed, num_products, on_progress))
        index = search.build(StoredCatalogue(fresh), partial(on_progress, "index"))
        (fresh / INDEX).mkdir()
        index.save(fresh / INDEX)
        made = {"products": num_products, "seed": seed, "edition": EDITION}
        (fresh / GENERATED).write_text(json.dumps(made) + "\n", encoding="utf-8")
        return sum(path.stat().st_size for path in fresh.rglob("*"))


def _products(seed: int, count: int, on_progress: Progress) -> Iterator[Product]:
    for number, entry in enumerate(islice(generate_entries(seed), count)):
        if number % 1000 == 0:
            on_progress("products", number, count)
        yield product_of(entry.item, entry.instruction, entry.human)


def open_stored(folder: Path) -> tuple[StoredCatalogue, search.Index, int]:
    """Open a generated shop: its products, their index, and its edition (`generate.EDITION`).

    Raises `DataError` if the folder holds none, or a damaged one.
    """
    if not (folder / GENERATED).is_file():
        instead = "; open it with data='official'" if is_store(folder) else f"; make one with: {COMMAND}"
        raise DataError(f"{folder}: no generated shop{instead}")
    try:
        catalogue, index = StoredCatalogue(folder), search.Index.open(folder / INDEX)
        index.check(catalogue)
        edition = _edition(folder / GENERATED)
    except DataError as error:
        raise DataError(f"{str(error).partition(';')[0]}; make the shop again with: {COMMAND}") from error
    return catalogue, index, edition


def _edition(path: Path) -> int:
    try:
        made = json.loads(path.read_text(encoding="utf-8"))
        return int(made.get("edition", 1))
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not what a generated shop writes") from error
