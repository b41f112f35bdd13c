"""The products of the shop, and the official files that they are read from.

Schema and cleaning are those of WebShop (Yao et al., 2022, princeton-nlp/WebShop, MIT). `items_shuffle` has
the products, `items_ins_v2` their attributes and synthetic instructions, `items_human_ins` the instructions
written by people.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from crbc_envs.errors import DataError
from crbc_envs.storage import files
from crbc_envs.storage.files import shown
from crbc_envs.webshop.products.records import Record, as_list

NO_ATTRIBUTES = ("DUMMY_ATTR",)
"""The attributes of a product for which the files give none."""

NO_PRICE = 100.0
"""The price in dollars of a product for which the files give none."""

MAX_ASIN = 10

FIX = "download the file again, then install it with: crbc data webshop --from DIR"

MEND = "correct the file, then install it with: crbc data webshop --from DIR"

Size = Literal["small", "full"]

SETS: dict[Size, tuple[str, str]] = {
    "small": ("items_shuffle_1000.json", "items_ins_v2_1000.json"),
    "full": ("items_shuffle.json", "items_ins_v2.json"),
}
"""The files of products and instructions: 1,000 products as in the paper, or all 1.18 million."""

HUMAN = "items_human_ins.json"
"""The instructions written by people, for both sets."""


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


Label = Literal["category", "query"]
"""A field of a product by which the shop lists products."""

ProductKind = tuple[str, str]
"""What a product is: its query, and its `product_category`."""


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

    def labelled(self, label: Label, text: str) -> Sequence[int]:
        """The numbers of the products with that category or query, in order."""

    def kinds(self) -> tuple[Sequence[int] | NDArray[np.int32], Sequence[ProductKind]]:
        """Every product's kind as its place in a list, by number, and that list."""

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

    def labelled(self, label: Label, text: str) -> list[int]:
        return [number for number, product in enumerate(self._products) if getattr(product, label) == text]

    def kinds(self) -> tuple[list[int], list[ProductKind]]:
        numbers: dict[ProductKind, int] = {}
        of = [numbers.setdefault((p.query, p.product_category), len(numbers)) for p in self._products]
        return of, list(numbers)

    def instructed(self, human: bool) -> Iterator[int]:
        for number, product in enumerate(self._products):
            if product.human if human else product.instruction is not None:
                yield number


# ---- from the official schema ---------------------------------------------------------------------


def products_of(
    items: Iterable[Any],
    instructions: Mapping[str, Any],
    human: Mapping[str, Any],
    where: str = "the catalogue",
) -> Iterator[Product]:
    """The products of the three official files. It skips repeated ASINs, "nan" and ASINs that are too long.

    ASINs become upper case, because a click on a product looks it up so.

    Raises a `DataError` that begins with `where` and names product and field, for a field that is missing or of
    another type, and for two products whose ASINs differ in case alone.
    """
    for name, records in ((_INSTRUCTIONS, instructions), (_HUMAN, human)):
        if not isinstance(records, Mapping):
            raise DataError(f"{where}: {name}is no object with a record per ASIN: {shown(records)}; {MEND}")
    seen: dict[str, str] = {}
    for place, item in enumerate(items):
        try:
            record = Record(item)
            asin = record.text("asin")
            if asin == "nan" or len(asin) > MAX_ASIN:
                continue
            code = asin.upper()
            if code not in seen:
                seen[code] = asin
                yield product_of(item, instructions.get(asin, {}), human.get(asin, ()))
            elif seen[code] != asin:
                raise ValueError(f"asin: it differs in case alone from that of another product, {shown(seen[code])}")
        except ValueError as error:
            name = shown(item["asin"]) if isinstance(item, Mapping) and "asin" in item else "without asin"
            raise DataError(f"{where}: item {place} ({name}) is not in the official schema: {error}; {MEND}") from error


def product_of(item: Any, instruction: Any, human: Any = ()) -> Product:
    """One product from its records in the three files.

    Raises a `ValueError` that begins with the field, for one that is missing or of another type.
    """
    record, instructed = Record(item), Record(instruction, _INSTRUCTIONS)
    bullets = record.raw("small_description")
    asked = "instruction_attributes"
    return Product(
        asin=_asin(record.text("asin")),
        title=record.text("name"),
        description="" if record.raw("full_description") is None else record.text("full_description"),
        bullets=record.texts("small_description") if isinstance(bullets, list) else (record.text("small_description"),),
        prices=prices_of(item.get("pricing")),
        options=_options(record.raw("customization_options")),
        attributes=instructed.texts("attributes") if "attributes" in instructed else NO_ATTRIBUTES,
        category=record.text("category"),
        query=record.text("query").lower().strip(),
        product_category=record.text("product_category"),
        image=_first(item.get("images") or ()),
        instruction=instructed.optional_text("instruction"),
        instruction_attributes=instructed.texts(asked) if instruction.get(asked) is not None else (),
        human=tuple(_human(Record(one, _HUMAN)) for one in as_list(human, _HUMAN.strip())),
    )


