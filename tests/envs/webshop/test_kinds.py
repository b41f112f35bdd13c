"""The panel by_kind: what its splits share, held to the reward itself."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import pytest
from effort import effort
from webshop_catalogue import catalogue

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.tasks import SPLITS
from crbc_envs.webshop.products.catalogue import MemoryCatalogue, products_of
from crbc_envs.webshop.products.generate import generate_catalogue
from crbc_envs.webshop.search.engine import SearchEngine, build
from crbc_envs.webshop.shop.kinds import NOWHERE, Winners, split_of_goals
from crbc_envs.webshop.shop.panels import make_panel
from crbc_envs.webshop.shop.shop import Shop


def shop_of(products, goals="synthetic"):
    return Shop(products, SearchEngine(build(products)), goals, tagger="fallback")


def generated(count, goals="synthetic", category=None):
    return shop_of(MemoryCatalogue(products_of(*generate_catalogue(3, count, category))), goals)


def best_score(shop, goal, number):
    """The reward for a product with all its values at once: no choice of options can give more."""
    product = shop.catalogue[number]
    values = [value for values in product.options.values() for value in values]
    return shop.reward(goal, product.asin, values).total


def tasks(shop, split):
    panel = make_panel(shop, "by_kind", split)
    return [panel[place].content for place in range(len(panel))]


@pytest.mark.parametrize("goals", ["synthetic", "human"])
def test_winners_are_the_products_whose_purchase_can_score_one(goals):
    made = [generated(90, goals), generated(40, goals, "fashion"), generated(60, goals, "electronics")]
    for shop in (*made, shop_of(catalogue(), goals)):
        winners = Winners(shop)
        for goal in list(shop.goals)[::9]:
            expected = [n for n in range(len(shop.catalogue)) if best_score(shop, goal, n) == 1.0]
            assert winners.of(goal).tolist() == expected


@pytest.mark.parametrize("goals", ["synthetic", "human"])
def test_no_product_of_another_split_wins_a_held_out_goal(goals):
    shop = generated(300, goals)
    kind_of = [shop.catalogue[number].query for number in range(300)]
    own = {split: {kind_of[goal.product] for goal in tasks(shop, split)} for split in SPLITS}
    left_out = [goal for goal, split in zip(shop.goals, split_of_goals(shop), strict=True) if split == NOWHERE]
    held_out = [(split, goal) for split in SPLITS[1:] for goal in tasks(shop, split)]
    for split, goal in held_out[::3]:
        for other in set(SPLITS) - {split}:
            strangers = [number for number in range(300) if kind_of[number] in own[other]]
            assert all(best_score(shop, goal, number) < 1.0 for number in strangers)
    assert sum(len(tasks(shop, split)) for split in SPLITS) + len(left_out) == len(shop.goals)
    assert sum(len(kinds) for kinds in own.values()) == len(set().union(*own.values()))


def test_a_goal_that_another_split_wins_is_left_out():
    sold = list(products_of(*generate_catalogue(3, 400, "fashion")))
    renamed = [replace(item, query=f"{item.query} again") if number % 2 else item for number, item in enumerate(sold)]
    shop = shop_of(MemoryCatalogue(renamed))
    splits = split_of_goals(shop)
    winners, kind_of = Winners(shop), [shop.catalogue[number].query for number in range(400)]
    placed = list(zip(shop.goals, splits, strict=True))
    split_of = {kind_of[goal.product]: split for goal, split in placed if split != NOWHERE}
    left_out = [goal for goal, split in placed if split == NOWHERE]
    assert left_out
    for goal in left_out:
        assert {split_of.get(kind_of[number]) for number in winners.of(goal)} != {split_of.get(kind_of[goal.product])}


@pytest.mark.parametrize(
    "category", [None, "fashion", "beauty", "electronics", "garden", "grocery"][: effort(2, full=6)]
)
def test_shares_are_about_eighty_ten_and_ten(category):
    shop = generated(1000, category=category)
    sizes = [len(tasks(shop, split)) for split in SPLITS]
    assert 0.74 < sizes[0] / sum(sizes) < 0.86
    assert all(0.05 < size / sum(sizes) < 0.16 for size in sizes[1:])


def test_in_a_large_shop_kinds_of_one_category_stay_together_and_no_goal_is_left_out(monkeypatch):
    monkeypatch.setattr("crbc_envs.webshop.shop.kinds.COMPARED", 299)
    monkeypatch.setattr("crbc_envs.webshop.shop.kinds.Winners", None)
    shop = generated(300)
    splits: dict[frozenset[str], set[int]] = {}
    for goal, split in zip(shop.goals, split_of_goals(shop), strict=True):
        parts = [part.strip() for part in shop.catalogue[goal.product].product_category.split("›")]
        splits.setdefault(frozenset(parts[:2]), set()).add(int(split))
    assert all(len(found) == 1 for found in splits.values())
    assert set().union(*splits.values()) == {0, 1, 2}


def test_a_shop_of_one_kind_says_which_panel_would_do():
    item = catalogue()
    shop = shop_of(MemoryCatalogue([item[0]]))
    with pytest.raises(ValueError, match="no goals in split 'test' of panel 'by_kind': .*panel='by_product'"):
        make_panel(shop, "by_kind", "test")


def test_it_is_the_panel_of_the_generated_shop():
    made = [gymnasium.make("CRBC-WebShop-v0", **options).unwrapped for options in ({}, {"panel": "official"})]
    assert [env.panel[0].id for env in made] == ["webshop-by_kind-v2/train/0", "webshop-official-v2/train/0"]


def test_an_environment_names_the_winners_of_its_goal():
    env = gymnasium.make("CRBC-WebShop-v0").unwrapped
    env.reset(options={"task": 5})
    near = env.near_traits()
    assert env.traits()["product"] in near["product"] and env.traits()["kind"] in near["kind"]
    assert len(near["product"]) == len(near["kind"])
