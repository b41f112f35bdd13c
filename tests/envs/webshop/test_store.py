"""The catalogue on disk answers as the one in memory, is written whole or not at all, and says what is wrong."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webshop_catalogue import write_official

from crbc_envs.errors import DataError
from crbc_envs.webshop.products.catalogue import HumanInstruction, MemoryCatalogue, Product, products_of
from crbc_envs.webshop.products.generate import generate_catalogue
from crbc_envs.webshop.products.store import StoredCatalogue, build_official_store, build_store
from crbc_envs.webshop.shop.official import HUMAN, SETS

texts = st.text(max_size=12)
many_texts = st.lists(texts, max_size=3).map(tuple)
products = st.builds(
    Product,
    asin=st.from_regex(r"[A-Z0-9]{1,10}", fullmatch=True),
    title=texts,
    description=texts,
    bullets=many_texts,
    prices=st.lists(st.floats(0, 1e6), max_size=2).map(tuple),
    options=st.dictionaries(texts, many_texts, max_size=3),
    attributes=many_texts,
    category=texts,
    query=texts,
    product_category=texts,
    image=texts,
    instruction=st.none() | texts,
    instruction_attributes=many_texts,
    human=st.lists(st.builds(HumanInstruction, texts, many_texts, many_texts), max_size=2).map(tuple),
)


@pytest.fixture(scope="module")
def memory():
    return MemoryCatalogue(products_of(*generate_catalogue(5, 300)))


@pytest.fixture(scope="module")
def stored(memory, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop") / "store"
    assert build_store(folder, (memory[i] for i in range(len(memory)))) == 300
    return StoredCatalogue(folder)


def same(one, other):
    assert list(one) == list(other)
    for question in ("asins", "prices"):
        assert list(getattr(one, question)()) == list(getattr(other, question)())
    for human in (False, True):
        assert list(one.instructed(human)) == list(other.instructed(human))
    labels = {(label, getattr(product, label)) for product in one for label in ("category", "query")}
    for label, text in {*labels, ("query", "none"), ("category", "\ud800")}:
        assert list(one.labelled(label, text)) == list(other.labelled(label, text))


def test_it_answers_as_the_catalogue_in_memory(memory, stored):
    same(memory, stored)
    assert list(stored.instructed(True)) and list(stored.instructed(False))


def test_every_product_is_found_by_its_asin_and_no_other_is(memory, stored):
    for number, asin in enumerate(memory.asins()):
        assert stored.find(asin) == number
    for asin in ("", "0", "ZZZZZZZZZZ", "B0GEN", "B0GEN000000", "\u00e9", memory.asins()[0].lower(), "B0GEN\0"):
        assert stored.find(asin) is memory.find(asin) is None


@given(shelf=st.lists(products, min_size=1, max_size=6, unique_by=lambda product: product.asin))
def test_any_product_comes_back_as_it_was(tmp_path_factory, shelf):
    folder = tmp_path_factory.mktemp("any") / "store"
    build_store(folder, shelf)
    same(MemoryCatalogue(shelf), StoredCatalogue(folder))


@pytest.mark.parametrize("number", [-1, 300, 10**9])
def test_there_is_no_product_outside_the_numbers(stored, number):
    with pytest.raises(IndexError, match="not among the 300"):
        stored[number]


def test_workers_open_it_from_what_they_are_sent(stored):
    assert len(pickle.dumps(stored)) < 500
    assert copy.deepcopy(stored)[7] == stored[7]


def test_official_files_are_streamed_into_a_store(memory, tmp_path):
    folder = write_official(tmp_path / "files", generate_catalogue(5, 300))
    files = [folder / name for name in (*SETS["small"], HUMAN)]
    heard: list[tuple[int, int]] = []
    assert build_official_store(tmp_path / "store", *files, lambda *at: heard.append(at)) == 300
    same(memory, StoredCatalogue(tmp_path / "store"))
    assert heard[-1][0] == heard[-1][1] > 0


def test_a_store_takes_the_place_of_the_one_before(memory, tmp_path):
    build_store(tmp_path / "store", (memory[i] for i in range(20)))
    before = StoredCatalogue(tmp_path / "store")
    build_store(tmp_path / "store", (memory[i] for i in range(100, 130)))
    assert StoredCatalogue(tmp_path / "store")[0] == memory[100]
    assert before[19] == memory[19], "whoever reads the old one goes on reading it"
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_build_that_stops_leaves_what_was_there(memory, tmp_path):
    build_store(tmp_path / "store", (memory[i] for i in range(20)))

    def interrupted():
        yield memory[50]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_store(tmp_path / "store", interrupted())
    assert StoredCatalogue(tmp_path / "store")[0] == memory[0]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_nothing_to_store_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no products"):
        build_store(tmp_path / "store", [])
    assert list(tmp_path.iterdir()) == []


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("store.json", lambda path: path.write_text('{"version": 0, "products": 20}')),
        ("store.json", lambda path: path.write_text('{"version": 2, "products": 19}')),
        ("store.json", lambda path: path.unlink()),
        ("starts.npy", lambda path: path.unlink()),
        ("sorted.npy", cut_short),
        ("products.jsonl", cut_short),
        ("products.jsonl", lambda path: path.write_bytes(b"")),
    ],
)
def test_a_damaged_store_is_refused_with_the_command_that_mends_it(memory, tmp_path, name, damage):
    build_store(tmp_path / "store", (memory[i] for i in range(20)))
    damage(tmp_path / "store" / name)
    with pytest.raises(DataError, match=r"store.*crbc data webshop --from DIR"):
        StoredCatalogue(tmp_path / "store")
