"""A catalogue of six products written by hand in the official schema, and where the real one is."""

from __future__ import annotations

import json

import pytest
from paths import SHARED

from crbc_envs.webshop.products.catalogue import MemoryCatalogue, products_of
from crbc_envs.webshop.search.engine import SearchEngine, build
from crbc_envs.webshop.shop import official
from crbc_envs.webshop.shop.session import Session
from crbc_envs.webshop.shop.shop import Shop

PUBLISHED = SHARED / "data" / "webshop"
needs_published = pytest.mark.skipif(
    not (PUBLISHED / "items_shuffle_1000.json").is_file(), reason="the small official catalogue is not here"
)


def values(*texts):
    return [{"value": text} for text in texts]


def item(asin, name, **fields):
    return {
        "asin": asin,
        "name": name,
        "full_description": "",
        "small_description": [],
        "customization_options": "",
        "pricing": "$20.00",
        "category": "fashion",
        "query": "shoes",
        "product_category": "Clothing › Men › Shoes",
        "images": ["data:,"],
        **fields,
    }


ITEMS = [
    item(
        "B000000001",
        "Tern Running Shoe",
        full_description="A light shoe.",
        small_description=["Rubber sole", "", "Machine wash"],
        customization_options={
            "Color": values("Dark Blue", "Red/White"),
            "Size": values("9", '28" wide', "small"),
            "Fit": None,
        },
        pricing="$30.00$50.00",
    ),
    item("B000000002", "Tern Walking Shoe", small_description=["Rubber sole"], pricing="$25.5"),
    item("B000000003", "Solid Oak Console Table", query="console tables", product_category="Home › Furniture › Tables"),
    item("B000000004", "Shoe Rack", query=" Shoe Racks ", product_category="Home › Furniture › Racks", pricing=""),
    item("B000000001", "A second product of that name"),
    item("nan", "No ASIN"),
    item("B00000000055", "Too long an ASIN"),
    item("B000000005", "Wedge Sandal", pricing="$995.00", small_description="One text"),
]

INSTRUCTIONS = {
    "B000000001": {
        "attributes": ["rubber sole", "machine wash"],
        "instruction": "Find me shoes with rubber sole",
        "instruction_attributes": ["rubber sole"],
    },
    "B000000002": {"attributes": ["rubber soles"]},
    "B000000005": {
        "attributes": ["open toe"],
        "instruction": "Find me sandals",
        "instruction_attributes": ["open toe"],
    },
}

HUMAN = {
    "B000000001": [
        {"instruction": "a red shoe.", "instruction_attributes": ["rubber sole"], "instruction_options": ["red"]},
        {"instruction": "anything", "instruction_attributes": [], "instruction_options": []},
    ]
}


def write_official(folder, contents, size="small"):
    """The official files of a set, of products, instructions and, where they are given, those by people."""
    folder.mkdir(exist_ok=True)
    for name, content in zip((*official.SETS[size], official.HUMAN), contents, strict=False):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def catalogue():
    return MemoryCatalogue(products_of(ITEMS, INSTRUCTIONS, HUMAN))


def shop(**options):
    products = catalogue()
    return Shop(products, SearchEngine(build(products)), **{"tagger": "fallback", **options})


def session(goal=0, **options):
    opened = shop(**options)
    return Session(opened, opened.goals[goal], "me")


def published(name):
    return json.loads((PUBLISHED / name).read_text(encoding="utf-8"))
