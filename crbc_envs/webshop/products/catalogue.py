"""The products of the shop, and the official files that they are read from.

Schema and cleaning are those of WebShop (Yao et al., 2022, princeton-nlp/WebShop, MIT). `items_shuffle` has
the products, `items_ins_v2` their attributes and synthetic instructions, `items_human_ins` the instructions
written by people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from crbc_envs.errors import DataError
from crbc_envs.storage import files
from crbc_envs.storage.files import shown

NO_ATTRIBUTES = ("DUMMY_ATTR",)
"""The attributes of a product for which the files give none."""

NO_PRICE = 100.0
"""The price in dollars of a product for which the files give none."""

MAX_ASIN = 10

MOST_OPTIONS = 10_000
"""The most option values of a product."""

HIGHEST_PRICE = 1e9

FIX = "download the file again, then install it with: crbc data webshop --from DIR"

FILES = {
    "items": ("items_shuffle.json", "items_shuffle_1000.json"),
    "instructions": ("items_ins_v2.json", "items_ins_v2_1000.json"),
    "human": ("items_human_ins.json",),
}
"""The official files by content. The first existing name is read."""


@dataclass(frozen=True, slots=True)
class HumanInstruction:
    """An instruction written by a person: the text, and the attributes and option values in it."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """One product.

    `prices` has one amount in dollars, or the two ends of a range. `options` maps the name of each option group to
    its values, both in lower case. `instruction` is the synthetic instruction, or None.
    """

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    prices: tuple[float, ...]
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    category: str
    query: str
    product_category: str
    image: str = ""
    instruction: str | None = None
    instruction_attributes: tuple[str, ...] = ()
    human: tuple[HumanInstruction, ...] = ()

    @property
    def price_tag(self) -> str:
        """The price as pages show it: "$12.99" or "$10.0 to $25.0"."""
        return " to ".join(f"${price}" for price in self.prices)


class Catalogue(Protocol):
    """Products by number, 0 to len - 1, in the order of the file. It is read-only and shared by all sessions."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> Product: ...

    def find(self, asin: str) -> int | None:
        """The number of the product with that ASIN."""

    def asins(self) -> Sequence[str]:
        """The ASINs by number."""

    def prices(self) -> Iterable[tuple[float, ...]]:
        """Every product's `prices`, by number."""

    def instructed(self, human: bool) -> Iterable[int]:
        """The numbers of the products with a human instruction, or with a synthetic one, in order."""


class MemoryCatalogue:
    """A catalogue in memory, as a list."""

    def __init__(self, products: Iterable[Product]) -> None:
        self._products = list(products)
        self._numbers = {product.asin: number for number, product in enumerate(self._products)}

    def __len__(self) -> int:
        return len(self._products)

    def __getitem__(self, number: int) -> Product:
        return self._products[number]

    def find(self, asin: str) -> int | None:
        return self._numbers.get(asin)

    def asins(self) -> list[str]:
        return [product.asin for product in self._products]

    def prices(self) -> Iterator[tuple[float, ...]]:
        return (product.prices for product in self._products)

    def instructed(self, human: bool) -> Iterator[int]:
        for number, product in enumerate(self._products):
            if product.human if human else product.instruction is not None:
                yield number


# ---- from the official schema ---------------------------------------------------------------------


def products_of(
    items: Iterable[Mapping[str, Any]],
    instructions: Mapping[str, Mapping[str, Any]],
    human: Mapping[str, Sequence[Mapping[str, Any]]],
    where: str = "the catalogue",
) -> Iterator[Product]:
    """The products of the three official files. It skips repeated ASINs, "nan" and ASINs that are too long.

    Raises a `DataError` that begins with `where`, for an item with a missing field or a field of another type.
    """
    seen = set()
    for place, item in enumerate(items):
        try:
            asin = item["asin"]
            if asin != "nan" and len(asin) <= MAX_ASIN and asin not in seen:
                seen.add(asin)
                yield product_of(item, instructions.get(asin, {}), human.get(asin, ()))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            why = f"{type(error).__name__} {str(error)[:200]!r}"
            raise DataError(f"{where}: item {place} is not in the official schema: {why}; {FIX}") from error


