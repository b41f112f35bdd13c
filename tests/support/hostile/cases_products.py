"""Products of others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

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


def items(text: str | Callable[[], str]) -> Callable[[Path], None]:
    """Lays out FOLDER/here/shop with the official files; the products are this text."""

    def make(folder: Path) -> None:
        shop = folder / HERE / "shop"
        shop.mkdir()
        (shop / "items_shuffle_1000.json").write_text(text if isinstance(text, str) else text())
        (shop / "items_ins_v2_1000.json").write_text("{}")

    return make


def item(**changed: Any) -> Callable[[Path], None]:
    return items(json.dumps([ITEM | changed]))


def store(change: Callable[[Path], None]) -> Callable[[Path], None]:
    """Lays out FOLDER/here/shop as a store of three products, after `change`."""

    def make(folder: Path) -> None:
        shop = folder / HERE / "shop"
        build_store(shop, products_of([ITEM | {"asin": f"B{n}"} for n in range(3)], {}, {}))
        change(shop)

    return make


def saved(name: str, values: Any) -> Callable[[Path], None]:
    return lambda shop: np.save(shop / f"{name}.npy", np.asarray(values))


def piped(shop: Path) -> None:
    (shop / "products.jsonl").unlink()
    os.mkfifo(shop / "products.jsonl")


def second_line(text: str) -> Callable[[Path], None]:
    """The second product is this text, with offsets that fit."""

    def change(shop: Path) -> None:
        lines = (shop / "products.jsonl").read_bytes().splitlines(keepends=True)
        lines[1] = text.encode() + b"\n"
        (shop / "products.jsonl").write_bytes(b"".join(lines))
        np.save(shop / "starts.npy", np.cumsum([0, *map(len, lines)]).astype("<i8"))

    return change


def all_products(folder: Path) -> None:
    from crbc_envs.webshop.products.store import StoredCatalogue

    catalogue = StoredCatalogue(folder / HERE / "shop")
    for number in range(len(catalogue)):
        catalogue[number]


OPTIONS = {"size": [{"value": f"{n}"} for n in range(300_000)]}
ITEMS: dict[str, Callable[[Path], None]] = {
    "deep": items("[" * 200_000),
    "number-of-6000-digits": items('[{"asin": ' + "9" * 6_000 + "}]"),
    "entry-of-100-mb": items(lambda: "[[" + "1," * 50_000_000),
    "blanks-of-300-mb": items(lambda: "[" + " " * 300_000_000 + "x"),
    "price-of-400-digits": item(pricing="$" + "9" * 400),
    "title-is-a-list": item(name=["soap"]),
    "asin-is-a-list": item(asin=["x"]),
    "options-300-thousand": item(customization_options=OPTIONS),
    "query-is-a-number": item(query=1),
    "bullets-of-lists": item(small_description=[[1]]),
}
STORES: dict[str, Callable[[Path], None]] = {
    "offsets-outside": saved("starts", np.array([0, 10**12, 5, 300], "<i8")),
    "offsets-negative": saved("starts", np.array([0, -5, 5, 300], "<i8")),
    "order-outside": saved("sorted", np.array([0, 1, 10**6], "<i4")),
    "prices-of-texts": saved("prices", np.array([["a", "b"]] * 3)),
    "count-is-a-text": lambda shop: (shop / "store.json").write_text('{"version": 1, "products": "3"}'),  # type: ignore[dict-item, return-value]
    "pipe": piped,
    "product-deep": second_line("[" * 100_000),
    "product-is-a-list": second_line("[1]"),
    "product-with-nan": second_line(
        '{"asin":"B1","title":"","description":"","bullets":[],"prices":[NaN],"options":{},"attributes":[],'
        '"category":"","query":"","product_category":""}'
    ),
}
INSTALL = "data", "webshop", "--from"
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
