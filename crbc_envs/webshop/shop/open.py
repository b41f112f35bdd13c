"""Opens shops. Environments with the same arguments share one shop per process."""

from __future__ import annotations

import copyreg
from functools import lru_cache
from pathlib import Path
from typing import Literal

from crbc_envs.webshop.products.catalogue import Catalogue, MemoryCatalogue, products_of, read_catalogue
from crbc_envs.webshop.products.store import StoredCatalogue, is_store
from crbc_envs.webshop.search.engine import SearchEngine, build
from crbc_envs.webshop.shop.goals import MOST_SYNTHETIC, DrawnGoals, DrawnPrices, Kind
from crbc_envs.webshop.shop.official import installed, open_official
from crbc_envs.webshop.shop.shop import WINDOW, Shop
from crbc_envs.webshop.shop.stored import open_stored

DATA = ("generated", "official")

NUM_GENERATED = 1_000
"""The number of products in the embedded catalogue, the same as in the small official one."""


def open_shop(
    data: str = "generated",
    data_dir: str | None = None,
    goals: Kind = "synthetic",
    price_seed: int = 0,
    tagger: Literal["auto", "spacy", "fallback"] = "auto",
    category: str | None = None,
    per_page: int = WINDOW,
) -> Shop:
    """Open a shop with the embedded catalogue ("generated") or with official products.

    Official products are the installed ones, the small set before the full one; or those of `data_dir`, which is an
    installed set (".../webshop/full") or a folder of official files to read into memory. Generated products may also
    be those of a shop on disk, `data_dir` (`stored`). `category` limits the embedded catalogue to one category; the
    number of products stays the same.

    Raises `ValueError` for an invalid argument, and `DataError` if files are missing.
    """
    if data not in DATA:
        raise ValueError(f"data must be one of {', '.join(DATA)}; got {data!r}")
    if goals not in ("synthetic", "human"):
        raise ValueError(f"goals must be one of synthetic, human; got {goals!r}")
    if category is not None and (data != "generated" or data_dir is not None):
        raise ValueError(f"category is of the embedded catalogue; data is {data!r}, and data_dir {data_dir!r}")
    if data == "official" and data_dir is None:
        data_dir = str(installed())  # shops are kept by their arguments, and `$CRBC_DATA` may change
    shop = _kept(data, data_dir, goals, price_seed, tagger, category, per_page)
    shop.opened_with = data, data_dir, goals, price_seed, tagger, category, per_page
    return shop


copyreg.pickle(Shop, lambda shop: (open_shop, shop.opened_with))


@lru_cache(maxsize=4)
def _kept(
    data: str,
    data_dir: str | None,
    goals: Kind,
    price_seed: int,
    tagger: Literal["auto", "spacy", "fallback"],
    category: str | None,
    per_page: int,
) -> Shop:
    catalogue, engine, edition = _catalogue_and_engine(data, data_dir, category)
    if data == "generated" and isinstance(catalogue, StoredCatalogue):
        prices = DrawnPrices(catalogue, price_seed)
        drawn = prices, DrawnGoals(catalogue, goals, prices, price_seed)
        return Shop(catalogue, engine, goals, price_seed, tagger, per_page, drawn, edition)
    if goals == "synthetic" and len(catalogue) > MOST_SYNTHETIC:
        raise ValueError(
            f"{len(catalogue):,} products have millions of synthetic goals; use those written by people: goals='human'"
        )
    return Shop(catalogue, engine, goals, price_seed, tagger, per_page, edition=edition)


@lru_cache(maxsize=2)
def _catalogue_and_engine(
    data: str, data_dir: str | None, category: str | None
) -> tuple[Catalogue, SearchEngine, int | None]:
    """The products, their search engine, and the edition if they are generated."""
    folder = Path(data_dir).expanduser() if data_dir is not None else None
    if data == "generated" and folder is not None:
        stored, index, edition = open_stored(folder)
        return stored, SearchEngine(index), edition
    if data == "generated":
        from crbc_envs.webshop.products.generate import EDITION, generate_catalogue

        embedded = MemoryCatalogue(products_of(*generate_catalogue(0, NUM_GENERATED, category)))
        return embedded, SearchEngine(build(embedded)), EDITION
    if folder is None or is_store(folder):
        stored, index = open_official(folder)
        return stored, SearchEngine(index), None
    catalogue = read_catalogue(folder)
    return catalogue, SearchEngine(build(catalogue)), None
