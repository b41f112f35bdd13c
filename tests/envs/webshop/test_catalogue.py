"""Products of the official files, and the goals drawn from them."""

from __future__ import annotations

import hashlib
import json

import pytest
from webshop_catalogue import HUMAN, INSTRUCTIONS, ITEMS, PUBLISHED, catalogue, needs_published, shop, write_official

from crbc_envs.errors import DataError
from crbc_envs.webshop.products.catalogue import prices_of, products_of, read_catalogue
from crbc_envs.webshop.shop import goals
from crbc_envs.webshop.shop.open import open_shop


def test_an_asin_is_taken_once_and_only_if_it_is_one():
    products = catalogue()
    assert products.asins() == [f"B00000000{i}" for i in range(1, 6)]
    assert products[0].title == "Tern Running Shoe"
    assert (products.find("B000000003"), products.find("nan")) == (2, None)


def test_options_are_in_lower_case_and_have_no_slash():
    options = catalogue()[0].options
    assert options == {"color": ("dark blue", "red | white"), "size": ("9", '28" wide', "small")}


def test_a_product_has_its_fields_as_the_pages_need_them():
    shoe, _, table, rack, sandal = (catalogue()[i] for i in range(5))
    assert (shoe.bullets, sandal.bullets) == (("Rubber sole", "", "Machine wash"), ("One text",))
    assert (shoe.attributes, table.attributes) == (("rubber sole", "machine wash"), ("DUMMY_ATTR",))
    assert rack.query == "shoe racks"
    assert (shoe.instruction, table.instruction) == ("Find me shoes with rubber sole", None)
    assert [told.text for told in shoe.human] == ["a red shoe.", "anything"]


def test_prices_are_one_amount_or_two():
    assert [prices_of(none) for none in ("", None)] == [(100.0,)] * 2
    assert [prices_of(one) for one in ("$12.99", "$1,299.50")] == [(12.99,), (1299.5,)]
    assert [prices_of(two) for two in ("$10.00$25.00", "$1$2$3")] == [(10.0, 25.0), (1.0, 2.0)]


def test_a_price_without_an_amount_is_refused():
    with pytest.raises(ValueError, match="pricing: no amount in the price '20.99'"):
        prices_of("20.99")
    assert [catalogue()[i].price_tag for i in (0, 1, 3)] == ["$30.0 to $50.0", "$25.5", "$100.0"]


@pytest.mark.parametrize(
    ("broken", "name", "field"),
    [
        ({"asin": "B1"}, r"\('B1'\)", "small_description: it is missing"),
        ("text", r"\(without asin\)", "it is no object: 'text'"),
        ({**ITEMS[0], "customization_options": {"a": [3]}}, "", "customization_options 'a': 3 has no text as value"),
        ({**ITEMS[0], "name": None}, "", "name: None is no text"),
        ({**ITEMS[0], "asin": "b-1"}, "", "asin: 'b-1' is not made of letters from A to Z and digits"),
        ({**ITEMS[0], "asin": "b000000002"}, "", "asin: it differs in case alone .* 'B000000002'"),
    ],
)
def test_an_item_of_another_schema_is_named_with_its_field(broken, name, field):
    message = rf"item 1 .*{name} is not in the official schema: {field}.*; correct the file.*--from DIR$"
    with pytest.raises(DataError, match=message):
        list(products_of([ITEMS[1], broken], {}, {}))


@pytest.mark.parametrize(
    ("instructions", "human", "field"),
    [
        ({"B000000001": {"attributes": "soft"}}, {}, "items_ins_v2 attributes: 'soft' is no list"),
        ({"B000000001": {"instruction": 3}}, {}, "items_ins_v2 instruction: 3 is no text"),
        ({"B000000001": []}, {}, r"items_ins_v2 is no object: \[\]"),
        ([], {}, "items_ins_v2 is no object with a record per ASIN"),
        ({}, {"B000000001": None}, "items_human_ins: None is no list"),
        ({}, {"B000000001": [{"instruction": "a"}]}, "items_human_ins instruction_attributes: it is missing"),
    ],
)
def test_a_record_of_the_other_files_is_named_with_its_field(instructions, human, field):
    with pytest.raises(DataError, match=field):
        list(products_of(ITEMS, instructions, human))


def test_an_asin_in_lower_case_is_read_in_upper_case():
    """A click looks a product up in upper case, so the original fails there."""
    item = {**ITEMS[0], "asin": "b000000001"}
    (read,) = products_of([item, item], {"b000000001": INSTRUCTIONS["B000000001"]}, {"b000000001": HUMAN["B000000001"]})
    assert read == catalogue()[0]


