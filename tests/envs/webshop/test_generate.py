"""The generated shop: official schema, same seed same bytes, rivals for every goal, and every goal within reach."""

from __future__ import annotations

import re

import pytest

from crbc_envs.webshop.products.catalogue import MemoryCatalogue, products_of
from crbc_envs.webshop.products.generate import BLOCK, generate_catalogue
from crbc_envs.webshop.products.tables import kinds
from crbc_envs.webshop.shop import goals
from crbc_envs.webshop.shop.nouns import fallback_nouns
from crbc_envs.webshop.shop.reward import normalise_colour, reward

DIGEST = "33c300074742f0f6b89f499779afcd60981918517e8e477a184483239579362f"


@pytest.fixture(scope="module")
def catalogue():
    return generate_catalogue()


def words(text):
    return set(re.findall(r"[a-z0-9]+(?:\.[0-9]+)?", text.lower()))


def test_same_seed_same_bytes_whatever_the_hash_seed(run_python, catalogue):
    code = (
        "import hashlib, json; from crbc_envs.webshop.products.generate import generate_catalogue;"
        "text = json.dumps(generate_catalogue(), ensure_ascii=False, sort_keys=True);"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    assert run_python(code, "1") == run_python(code, "2") == DIGEST


def test_another_seed_is_another_shop(catalogue):
    assert not {item["name"] for item in catalogue[0]} & {item["name"] for item in generate_catalogue(1)[0]}


@pytest.mark.parametrize("size", [1, 300, BLOCK])
def test_a_larger_catalogue_begins_with_the_smaller(size):
    large, large_instructions, _ = generate_catalogue(3, BLOCK + 200)
    small, small_instructions, _ = generate_catalogue(3, size)
    assert len(large) == BLOCK + 200
    assert large[:size] == small
    assert small_instructions.items() <= large_instructions.items()


def test_a_shop_has_at_least_one_product():
    with pytest.raises(ValueError, match="num_products"):
        generate_catalogue(0, 0)


def test_asins_are_valid_distinct_and_say_that_they_are_generated(catalogue):
    asins = [item["asin"] for item in generate_catalogue(0, 3000)[0]]
    assert len(set(asins)) == 3000
    assert all(re.fullmatch(r"B0GEN[0-9A-Z]{5}", asin) for asin in asins)


def test_every_goal_has_rivals(catalogue):
    """Products of the same kind that have one of the wanted attributes, some of them all."""
    items, instructions, _ = catalogue
    same_kind: dict[str, list[set[str]]] = {}
    for item in items:
        same_kind.setdefault(item["query"], []).append(set(instructions[item["asin"]]["attributes"]))
    full, rivals = [], []
    for item in items:
        wanted = set(instructions[item["asin"]].get("instruction_attributes", ()))
        if wanted:
            rivals.append(sum(bool(wanted & attributes) for attributes in same_kind[item["query"]]))
            full.append(sum(wanted <= attributes for attributes in same_kind[item["query"]]))
    assert sum(count < 3 for count in rivals) <= 2  # the last family of a block is cut
    assert sum(count > 1 for count in full) > 0.2 * len(full)


def test_instructions_name_what_they_want(catalogue):
    items, instructions, human = catalogue
    for item in items:
        request = instructions[item["asin"]]
        if "instruction" in request:
            assert item["query"] in request["instruction"]
            assert all(wanted in request["instruction"] for wanted in request["instruction_attributes"])
    for (request,) in human.values():
        assert all(value in request["instruction"] for value in request["instruction_options"])
        assert request["instruction"].islower() and request["instruction"].endswith(".")


@pytest.mark.parametrize("kind", ["synthetic", "human"])
def test_every_goal_can_be_won_on_its_own_product(catalogue, kind):
    shelf = MemoryCatalogue(products_of(*catalogue))
    prices, drawn = goals.draw(shelf, kind, price_seed=0)
    assert len(drawn) > (1500 if kind == "synthetic" else 250)
    for goal in drawn:
        product = shelf[goal.product]
        chosen = [value[1] if kind == "synthetic" else value for value in goal.options]
        nouns = fallback_nouns(product.title)
        assert reward(goal, product, product, prices[goal.product], chosen, (nouns, nouns)).total == 1.0, goal


def test_option_values_survive_the_colour_normalisation():
    """A value keeps its meaning when the reward reads it: the colour it becomes is one of its words, and no
    two values of a group become the same."""
    for kind in kinds():
        seen: set[str] = set()
        for _, values in kind.groups:
            lower = [value.lower() for value in values]
            assert all(normalise_colour(value) in {value, *words(value)} for value in lower), kind.query
            assert len({normalise_colour(value) for value in lower}) == len(lower), kind.query
            assert not seen & set(lower), f"{kind.query}: a value in two groups"
            seen |= set(lower)
            assert all(value.isascii() and '"' not in value and "/" not in value for value in lower)


def test_what_a_product_is_said_to_have_can_be_read_on_its_pages(catalogue):
    items, instructions, _ = catalogue
    for item in items:
        pages = " ".join([item["name"], item["full_description"], *item["small_description"]])
        for attribute in instructions[item["asin"]]["attributes"]:
            assert set(attribute.split()) <= words(pages), (attribute, pages)
