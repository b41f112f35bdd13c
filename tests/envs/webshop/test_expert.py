"""The scripted shopper: it reads pages and requests as they are written, and shops well within fifteen steps."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest
from paths import SHARED

from anchors import INVALID
from crbc_envs.demonstrations import expert_steps
from crbc_envs.webshop.env import WebShopEnv
from crbc_envs.webshop.expert.distance import distance
from crbc_envs.webshop.expert.expert import Shopper
from crbc_envs.webshop.expert.reading import read_page
from crbc_envs.webshop.expert.request import read_request
from crbc_envs.webshop.products.catalogue import MemoryCatalogue, products_of
from crbc_envs.webshop.products.generate import generate_catalogue
from crbc_envs.webshop.search.engine import SearchEngine, build
from crbc_envs.webshop.shop.goals import NO_CAP, shuffled
from crbc_envs.webshop.shop.session import Session
from crbc_envs.webshop.shop.shop import Shop

WALKS = SHARED / "data" / "webshop" / "original_walks_text_rich.jsonl"


@pytest.fixture(scope="module")
def catalogue():
    return MemoryCatalogue(products_of(*generate_catalogue()))


@pytest.fixture(scope="module")
def shops(catalogue):
    engine = SearchEngine(build(catalogue))
    return {goals: Shop(catalogue, engine, goals, tagger="fallback") for goals in ("synthetic", "human")}


def shop_for(shop, goal, shopper):
    """The session after an episode, and its number of steps."""
    session = Session(shop, goal, "shopper")
    budget = shopper.steps
    while session.reward is None and shopper.steps > 0:
        _, action = shopper.act(session.observation("text_rich"))
        assert session.executable(action), f"{action} on {session.observation('text_rich')}"
        session.act(action)
    return session, budget - shopper.steps


def results(shop, count, **config):
    """Totals and numbers of steps of the first `count` goals."""
    totals, steps = [], []
    for goal in shuffled(shop.goals)[:count]:
        session, taken = shop_for(shop, goal, Shopper(15, **config))
        totals.append(session.reward.total if session.reward else 0.0)
        steps.append(taken)
    return np.array(totals), np.array(steps)


# ---- reading --------------------------------------------------------------------------------------


def test_recorded_pages_of_the_original_are_read_whole():
    if not WALKS.exists():
        pytest.skip(f"the recorded walks are not at hand: {WALKS.name}")
    kinds = set()
    for line in WALKS.read_text(encoding="utf-8").splitlines():
        for record in json.loads(line)["rec"]:
            page = read_page(record["o"])
            kinds.add(page.kind)
            clickables = set(record["av"]) - {"back to search", "next >", "< prev"}
            if page.kind == "results":
                assert {offer.asin.lower() for offer in page.offers} == clickables
                assert all(offer.title and offer.prices for offer in page.offers)
            if page.kind == "item":
                clickables -= {"description", "features", "reviews", "buy now"}
                assert {value for values in page.options.values() for value in values} == clickables
    assert kinds == {"index", "results", "item", "details", "done"}


def test_own_pages_are_read_as_the_products_they_show(catalogue, shops):
    session = Session(shops["synthetic"], shops["synthetic"].goals[0], "reader")
    session.act("search[wireless headphones]")
    page = read_page(session.observation("text_rich"))
    assert page.kind == "results" and page.number == 1 and len(page.offers) == 10
    for offer in page.offers:
        product = catalogue[catalogue.find(offer.asin)]
        assert (offer.title, offer.prices) == (product.title, product.prices)
        session.act(f"click[{offer.asin.lower()}]")
        item = read_page(session.observation("text_rich"))
        assert item.options == dict(product.options)
        if item.options:
            value = next(iter(item.options.values()))[0]
            session.act(f"click[{value}]")
            assert read_page(session.observation("text_rich")) == item
        session.act("click[features]")
        features = read_page(session.observation("text_rich"))
        assert features.kind == "details" and all(bullet.strip() in features.text for bullet in product.bullets)
        session.act("click[< prev]")
        session.act("click[< prev]")


def test_what_is_no_page_is_refused():
    with pytest.raises(ValueError, match="not a text_rich observation"):
        read_page("You are in the middle of a room.")


def test_a_synthetic_request_is_taken_apart():
    request = read_request(
        "Find me hands free headphones with stereo sound for travel with color: rose gold, and style: with travel "
        "case, and price lower than 80.00 dollars"
    )
    assert request.ask == "Find me hands free headphones with stereo sound for travel"
    assert request.options == {"color": "rose gold", "style": "with travel case"}
    assert request.cap == 80.0
    assert request.words == ("hands", "free", "headphones", "stereo", "sound", "travel")
    assert request.query == "hands free headphones stereo sound travel rose gold with travel case"
    assert request.sentence == (
        "find me hands free headphones with stereo sound for travel with color: rose gold, and style: with travel case"
    )


def test_a_request_in_free_words_chooses_what_it_mentions():
    request = read_request("i need ankle socks in x-large, and price lower than 20.00 dollars")
    assert request.options == {}
    assert request.choose("size", ["large", "x-large", "xx-large"]) == "x-large"
    assert request.choose("color", ["black", "white"]) is None


def test_prices_are_afforded_up_to_the_cap():
    request = read_request("i need socks, and price lower than 20.00 dollars")
    assert request.affords((20.0,)) and not request.affords((20.5,))
    assert request.affords((15.0, 25.0)) and not request.affords((15.0, 26.0))
    assert read_request("i need socks").affords((1e9,))


def test_every_generated_goal_is_understood(shops):
    for goal in shops["synthetic"].goals:
        request = read_request(goal.text)
        assert request.options == dict(goal.options)
        assert request.cap == (None if goal.price_cap == NO_CAP else goal.price_cap)


# ---- shopping -------------------------------------------------------------------------------------


@pytest.mark.parametrize("goals", ["synthetic", "human"])
def test_the_shopper_mostly_buys_what_is_asked_for(shops, goals):
    totals, steps = results(shops[goals], 150)
    assert np.mean(totals == 1.0) > 0.7
    assert totals.mean() > 0.88
    assert steps.max() <= 15


def test_a_hasty_shopper_is_quicker_and_buys_worse(shops):
    totals, steps = results(shops["synthetic"], 150)
    hasty_totals, hasty_steps = results(shops["synthetic"], 150, hasty=True)
    assert hasty_steps.mean() < steps.mean() - 3
    assert 0.3 < np.mean(hasty_totals == 1.0) < np.mean(totals == 1.0) - 0.05


def test_one_that_does_not_read_leaves_a_product_only_for_an_option_that_it_lacks(shops):
    shop = shops["synthetic"]
    left = 0
    for goal in shuffled(shop.goals)[:150]:
        session, shopper, done = Session(shop, goal, "one"), Shopper(8, reads=False), ""
        wanted = read_request(goal.text).options
        while session.reward is None and shopper.steps:
            page = read_page(session.observation("text_rich"))
            _, done = shopper.act(session.observation("text_rich"), done)
            assert done not in ("click[features]", "click[description]", "click[reviews]")
            if page.kind == "item" and done == "click[< prev]":
                left += 1
                assert any(value not in page.options.get(name, ()) for name, value in wanted.items())
            session.act(done)
    assert left > 5


def test_each_step_of_the_way_to_the_product_counts_in_its_distance(shops):
    goal = next(goal for goal in shuffled(shops["synthetic"].goals) if len(goal.options) == 1)
    session = Session(shops["synthetic"], goal, "walker")
    title = shops["synthetic"].product(goal.asin)[1].title
    option = goal.options[0] if isinstance(goal.options[0], str) else goal.options[0][1]
    back, choose = "click[< prev]", f"click[{option.lower()}]"
    way = [f"search[{title}]", f"click[{goal.asin.lower()}]", "click[description]", back, choose, "click[buy now]"]
    found = [distance(session)]
    for action in way:
        session.act(action)
        found.append(distance(session))
    assert found == [4, 3, 2, 3, 2, 1, 0]


def test_it_chooses_again_what_was_refused(shops):
    goal = next(goal for goal in shops["synthetic"].goals if read_request(goal.text).options)
    session, shopper, done = Session(shops["synthetic"], goal, "one"), Shopper(15, hasty=True), ""
    options = {f"click[{value}]" for value in read_request(goal.text).options.values()}
    clicks = []
    while session.reward is None:
        _, action = shopper.act(session.observation("text_rich"), done)
        clicks += [action] * (action in options)
        done = "" if action in options and len(clicks) == 1 else action
        if done:
            session.act(action)
        done = done or INVALID
    assert clicks[0] == clicks[1] and len(set(clicks)) == len(clicks) - 1


def test_its_thoughts_go_on_in_the_task_s_words_and_tell_what_the_page_lacks(shops):
    told = Counter()
    for i, goal in enumerate(shops["synthetic"].goals[:200]):
        wanted = {name: value.lower() for name, value in read_request(goal.text).options.items()}
        session, shopper, done = Session(shops["synthetic"], goal, str(i)), Shopper(8, reads=False, quotes=True), ""
        while session.reward is None and shopper.steps:
            page = session.observation("text_rich")
            thought, done = shopper.act(page, done)
            if "[button] Buy Now [button_]" in page and wanted:
                chosen = [value for value in wanted.values() if f"[clicked button] {value} [clicked button_]" in page]
                first, *rest = thought.split(", and ")
                assert first in (chosen[-1:] or [first]), "it begins behind the value that was chosen last"
                for check in rest if chosen else (first, *rest):
                    name, _, value = check.partition(": ")
                    lacks = value.endswith(" no")
                    assert check == "price" or value.removesuffix(" no") == wanted[name]
                    assert check == "price" or lacks != (f"[button] {wanted[name]} [button_]" in page)
                words = thought.replace(" no", "")
                assert words in goal.text.lower() or ", and price" in words
                told["lacking" if thought.endswith(" no") else "price" if thought.endswith("price") else "value"] += 1
                if done == "click[< prev]":
                    assert thought.endswith(" no")
                elif thought.endswith("price"):
                    assert done == "click[buy now]"
                else:
                    assert thought.endswith(f": {done[6:-1]}")
            session.act(done)
    assert min(told.values()) > 10 and len(told) == 3


def test_one_that_quotes_searches_for_the_sentence_and_buys_as_well(shops):
    goal = shops["synthetic"].goals[3]
    page = Session(shops["synthetic"], goal, "one").observation("text_rich")
    assert Shopper(8, quotes=True).act(page)[1] == f"search[{read_request(goal.text).sentence}]"
    brisk = [results(shops["synthetic"], 150, reads=False, quotes=quotes)[0] for quotes in (False, True)]
    # It leaves a product when it comes to the option that is lacking, which may be too late for another one.
    assert 0 <= np.mean(brisk[0] == 1.0) - np.mean(brisk[1] == 1.0) < 0.1


def test_a_careless_shopper_buys_the_first_product_as_it_is(shops):
    for goal in shuffled(shops["synthetic"].goals)[:40]:
        session, steps = shop_for(shops["synthetic"], goal, Shopper(15, careless=True))
        request = read_request(goal.text)
        first = shops["synthetic"].catalogue[shops["synthetic"].hits(request.query)[0]]
        assert (steps, session.state.asin, session.state.options) == (3, first.asin, {})


@pytest.mark.parametrize("steps", [4, 6, 9])
def test_with_few_steps_it_still_buys(shops, steps):
    for goal in shuffled(shops["human"].goals)[:40]:
        session, _ = shop_for(shops["human"], goal, Shopper(steps))
        assert session.reward is not None or len(session.state.options) + 3 > steps


# ---- demonstrations -------------------------------------------------------------------------------


def lessons(seed, count, hasty=0.5):
    stream = expert_steps(WebShopEnv(tagger="fallback"), np.random.default_rng(seed), hasty=hasty)
    return [(obs, info["task_id"], info["step"], reply) for obs, info, reply in islice(stream, count)]


def test_demonstrations_are_a_function_of_the_seed():
    assert lessons(3, 60) == lessons(3, 60)
    assert lessons(3, 60) != lessons(4, 60)


def test_demonstrated_replies_are_valid_in_the_paper_s_format():
    env = WebShopEnv(tagger="fallback", replies="tags")
    steps = 0
    for obs, info, reply in islice(expert_steps(env, np.random.default_rng(0), hasty=0.5), 200):
        assert read_page(obs).kind in ("index", "results", "item", "details")
        assert info["step"] == 0 or info["valid"]
        assert reply.startswith("<think>") and reply.endswith("]</action>")
        steps += 1
    assert steps == 200


def test_a_slip_reaches_the_environment_malformed_and_the_expert_goes_on():
    env = WebShopEnv(tagger="fallback", max_steps=90)  # so many that none is spared
    stream = islice(expert_steps(env, np.random.default_rng(0), slips=0.3, reads=0.0), 300)
    steps = [(info["step"], info.get("valid", True), reply) for _, info, reply in stream]
    assert 0.2 < np.mean([not valid for _, valid, _ in steps]) < 0.35
    for (_, _, reply), (step, valid, again) in pairwise(steps):
        if not valid and step:
            assert again.partition("<action>")[2] == reply.partition("<action>")[2]