def test_a_folder_is_read_and_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no items_shuffle.json or items_shuffle_1000.json.*crbc data webshop"):
        read_catalogue(tmp_path)
    (tmp_path / "items_shuffle_1000.json").write_text(json.dumps(ITEMS))
    (tmp_path / "items_ins_v2_1000.json").write_text("{")
    with pytest.raises(DataError, match=r"items_ins_v2_1000.json: cannot be read as JSON"):
        read_catalogue(tmp_path)
    (tmp_path / "items_ins_v2_1000.json").write_text(json.dumps(INSTRUCTIONS))
    assert not list(read_catalogue(tmp_path).instructed(human=True))
    (tmp_path / "items_human_ins.json").write_text(json.dumps(HUMAN))
    read = read_catalogue(tmp_path)
    assert [read[i] for i in range(5)] == [catalogue()[i] for i in range(5)]


def test_the_small_and_the_full_set_are_not_mixed(tmp_path):
    write_official(tmp_path, [ITEMS, INSTRUCTIONS])
    (tmp_path / "items_shuffle.json").write_text(json.dumps(ITEMS[:1]))  # the full set, half of it
    assert len(read_catalogue(tmp_path)) == 5
    (tmp_path / "items_shuffle_1000.json").unlink()
    with pytest.raises(DataError, match=r"there is no items_ins_v2.json; give"):
        read_catalogue(tmp_path)
    (tmp_path / "items_ins_v2.json").write_text(json.dumps(INSTRUCTIONS))
    assert len(read_catalogue(tmp_path)) == 1, "the full one, and half of the small one"
    write_official(tmp_path, [ITEMS, INSTRUCTIONS])
    assert len(read_catalogue(tmp_path)) == 1, "both"


def test_a_synthetic_goal_stands_for_each_combination_of_options():
    drawn = shop().goals
    assert [dict(goal.options) for goal in drawn[:3]] == [
        {"color": "dark blue", "size": "9"},
        {"color": "dark blue", "size": '28" wide'},
        {"color": "dark blue", "size": "small"},
    ]
    assert len(drawn) == 7
    assert drawn[0].text.startswith(
        "Find me shoes with rubber sole with color: dark blue, and size: 9, and price lower"
    )
    assert (drawn[6].asin, drawn[6].options, drawn[6].text) == ("B000000005", (), "Find me sandals")
    assert drawn[6].price_cap == goals.NO_CAP


def test_human_goals_have_values_alone_and_at_least_one_attribute():
    (goal,) = shop(goals="human").goals
    assert goal.options == ("red",)
    assert goal.text.startswith("a red shoe, and price lower than ")


def test_prices_and_caps_are_functions_of_the_seed():
    same, again, other = (shop(price_seed=seed) for seed in (3, 3, 4))
    assert (same.prices, same.goals) == (again.prices, again.goals)
    assert same.prices[0] != other.prices[0]
    assert 30 <= same.prices[0] <= 50
    assert same.prices[1:] == other.prices[1:] == [25.5, 20.0, 100.0, 995.0]
    for opened in (same, other):
        cap = opened.goals[0].price_cap
        assert opened.prices[0] < cap <= opened.prices[0] + 40
        assert opened.goals[0].text.endswith(f"lower than {cap:.2f} dollars")


def test_rare_attributes_weigh_more():
    drawn = shop().goals
    assert drawn[0].weight == pytest.approx(1 / 6)
    assert drawn[6].weight == 1


def test_goals_do_not_depend_on_the_hash_seed(run_python):
    code = """
from crbc_envs.webshop.shop.open import open_shop
from crbc_envs.webshop.shop.goals import shuffled
print([goal.digest() for goal in shuffled(open_shop().goals)[:50]])
"""
    assert run_python(code, "1") == str([goal.digest() for goal in goals.shuffled(open_shop().goals)[:50]])


@needs_published
def test_the_small_catalogue_has_the_originals_goals_in_its_order():
    products = read_catalogue(PUBLISHED)
    ordered = goals.shuffled(goals.draw(products, "synthetic", 0)[1])
    assert (len(products), len(ordered), len({goal.asin for goal in ordered})) == (1_000, 6_910, 415)
    lines = [f"{goal.asin}|{json.dumps(dict(goal.options), sort_keys=True)}" for goal in ordered]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert digest == "08d9741dd8180d54f2c44e16677f5f71ea89717ef2e2822870a83fd8ca82e7ac"
    assert len(goals.draw(products, "human", 0)[1]) == 13
