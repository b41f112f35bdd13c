"""What is written is whole and never goes through a link; what is read is bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crbc_envs.errors import DataError
from crbc_envs.storage.files import parse_json, read_bytes, read_json, replace_file, replacing, replacing_folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with replacing(path) as file:
        file.write(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after" and names(tmp_path) == ["file"]


def test_after_an_error_the_file_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", "half"])
    assert path.read_bytes() == b"before" and names(tmp_path) == ["file"]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    with replacing(tmp_path / "file"):
        pass
    (tmp_path / "usual").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    for name, to in (("link", target), ("dangling", tmp_path / "nowhere")):
        link = tmp_path / name
        link.symlink_to(to)
        with pytest.raises(DataError, match="is a link to"), replacing(link):
            pass
        with pytest.raises(DataError, match="is a link to"), replacing_folder(link):
            pass
    assert target.read_bytes() == b"precious" and names(tmp_path) == ["dangling", "link", "target"]


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for content in ("first", "second"):
        with replacing_folder(path) as fresh:
            (fresh / content).touch()
        assert names(path) == [content] and names(tmp_path) == ["folder"]
    with pytest.raises(FileNotFoundError), replacing_folder(path) as fresh:
        (fresh / "missing" / "third").touch()
    assert names(path) == ["second"] and names(tmp_path) == ["folder"]


def test_a_folder_that_cannot_be_moved_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, replace = tmp_path / "folder", os.replace
    path.mkdir()
    (path / "kept").touch()

    def failing(source: Path, target: Path) -> None:
        if Path(source).name == "new":
            raise OSError("no")
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="no"), replacing_folder(path):
        pass
    assert names(path) == ["kept"] and names(tmp_path) == ["folder"]


def test_what_is_no_json_or_too_large_is_a_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 1_000_000)
    path = tmp_path / "file.json"
    path.write_text('{"a": [1]}')
    assert read_json(path) == {"a": [1]} and read_bytes(path, 10) == b'{"a": [1]}'
    with pytest.raises(ValueError, match="more than 9 bytes"):
        read_bytes(path, 9)
    path.write_bytes(b'"\xff"')
    with pytest.raises(ValueError, match="utf-8"):
        read_json(path)


def test_an_error_names_the_path_that_was_given(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "nowhere/a.html", tmp_path / "folder"):
        with pytest.raises(OSError, match="directory") as refused:
            replace_file(path, b"page")
        assert (refused.value.filename, refused.value.filename2) == (str(path), None)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
