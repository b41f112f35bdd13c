"""Generates a catalogue in the official schema. It needs no download.

Products come in families with the same kind, theme, series and name, but different brands, attributes, options and
prices. Several products are therefore close to every goal, and only some reach it.

This is the second edition of the shop. Lengths and counts follow the small official catalogue; `python -m
benchmarks.shops` compares them, and how far scripted shoppers get.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from crbc_envs.webshop.products import wording
from crbc_envs.webshop.products.draws import Draws
from crbc_envs.webshop.products.tables import CATEGORIES, Kind, invented_names, kinds
from crbc_envs.webshop.products.wording import Product

EDITION = 2
"""The number of the generated shop: it changes whenever the same seed gives other products."""

BLOCK = 1000
"""Products are drawn and shuffled in blocks. Each block has its own random stream.

A larger catalogue therefore begins with the products of a smaller one.
"""

_BRANDS_PER_CATEGORY = 400
_INSTRUCTED = 0.42
_HUMAN = 0.3
_FAMILY = (3, 4, 4, 4)
"""The sizes of families."""
_ASKED_OF_CORE = (2, 3)
"""How many of the family's attributes an instruction names, so that other products come close. It also names the
product's own."""
_OFFERED = 0.55
"""The probability that the products of a family have options."""
_SPREAD = ((0.0, 0.5), (0.5, 1.0), (1.0, 2.0))
"""Quantiles of the price of a product as a multiple of its family's."""
_STOCKED = 0.45
"""The probability that a product has one of its family's option values."""
_VALUES = ((0.0, 2), (0.25, 4), (0.5, 8), (0.75, 14), (0.95, 40), (1.0, 54))
"""Quantiles of the number of values of an option."""
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SPACE = 36**5


@dataclass(frozen=True, slots=True)
class Entry:
    """One product in the official schema: its records in items_shuffle and items_ins_v2, and its list in
    items_human_ins (often empty)."""

    item: dict[str, Any]
    instruction: dict[str, Any]
    human: list[dict[str, Any]]


