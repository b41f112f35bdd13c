"""The kinds of products of the generated shop, read from the tables `words/*.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from crbc_envs.webshop.products.sentences import table

CATEGORIES = ("beauty", "electronics", "garden", "fashion", "grocery")
"""The five categories of the original."""

_LISTS = ("names", "themes", "is", "with", "for", "things")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of product, such as "shampoo".

    `qualities`, `parts` and `uses` are its attributes, by their place in "<quality> shampoo with <part> for <use>".
    `groups` are its option groups, (name, values). `things` are nouns that belong to it. `says` has sentences for some
    attributes, and `facts` has sentences for the kind; most kinds have none.
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
    things: tuple[str, ...]
    facts: tuple[str, ...]
    says: dict[str, str]

    @property
    def attributes(self) -> tuple[str, ...]:
        return self.qualities + self.parts + self.uses


@cache
def kinds() -> tuple[Kind, ...]:
    """All kinds of products, by category in the order of `CATEGORIES`."""
    pools = {key: (pool["name"], tuple(pool["values"])) for key, pool in table("options").items()}
    kinds = []
    for category in CATEGORIES:
        content = table(category)
        for query, row in content["kinds"].items():
            lists = {field: tuple(row[field].split(", ")) for field in _LISTS}
            attributes = lists["is"] + lists["with"] + lists["for"]
            kinds.append(
                Kind(
                    category=category,
                    query=query,
                    breadcrumbs=" › ".join([content["department"], *row["crumbs"].split(" > ")]),
                    names=lists["names"],
                    themes=lists["themes"],
                    qualities=lists["is"],
                    parts=lists["with"],
                    uses=lists["for"],
                    groups=tuple(pools[key] for key in row["options"].split(", ") if key),
                    price=(row["price"][0], row["price"][1]),
                    things=lists["things"],
                    facts=tuple(row.get("facts", ())),
                    says={
                        attribute: content["says"][attribute]
                        for attribute in attributes
                        if attribute in content["says"]
                    },
                )
            )
    return tuple(kinds)


@cache
def invented_names() -> tuple[str, ...]:
    """Invented names ("Calimont") for brands and series, always in the same order."""
    parts = table("brands")
    return tuple(a + b + c for a in parts["heads"] for b in parts["middles"] for c in parts["tails"])
