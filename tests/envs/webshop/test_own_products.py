"""Products files of others: one error that names product and field, or a shop that works."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

from crbc_envs.errors import DataError
from crbc_envs.storage.datasets import install
from crbc_envs.webshop.products.catalogue import MemoryCatalogue, products_of, read_catalogue
from crbc_envs.webshop.products.generate import generate_catalogue
from crbc_envs.webshop.products.store import build_official_store
from crbc_envs.webshop.search.engine import SearchEngine, build
from crbc_envs.webshop.shop.goals import MOST_GOALS, draw
from crbc_envs.webshop.shop.layout import rows
from crbc_envs.webshop.shop.official import DATASET, HUMAN, SETS
from crbc_envs.webshop.shop.panels import WebShopPanel
from crbc_envs.webshop.shop.session import OBSERVATIONS, Session
from crbc_envs.webshop.shop.shop import Shop
from crbc_envs.webshop.site.address import SHOPPER, address
from crbc_envs.webshop.site.server import Site

NESTED = [[["deep"]], {"a": [{"value": {"value": 1}}]}]
SWAPS = [None, 0, -1.5, 7, True, False, "", "text", "x" * 100_000, "\ud800", "a\x00\x1b\n\t b", "é", [], ["a"], [None]]
SWAPS += [{}, {"a": 1}, {"a": "b"}, {"a": None}, {"value": "x"}, float("nan"), float("inf"), NESTED, "$9$", "b0c1"]

FILES = ("items", "items_ins_v2", "items_human_ins")


def stock():
    """The three files, of a few products: the first has options, and instructions of both kinds."""
    items, instructions, human = copy.deepcopy(generate_catalogue(2, 40))
    asked = [item for item in items if instructions[item["asin"]].get("instruction")]
    chosen = next(item for item in asked if item["asin"] in human and item["customization_options"])
    few = [chosen, *[item for item in asked if item is not chosen][:2]]
    return [few, {item["asin"]: instructions[item["asin"]] for item in few}, {chosen["asin"]: human[chosen["asin"]]}]


def places(value, path=()):
    """The path of every value in a file: containers and what they hold."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*path, key))


def swapped(files, file, path, value):
    """The files with another value at a path."""
    files = copy.deepcopy(files)
    at = files[file] if path else files
    for key in path[:-1]:
        at = at[key]
    at[path[-1] if path else file] = value
    return json.loads(json.dumps(files))


def shop_of(products):
    catalogue = MemoryCatalogue(products)
    return Shop(catalogue, SearchEngine(build(catalogue)), tagger="fallback")


def refusal(files):
    """What the error says that refuses the files. None: everything was tried in their shop."""
    try:
        shop = shop_of(products_of(*files))
    except DataError as error:
        return str(error)
    try_everything(shop)
    return None


def try_everything(shop):
    """Open every product, read its pages in every form, choose its options and buy it, here and on the site."""
    draw(shop.catalogue, "human", 0)
    if not shop.goals:
        return
    site = Site(shop, WebShopPanel("own", "train", shop.goals))
    for product in (shop.catalogue[number] for number in range(len(shop.catalogue))):
        session = Session(shop, shop.goals[0], SHOPPER)
        session.act("search[the]")
        session.state.click(product.asin.lower())
        session.page = shop.page(session.state, session.goal)
        for action in ("click[description]", "click[< prev]", "click[features]", "click[< prev]"):
            read(session, site)
            session.act(action)
        for what, group in [pair for pair in session.page.clickables.items() if pair[1] is not None]:
            session.act(f"click[{what}]")
            assert session.state.options[group] == what
            read(session, site)
        session.act("click[buy now]")
        read(session, site)
        assert session.reward is not None
        assert session.state.asin == product.asin


def read(session, site):
    for mode in OBSERVATIONS:
        assert isinstance(session.observation(mode), str)
        session.page.anchor(mode)
    rows(session)
    session.goal.digest()
    site.respond(address(0, session.state)).body.encode("utf-8", "replace")
    assert site.respond(address(0, session.state)).status == 200


