"""Pages and where actions lead, trap by trap, and the walks recorded from the original."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webshop_catalogue import PUBLISHED, needs_published, session, shop

from crbc_envs.webshop.products.catalogue import read_catalogue
from crbc_envs.webshop.search.engine import SearchEngine, build
from crbc_envs.webshop.shop.goals import shuffled
from crbc_envs.webshop.shop.open import open_shop
from crbc_envs.webshop.shop.pages import texts
from crbc_envs.webshop.shop.session import Session, parse
from crbc_envs.webshop.shop.shop import Shop


def walk(*actions, **options):
    walker = session(**options)
    for action in actions:
        walker.act(action)
    return walker


def body(walker):
    return "".join(walker.page.rich)


TO_SHOE = ("search[tern shoe]", "click[b000000001]")


@pytest.mark.parametrize(
    ("action", "parsed"),
    [
        ("search[Red Shoes]", ("search", "red shoes")),
        ("click[Buy Now] and more", ("click", "buy now")),
        ("click[< prev]", ("click", "< prev")),
        ("search[a] b]", ("search", "a] b")),
        ("search[ ]", ("search", " ")),
        ("search[a]\n]", ("search", "a")),
        ("search[]", None),
        ("click[a [b]]", None),  # the last bracket counts
        ("Click[a]", None),
        ("search [a]", None),
        ("search[a\nb]", None),
        ("[a]", None),
        ("jump", None),
        ("", None),
    ],
)
def test_actions_are_read_as_the_originals_pattern_reads_them(action, parsed):
    assert parse(action) == parsed


@given(st.text(alphabet="ab[]\n ", max_size=12), st.sampled_from(["search", "click", ""]))
def test_the_pattern_is_the_originals(rest, word):
    match = re.match(r"(.+)\[(.+)\]", word + rest)
    expected = match.groups() if match and match[1] in ("search", "click") else None
    assert parse(word + rest) == expected


def test_the_first_page_has_a_search_bar_and_a_button_that_does_nothing():
    walker = session()
    text = walker.goal.text
    assert walker.observation("text_rich") == f"WebShop\nInstruction: \n{text}\n[button] Search [button_]\n"
    assert walker.observation("text") == f"WebShop [SEP] Instruction: [SEP] {text} [SEP] Search"
    assert walker.page.actions == ("search[<your query>]", "click[search]")
    before = walker.page
    walker.act("click[search]")
    assert walker.page is before


def test_results_show_ten_products_a_page_and_mark_those_that_were_visited():
    walker = walk("search[walking shoe]", "click[b000000002]", "click[< prev]")
    assert body(walker) == (
        "[button] Back to Search [button_]\nPage 1 (Total results: 3)\n[button] Next > [button_]\n"
        "\n[clicked button] B000000002 [clicked button_]\nTern Walking Shoe\n$25.5\n"
        "\n[button] B000000004 [button_]\nShoe Rack\n$100.0\n"
        "\n[button] B000000001 [button_]\nTern Running Shoe\n$30.0 to $50.0\n"
    )
    assert list(walker.page.clickables) == ["back to search", "next >", "b000000002", "b000000004", "b000000001"]


def test_there_is_always_a_next_page():
    walker = walk("search[shoe]", "click[next >]", "click[next >]")
    assert body(walker) == (
        "[button] Back to Search [button_]\nPage 3 (Total results: 3)\n[button] < Prev [button_]\n"
        "[button] Next > [button_]\n"
    )
    walker.act("click[< prev]")
    assert walker.state.page == 2


def test_an_item_shows_its_options_and_says_what_was_clicked_the_last_one_first():
    walker = walk(*TO_SHOE, "click[small]", "click[dark blue]", "click[red | white]")
    assert body(walker) == (
        "You have clicked small.\nYou have clicked red | white.\n"
        "[button] Back to Search [button_]\n[button] < Prev [button_]\n"
        "color\n  [button] dark blue [button_]\n  [clicked button] red | white [clicked button_]\n"
        'size\n  [button] 9 [button_]\n  [button] 28" wide [button_]\n  [clicked button] small [clicked button_]\n'
        "Tern Running Shoe\nPrice: $30.0 to $50.0\nRating: N.A.\n"
        "[button] Description [button_]\n[button] Features [button_]\n[button] Reviews [button_]\n"
        "[button] Buy Now [button_]\n"
    )
    assert walker.state.options == {"size": "small", "color": "red | white"}
    assert list(walker.page.clickables)[2:7] == ["description", "features", "reviews", "buy now", "dark blue"]


def test_a_value_with_a_quote_is_chosen_and_never_shown_so():
    walker = walk(*TO_SHOE, 'click[28" wide]')
    assert walker.state.options == {"size": '28" wide'}
    assert "clicked" not in body(walker)


def test_a_value_that_was_searched_for_in_quotes_is_shown_as_clicked():
    walker = walk('search[tern "small" shoe]', "click[b000000001]")
    assert walker.state.options == {}
    assert body(walker).startswith("You have clicked small.\n")


def test_details_go_back_to_the_item_with_its_options():
    walker = walk(*TO_SHOE, "click[small]", "click[Features]")
    assert body(walker) == (
        "[button] Back to Search [button_]\n[button] < Prev [button_]\n Rubber sole\n \n Machine wash\n"
    )
    walker.act("click[< prev]")
    assert walker.state.options == {"size": "small"}
    texts_of = {name: body(walk(*TO_SHOE, f"click[{name}]")).split("\n")[2:] for name in ("description", "reviews")}
    assert texts_of == {"description": ["A light shoe.", ""], "reviews": [""]}


def test_leaving_an_item_forgets_its_options_and_going_back_to_search_everything():
    walker = walk(*TO_SHOE, "click[small]", "click[< prev]", "click[b000000001]")
    assert (walker.state.options, walker.state.visited) == ({}, {"B000000001"})
    walker.act("click[back to search]")
    assert walker.state == session().state


def test_search_works_on_every_page_and_what_is_not_there_cannot_be_clicked():
    walker = walk(*TO_SHOE, "click[reviews]", "search[oak]")
    assert "Page 1 (Total results: 1)" in body(walker)
    before = walker.page
    for action in ("click[b000000001]", "click[buy now]", "click[]", "search[]", "open", ""):
        assert not walker.executable(action)
        walker.act(action)
        assert walker.page is before


def test_every_page_has_the_originals_address():
    base = "http://127.0.0.1:3000"
    urls = {
        (): f"{base}/me",
        ("search[  oak  table ]",): f"{base}/search_results/me/++oak++table+/1",
        TO_SHOE: f"{base}/item_page/me/B000000001/tern+shoe/1/{{}}",
        (*TO_SHOE, "click[small]"): f'{base}/item_page/me/B000000001/tern+shoe/1/{{"size": "small"}}',
        (*TO_SHOE, "click[small]", "click[reviews]"): (
            f"{base}/item_sub_page/me/B000000001/tern+shoe/1/Reviews/{{'size': 'small'}}"
        ),
        (*TO_SHOE, "click[buy now]"): f"{base}/done/me/B000000001/{{}}",
    }
    for actions, url in urls.items():
        assert walk(*actions).observation("url") == url


def test_a_query_that_looks_like_an_address_misleads_the_way_back_as_it_did():
    walker = walk("search[search_results shoe]", "click[b000000001]", "click[< prev]")
    assert walker.state.page == 0
    assert "Page 0 (Total results: 3)" in body(walker)


def test_a_purchase_ends_on_a_page_with_its_reward():
    walker = walk(*TO_SHOE, "click[dark blue]", "click[9]", "click[buy now]")
    assert walker.reward is not None
    assert walker.page.actions == ()
    lines = walker.observation("text_rich").split("\n")
    thanks = ["Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)"]
    assert lines[:5] == [*thanks, "Purchased"]
    assert lines[lines.index("options") + 1] == '{"color": "dark blue", "size": "9"}'
    assert lines[lines.index("Your score (min 0.0, max 1.0)") + 1] == str(walker.reward.total)


def test_texts_are_those_an_html_parser_leaves():
    assert [node.text for node in texts(["a", "", " ", "\t ", "\n", " \n ", "\u00a0"])] == ["a", " ", " ", "\u00a0"]


class Reader(HTMLParser):
    """Texts, and what can be clicked, the way the original reads them from a document."""

    def __init__(self):
        super().__init__()
        self.tag, self.texts, self.buttons, self.links, self.values = "", [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tag = tag
        named = dict(attrs)
        if named.get("type") == "radio":
            self.values.append(named["value"])

    def handle_data(self, data):
        self.texts.append(data)
        if self.tag == "button":
            self.buttons.append(data.lower())
        if self.tag == "a":
            self.links.append(data.lower())


PAGES = (), TO_SHOE[:1], TO_SHOE, (*TO_SHOE, "click[features]"), (*TO_SHOE, "click[buy now]")


@pytest.mark.parametrize("actions", PAGES)
def test_the_document_of_a_page_has_the_texts_and_clickables_of_the_page(actions):
    walker = walk(*actions)
    reader = Reader()
    reader.feed(walker.observation("html"))
    assert " [SEP] ".join(text.strip() for text in reader.texts) == walker.observation("text")
    assert tuple(dict.fromkeys(reader.buttons + reader.links + reader.values)) == tuple(walker.page.clickables)


def test_the_anchor_of_a_page_leaves_out_the_task_and_keeps_what_was_clicked():
    one, other = (walk(*TO_SHOE, "click[small]", goal=goal) for goal in (0, 6))
    assert one.observation("text_rich") != other.observation("text_rich")
    assert one.page.payload("text_rich") == other.page.payload("text_rich")
    assert one.page.anchor("text_rich") == other.page.anchor("text_rich")
    unclicked = walk(*TO_SHOE).page
    assert unclicked.anchor("text_rich") != one.page.anchor("text_rich")
    assert unclicked.anchor("text") == one.page.anchor("text")


def test_state_tells_apart_what_pages_hide():
    hidden = walk(*TO_SHOE, "click[small]", "click[reviews]"), walk(*TO_SHOE, "click[9]", "click[reviews]")
    assert hidden[0].page is not hidden[1].page
    assert hidden[0].page.payload("text_rich") == hidden[1].page.payload("text_rich")
    assert hidden[0].state.text() != hidden[1].state.text()
    assert walk(*TO_SHOE, "click[9]", "click[small]").state.text() == walk(*TO_SHOE, "click[small]").state.text()


def test_sessions_share_pages_and_nothing_else():
    opened = shop()
    one, other = (Session(opened, opened.goals[0], name) for name in ("one", "other"))
    for action in (*TO_SHOE, "click[small]"):
        one.act(action)
    assert other.state.kind == "index"
    for action in TO_SHOE:
        other.act(action)
    assert other.state.options == {}
    assert one.state.options == {"size": "small"}
    other.act("click[small]")
    assert other.page is one.page


@needs_published
@pytest.mark.parametrize("mode", ["text_rich", "text"])
def test_recorded_walks_replay_without_a_difference(mode):
    products = read_catalogue(PUBLISHED)
    opened = Shop(products, SearchEngine(build(products)), price_seed=0, tagger="fallback")
    ordered = shuffled(opened.goals)
    compared = 0
    for line in (PUBLISHED / f"original_walks_{mode}.jsonl").read_text(encoding="utf-8").splitlines():
        recorded = json.loads(line)
        walker = Session(opened, ordered[recorded["g"]], recorded["sess"])
        for step in recorded["rec"]:
            if step["a"] is not None:
                walker.act(step["a"])
            assert walker.observation(mode) == step["o"], (recorded["sess"], step["a"])
            assert list(walker.page.clickables) == step["av"]
            assert (walker.page.kind == "index") == step["sb"]
            assert (walker.reward is not None) == step["d"]
            assert (walker.reward.total if walker.reward else 0) == step["r"]
            compared += 1
    assert compared == {"text_rich": 368, "text": 222}[mode]


# ---- lists by their first word ----------------------------------------------------------------------


def listed(query, **options):
    """The ASINs on all results pages of a query, and what the first page says of their number."""
    walker = walk(f"search[{query}]", **options)
    found, said = [], walker.page.nodes[1].text
    while links := [node.text for node in walker.page.nodes if node.role == "link"]:
        found += links
        walker.act("click[next >]")
    return found, said


def test_a_category_or_a_query_lists_all_its_products_in_their_order():
    first, rack, last = ["B000000001", "B000000002"], ["B000000004"], ["B000000005"]
    everything = [*first, "B000000003", *rack, *last]
    assert listed("<c> fashion") == (everything, "Page 1 (Total results: 5)")
    assert listed("<C> Fashion and more", per_page=2)[0] == everything
    assert listed("<q> shoes") == ([*first, *last], "Page 1 (Total results: 3)")
    assert listed("<q> shoe  racks")[0] == []
    assert listed("<q> shoe racks")[0] == rack
    assert listed("<c> none") == ([], "Page 1 (Total results: 0)")


def test_there_is_no_limit_to_a_list_as_there_is_to_a_search():
    opened = open_shop()
    sizes = Counter(product.category for product in map(opened.catalogue.__getitem__, range(len(opened.catalogue))))
    category, size = max(sizes.items(), key=lambda pair: pair[1])
    walker = Session(opened, opened.goals[0], "me")
    walker.act(f"search[<c> {category}]")
    assert walker.page.nodes[1].text == f"Page 1 (Total results: {size})"
    assert size > 50
    assert list(walker.page.clickables)[:2] == ["back to search", "next >"]


@pytest.mark.parametrize("query", ["<a> rubber sole", "<c>", "shoe <c> fashion", " <r>"])
def test_where_the_original_fails_or_sees_another_first_word_the_words_are_searched(query):
    walker = walk(f"search[{query}]")
    assert tuple(walker.shop.found(walker.state, walker.goal)) == walker.shop.hits(query)


def test_random_products_are_fifty_of_the_shop_and_depend_on_goal_and_state_alone():
    opened = open_shop()

    def drawn(*actions, goal=0):
        walker = Session(opened, opened.goals[goal], "me")
        for action in actions:
            walker.act(action)
        return tuple(opened.found(walker.state, walker.goal)), walker

    first, walker = drawn("search[<r>]")
    assert len(set(first)) == 50
    assert walker.page.nodes[1].text == "Page 1 (Total results: 50)"
    shown = [node.text.lower() for node in walker.page.nodes if node.role == "link"]
    assert shown == [opened.catalogue[number].asin.lower() for number in first[:10]]
    assert drawn("search[<r>]")[0] == first
    others = [
        drawn("search[<r>]", goal=1),
        drawn("search[<r> again]"),
        drawn("search[<r>]", "click[next >]"),
        drawn("search[<r>]", f"click[{shown[0]}]", "click[< prev]"),
    ]
    assert len({first, *(found for found, _ in others)}) == 5
    assert drawn("search[<r>]", "click[next >]", "click[back to search]", "search[<r>]")[0] == first


def test_a_shop_of_fewer_products_shows_all_of_them_at_random():
    assert sorted(listed("<r>", per_page=50)[0][:5]) == [f"B00000000{i}" for i in range(1, 6)]
    assert listed("<r>")[1] == "Page 1 (Total results: 5)"
