"""The web site as a server: every kind of page, hostile addresses, and who may reach it. No browser is needed."""

from __future__ import annotations

import http.client
import re
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webshop_catalogue import shop

from crbc_envs.local_server import serving
from crbc_envs.webshop.products.catalogue import MemoryCatalogue, products_of
from crbc_envs.webshop.search.engine import SearchEngine, build
from crbc_envs.webshop.shop.panels import WebShopPanel
from crbc_envs.webshop.shop.session import Session
from crbc_envs.webshop.shop.shop import Shop
from crbc_envs.webshop.site.address import SHOPPER, address, read_address
from crbc_envs.webshop.site.server import Site, SiteServer

TO_SHOE = ("search[tern shoe]", "click[b000000001]")
WALKS = {
    "index": (),
    "results": TO_SHOE[:1],
    "later results": (*TO_SHOE[:1], "click[next >]"),
    "visited results": (*TO_SHOE, "click[< prev]"),
    "item": TO_SHOE,
    "options": (*TO_SHOE, "click[small]", "click[dark blue]", 'click[28" wide]'),
    "description": (*TO_SHOE, "click[description]"),
    "features": (*TO_SHOE, "click[features]"),
    "reviews": (*TO_SHOE, "click[small]", "click[reviews]"),
    "done": (*TO_SHOE, "click[small]", "click[buy now]"),
    "category": ("search[<c> fashion]", "click[b000000004]", "click[< prev]", "click[next >]", "click[< prev]"),
    "query": ("search[<q> shoe racks]",),
    "random": ("search[<r> two]", "click[b000000003]", "click[< prev]"),
    "random item": ("search[<r>]", "click[next >]", "click[< prev]", "click[b000000004]", "click[reviews]"),
}
HOSTILE = ("\"'><img src=x onerror=alert(1)><script>alert(1)</script>", "a&page=9#x", "%3Cb%3E&lt;é😀\u0000")


def site_of(opened):
    return Site(opened, WebShopPanel("test", "train", opened.goals))


@pytest.fixture(scope="module")
def site():
    return site_of(shop())


@pytest.fixture(scope="module")
def server(site):
    with SiteServer(site) as opened, serving(opened):
        yield opened


def walked(opened, actions, goal=0):
    walker = Session(opened, opened.goals[goal], SHOPPER)
    for action in actions:
        walker.act(action)
    return walker