def prices_of(pricing: Any) -> tuple[float, ...]:
    """The one or two amounts of "$12.99" or "$10.00$25.00". `NO_PRICE` if there is no text, or an empty one.

    Raises `ValueError` for a text without amounts, and for another type.
    """
    if not pricing:
        return (NO_PRICE,)
    if not isinstance(pricing, str):
        raise ValueError(f"pricing: {shown(pricing)} is no text")
    parts = [re.sub(r"[^\d.]", "", part) for part in pricing.split("$")[1:]]
    if not parts or not all(_AMOUNT.fullmatch(part) for part in parts):
        raise ValueError(f"pricing: no amount in the price {shown(pricing)}")
    amounts = tuple(map(float, parts))[:2]
    if math.inf in amounts:
        raise ValueError(f"pricing: {shown(pricing)} is no price")
    return amounts


_INSTRUCTIONS, _HUMAN = "items_ins_v2 ", "items_human_ins "
_AMOUNT = re.compile(r"\d+\.?\d*|\.\d+")
_ASIN = re.compile("[0-9A-Z]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


def _asin(asin: str) -> str:
    """The ASIN in upper case: a click on a product looks it up so."""
    if not _ASIN.fullmatch(asin.upper()):
        raise ValueError(f"asin: {shown(asin)} is not made of letters from A to Z and digits")
    return asin.upper()


def _first(images: Any) -> str:
    first = next(iter(as_list(images, "images")), None) or ""
    if not isinstance(first, str):
        raise ValueError(f"images: {shown(first)} is no text")
    return first


def _options(groups: Any) -> dict[str, tuple[str, ...]]:
    """Group names and values in lower case.

    Values are part of page addresses. Their slashes are replaced therefore, and lone surrogates, which no address
    can hold. So are line breaks, because an action ends there.
    """
    if not groups:
        return {}
    field = "customization_options"
    if not isinstance(groups, Mapping):
        raise ValueError(f"{field}: it is no object with a list per group: {shown(groups)}")
    return {
        _addressable(name.lower()): tuple(_value(one, name) for one in as_list(values, f"{field} {shown(name)}"))
        for name, values in groups.items()
        if values is not None
    }


def _value(record: Any, group: str) -> str:
    if not isinstance(record, Mapping) or not isinstance(record.get("value"), str):
        raise ValueError(f"customization_options {shown(group)}: {shown(record)} has no text as value")
    return _addressable(record["value"].strip().replace("/", " | ").replace("\n", " ").lower())


def _addressable(text: str) -> str:
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _human(record: Record) -> HumanInstruction:
    return HumanInstruction(
        record.text("instruction"), record.texts("instruction_attributes"), record.texts("instruction_options")
    )


# ---- from a folder --------------------------------------------------------------------------------


def read_catalogue(folder: Path) -> MemoryCatalogue:
    """Read the catalogue of the official files in `folder` into memory. Human instructions are optional.

    Raises `DataError` if a file is missing or invalid.
    """
    paths = official_files(folder)
    paths += [folder / HUMAN] if (folder / HUMAN).is_file() else []
    items, instructions, written, *_ = [read_json(path) for path in paths] + [{}]
    if not isinstance(items, list) or not items:
        raise DataError(f"{paths[0]}: it is no list of products: {shown(items)}; {MEND}")
    catalogue = MemoryCatalogue(products_of(items, instructions, written, describe_files(paths)))
    if not len(catalogue):
        raise DataError(f"{paths[0]}: it holds no products; {MEND}")
    return catalogue


def describe_files(paths: Sequence[Path]) -> str:
    """The paths of official files, for error messages."""
    return " with ".join([str(paths[0]), *(path.name for path in paths[1:])])


def official_files(folder: Path) -> list[Path]:
    """The products and the instructions of the full set in `folder`, else of the small one, never of both."""
    half = ""
    for names in reversed(SETS.values()):
        missing = [name for name in names if not (folder / name).is_file()]
        if not missing:
            return [folder / name for name in names]
        half = half or missing[0] * (len(missing) < len(names))
    raise DataError(
        f"{folder}: there is no {half or ' or '.join(items for items, _ in reversed(SETS.values()))}; "
        "give the folder that holds WebShop's files: crbc data webshop --from DIR"
    )


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises `DataError` if it is not JSON."""
    try:
        return files.read_json(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as JSON: {error}; {FIX}") from error