def generate_catalogue(
    seed: int = 0, num_products: int = 1000, category: str | None = None
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Generate the contents of the three official files. They depend on the arguments alone.

    The files are items (items_shuffle), instructions (items_ins_v2) and human instructions (items_human_ins).
    `category`, one of `tables.CATEGORIES`, limits the catalogue to that category.
    """
    if num_products < 1:
        raise ValueError(f"num_products must be at least 1, got {num_products}")
    if category not in (None, *CATEGORIES):
        raise ValueError(f"category must be one of {', '.join(CATEGORIES)}; got {category!r}")
    entries = list(islice(generate_entries(seed, category), num_products))
    items = [entry.item for entry in entries]
    instructions = {entry.item["asin"]: entry.instruction for entry in entries}
    human = {entry.item["asin"]: entry.human for entry in entries if entry.human}
    return items, instructions, human


def generate_entries(seed: int, category: str | None = None) -> Iterator[Entry]:
    """An endless stream of products. A catalogue is its beginning."""
    draws = Draws([seed])
    names = draws.shuffled(invented_names(), 2 * _BRANDS_PER_CATEGORY * len(CATEGORIES))
    series = names[: len(names) // 2]
    brands = {category: names[len(series) :][i :: len(CATEGORIES)] for i, category in enumerate(CATEGORIES)}
    sold = [kind for kind in kinds() if category in (None, kind.category)]
    start = draws.between(0, _SPACE - 1)
    number = 0
    while True:
        draws = Draws([seed, 1 + number // BLOCK])
        members = list(islice(_members(draws, sold, brands, series), BLOCK))
        for member in draws.shuffled(members):
            yield _entry(draws, _asin(start, number), *member)
            number += 1


def _asin(start: int, number: int) -> str:
    """Ten characters, like an official ASIN. The number is scrambled, so that it does not reveal the family."""
    code = (start + number * 38_561_801) % _SPACE  # the factor is coprime to 36, so all codes differ
    digits = [_DIGITS[code // 36**place % 36] for place in reversed(range(5))]
    return "B0GEN" + "".join(digits)


def _members(
    draws: Draws, sold: list[Kind], brands: dict[str, list[str]], series: list[str]
) -> Iterator[tuple[Product, float]]:
    """Products with their prices, family by family; the kinds alternate."""
    while True:
        for kind in draws.shuffled(sold):
            yield from _family(draws, kind, brands[kind.category], draws.pick(series))


def _family(draws: Draws, kind: Kind, brands: list[str], series: str) -> Iterator[tuple[Product, float]]:
    theme, name = draws.pick(kind.themes), draws.pick(kind.names)
    core = [draws.pick(role) for role in (kind.qualities, kind.parts, kind.uses)]
    others = [attribute for attribute in kind.attributes if attribute not in core]
    low, high = kind.price
    price = low * (high / low) ** draws.uniform()
    groups = list(_groups(draws, kind))
    for brand in draws.shuffled(brands, draws.pick(_FAMILY)):
        attributes = (*core, draws.pick(others))
        options = tuple((group, tuple(_stock(draws, values))) for group, values in groups)
        product = Product(kind, brand, series, theme, name, attributes, options)
        yield product, price * draws.quantile(_SPREAD)


def _groups(draws: Draws, kind: Kind) -> Iterator[tuple[str, list[str]]]:
    """The options of a family, if it has any. The second group of a kind is offered by half of those families."""
    if draws.chance(_OFFERED):
        first = draws.between(0, 1)
        for place, (group, values) in enumerate(kind.groups):
            if len(kind.groups) == 1 or place == first or draws.chance(0.5):
                yield group, draws.some(values, int(draws.quantile(_VALUES)))


def _stock(draws: Draws, values: list[str]) -> list[str]:
    """Of the values of a family, those that a product has in stock."""
    return draws.some(values, max(2, sum(draws.chance(_STOCKED) for _ in values)))


def _entry(draws: Draws, asin: str, product: Product, price: float) -> Entry:
    kind = product.kind
    title, (bullets, description) = wording.title(draws, product), wording.texts(draws, product)
    item = {
        "asin": asin,
        "name": title,
        "full_description": description,
        "small_description": bullets,
        "pricing": _pricing(draws, price),
        "product_category": kind.breadcrumbs,
        "category": kind.category,
        "query": kind.query,
        "customization_options": {
            name: [{"value": value, "is_selected": False, "is_available": True} for value in values]
            for name, values in product.options
        }
        or "",
        "images": ["data:,"],  # an empty image, for which a browser sends no request
        "average_rating": round(3 + 2 * draws.uniform(), 1),
        "page": draws.between(1, 399),
    }
    instruction: dict[str, Any] = {"attributes": list(product.attributes)}
    if draws.chance(_INSTRUCTED):
        *core, own = product.attributes
        asked = {*draws.shuffled(core, draws.between(*_ASKED_OF_CORE)), own}
        attributes = [attribute for attribute in product.attributes if attribute in asked]
        instruction |= {
            "instruction": wording.instruction(draws, kind, attributes),
            "instruction_attributes": attributes,
        }
    human = [_human(draws, asin, product)] if draws.chance(_HUMAN) else []
    return Entry(item, instruction, human)


def _human(draws: Draws, asin: str, product: Product) -> dict[str, Any]:
    attributes = draws.some(product.attributes, draws.between(1, 2))
    chosen = [(group, draws.pick(values).lower()) for group, values in product.options if draws.chance(0.8)]
    return {
        "asin": asin,
        "instruction": wording.human_instruction(draws, product, attributes, chosen),
        "attributes": list(product.attributes),
        "options": [f"{group.lower()}: {value}" for group, value in chosen],
        "instruction_attributes": attributes,
        "instruction_options": [value for _, value in chosen],
        "worker_id": "generated",
        "assignment_id": f"generated-{asin}",
    }


def _pricing(draws: Draws, price: float) -> str:
    """A price, sometimes a range, rarely none (the original then shows $100.0)."""
    amount = int(price) + draws.pick((0.99, 0.99, 0.95, 0.49, 0.0))
    draw = draws.uniform()
    if draw < 0.02:
        return ""
    if draw < 0.11:
        return f"${amount:.2f} - ${amount + 2 + int(0.4 * price):.2f}"
    return f"${amount:.2f}"