@pytest.mark.parametrize("file", range(3), ids=FILES)
def test_any_swap_is_an_error_with_product_and_field_or_a_shop_that_works(file):
    files, rng = stock(), np.random.default_rng(file)
    asin, refused, worked = files[0][0]["asin"], 0, 0
    first = (0,) if file == 0 else (asin,)
    for path in [path for path in places(files[file]) if path[:1] == first or (file and not path)]:
        for i in rng.permutation(len(SWAPS))[:9].tolist():
            changed = swapped(files, file, path, SWAPS[i])
            said = refusal(changed)
            if said is None:
                worked += 1
                continue
            refused += 1
            field = next((str(part) for part in path if part not in (0, asin)), FILES[file] if file else "item 0")
            assert field in said, (path, SWAPS[i])
            assert len(path) < 2 or path[-1] == "asin" or asin in said, (path, SWAPS[i])
            assert "\n" not in said
            assert len(said) < 600
    assert refused > 50
    assert worked > 5


def tree(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, content in zip((*SETS["small"], HUMAN), files, strict=True):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "home"))
    install(DATASET, [write(tmp_path / "good", stock())])
    return tmp_path / "home" / "webshop"


BAD = [
    (0, (0, "name"), None, "name: None is no text"),
    (0, (2, "customization_options"), {"size": "small"}, "customization_options 'size': 'small' is no list"),
    (0, (1, "images"), "x.jpg", "images: 'x.jpg' is no list"),
    (0, (), 5, "items_shuffle_1000.json"),
    (0, (), [], "items_shuffle_1000.json"),
    (1, (), [1], "items_ins_v2_1000.json"),
    (2, (), [1], "items_human_ins"),
]


@pytest.mark.parametrize(("file", "path", "value", "said"), BAD)
def test_a_bad_file_leaves_the_good_store_byte_for_byte(tmp_path, home, file, path, value, said):
    before = tree(home.parent)
    bad = write(tmp_path / "bad", swapped(stock(), file, path, value))
    with pytest.raises(DataError, match=said) as caught:
        install(DATASET, [bad])
    assert "unpacking" not in str(caught.value)
    assert tree(home.parent) == before
    with pytest.raises(DataError, match=said):
        read_catalogue(bad)


@pytest.mark.parametrize("full", [False, True])
def test_an_instruction_without_attributes_is_refused_before_it_is_installed(tmp_path, home, full):
    files = stock()
    asin = files[0][0]["asin"]
    files[1][asin]["instruction_attributes"] = []
    bad, before = write(tmp_path / "bad", files), tree(home.parent)
    for small, large in zip(SETS["small"], SETS["full"], strict=True):
        if full:
            (bad / small).rename(bad / large)
    with pytest.raises(DataError, match=f"the instruction of {asin} has no instruction_attributes"):
        install(DATASET, [bad])
    assert tree(home.parent) == before


def test_options_of_which_each_combination_would_be_a_goal_are_limited():
    files = stock()
    options = {f"group {i}": [{"value": str(value)} for value in range(50)] for i in range(5)}
    files[0][0]["customization_options"] = options
    with pytest.raises(DataError, match=f"{files[0][0]['asin']} .*312,500,000 .* at most {MOST_GOALS:,}"):
        shop_of(products_of(*files))


def test_brackets_as_deep_as_json_is_read_are_an_error_like_any_other(tmp_path):
    for file, depth in [(0, 900), (1, 970), (1, 985), (1, 994), (2, 980), (2, 990)]:
        files = stock()
        folder = write(tmp_path / f"{file}-{depth}", files)
        name = (*SETS["small"], HUMAN)[file]
        deep = "[" * depth + "]" * depth
        asin = files[0][0]["asin"]
        text = f'[{{"asin": "{asin}", "name": {deep}}}]' if file == 0 else f'{{"{asin}": {deep}}}'
        (folder / name).write_text(text)
        paths = [folder / name for name in (*SETS["small"], HUMAN)]
        with pytest.raises(DataError, match=name.replace("_1000.json", "")):
            build_official_store(tmp_path / "store", *paths)
        with pytest.raises(DataError, match=name.replace("_1000.json", "")):
            read_catalogue(folder)


def test_a_product_longer_than_a_store_reads_is_refused_with_its_name(tmp_path):
    files = stock()
    files[0][0]["full_description"] = "あ" * (6 << 20)
    folder = tmp_path / "long"
    folder.mkdir()
    for name, content in zip((*SETS["small"], HUMAN), files, strict=True):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    paths = [folder / name for name in (*SETS["small"], HUMAN)]
    with pytest.raises(DataError, match=f"product {files[0][0]['asin']} .* bytes"):
        build_official_store(tmp_path / "store", *paths)
    assert not (tmp_path / "store").exists()
