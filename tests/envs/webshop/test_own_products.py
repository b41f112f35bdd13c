"""Products files of others: one error that names product and field, and what was installed stays."""

from __future__ import annotations

import copy
import json

import pytest
from webshop_catalogue import write_official

from crbc_envs.errors import DataError
from crbc_envs.storage.datasets import install
from crbc_envs.webshop.products.catalogue import MemoryCatalogue, products_of, read_catalogue
from crbc_envs.webshop.products.generate import generate_catalogue
from crbc_envs.webshop.search.engine import SearchEngine, build
from crbc_envs.webshop.shop.goals import MOST_GOALS
from crbc_envs.webshop.shop.official import DATASET, SETS
from crbc_envs.webshop.shop.shop import Shop


def stock():
    """The three files, of a few products: the first has options, and instructions of both kinds."""
    items, instructions, human = copy.deepcopy(generate_catalogue(2, 40))
    asked = [item for item in items if instructions[item["asin"]].get("instruction")]
    chosen = next(item for item in asked if item["asin"] in human and item["customization_options"])
    few = [chosen, *[item for item in asked if item is not chosen][:2]]
    return [few, {item["asin"]: instructions[item["asin"]] for item in few}, {chosen["asin"]: human[chosen["asin"]]}]


def swapped(files, file, path, value):
    """The files with another value at a path."""
    files = copy.deepcopy(files)
    at = files[file] if path else files
    for key in path[:-1]:
        at = at[key]
    at[path[-1] if path else file] = value
    return json.loads(json.dumps(files))


def tree(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "home"))
    install(DATASET, [write_official(tmp_path / "good", stock())])
    return tmp_path / "home" / "webshop"


BAD = [
    (0, (0, "name"), None, "name: None is no text"),
    (0, (2, "customization_options"), {"size": "small"}, "customization_options 'size': 'small' is no list"),
    (0, (1, "images"), "x.jpg", "images: 'x.jpg' is no list"),
    (0, (), 5, "items_shuffle_1000.json"),
    (0, (), [], "items_shuffle_1000.json"),
    (1, (), [1], "items_ins_v2_1000.json"),
    (2, (), [1], "items_human_ins"),
]


@pytest.mark.parametrize(("file", "path", "value", "said"), BAD)
def test_a_bad_file_leaves_the_good_store_byte_for_byte(tmp_path, home, file, path, value, said):
    before = tree(home.parent)
    bad = write_official(tmp_path / "bad", swapped(stock(), file, path, value))
    with pytest.raises(DataError, match=said) as caught:
        install(DATASET, [bad])
    assert ".tmp" not in str(caught.value)
    assert tree(home.parent) == before
    with pytest.raises(DataError, match=said):
        read_catalogue(bad)


@pytest.mark.parametrize("full", [False, True])
def test_an_instruction_without_attributes_is_refused_before_it_is_installed(tmp_path, home, full):
    files = stock()
    asin = files[0][0]["asin"]
    files[1][asin]["instruction_attributes"] = []
    bad, before = write_official(tmp_path / "bad", files), tree(home.parent)
    for small, large in zip(SETS["small"], SETS["full"], strict=True):
        if full:
            (bad / small).rename(bad / large)
    with pytest.raises(DataError, match=f"the instruction of {asin} has no instruction_attributes"):
        install(DATASET, [bad])
    assert tree(home.parent) == before


def test_options_of_which_each_combination_would_be_a_goal_are_limited():
    files = stock()
    options = {f"group {i}": [{"value": str(value)} for value in range(50)] for i in range(5)}
    files[0][0]["customization_options"] = options
    catalogue = MemoryCatalogue(products_of(*files))
    with pytest.raises(DataError, match=f"{files[0][0]['asin']} .*312,500,000 .* at most {MOST_GOALS:,}"):
        Shop(catalogue, SearchEngine(build(catalogue)), tagger="fallback")
