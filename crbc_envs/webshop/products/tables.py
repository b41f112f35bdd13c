"""The kinds of products of the generated shop, read from the tables `words/*.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

CATEGORIES = ("beauty", "electronics", "garden", "fashion", "grocery")
"""The five categories of the original."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of product, such as "shampoo".

    `qualities`, `parts` and `uses` are its attributes, by their place in "<quality> shampoo with <part> for <use>".
    `groups` are its option groups, (name, values).
    """

    category: str
    query: str
    breadcrumbs: str
    names: tuple[str, ...]
    themes: tuple[str, ...]
    qualities: tuple[str, ...]
    parts: tuple[str, ...]
    uses: tuple[str, ...]
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    price: tuple[int, int]
    facts: tuple[str, ...]
    says: dict[str, str]

    @property
    def attributes(self) -> tuple[str, ...]:
        return self.qualities + self.parts + self.uses


@cache
def kinds() -> tuple[Kind, ...]:
    """All kinds of products, by category in the order of `CATEGORIES`."""
    pools = {key: (pool["name"], tuple(pool["values"])) for key, pool in _table("options").items()}
    found = []
    for category in CATEGORIES:
        table = _table(category)
        for row in table["kind"]:
            attributes = [*row["is"], *row["with"], *row["for"]]
            found.append(
                Kind(
                    category=category,
                    query=row["query"],
                    breadcrumbs=" › ".join([table["department"], *row["crumbs"]]),
                    names=tuple(row["names"]),
                    themes=tuple(row["themes"]),
                    qualities=tuple(row["is"]),
                    parts=tuple(row["with"]),
                    uses=tuple(row["for"]),
                    groups=tuple(pools[key] for key in row["options"]),
                    price=(row["price"][0], row["price"][1]),
                    facts=tuple(row["facts"]),
                    says={attribute: table["says"][attribute] for attribute in attributes},
                )
            )
    return tuple(found)


def brand_names() -> list[str]:
    """All brand names ("Calimont"), always in the same order. They are invented."""
    table = _table("brands")
    return [head + middle + tail for head in table["heads"] for middle in table["middles"] for tail in table["tails"]]


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads((files("crbc_envs.webshop.products") / "words" / f"{name}.toml").read_text(encoding="utf-8"))
