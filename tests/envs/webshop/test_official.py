"""Official files put in place: checked, turned into a store and an index, and opened again."""

from __future__ import annotations

import json
import tarfile

import numpy as np
import pytest
from webshop_catalogue import PUBLISHED, needs_published, write_official

from crbc_envs.errors import DataError
from crbc_envs.storage.datasets import install, verify
from crbc_envs.webshop.products.catalogue import products_of
from crbc_envs.webshop.products.generate import generate_catalogue
from crbc_envs.webshop.shop.official import DATASET, HUMAN, SETS, open_official
from crbc_envs.webshop.shop.open import _kept, open_shop


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "home"))
    _kept.cache_clear()
    return tmp_path / "home" / "webshop"


@pytest.fixture
def stock():
    return generate_catalogue(2, 60)


@pytest.mark.parametrize("size", ["small", "full"])
def test_a_set_is_installed_and_opened(tmp_path, home, stock, size):
    found = install(DATASET, [write_official(tmp_path / "files", stock, size)])
    assert found.startswith(f"{size}: 60 products, {len(stock[2])} of them with instructions by people")
    catalogue, index = open_official()
    assert list(catalogue) == list(products_of(*stock))
    assert len(index.products) == 60
    assert verify(DATASET) == found
    assert sorted(path.name for path in home.iterdir()) == sorted([*SETS[size], HUMAN, "manifest.json", size])


def test_an_archive_is_a_source_too(tmp_path, stock):
    folder = write_official(tmp_path / "raw", stock)
    with tarfile.open(tmp_path / "webshop-small.tar.gz", "w:gz") as archive:
        archive.add(folder, "raw")
    assert install(DATASET, [tmp_path / "webshop-small.tar.gz"]).startswith("small: 60 products")


def test_the_small_set_is_opened_before_the_full_one(tmp_path, home, stock):
    install(DATASET, [write_official(tmp_path / "full", generate_catalogue(3, 80), "full")])
    install(DATASET, [write_official(tmp_path / "small", stock)])
    assert len(open_official()[0]) == 60
    assert len(open_official(home / "full")[0]) == 80


def test_copies_that_are_not_the_published_files_are_named(tmp_path, stock):
    found = install(DATASET, [write_official(tmp_path / "files", stock)])
    assert "not those of the original" in found
    for name in (*SETS["small"], HUMAN):
        assert f"{name} is another copy than the published one" in found


def test_people_s_instructions_may_be_absent(tmp_path, stock):
    found = install(DATASET, [write_official(tmp_path / "files", stock[:2])])
    assert "0 of them with instructions by people" in found


def test_half_a_set_is_refused(tmp_path, home, stock):
    folder = write_official(tmp_path / "files", stock, "full")
    (folder / SETS["full"][1]).unlink()
    with pytest.raises(DataError, match=r"items_ins_v2\.json: missing; the full set needs"):
        install(DATASET, [folder])
    assert not home.exists()


def test_people_s_instructions_alone_are_no_set(tmp_path, stock):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / HUMAN).write_text(json.dumps(stock[2]))
    with pytest.raises(DataError, match="alone is not a set of products"):
        install(DATASET, [tmp_path / "files"])


def cut(raw, at, rng):
    return raw[:at]


def flipped(raw, at, rng):
    return raw[:at] + bytes([raw[at] ^ int(rng.integers(1, 256))]) + raw[at + 1 :]


@pytest.mark.parametrize("damage", [cut, flipped])
@pytest.mark.parametrize("name", [*SETS["small"], HUMAN])
def test_a_file_damaged_anywhere_is_one_error_with_its_name_and_the_command(tmp_path, stock, name, damage):
    """Or none, where what is left is a sound file that says something else."""
    folder = write_official(tmp_path / "files", stock)
    raw, rng, said = (folder / name).read_bytes(), np.random.default_rng(0), []
    for at in rng.integers(len(raw) - 8, size=8).tolist():
        (folder / name).write_bytes(damage(raw, at, rng))
        for read in (lambda: install(DATASET, [folder]), lambda: open_shop("official", str(folder), tagger="fallback")):
            _kept.cache_clear()
            try:
                read()
            except DataError as error:
                said.append(str(error))
    assert len(said) == 16 if damage is cut else len(said) > 4
    for message in said:
        assert name.replace("_1000.json", "") in message
        assert message.endswith("crbc data webshop --from DIR")


def test_without_data_the_error_says_how_to_get_it():
    with pytest.raises(DataError, match="crbc data webshop --from DIR"):
        open_official()


def test_an_index_of_other_products_is_refused(tmp_path, home, stock):
    install(DATASET, [write_official(tmp_path / "one", stock)])
    install(DATASET, [write_official(tmp_path / "two", generate_catalogue(3, 60), "full")])
    (home / "small" / "index").rename(tmp_path / "aside")
    (home / "full" / "index").rename(home / "small" / "index")
    with pytest.raises(DataError, match="belongs to other products"):
        open_official()


def test_a_shop_over_the_store_is_the_shop_over_the_files(tmp_path, home, stock):
    folder = write_official(tmp_path / "files", stock)
    install(DATASET, [folder])
    stored, read = (open_shop("official", place, tagger="fallback") for place in (None, str(folder)))
    assert stored.goals == read.goals
    assert stored.prices == read.prices
    for query in ("long lasting shampoo", "storage for the living room", "black size small", "gluten free snack"):
        assert stored.hits(query) == read.hits(query)
    assert open_shop("official", str(home / "small"), tagger="fallback").goals == read.goals


@needs_published
def test_the_published_small_set_is_recognised():
    found = install(DATASET, [PUBLISHED])
    assert "small: 1,000 products, 13 of them" in found
    assert "6,910 goals, those of the original, in its order" in found
    assert "items_ins_v2_1000.json is another copy" not in found


def test_the_command_installs_and_checks(tmp_path, capsys, stock):
    from crbc_lab.cli import main

    main(["data", "webshop", "--from", str(write_official(tmp_path / "files", stock))])
    assert "small: 60 products" in capsys.readouterr().out
    main(["data", "webshop"])
    assert "small: 60 products" in capsys.readouterr().out


def test_an_installed_shop_is_that_of_the_data_home_of_now(home, tmp_path, stock, monkeypatch):
    install(DATASET, [write_official(tmp_path / "files", stock)])
    assert len(open_shop("official", goals="human").catalogue) == 60
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(DataError, match="elsewhere/webshop: no products"):
        open_shop("official", goals="human")
