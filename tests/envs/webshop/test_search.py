"""The analyser and the search engine, held to Lucene's."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from webshop_catalogue import PUBLISHED, catalogue, needs_published, published

from crbc_envs.errors import DataError
from crbc_envs.webshop.products.catalogue import MemoryCatalogue, products_of, read_catalogue
from crbc_envs.webshop.products.generate import generate_catalogue
from crbc_envs.webshop.search import pruning
from crbc_envs.webshop.search.analyser import analyse, words
from crbc_envs.webshop.search.engine import LENGTHS, Index, SearchEngine, build, searched_text
from crbc_envs.webshop.search.porter import stem


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        # the examples of Porter's paper
        *[("caresses", "caress"), ("ponies", "poni"), ("ties", "ti"), ("caress", "caress"), ("cats", "cat")],
        *[("feed", "feed"), ("agreed", "agre"), ("plastered", "plaster"), ("bled", "bled"), ("motoring", "motor")],
        *[("sing", "sing"), ("conflated", "conflat"), ("troubled", "troubl"), ("sized", "size"), ("hopping", "hop")],
        *[("tanned", "tan"), ("falling", "fall"), ("hissing", "hiss"), ("fizzed", "fizz"), ("failing", "fail")],
        *[("filing", "file"), ("happy", "happi"), ("sky", "sky"), ("relational", "relat"), ("rational", "ration")],
        *[("vietnamization", "vietnam"), ("sensibiliti", "sensibl"), ("triplicate", "triplic"), ("hopeful", "hope")],
        *[("goodness", "good"), ("adoption", "adopt"), ("irritant", "irrit"), ("homologous", "homolog")],
        *[("probate", "probat"), ("rate", "rate"), ("cease", "ceas"), ("controll", "control"), ("roll", "roll")],
        # the two departures, and short words
        *[("possibly", "possibl"), ("technology", "technolog"), ("us", "us"), ("as", "as")],
    ],
)
def test_words_are_stemmed_as_porter_says(word, expected):
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("red-white shoes", ["red", "white", "shoes"]),
        ("U.S. men's o'clock", ["U.S", "men's", "o'clock"]),
        ("description:solid 3:4", ["description:solid", "3", "4"]),
        ("$40.00, 1,000 5.x v2.0", ["40.00", "1,000", "5", "x", "v2.0"]),
        ("snake_case _ __x", ["snake_case", "__x"]),
        ("it’s 1⁄2 décor", ["it’s", "1⁄2", "décor"]),
        ("锅巴 ヽノ 일품", ["锅", "巴", "ヽノ", "일품"]),
        ("🌸🌈❤️ ™ ★ ◆ 👨\u200d💼", ["🌸", "🌈", "❤️", "™", "★", "👨\u200d💼"]),
        ("🇩🇪 a\u0301b x\u200by", ["🇩🇪", "a\u0301b", "x", "y"]),
        ("", []),
        # where they differ from Lucene's, as the module says
        ('צה"ל', ["צה", "ל"]),
        ("ג' א", ["ג", "א"]),
        ("ไทยabc5 ไทย日", ["ไทยabc5", "ไทย", "日"]),
        ("ភាសាabc မြန်မာabc ລາວabc", ["ភាសាabc", "မြန်မာabc", "ລາວabc"]),
        ("🇩 🇩🇪🇫", ["🇩", "🇩🇪", "🇫"]),
        ("1️⃣2️⃣ 3️⃣ #️⃣ *️⃣", ["1️⃣2️⃣", "3️⃣"]),
    ],
)
def test_words_are_cut_by_unicodes_rules(text, expected):
    assert words(text) == expected


def test_analysis_drops_possessives_and_stop_words_and_cuts_long_words():
    assert analyse("İpek") == ["i\u0307pek"]
    assert [len(word) for word in words("a" * 600)] == [255, 255, 90]
    assert analyse("The women's shoes of Women’S SHOES are not it") == ["women", "shoe", "women", "shoe"]


@given(st.text(max_size=80))
def test_ascii_takes_the_fast_way_to_the_same_words(text):
    plain = text.encode("ascii", "ignore").decode()
    beyond = words(plain + " é")
    assert beyond.pop() == "é"
    assert beyond == words(plain)


def test_the_byte_of_a_length_is_exact_below_forty_and_grows():
    assert LENGTHS[:41].tolist() == list(range(41))
    assert LENGTHS[[41, 48, 49, 60]].tolist() == [42, 56, 60, 120]
    assert (np.diff(LENGTHS) > 0).all()


def found(engine, query, count=50):
    return [number for number, _ in engine.search(query, count)]


def test_title_description_first_bullet_and_options_are_searched():
    products = catalogue()
    engine = SearchEngine(build(products))
    assert searched_text(products[0]) == (
        'tern running shoe a light shoe. rubber sole color: dark blue, red | white, and size: 9, 28" wide, small'
    )
    assert [found(engine, query) for query in ("light", "blue", "machine", "oak tables")] == [[0], [0], [], [2]]
    assert sorted(found(engine, "shoes")) == [0, 1, 3]


def test_rare_words_and_short_texts_rank_higher_and_words_may_be_repeated():
    engine = SearchEngine(build(catalogue()))
    (first, score), *_ = engine.search("shoe")
    assert first == 3
    assert found(engine, "walking shoe")[0] == 1
    assert engine.search("shoe shoe")[0] == (3, pytest.approx(2 * score))
    assert found(engine, "shoe", count=2) == found(engine, "shoe")[:2]
    assert engine.search("the zzzz") == engine.search("") == []


def test_equal_scores_go_by_asin_whatever_the_order_of_the_catalogue():
    twins = [dataclasses.replace(catalogue()[2], asin=f"B00000000{i}") for i in (7, 3, 9, 1)]
    engine = SearchEngine(build(MemoryCatalogue(twins)))
    assert found(engine, "oak") == [3, 1, 0, 2]
    assert found(engine, "oak", count=2) == [3, 1]


QUERIES = (
    "shoe",
    "black",
    "women's running shoes with color: black, and size: 9, and price lower than 60.00 dollars",
    "i am looking for a long lasting lipstick in red, and it should be cruelty free",
    "set of 2 pack of 6 pack of 6 with gift box",
    "zzzz black for",
)


def small_ranges(monkeypatch):
    """Ranges so small that a small catalogue has many, and peaks for most terms."""
    for name, value in (("pruning.RANGE", 8), ("pruning.FREQUENT", 12), ("pruning._FIRST", 2)):
        monkeypatch.setattr(f"crbc_envs.webshop.search.{name}", value)


def test_a_pruned_search_finds_what_a_whole_scan_finds(monkeypatch):
    products = MemoryCatalogue(products_of(*generate_catalogue(4, 1200)))
    queries = [*QUERIES, *(products[number].instruction or products[number].title for number in range(60))]
    whole = SearchEngine(build(products))
    small_ranges(monkeypatch)
    index = build(products)
    assert 0 < (index.rows >= 0).sum() < len(index.rows)
    expected = {count: [whole.search(query, count) for query in queries] for count in (1, 10, 50)}
    read = []
    score = pruning._score
    monkeypatch.setattr(pruning, "_score", lambda terms, chosen, _: read.append(len(chosen)) or score(terms, chosen, _))
    monkeypatch.setattr("crbc_envs.webshop.search.engine.FEW", 0)
    pruned = SearchEngine(index)
    for count, found in expected.items():
        read.clear()
        assert [pruned.search(query, count) for query in queries] == found
        assert sum(read) < 0.8 * len(queries) * len(products) / 8, "it need not read everything"


def test_peaks_are_bounds(monkeypatch):
    small_ranges(monkeypatch)
    products = MemoryCatalogue(products_of(*generate_catalogue(4, 300)))
    index = build(products)
    saturation = SearchEngine(index)._saturation
    for number in range(len(index.rows)):
        documents, codes = index.postings(number)
        ranges, peaks = pruning.peaks_of(documents, codes, saturation)
        given = 1 - 1 / saturation[codes].astype(np.float64)
        for place, peak in zip(ranges, peaks, strict=True):
            highest = given[documents // 8 == place].max()
            assert highest <= peak / pruning.FULL < highest + 1 / pruning.FULL
        if (stored := index.peaks_of(number)) is not None:
            assert np.flatnonzero(stored).tolist() == ranges.tolist()
            assert stored[ranges].tolist() == peaks.tolist()


def test_an_index_on_disk_ranks_as_the_one_in_memory(tmp_path):
    products = catalogue()
    index = build(products)
    index.save(tmp_path)
    mapped = Index.open(tmp_path)
    assert isinstance(mapped.documents.base, np.memmap)
    mapped.check(products)
    for query in ("shoe", "tern shoe rubber", "blue oak", "sole"):
        assert SearchEngine(mapped).search(query) == SearchEngine(index).search(query)


def test_an_index_that_is_not_of_these_products_is_refused(tmp_path):
    products = catalogue()
    others = MemoryCatalogue([dataclasses.replace(products[i], title="Other") for i in range(5)])
    for strangers in (others, MemoryCatalogue([products[0]])):
        with pytest.raises(DataError, match="belongs to other products"):
            build(products).check(strangers)
    with pytest.raises(DataError, match="not a search index"):
        Index.open(tmp_path)
    index = build(products)
    dataclasses.replace(index, sizes=np.array([99, 1])).save(tmp_path)
    with pytest.raises(DataError, match="index format 99, expected 3"):
        Index.open(tmp_path)
    ends = index.postings_end.copy()
    ends[-1] = 10**12
    short = index.letters_end[:-1]
    for damage in ({"postings_end": ends}, {"letters_end": short}, {"sizes": index.sizes[:0]}):
        dataclasses.replace(index, **damage).save(tmp_path)
        with pytest.raises(DataError, match="the search index is damaged"):
            Index.open(tmp_path)
    index.save(tmp_path)
    (tmp_path / "codes.npy").write_bytes((tmp_path / "codes.npy").read_bytes()[:-9])
    with pytest.raises(DataError, match="not a search index"):
        Index.open(tmp_path)


@needs_published
def test_recorded_queries_rank_as_lucene_ranked_them():
    products = read_catalogue(PUBLISHED)
    engine = SearchEngine(build(products))
    asins = products.asins()
    for recorded in published("lucene_rankings.json")["queries"]:
        assert analyse(recorded["query"]) == recorded["tokens"]
        hits = engine.search(recorded["query"])
        assert [asins[number] for number, _ in hits] == [asin for asin, _ in recorded["hits"]], recorded["query"]
        # Lucene's scores were recorded to four decimals, ties told apart by the last digits
        assert [score for _, score in hits] == pytest.approx([score for _, score in recorded["hits"]], abs=2e-4)
