"""Products of others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from crbc_envs.webshop.products.catalogue import products_of
from crbc_envs.webshop.products.store import build_store
from hostile.case import HERE, Case

ITEM = {
    "asin": "B1",
    "name": "soap",
    "full_description": "",
    "small_description": ["mild"],
    "pricing": "$1.00",
    "customization_options": {},
    "category": "beauty",
    "query": "soap",
    "product_category": "beauty",
    "images": [],
}


def items(text: str) -> Callable[[Path], None]:
    """Lays out FOLDER/here/shop with the official files; the products are this text."""

    def make(folder: Path) -> None:
        shop = folder / HERE / "shop"
        shop.mkdir()
        (shop / "items_shuffle_1000.json").write_text(text)
        (shop / "items_ins_v2_1000.json").write_text("{}")

    return make


def store(change: Callable[[Path], None]) -> Callable[[Path], None]:
    """Lays out FOLDER/here/shop as a store of three products, after `change`."""

    def make(folder: Path) -> None:
        shop = folder / HERE / "shop"
        build_store(shop, products_of([ITEM | {"asin": f"B{n}"} for n in range(3)], {}, {}))
        change(shop)

    return make


def piped(shop: Path) -> None:
    (shop / "products.jsonl").unlink()
    os.mkfifo(shop / "products.jsonl")


def all_products(folder: Path) -> None:
    from crbc_envs.webshop.products.store import StoredCatalogue

    catalogue = StoredCatalogue(folder / HERE / "shop")
    for number in range(len(catalogue)):
        catalogue[number]


ITEMS: dict[str, Callable[[Path], None]] = {
    "deep": items("[" * 200_000),
}
STORES: dict[str, Callable[[Path], None]] = {
    "pipe": piped,
}
CASES = [
    *(
        Case(
            f"products-{name}", "products", 2, ("items_shuffle",), make=make, argv=("data", "webshop", "--from", "shop")
        )
        for name, make in ITEMS.items()
    ),
    *(
        Case(f"store-{name}", "products", 2, ("shop", "crbc data webshop"), make=store(change), probe=all_products)
        for name, change in STORES.items()
    ),
]
