"""The pages of the shop laid out for people."""

from __future__ import annotations

import gymnasium
import numpy as np

import crbc_envs  # noqa: F401  registers the ids

TASK = 0
"""A task whose goal names a colour and another option."""


def shop():
    return gymnasium.make("CRBC-WebShop-v0", panel="official", disable_env_checker=True).unwrapped


def test_every_action_of_a_page_stands_in_brackets():
    env, kinds = shop(), set()
    for task in range(12):
        observation, info = env.reset(seed=task, options={"task": task})
        expert, over = env.expert(np.random.default_rng(task)), False
        while not over:
            kinds.add(env.session.page.kind)
            said = " ".join(cell for row in env.page() for cell in row)
            assert info["task"] in said
            for action in info["admissible_actions"]:
                assert action[action.index("[") :] in said
            observation, _, terminated, truncated, info = env.step(expert(observation, info))
            over = terminated or truncated
    assert kinds == {"index", "results", "item", "details"}


def item_page(env):
    """Open the product of `TASK`. Returns it and the colour that is asked for."""
    env.reset(options={"task": TASK})
    goal = env.panel[TASK].content
    *_, info = env.step(f"search[{goal.text}]")
    while f"click[{goal.asin.lower()}]" not in info["admissible_actions"]:
        *_, info = env.step("click[next >]")
    env.step(f"click[{goal.asin.lower()}]")
    return env.shop.catalogue[goal.product], dict(goal.options)["color"]


def test_an_item_has_one_row_per_option_and_marks_what_was_chosen():
    env = shop()
    product, colour = item_page(env)
    env.step(f"click[{colour}]")
    rows = env.page()
    assert (product.title,) in rows
    marked = "  ".join(f"[{value}]" + "*" * (value == colour) for value in product.options["color"])
    assert ("color:", marked) in rows
    assert any(row[0].startswith("Price: $") and row[0].endswith("  Rating: N.A.") for row in rows)
    assert ("[description]  [features]  [reviews]  [buy now]",) in rows


def test_the_last_page_says_what_was_bought_and_what_it_is_worth():
    env = shop()
    product, colour = item_page(env)
    for action in (f"click[{colour}]", "click[buy now]"):
        *_, info = env.step(action)
    rows = env.page()
    assert ("Purchased:", product.asin) in rows and ("color:", colour) in rows
    assert ("Options:", "1 of the 2 that were asked for") in rows
    assert rows[-1][0] == "Score:" and rows[-1][1].endswith(f"{info['score']:.3f}")