def product_of(
    item: Mapping[str, Any], instruction: Mapping[str, Any], human: Sequence[Mapping[str, Any]] = ()
) -> Product:
    """One product from its records in the three files."""
    bullets = item["small_description"]
    product = Product(
        asin=item["asin"],
        title=item["name"],
        description=item["full_description"] or "",
        bullets=tuple(bullets) if isinstance(bullets, list) else (bullets,),
        prices=prices_of(item.get("pricing")),
        options=_options(item["customization_options"]),
        attributes=tuple(instruction.get("attributes", NO_ATTRIBUTES)),
        category=item["category"],
        query=item["query"].lower().strip(),
        product_category=item["product_category"],
        image=next(iter(item.get("images") or ()), "") or "",
        instruction=instruction.get("instruction"),
        instruction_attributes=tuple(instruction.get("instruction_attributes") or ()),
        human=tuple(
            HumanInstruction(one["instruction"], *(tuple(one[f"instruction_{what}"]) for what in _NAMED))
            for one in human
        ),
    )
    check_product(product)
    return product


def check_product(product: Product) -> None:
    """Raise `ValueError` for a value of another type, a price that is no amount, and far too many options."""
    people = [part for one in product.human for part in (one.text, *one.attributes, *one.options)]
    texts = [product.asin, product.title, product.description, product.category, product.query, product.image]
    texts += [product.product_category, product.instruction or "", *product.bullets, *product.attributes]
    texts += [*product.instruction_attributes, *product.options, *people]
    values = [value for values in product.options.values() for value in values]
    wrong = next((text for text in (*texts, *values) if not isinstance(text, str)), None)
    if wrong is not None:
        raise ValueError(f"{shown(wrong)} is no text")
    if len(values) > MOST_OPTIONS:
        raise ValueError(f"a product has {len(values):,} option values, and at most {MOST_OPTIONS:,} are read")
    amounts = product.prices
    if len(amounts) > 2 or not all(isinstance(a, float) and 0 <= a <= HIGHEST_PRICE for a in amounts):
        raise ValueError(f"{shown(amounts)} is no price")


_NAMED = ("attributes", "options")


def prices_of(pricing: str | None) -> tuple[float, ...]:
    """The one or two amounts of "$12.99" or "$10.00$25.00". `NO_PRICE` if the text is empty.

    Raises `ValueError` for a text without amounts.
    """
    if not pricing:
        return (NO_PRICE,)
    amounts = tuple(float(re.sub(r"[^\d.]", "", part)) for part in pricing.split("$")[1:])[:2]
    if not amounts:
        raise ValueError(f"no amount in the price {pricing!r}")
    return amounts


def _options(groups: Mapping[str, Any] | str | None) -> dict[str, tuple[str, ...]]:
    """Group names and values in lower case. Slashes in values are replaced, as values are part of page addresses."""
    if not groups or isinstance(groups, str):
        return {}
    return {
        name.lower(): tuple(value["value"].strip().replace("/", " | ").lower() for value in values)
        for name, values in groups.items()
        if values is not None
    }


# ---- from a folder --------------------------------------------------------------------------------


def read_catalogue(folder: Path) -> MemoryCatalogue:
    """Read the catalogue of the official files in `folder` into memory. Human instructions are optional.

    Raises `DataError` if a file is missing or invalid.
    """
    paths = [official_file(folder, what) for what in ("items", "instructions")]
    human = folder / FILES["human"][0]
    paths += [human] if human.is_file() else []
    contents = [read_json(path) for path in paths] + [{}]
    return MemoryCatalogue(products_of(*contents[:3], where=describe_files(paths)))


def describe_files(paths: Sequence[Path]) -> str:
    """The paths of official files, for error messages."""
    return " with ".join([str(paths[0]), *(path.name for path in paths[1:])])


def official_file(folder: Path, what: str) -> Path:
    """The official file of `folder` that holds `what`, a key of `FILES`."""
    for name in FILES[what]:
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        f"{folder}: there is no {' or '.join(FILES[what])}; "
        "give the folder that holds WebShop's files: crbc data webshop --from DIR"
    )


def read_json(path: Path) -> Any:
    """Read a JSON file of at most `files.LARGEST_JSON` bytes. Raises `DataError` if it is not JSON."""
    try:
        return files.read_json(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as JSON: {error}; {FIX}") from error
