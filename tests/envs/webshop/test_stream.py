"""Files too large to load, read one entry at a time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crbc_envs.errors import DataError
from crbc_envs.webshop.products.stream import array_entries, object_entries

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
layouts = st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False}, {"separators": (",", ":")}])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("stream") / "data.json"


@given(entries=st.lists(values), layout=layouts, chunk=st.integers(1, 40))
def test_an_array_is_read_as_json_reads_it_whatever_the_window(file, entries, layout, chunk):
    file.write_text(json.dumps(entries, **layout), encoding="utf-8", errors="surrogatepass")
    assert list(array_entries(file, chunk=chunk)) == entries


@given(entries=st.dictionaries(st.text(), values), layout=layouts, chunk=st.integers(1, 40))
def test_an_object_is_read_as_json_reads_it_whatever_the_window(file, entries, layout, chunk):
    file.write_text(json.dumps(entries, **layout), encoding="utf-8", errors="surrogatepass")
    assert list(object_entries(file, chunk=chunk)) == list(entries.items())


@pytest.mark.parametrize("text", ["", "{}", "[1, 2", "[1 2]", "[1,]", '[{"a": }]', "[1] 2", "[nonsense]"])
def test_what_is_not_an_array_is_refused_with_file_and_place(file, text):
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"data\.json: not the expected JSON, at entry \d"):
        list(array_entries(file))


def test_bytes_that_are_no_text_are_refused(file):
    file.write_bytes(b'["\xff\xfe"]')
    with pytest.raises(DataError, match="not UTF-8"):
        list(array_entries(file))


def test_progress_runs_to_the_size_of_the_file(file):
    file.write_text(json.dumps(list(range(1000))), encoding="utf-8")
    seen: list[tuple[int, int]] = []
    assert list(array_entries(file, lambda done, size: seen.append((done, size)), chunk=100)) == list(range(1000))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (file.stat().st_size, file.stat().st_size)
