"""CRBC-WebShop-v0: actions, rewards, panels, anchors and prompts."""

from __future__ import annotations

import json
import math
import re
from contextlib import closing

import gymnasium
import numpy as np
import pytest
from webshop_catalogue import HUMAN, INSTRUCTIONS, ITEMS, PUBLISHED, needs_published, write_official

import crbc_envs
from anchors import INVALID
from crbc_envs.prompts import PromptWindow
from crbc_envs.webshop.observation import LONGEST_LINE, compact, without_task
from crbc_envs.webshop.shop.open import open_shop
from crbc_envs.webshop.shop.panels import make_panel, split_of


def make(**options):
    return gymnasium.make("CRBC-WebShop-v0", disable_env_checker=True, **options).unwrapped


def own_product(env, task=0):
    """Actions that buy the very product a goal was made from, with its options."""
    goal = env.panel[task].content
    product = env.shop.catalogue[goal.product]
    pages = [f"search[{product.title.lower()}]"]
    hits = [env.shop.catalogue[number].asin for number in env.shop.hits(product.title.lower())]
    pages += ["click[next >]"] * (hits.index(product.asin) // 10)
    values = [option if isinstance(option, str) else option[1] for option in goal.options]
    return [*pages, f"click[{product.asin.lower()}]", *(f"click[{value}]" for value in values), "click[buy now]"]


def play(env, actions, **options):
    env.reset(seed=0, options={"task": 0, **options})
    for action in actions:
        last = env.step(action)
    return last


def worth(env, task):
    """What a goal's own product is worth with the options it names."""
    goal = env.panel[task].content
    return env.shop.reward(goal, goal.asin, dict(goal.options).values()).total


def test_members_of_a_group_see_the_same_random_products():
    with closing(crbc_envs.GroupVectorEnv("CRBC-WebShop-v0", group_size=3, anchor="state")) as group:
        group.reset(seed=0)
        pages, *_, infos = group.step(["search[<r>]"] * 3)
        assert len(set(pages)) == len(set(infos["anchor"])) == 1
        assert "(Total results: 50)" in pages[0]
        pages, *_ = group.step(["click[next >]", "search[<r> more]", "search[<r>]"])
        assert len(set(pages)) == 3


def test_buying_what_was_asked_for_is_a_success_worth_ten():
    env = make()
    task = next(i for i in range(50) if worth(env, i) == 1)
    _, reward, terminated, truncated, info = play(env, own_product(env, task), task=task)
    assert (reward, terminated, truncated) == (10.0, True, False)
    assert (info["success"], info["score"], info["action"]) == (True, 1.0, "click[buy now]")
    assert info["reward_parts"]["r_att"] == 1.0
    assert info["reward_tagger"] in ("fallback", "en_core_web_sm")


def test_buying_something_else_ends_the_episode_in_failure_with_its_score():
    env = make()
    task = next(i for i in range(200) if env.panel[i].content.options and worth(env, i) == 1)
    _, reward, terminated, truncated, info = play(env, [*own_product(env, task)[:-2], "click[buy now]"], task=task)
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert not info["success"]
    assert 0 < info["score"] < 1
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("search[shoes]")


def test_fifteen_steps_without_a_purchase_are_a_failure():
    env = make()
    _, reward, terminated, truncated, info = play(env, ["search[shoes]"] * 15)
    assert (reward, terminated, truncated, info["score"], info["step"]) == (0.0, False, True, 0.0, 15)
    assert "reward_parts" not in info


@pytest.mark.parametrize(
    ("reply", "executed"),
    [
        ("search[Red  SHOES]", "search[red shoes]"),
        ("<think>a</think><action> Search[red] </action>", "search[red]"),
        ("search[<your query>]", "search[<your query>]"),
        ("CLICK[Search]", "click[search]"),
        ("click[search] now", "click[search]"),
        ("click[buy now]", INVALID),
        ("search[]", INVALID),
        ("search", INVALID),
        ("", INVALID),
    ],
)
def test_replies_are_searches_clicks_or_invalid(reply, executed):
    env = make()
    env.reset(seed=0)
    *_, info = env.step(reply)
    assert (info["action"], info["valid"]) == (executed, executed != INVALID)


def test_what_is_invalid_costs_a_step_and_changes_nothing():
    env = make()
    env.reset(seed=0)
    seen, *_, before = env.step("search[shoes]")
    again, reward, *_, info = env.step("click[no such thing]")
    assert (again, reward, info["action"], info["step"]) == (seen, 0.0, INVALID, 2)
    assert info["anchor"] == before["anchor"]


def test_options_with_brackets_or_odd_spacing_are_listed_and_taken(tmp_path):
    item = {**ITEMS[0], "customization_options": {"Kind": [{"value": "a  b"}, {"value": "c [d]"}]}}
    for name, content in (("items_shuffle", [item]), ("items_ins_v2", INSTRUCTIONS), ("items_human_ins", HUMAN)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    env = make(data="official", data_dir=str(tmp_path), panel="official", split="validation")
    env.reset(seed=0)
    env.step("search[tern]")
    *_, info = env.step("click[b000000001]")
    assert info["admissible_actions"][-2:] == ("click[a  b]", "click[c [d]]")
    *_, info = env.step("click[A b]")
    assert (info["action"], env.session.state.options) == ("click[a  b]", {"kind": "a  b"})
    *_, info = env.step("click[c [d]]")  # heard and not understood, as in the original
    assert (info["valid"], env.session.state.options) == (True, {"kind": "a  b"})


def test_the_expert_buys_options_with_odd_spacing_and_knows_of_those_with_brackets(tmp_path):
    values = [{"value": "8.4 Ounce / 250 ml"}, {"value": "b\u00a0c"}, {"value": "d [2 pack]"}]
    files = [[{**ITEMS[0], "customization_options": {"Kind": values}}], INSTRUCTIONS]
    env = make(data="official", data_dir=str(write_official(tmp_path, files)), panel="official", split="validation")
    outcomes = {}
    for task in range(len(env.panel)):
        observation, info = env.reset(seed=0, options={"task": task})
        (wanted,) = (value for _, value in env.panel[task].content.pairs)
        away, reply, valid = env.distance(), env.expert(np.random.default_rng(0)), []
        while not (env.session.reward or info["step"] == 15):
            observation, *_, info = env.step(reply(observation, info))
            valid.append(info["valid"])
        total = env.session.reward and env.session.reward.total
        outcomes[wanted] = (away, total == 1.0, total is not None and all(valid))
    assert outcomes == {
        "8.4 ounce  |  250 ml": (4, True, True),
        "b\u00a0c": (math.inf, False, True),  # the original's rule of colours lets nothing win it
        "d [2 pack]": (math.inf, False, True),
    }


def test_goals_that_no_product_has_are_told_by_their_kind(tmp_path):
    folder = str(write_official(tmp_path, [ITEMS, INSTRUCTIONS]))
    for panel in ("official", "by_product"):
        with pytest.raises(ValueError, match="goals='human' needs items_human_ins.json"):
            make(data="official", data_dir=folder, panel=panel, split="validation", goals="human")


def test_the_panels_are_those_they_say_they_are():
    shop = open_shop()
    ordered = [make_panel(shop, "official", split) for split in ("validation", "train")]
    assert len(ordered[0]) == 500
    assert sum(map(len, ordered)) == len(shop.goals)
    assert len(make_panel(shop, "official", "test")) == 500
    sides = {split: make_panel(shop, "by_product", split) for split in ("train", "validation", "test")}
    assert sum(map(len, sides.values())) == len(shop.goals)
    asins = {split: {panel[i].content.asin for i in range(len(panel))} for split, panel in sides.items()}
    for split, own in asins.items():
        assert {split_of(asin) for asin in own} == {split}
    assert sides["train"][3].id == "webshop-by_product-v2/train/3"


def test_verl_validates_on_what_another_worker_trains_on():
    validation = make(panel="verl", split="validation").panel
    train = make(panel="verl", split="train").panel
    assert make(panel="verl", split="train", price_seed=1000).shop is make(panel="verl", split="validation").shop
    validated, trained = (
        {(panel[i].content.asin, panel[i].content.options) for i in range(len(panel))} for panel in (validation, train)
    )
    assert len(validated & trained) > 0.5 * len(validated)
    assert [validation[i].text for i in range(20)] != [make(split="validation").panel[i].text for i in range(20)]


def test_millions_of_synthetic_goals_are_refused(monkeypatch):
    monkeypatch.setattr("crbc_envs.webshop.shop.open.MOST_SYNTHETIC", 999)
    with pytest.raises(ValueError, match="1,000 products have millions of synthetic goals; .*goals='human'"):
        open_shop(price_seed=77)
    assert open_shop(goals="human", price_seed=77).goals


def test_a_shop_of_one_category_sells_as_much_and_nothing_else():
    shop = make(category="electronics").shop
    products = [shop.catalogue[number] for number in range(len(shop.catalogue))]
    assert len(products) == len(make().shop.catalogue)
    assert {product.category for product in products} == {"electronics"}
    assert len(shop.goals) > 1000


def test_a_page_of_results_has_as_many_products_as_are_asked_for():
    def results(per_page, *clicks):
        env = make(per_page=per_page)
        env.reset(seed=0)
        for action in ("search[shoes]", *clicks):
            seen = env.step(action)[0]
        return re.findall(r"B0GEN\w{5}", seen)

    assert results(10) == [*results(4), *results(4, "click[next >]"), *results(4, "click[next >]", "click[next >]")[:2]]
    assert len(results(4)) == 4


def test_a_shop_is_shared_by_all_environments_of_its_kind():
    assert make().shop is make(split="validation", observation="text", anchor="state").shop
    assert make(price_seed=1).shop is not make().shop


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observation": "image"}, "observation must be one of text_rich, text, html, url; got 'image'"),
        ({"anchor": "page"}, "anchor must be one of paper, situation, observation, state; got 'page'"),
        ({"panel": "mine"}, "panel must be one of by_kind, official, by_product, verl; got 'mine'"),
        ({"split": "dev"}, "split must be one of train, validation, test; got 'dev'"),
        ({"goals": "both"}, "goals must be one of synthetic, human; got 'both'"),
        ({"data": "mine"}, "data must be one of generated, official; got 'mine'"),
        ({"tagger": "nltk"}, "tagger must be one of auto, spacy, fallback; got 'nltk'"),
        ({"category": "books"}, "category must be one of beauty, electronics, garden, fashion, grocery; got 'books'"),
        ({"category": "beauty", "data": "official"}, "category is of the embedded catalogue; data is 'official'"),
        ({"per_page": 0}, "per_page must be at least 1, got 0"),
        ({"max_steps": 0}, "max_steps must be at least 1 and a whole number, got 0"),
        ({"data": "official", "data_dir": "/nowhere"}, "/nowhere: there is no items_shuffle"),
    ],
)
def test_a_wrong_argument_is_named(options, message):
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        make(**options)


