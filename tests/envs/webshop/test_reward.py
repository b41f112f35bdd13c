"""What a purchase is worth, and the nouns of a title."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec

import pytest
from webshop_catalogue import PUBLISHED, needs_published, shop

from crbc_envs.errors import RequirementError
from crbc_envs.webshop.products.catalogue import Product, read_catalogue
from crbc_envs.webshop.search.engine import SearchEngine, build
from crbc_envs.webshop.shop.goals import Goal, shuffled
from crbc_envs.webshop.shop.nouns import MODEL, fallback_nouns, make_tagger
from crbc_envs.webshop.shop.reward import alike, normalise_colour, reward
from crbc_envs.webshop.shop.shop import Shop

SHOE = Product(
    asin="B1",
    title="Tern Running Shoe",
    description="Made with Natural Ingredients",
    bullets=("Rubber sole", "Machine wash"),
    prices=(30.0,),
    options={},
    attributes=("essential oil", "light weight"),
    category="fashion",
    query="shoes",
    product_category="Clothing › Men › Shoes",
)
NOUNS = ("tern", "running", "shoe")
TWENTY = tuple(f"noun{i}" for i in range(20))
GOAL = Goal(product=0, asin="B1", text="", attributes=("light weight",), options=(), price_cap=40.0)


def worth(product=SHOE, price=30.0, chosen=(), nouns=NOUNS, **asked):
    return reward(dataclasses.replace(GOAL, **asked), SHOE, product, price, chosen, (NOUNS, nouns))


def test_a_purchase_that_has_everything_is_worth_exactly_one():
    found = worth(chosen=("small", "teal"), options=(("color", "teal"), ("size", "small")))
    assert found.total == 1.0
    kind = {"r_type": 1.0, "query_match": True, "category_match": True, "title_score": 1.0}
    rest = {"r_att": 1.0, "w_att": 0.25, "r_option": 1.0, "w_option": 0.5, "r_price": True, "w_price": 0.25}
    assert found.parts() == kind | rest


def test_a_goal_without_options_has_no_option_part():
    assert not {"r_option", "w_option"} & worth().parts().keys()
    assert worth().total == 1.0


@pytest.mark.parametrize(
    ("price", "shared", "chosen", "total"),
    [
        (40.0, 2, ("small", "teal"), 0.8),  # (1 attribute of 2 + 2 options of 2 + the price) / 5
        (40.0, 2, ("small",), 0.6),
        (40.01, 2, ("small",), 0.4),
        (40.01, 2, (), 0.2),
        (40.0, 1, ("small",), 0.06),  # hardly the kind: times 0.1
        (40.0, 0, ("small", "teal"), 0.0),
    ],
)
def test_the_parts_of_a_purchase_are_counted_alike_and_multiplied_by_its_kind(price, shared, chosen, total):
    asked = {"attributes": ("vegan", "light weight"), "options": (("size", "small"), ("color", "teal"))}
    found = reward(dataclasses.replace(GOAL, **asked), SHOE, SHOE, price, chosen, (TWENTY, TWENTY[:shared]))
    assert found.total == pytest.approx(total, rel=1e-15)
    assert (found.r_att, found.r_option, found.r_price) == (1 / 2, len(chosen) / 2, price == 40.0)
    assert (found.w_att, found.w_option, found.w_price) == (2 / 5, 2 / 5, 1 / 5)


@pytest.mark.parametrize(
    ("attribute", "matched"),
    [
        ("essential oils", True),  # nearly one of the product's
        ("weight light", True),  # in any order
        ("rubber sole", True),  # in a bullet
        ("natural ingredients", True),  # in the description
        ("running", True),  # in the title
        ("sole machine", True),  # across two bullets
        ("soles machine", False),
        ("vegan", False),
    ],
)
def test_attributes_are_looked_for_among_the_products_and_in_its_texts(attribute, matched):
    assert worth(attributes=(attribute,)).r_att == matched


@pytest.mark.parametrize(
    ("wanted", "chosen", "matched"),
    [
        # of people: a list of values
        (("grey", "xl", "pack of 12"), ("pack of 12", "grey", "xl"), 1),
        (("grey", "xl", "pack of 12"), ("pack of 12", "blue", "xl"), 2 / 3),
        (("cool powder snow", "xl"), ("powder snow", "xl"), 1),
        (("sky blue",), ("navy blue",), 1),  # any blue is blue
        (("sky blue",), (), 0),
        (("xl", "xl"), ("xl",), 1),  # the wanted values are counted, not the chosen ones
        (("xl",), ("xl", "red", "xl"), 1),
        # synthetic: pairs, of which a colour is seen only where it is a whole part
        ((("color", "blue"),), ("dark blue",), 1),  # "blue" is before "dark" among the colours
        ((("size", "xx-large"),), ("xx-large",), 1),
        ((("size", "rectangular"),), ("rectangular",), 0),  # which is "tan"
        ((("color", "228blue"),), ("228blue",), 0),  # which is "blue"
    ],
)
def test_options_match_as_the_original_matches_them(wanted, chosen, matched):
    assert worth(options=wanted, chosen=chosen).r_option == pytest.approx(matched)


def test_the_first_colour_anywhere_in_a_text_stands_for_it():
    texts = ["", "black forest", "violet lavender", "rectangular", "228blue", "dark blue", "crbc"]
    assert list(map(normalise_colour, texts)) == ["", "black", "lavender", "tan", "blue", "blue", "crbc"]


@pytest.mark.parametrize(
    ("one", "other", "matched"),
    [
        ("abcdefghijklmnopqrst", "abcdefghijklmnopq012", False),  # 17 of 20 letters in common: 85, not above it
        ("abcdefghijklmnopqrstu", "abcdefghijklmnopqr012", True),  # 18 of 21: 85.7, rounded 86
        ("abcdefghijklmnopqrstuvw", "abcdefghijklmnopqrst0123", False),  # 20 of 23 and 24: 85.1, rounded 85
    ],
)
def test_texts_match_above_a_rounded_score_of_85(one, other, matched):
    stocked = dataclasses.replace(SHOE, attributes=(one,))
    assert worth(stocked, attributes=(other,)).r_att == worth(options=(one,), chosen=(other,)).r_option == matched
    assert alike([one], other).tolist() == [matched]


@pytest.mark.parametrize(
    ("query", "category", "shared", "matches", "r_type"),
    [
        ("shoes", "Other", 4, (True, False), 1.0),
        ("shoes", "Other", 2, (True, False), 1.0),
        ("shoes", "Other", 1, (True, False), 0.1),  # a title score of 0.05
        ("shoes", SHOE.product_category, 0, (True, True), 0.0),
        ("boots", "Men › Clothing › Boots", 2, (False, True), 1.0),  # two parts, wherever they stand
        ("boots", "Clothing›Men", 2, (False, True), 1.0),
        ("boots", "Clothing › Men", 1, (False, True), 0.1),
        ("boots", "Clothing › Women › Boots", 2, (False, False), 0.5),  # one part
        ("boots", "Men › Men › Boots", 2, (False, False), 0.5),  # one part twice
        ("boots", "clothing › men › shoes", 2, (False, False), 0.5),
        ("boots", "Clothing Men Shoes", 2, (False, False), 0.5),
        ("Shoes", "", 1, (False, False), 0.1),
        ("Shoes", "", 2, (False, False), 0.5),  # a title score of 0.1 suffices for a similar kind,
        ("Shoes", "", 4, (False, False), 0.5),  # and one above 0.2 for the same kind
        ("Shoes", "", 5, (False, False), 1.0),
        ("Shoes", "", 0, (False, False), 0.0),
    ],
)
def test_the_type_is_told_by_query_category_and_title(query, category, shared, matches, r_type):
    other = dataclasses.replace(SHOE, query=query, product_category=category)
    found = reward(GOAL, SHOE, other, 30.0, (), (TWENTY, TWENTY[:shared]))
    assert ((found.query_match, found.category_match), found.title_score) == (matches, shared / 20)
    assert found.total == found.r_type == r_type


def test_a_noun_said_twice_is_missed_once_and_no_nouns_are_no_fault():
    assert reward(GOAL, SHOE, SHOE, 30.0, (), (("a", "b", "b"), ("a", "b"))).title_score == 2 / 3
    assert reward(GOAL, SHOE, SHOE, 30.0, (), ((), ("a",))).title_score == 0.2


def test_the_fallback_takes_all_words_but_numbers_and_function_words():
    title = '28" x 28" Men\'s T-Shirt for the Gym, 100% Cotton (2-Pack) by D.O.N. Décor'
    assert fallback_nouns(title) == ("x", "men's", "t", "shirt", "gym", "cotton", "pack", "d.o.n", "décor")


def test_the_fallback_comes_close_to_the_models_published_score():
    wanted = "Saireed UL Listed 2 Prong Power Cord for JBL Bar 3.1 Bar 2.1 Channel 4K Ultra HD Soundbar Home Theater "
    bought = "BRST AC Power Cord Outlet Socket Cable Plug Lead for Panasonic SC-HT830V DVD/VCR Combo Home Theater "
    nouns = fallback_nouns(wanted + "System Subwoofer"), fallback_nouns(bought + "System")
    assert reward(GOAL, SHOE, SHOE, 30.0, (), nouns).title_score == pytest.approx(0.3, abs=0.05)


def test_a_tagger_is_named_and_the_model_can_be_insisted_on():
    assert make_tagger("fallback") == ("fallback", fallback_nouns)
    with pytest.raises(ValueError, match="tagger must be one of auto, spacy, fallback; got 'nltk'"):
        make_tagger("nltk")
    if find_spec(MODEL) is None:
        assert make_tagger("auto")[0] == "fallback"
        with pytest.raises(RequirementError, match=f"{MODEL} is not installed: .* -m pip install spacy"):
            make_tagger("spacy")


@pytest.mark.skipif(find_spec(MODEL) is None, reason=f"{MODEL} is not installed")
def test_the_model_finds_what_the_original_found():
    name, nouns = make_tagger("spacy")
    assert name == MODEL
    wanted = "Mens D.O.N. Issue 2 Gca Basketball Sneakers Shoes Casual - Off White"
    bought = "PEAK High Top Mens Basketball Shoes Lou Williams Streetball Master Breathable Non Slip Outdoor Sneakers"
    found = reward(GOAL, SHOE, SHOE, 30.0, (), (nouns(wanted), nouns(bought)))
    assert found.title_score == pytest.approx(0.333, abs=0.01)


def test_a_shop_remembers_rewards_by_goal_product_and_options():
    opened = shop()
    first, *_ = opened.goals
    right, wrong = (opened.reward(first, "B000000001", chosen) for chosen in (("dark blue", "9"), ("red | white",)))
    assert right.total > wrong.total
    assert opened.reward(first, "B000000001", ("dark blue", "9")) is right


@needs_published
def test_the_goals_that_cannot_be_reached_are_those_of_the_original():
    products = read_catalogue(PUBLISHED)
    opened = Shop(products, SearchEngine(build(products)), tagger="fallback")
    ordered = shuffled(opened.goals)
    missed = [
        place
        for place, goal in enumerate(ordered)
        if opened.reward(goal, goal.asin, [value for _, value in goal.options]).total < 1
    ]
    assert (len(missed), sum(place < 500 for place in missed)) == (458, 20)
