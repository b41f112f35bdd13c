"""Generated shops on disk: whole or not there, opened without their goals, and what a wrong folder is told."""

from __future__ import annotations

import os
import shutil
import time

import gymnasium
import pytest

import crbc_envs
from crbc_envs.errors import DataError
from crbc_envs.webshop.products.generate import EDITION
from crbc_envs.webshop.shop import stored
from crbc_envs.webshop.shop.goals import DrawnGoals, DrawnPrices
from crbc_envs.webshop.shop.open import open_shop
from crbc_envs.webshop.shop.panels import make_panel
from crbc_envs.webshop.shop.stored import make_shop, open_stored

COUNT = 700


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shops") / "shop"
    size = make_shop(folder, COUNT)
    assert size == sum(path.stat().st_size for path in folder.rglob("*"))
    return folder


@pytest.mark.parametrize("goals", ["synthetic", "human"])
def test_it_sells_what_the_embedded_shop_sells(folder, goals):
    shop, embedded = open_shop(data_dir=str(folder), goals=goals), open_shop(goals=goals)
    assert [shop.catalogue[number] for number in range(COUNT)] == [embedded.catalogue[n] for n in range(COUNT)]
    assert [shop.catalogue[n].asin for n in shop.hits("shoes")]


@pytest.mark.parametrize("goals", ["synthetic", "human"])
def test_every_instructed_product_has_one_goal_that_it_wins(folder, goals):
    shop = open_shop(data_dir=str(folder), goals=goals, tagger="fallback")
    assert [goal.product for goal in shop.goals] == list(shop.catalogue.instructed(goals == "human"))
    wins = 0
    for goal in shop.goals:
        values = [option if goals == "human" else option[1] for option in goal.options]
        wins += shop.reward(goal, goal.asin, values).total == 1.0
    assert wins > 0.9 * len(shop.goals), "a colour in a value may hide it, as in the original"


def test_goals_and_prices_follow_from_the_price_seed_alone(folder):
    catalogue, _, edition = open_stored(folder)
    assert edition == EDITION

    def drawn(seed):
        prices = DrawnPrices(catalogue, seed)
        goals = DrawnGoals(catalogue, "synthetic", prices, seed)
        return list(prices), list(goals)

    (prices, goals), again, (others, other_goals) = drawn(0), drawn(0), drawn(1)
    assert (prices, goals) == again and len(prices) == COUNT
    ranges = [number for number in range(COUNT) if len(catalogue[number].prices) == 2]
    assert all((prices[number] == others[number]) == (number not in ranges) for number in range(COUNT))
    assert all(catalogue[n].prices[0] <= prices[n] <= catalogue[n].prices[1] for n in ranges)
    assert 0.2 < sum(a.price_cap == b.price_cap for a, b in zip(goals, other_goals, strict=True)) / len(goals) < 0.8


def test_opening_reads_a_few_products_and_makes_no_goal(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "shop")
    monkeypatch.setattr("crbc_envs.webshop.shop.goals.goals_of", None)
    monkeypatch.setattr("crbc_envs.webshop.shop.kinds.COMPARED", 100)
    shop = open_shop(data_dir=str(tmp_path / "shop"))
    assert len(make_panel(shop, "by_kind", "train")) > 200
    assert shop.catalogue._product.cache_info().currsize < 10


@pytest.mark.usefixtures("one_hash_seed")
def test_it_is_an_environment_as_any_other(folder):
    env = gymnasium.make("CRBC-WebShop-v0", data_dir=str(folder), split="test")
    assert env.unwrapped.panel[0].id == "webshop-by_kind-v2/test/0"
    assert not crbc_envs.check_anchor_env(env, fuzz=50, episodes=4, split_tasks=2).skipped


def test_a_run_that_is_stopped_leaves_what_was_there(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "shop")
    for stage in ("products", "index"):

        def stop(what, done, total, stage=stage):
            if what == stage:
                raise KeyboardInterrupt

        for name in ("shop", "new"):
            with pytest.raises(KeyboardInterrupt):
                make_shop(tmp_path / name, 50, on_progress=stop)
        assert [path.name for path in tmp_path.iterdir()] == ["shop"]
    assert len(open_stored(tmp_path / "shop")[0]) == COUNT
    make_shop(tmp_path / "shop", 50)
    assert len(open_stored(tmp_path / "shop")[0]) == 50


def test_what_a_killed_run_left_is_deleted_once_it_is_old(tmp_path):
    old, fresh, other = (tmp_path / name for name in (".shop.abcdefgh.tmp", ".shop.12345678.tmp", ".shop.tmp"))
    for left in (old, fresh, other):
        (left / "new").mkdir(parents=True)
        (left / "new" / "products.jsonl").write_text("{}")
    long_ago = time.time() - 90_000
    for path in (old, *old.rglob("*")):
        os.utime(path, (long_ago, long_ago))
    make_shop(tmp_path / "shop", 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([fresh.name, other.name, "shop"])


def test_what_is_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(DataError, match="mine: not empty, and no generated shop; name a new folder"):
        make_shop(tmp_path / "mine", 10)
    with pytest.raises(DataError, match="is a link"):
        make_shop(tmp_path / "link", 10)
    for count in (0, 3_000_001):
        with pytest.raises(ValueError, match="a shop has 1 to 3,000,000 products"):
            make_shop(tmp_path / "shop", count)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "mine"]


def test_a_wrong_or_damaged_folder_is_told_the_command(folder, tmp_path):
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match="no generated shop; make one with: crbc data generate webshop"):
            open_shop(data_dir=str(wrong))
    with pytest.raises(DataError, match="a generated shop; open it with data='generated'"):
        open_shop("official", str(folder))
    shutil.copytree(folder, tmp_path / "shop")
    (tmp_path / "shop" / stored.GENERATED).unlink()
    with pytest.raises(DataError, match="no generated shop; open it with data='official'"):
        open_shop(data_dir=str(tmp_path / "shop"))
    with pytest.raises(ValueError, match="category is of the embedded catalogue"):
        open_shop(data_dir=str(folder), category="beauty")
    shutil.copytree(folder, tmp_path / "cut")
    for name in ("index/codes.npy", "kinds.json", "products.jsonl"):
        path = tmp_path / "cut" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-9])
        with pytest.raises(DataError, match="make the shop again with: crbc data generate webshop"):
            open_stored(tmp_path / "cut")
        path.write_bytes(whole)
    assert open_stored(tmp_path / "cut")