FORMS = {"anchor": "state", "observation": "html"}, {"observation": "url", "goals": "human"}


@pytest.mark.usefixtures("one_hash_seed")
@pytest.mark.parametrize("options", FORMS)
def test_our_checker_is_content_with_the_other_forms_too(options):
    env = gymnasium.make("CRBC-WebShop-v0", split="validation", panel="by_product", **options)
    report = crbc_envs.check_anchor_env(env, fuzz=50, episodes=4, split_tasks=1)
    assert not report.skipped


def test_html_and_url_have_the_anchors_of_text_rich():
    anchors = set()
    for observation in ("text_rich", "html", "url"):
        env = make(observation=observation)
        env.reset(seed=0, options={"task": 3})
        anchors.add(env.step("search[shoes]")[-1]["anchor"])
    assert len(anchors) == 1


def test_a_group_shares_one_shop_and_counts_its_members_steps():
    with closing(gymnasium.make_vec("CRBC-WebShop-v0", num_envs=3)) as envs:
        _, info = envs.reset(seed=0, options={"task": 5})
        envs.step([f"search[{info['task'][0]}]"] * 3)
        (counts,) = envs.transition_counts()
    assert [count for _, count in counts.items()] == [3]
    assert len({id(env.shop) for env in envs.members.envs}) == 1