class Document(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and the texts of its nodes."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.nodes, self._around = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.tags.append((tag, named))
        node, href = self._around[-1][1:] if self._around else (None, None)
        href = named.get("href", href)
        if "data-role" in named:
            assert node is None, "nodes lie side by side"
            clicked, group = named.get("aria-current") == "true", named.get("data-group", "")
            node = [named["data-role"], "", clicked, group, href if named["data-role"] != "text" else None]
            self.nodes.append(node)
        if tag not in ("meta", "link", "img", "input"):
            self._around.append((tag, node, href))

    def handle_data(self, data):
        if self._around and self._around[-1][1] is not None:
            self._around[-1][1][1] += data

    def handle_endtag(self, tag):
        assert self._around.pop()[0] == tag

    def all(self, name):
        return [attrs for tag, attrs in self.tags if tag == name]


def get(server, target, host=None, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(method, target, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


@pytest.mark.parametrize("name", WALKS)
def test_every_page_says_what_the_page_model_says(site, name):
    walker = walked(site.shop, WALKS[name])
    answer = site.respond(address(0, walker.state))
    found = Document(answer.body).nodes
    assert [(role, text, clicked, group) for role, text, clicked, group, _ in found] == [
        (node.role, node.text, node.clicked, node.group) for node in walker.page.nodes
    ]
    assert walker.page.kind == "done" or walker.goal.text in answer.body


@pytest.mark.parametrize("name", WALKS)
def test_every_link_leads_where_the_click_leads(site, name):
    walker = walked(site.shop, WALKS[name])
    for role, text, _, _, href in Document(site.respond(address(0, walker.state)).body).nodes:
        if href is not None:
            after = walked(site.shop, WALKS[name])
            after.act(f"click[{text if role == 'option' else text.lower()}]")
            assert href == address(0, after.state), text
            assert read_address(href, site.shop)[1].text() == after.state.text()


@pytest.mark.parametrize("name", WALKS)
def test_pages_need_no_script_and_nothing_from_elsewhere(server, name):
    walker = walked(server.site.shop, WALKS[name])
    answer, body = get(server, address(0, walker.state))
    document = Document(body)
    assert answer.status == 200
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self'")
    assert not document.all("script") and not document.all("iframe") and not document.all("img")
    assert not [name for _, attrs in document.tags for name in attrs if name.startswith("on") or name == "style"]
    links = [attrs.get(key, "/") for _, attrs in document.tags for key in ("href", "src", "action")]
    assert all(re.match(r"(/(?!/)|#)", link) for link in links)


def test_the_stylesheet_loads_nothing(server):
    answer, body = get(server, "/style.css")
    assert answer.headers["Content-Type"].startswith("text/css")
    assert "url(" not in body and "@import" not in body and "http" not in body


@pytest.mark.parametrize("name", WALKS)
def test_every_page_has_a_language_a_title_one_main_part_and_labelled_inputs(site, name):
    document = Document(site.respond(address(0, walked(site.shop, WALKS[name]).state)).body)
    assert document.all("html") == [{"lang": "en"}]
    assert len(document.all("title")) == len(document.all("main")) == 1
    assert document.all("h1")
    labelled = {label["for"] for label in document.all("label")}
    for field in document.all("input"):
        assert field["type"] == "hidden" or field["id"] in labelled
    ids = [attrs["id"] for _, attrs in document.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in document.tags:
        assert attrs.get("aria-describedby", "main") in ids
        assert "tabindex" not in attrs


@pytest.mark.parametrize("query", HOSTILE)
def test_what_is_typed_is_escaped_and_comes_back_the_same(server, query):
    _, body = get(server, f"/goal/0/results?{urlencode({'q': 'tern ' + query})}")
    document = Document(body)
    assert not document.all("script") and not document.all("img")
    assert not [name for _, attrs in document.tags for name in attrs if name.startswith("on")]
    assert next(attrs["value"] for attrs in document.all("input") if attrs["id"] == "query") == f"tern {query}".lower()
    link = next(href for role, *_, href in document.nodes if role == "link")
    assert " ".join(read_address(link, server.site.shop)[1].keywords) == f"tern {query}".lower()


@pytest.mark.parametrize("name", WALKS)
def test_the_search_box_remembers_the_query(site, name):
    walker = walked(site.shop, WALKS[name])
    fields = Document(site.respond(address(0, walker.state)).body).all("input")
    shown = [field["value"] for field in fields if field.get("id") == "query"]
    asked = WALKS[name][0].removeprefix("search[").removesuffix("]") if WALKS[name] else ""
    assert shown == ([] if walker.page.kind == "done" else [asked])


def test_what_was_chosen_shows_even_where_the_original_marks_nothing(site):
    walker = walked(site.shop, WALKS["options"])
    links = Document(site.respond(address(0, walker.state)).body).all("a")
    chosen = [attrs for attrs in links if attrs.get("class") == "value chosen"]
    assert walker.state.options == {"size": '28" wide', "color": "dark blue"}
    assert ["aria-current" in attrs for attrs in chosen].count(True) == 1  # not the value with a quote
    assert len(chosen) == 2


def test_products_that_hold_markup_are_shown_as_text():
    item = {
        "name": '<b>Bold</b> & "quoted"\rlamp',
        "asin": "B000000009",
        "full_description": "<script>alert(1)</script>",
        "small_description": ["<i>", ""],
        "pricing": "$5.00",
        "customization_options": {"<u>kind</u>": [{"value": 'a"><img src=x>'}, {"value": "b&b"}]},
        "category": "x",
        "query": "lamp",
        "product_category": "A",
    }
    instructions = {"B000000009": {"attributes": ["x"], "instruction": "<s>find</s>", "instruction_attributes": ["x"]}}
    catalogue = MemoryCatalogue(products_of([item], instructions, {}))
    opened = Shop(catalogue, SearchEngine(build(catalogue)))
    for actions in (
        ("search[bold]",),
        ("search[bold]", "click[b000000009]"),
        ("search[bold]", "click[b000000009]", "click[b&b]", "click[description]"),
    ):
        walker = walked(opened, actions)
        document = Document(site_of(opened).respond(address(0, walker.state)).body)
        assert [node[1] for node in document.nodes] == [node.text for node in walker.page.nodes]
        assert not {"b", "script", "i", "u", "s", "img"} & {tag for tag, _ in document.tags}


NOWHERE = """
/nothing /goal/x /goal/999999 /goal/0/index /goal/0/results/1 /goal/0/results?q=a&page=x /goal/0/results?q=a&seen=B0
/goal/0/item?q=a&asin=B0 /goal/0/item?q=a /goal/0/item?q=a&asin=B000000001&option.size=none /goal?number=
/goal/0/details?q=a&asin=B000000001&about=Attributes //elsewhere/goal/0 /../../etc/passwd
"""


@pytest.mark.parametrize("target", NOWHERE.split())
def test_an_address_that_leads_nowhere_is_not_found_and_says_why(server, target):
    answer, body = get(server, target)
    assert answer.status == 404
    assert "<h1>Not found</h1>" in body


def test_what_is_not_found_leads_back_to_its_goal_or_to_the_beginning(site):
    for target, back in (
        ("/goal/2/item?q=a&asin=B0", "/goal/2"),
        ("/goal/2/nothing", "/goal/2"),
        ("/goal/999999/results?q=a", None),
        ("/nothing", None),
        ("//[x", None),
    ):
        document = Document(site.respond(target).body)
        assert [attrs["href"] for attrs in document.all("a") if "goal" in attrs["href"]] == [back] * (back is not None)
        assert [form["action"] for form in document.all("form")] == ["/draw", "/goal"]
        assert (site.panel[2].content.text in site.respond(target).body) == (back is not None)


@pytest.mark.parametrize("asin", HOSTILE)
def test_an_error_is_shown_as_text(site, asin):
    body = site.respond(f"/goal/0/item?{urlencode({'q': 'a', 'asin': asin})}").body
    document = Document(body)
    assert not document.all("script") and not document.all("img")
    assert not [name for _, attrs in document.tags for name in attrs if name.startswith("on")]


@given(st.text(max_size=60))
def test_no_address_breaks_the_site(site, target):
    item = "/goal/0/item?"
    for start in ("", "/", "//", "/goal/", "/goal/0/results?q=", item, f"{item}asin=B000000001&option."):
        assert site.respond(start + target).status in (200, 303, 404)


@pytest.mark.parametrize("target", ["", "//[x", "//\u2100/goal/0", "/\x00"])
def test_what_is_no_address_is_not_found(site, target):
    assert site.respond(target).status == 404


@given(st.lists(st.sampled_from(["search[a  b]", "search[ shoe ]", "search[search_results]"]), max_size=2), st.data())
def test_an_address_holds_the_whole_state(searches, data):
    opened = shop()
    walker = walked(opened, searches)
    for _ in range(6):
        if walker.page.clickables:
            walker.act(f"click[{data.draw(st.sampled_from(list(walker.page.clickables)))}]")
    goal, state = read_address(f"http://127.0.0.1:1{address(2, walker.state)}", opened)
    assert goal == 2
    one, other = ((each.text(), each.url(), list(each.options)) for each in (state, walker.state))
    assert one == other


def test_half_a_surrogate_pair_is_replaced_as_browsers_do():
    walker = walked(shop(), ["search[a \ud800]"])
    assert address(0, walker.state) == "/goal/0/results?q=a+%EF%BF%BD&page=1"


def test_a_search_without_words_stays_on_the_first_page(server):
    answer, _ = get(server, "/goal/1/results?q=")
    assert (answer.status, answer.headers["Location"]) == (303, "/goal/1")


def test_the_same_seed_draws_the_same_goals():
    drawn = [[site.respond("/draw").location for _ in range(5)] for site in (site_of(shop()), site_of(shop()))]
    assert drawn[0] == drawn[1]
    assert site_of(shop()).respond("/goal?number=4").location == "/goal/4"
    assert 'max="' in site_of(shop()).respond("/").body


def test_only_this_machine_is_served_unless_it_is_told_otherwise(site, server):
    with pytest.raises(ValueError, match="got '0.0.0.0', where other machines could reach the shop"):
        SiteServer(site, "0.0.0.0")
    assert server.server_address[0] == "127.0.0.1"
    for host in ("shop.example", "127.0.0.1", f"shop.example:{server.port}"):
        assert get(server, "/", host)[0].status == 421
    assert get(server, "/", f"localhost:{server.port}")[0].status == 200
    with SiteServer(site, exposed=True) as exposed:
        assert exposed.allows_host("shop.example")


def test_nothing_can_be_posted(server):
    assert get(server, "/goal/0", method="POST")[0].status == 501


def test_many_people_may_shop_at_once(server):
    from concurrent.futures import ThreadPoolExecutor

    targets = [f"/goal/{i % 3}/results?q=shoe&page={i % 4 + 1}" for i in range(60)]
    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(lambda target: get(server, target)[1], targets))
    assert bodies == [get(server, target)[1] for target in targets]