def prompts(style, *actions):
    env = make()
    window = PromptWindow.of(env.unwrapped, style)
    seen, info = env.reset(seed=0, options={"task": 0})
    shown = [window.prompt(seen, info)]
    for action in actions:
        window.record(seen, action)
        seen, *_, info = env.step(action)
        shown.append(window.prompt(seen, info))
    return info["task"], shown


def test_the_papers_prompt_holds_task_page_and_actions():
    task, (prompt,) = prompts("text")
    assert prompt.startswith(
        "You are an expert autonomous agent operating in the WebShop e-commerce environment. "
        f"Your task is to: {task}.\nYou are now at step 1 and your current observation is: [button] Search [button_]\n"
        "Your admissible actions for the current situation are: ['search[<your query>]',\n'click[search]'].\n"
    )
    assert prompt.endswith("present it within <action>...</action>.")
    assert prompt.count(task) == 1


def test_the_papers_prompt_tells_the_last_two_steps():
    _, (*_, prompt) = prompts("text", "search[shoes]", "click[next >]", "click[< prev]")
    assert "you have already taken 3 step(s)" in prompt
    assert "most recent 2 observations" in prompt
    assert "[Observation 2: '[button] Back to Search" in prompt
    assert "Action 3: 'click[< prev]']" in prompt
    assert "Action 1:" not in prompt


def test_a_prompt_that_is_too_long_leaves_the_history_out():
    window = PromptWindow.of(make().unwrapped, "text")
    info = {"task": "buy", "admissible_actions": ("click[a]",), "step": 1}
    window.record("x" * 20_000, "click[a]")
    assert "Prior to this step" not in window.prompt("page", info)
    window.record("x", "click[a]")
    window.record("x", "click[a]")
    assert "Prior to this step" in window.prompt("page", info)


def test_the_compact_prompt_writes_actions_as_a_reply_does():
    task, (first, second) = prompts("compact", "search[shirt for men or women]")
    assert first == f"Task: {task.lower()}\nsearch[...]\nYour action?"
    lines = second.split("\n")
    assert lines[:3] == [f"Task: {task.lower()}", "click[back to search]", "click[next >]"]
    assert lines[3].startswith("click[b0")
    assert "[button]" not in second
    assert all(line == line.lower() for line in lines[1:-1])


@pytest.mark.parametrize("observation", ["text", "html", "url"])
def test_the_compact_prompt_lists_the_actions_of_pages_without_buttons(observation):
    env = make(observation=observation)
    text, info = env.reset(seed=0)
    window = PromptWindow.of(env, "compact")
    assert "\nsearch[...]\n" in window.prompt(text, info)
    text, *_, info = env.step("search[shirt]")
    shown = window.prompt(text, info)
    assert [line for line in shown.splitlines() if line.startswith("click[")] == list(info["admissible_actions"])
    assert without_task(text, info["task"]).lower() in shown, "and the page as it is"
    assert window.prompt("[...]\n" + text[-60:], info).count("[...]\n") == 1, "cut off in front"


def test_the_compact_prompt_keeps_every_line_that_differs_between_pages():
    env = make()
    env.reset(seed=0)
    seen = env.step("search[shirt]")[0]
    asin = re.search(r"B0GEN\w{5}", seen)[0].lower()
    item, *_, info = env.step(f"click[{asin}]")
    shown = compact(without_task(item, info["task"])).splitlines()
    assert len(shown) == len([line for line in without_task(item, info["task"]).splitlines() if line.strip()]) - 1
    assert "Rating: N.A." in item and not any("Rating" in line for line in shown)
    price = next(line for line in item.splitlines() if line.startswith("Price: "))
    title = item.splitlines()[item.splitlines().index(price) - 1]
    assert {price, title[:LONGEST_LINE], "click[buy now]", "click[features]", "click[< prev]"} <= set(shown)


def test_the_compact_prompt_cuts_texts_and_no_action():
    value = "a very long value " * 9
    lines = compact(f"[button] {value.strip()} [button_]\n{value}\n[clicked button] red [clicked button_]").splitlines()
    assert lines == [f"click[{value.strip()}]", value[:LONGEST_LINE], "click[red*]"]
    page = "color\n  [button] Red [button_]\n  [clicked button] light blue [clicked button_]\n[button] < Prev [button_]"
    assert compact(page).splitlines() == ["color", "red", "light blue*", "click[< prev]"]


def test_the_compact_prompt_says_that_a_reply_was_refused():
    env = make()
    text, info = env.reset(seed=0)
    window = PromptWindow.of(env, "compact")
    before = window.prompt(text, info)
    for reply, refused in (("click[nothing]", True), ("search[shirt]", False)):
        seen = text
        text, *_, info = env.step(reply)
        window.record(seen, info["action"])
        assert ("That is not possible.\n" in window.prompt(text, info)) == refused
    assert "possible" not in before


def _as_heard(action):
    """The original tells "CLICK" from "click" and does not hear it; here replies are read in lower case."""
    return action if action.startswith(("click", "search")) else ""


@needs_published
def test_the_environment_plays_the_recorded_walks():
    env = make(data="official", data_dir=str(PUBLISHED), tagger="fallback", max_steps=1000)
    walks = (PUBLISHED / "original_walks_text_rich.jsonl").read_text(encoding="utf-8").splitlines()
    played = 0
    for recorded in map(json.loads, walks):
        index = recorded["g"] - 500
        if index < 0:
            continue
        seen, info = env.reset(seed=0, options={"task": index})
        for step in recorded["rec"]:
            if step["a"] is not None:
                seen, reward, terminated, _, info = env.step(_as_heard(step["a"]))
                assert (terminated, info["score"]) == (step["d"], step["r"])
                assert reward == (10.0 if step["r"] == 1 else 0.0)
            assert seen.split() == step["o"].split()  # replies reach the shop with single spaces
            bar = ["search[<your query>]"] if step["sb"] else []
            assert list(info["admissible_actions"]) == bar + [f"click[{what}]" for what in step["av"]]
            played += 1
    assert played > 300
