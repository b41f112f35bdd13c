"""Official data put in place: from folders and archives, safely, whole or not at all, and checked ever after."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from dataclasses import replace
from itertools import product
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from alfworld_games import write_game
from refusals import refusal

from crbc_envs.alfworld.engine.game import GAME_FILE, TRAJECTORY_FILE
from crbc_envs.alfworld.games import official
from crbc_envs.alfworld.games.generate import generate_game
from crbc_envs.alfworld.games.official import DATASET, OfficialPanel
from crbc_envs.errors import DataError
from crbc_envs.storage import archives
from crbc_envs.storage.datasets import MANIFEST, Dataset, data_home, install, read_manifest, verify

FILES = {"notes/a.txt": b"first", "notes/deep/b.txt": b"second", "other/readme.md": b"not wanted"}

TOY = Dataset(
    name="toy",
    place=lambda path: path if path.suffix == ".txt" else None,
    check=lambda unpacked: f"{sum(1 for path in unpacked.folder.rglob('*.txt'))} notes",
    required="notes, as *.txt",
    limit=10_000,
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


def tar_of(path, files, mode="w", extra=()):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in extra:
            archive.addfile(info)
    return path


def zip_of(path, files, mode=0):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return path


def folder_of(path, files):
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


MAKERS = {
    "folder": lambda path, files: folder_of(path / "source", files),
    "tar": lambda path, files: tar_of(path / "a.tar", files),
    "tar.gz": lambda path, files: tar_of(path / "a.tar.gz", files, "w:gz"),
    "tar.xz": lambda path, files: tar_of(path / "a.tar.xz", files, "w:xz"),
    "zip": lambda path, files: zip_of(path / "a.zip", files),
}
ARCHIVES = {name: maker for name, maker in MAKERS.items() if name != "folder"}


def contents(folder):
    """Everything under a folder but the manifest, hidden things included."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def refused(source, match):
    """Installing raises one error that names the source, and leaves nothing behind."""
    with pytest.raises(DataError, match=match) as error:
        install(TOY, [source])
    assert str(source) in str(error.value)
    assert contents(data_home()) == {}


# ---- what is installed -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_wanted_is_put_in_place_from_any_source(kind, tmp_path, home):
    heard = []
    source = MAKERS[kind](tmp_path, FILES)
    assert install(TOY, [source], lambda done, total: heard.append((done, total))) == "2 notes"
    assert contents(home) == {"toy/notes/a.txt": b"first", "toy/notes/deep/b.txt": b"second"}
    assert sorted(read_manifest(home / "toy")) == ["notes/a.txt", "notes/deep/b.txt"]
    assert verify(TOY) == "2 notes"
    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1] > 0


def test_several_sources_are_installed_together(tmp_path, home):
    first = tar_of(tmp_path / "1.tar", {"one/a.txt": b"1"})
    second = zip_of(tmp_path / "2.zip", {"two/b.txt": b"2"})
    assert install(TOY, [first, second]) == "2 notes"
    assert contents(home) == {"toy/one/a.txt": b"1", "toy/two/b.txt": b"2"}


def test_a_part_is_replaced_as_a_whole_and_the_others_stay(tmp_path, home):
    install(TOY, [folder_of(tmp_path / "1", {"one/old.txt": b"old", "two/b.txt": b"2"})])
    install(TOY, [folder_of(tmp_path / "2", {"one/new.txt": b"new"})])
    assert contents(home) == {"toy/one/new.txt": b"new", "toy/two/b.txt": b"2"}
    assert sorted(read_manifest(home / "toy")) == ["one/new.txt", "two/b.txt"]


def test_what_a_killed_install_left_is_deleted_after_a_day(tmp_path, home):
    kept = [home / ".toy.recent00.tmp", home / ".toy.paper.tmp", home / ".other.8letters.tmp"]
    left = home / ".toy.8letters.tmp"
    for folder in (*kept, left):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    for folder in (kept[1], kept[2], left):
        os.utime(folder, (0, 0))
    (home / ".toy.linked00.tmp").symlink_to(tmp_path)
    install(TOY, [folder_of(tmp_path / "source", FILES)])
    assert not left.exists() and all(folder.exists() for folder in kept) and tmp_path.exists()


def test_the_folder_for_unpacking_cannot_be_guessed(tmp_path, home):
    folder_of(tmp_path / "precious", {"one/a.txt": b"mine"})
    home.mkdir()
    (home / ".toy.tmp").symlink_to(tmp_path / "precious")
    install(TOY, [folder_of(tmp_path / "1", {"one/a.txt": b"1"})])
    assert contents(home / "toy") == {"one/a.txt": b"1"}
    assert sorted(path.name for path in home.iterdir()) == [".toy.tmp", "toy"]
    assert contents(tmp_path / "precious") == {"one/a.txt": b"mine"}


def test_a_source_that_fails_its_check_changes_nothing(tmp_path, home):
    def fussy(unpacked):
        raise DataError("not good enough")

    install(TOY, [folder_of(tmp_path / "1", {"one/a.txt": b"1"})])
    strict = replace(TOY, check=fussy)
    with pytest.raises(DataError, match="not good enough"):
        install(strict, [folder_of(tmp_path / "2", {"one/a.txt": b"2"})])
    assert contents(home) == {"toy/one/a.txt": b"1"}
    assert verify(TOY) == "1 notes"


def test_a_damaged_manifest_does_not_stand_in_the_way_of_a_new_one(tmp_path, home):
    source = folder_of(tmp_path / "1", {"one/a.txt": b"1"})
    install(TOY, [source])
    (home / "toy" / MANIFEST).write_text("{")
    with pytest.raises(DataError, match=r"manifest.json: damaged .* crbc data toy --from DIR"):
        verify(TOY)
    install(TOY, [source])
    assert verify(TOY) == "1 notes"


# ---- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/../../evil.txt", "/evil.txt", "C:/evil.txt"])
@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_path_that_leads_outside_is_refused(kind, name, tmp_path):
    source = MAKERS[kind](tmp_path, {"a.txt": b"good", name: b"evil"})
    refused(source, "refused, .* outside the data folder")
    assert not list(tmp_path.rglob("evil.txt"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE], ids=str)
def test_links_and_devices_in_a_tar_are_refused(kind, tmp_path):
    info = tarfile.TarInfo("notes/link.txt")
    info.type, info.linkname = kind, "/etc/passwd"
    refused(tar_of(tmp_path / "a.tar", {"a.txt": b"good"}, extra=[info]), "refused, 'notes/link.txt' is a link or a")


def test_a_link_in_a_zip_is_a_file_with_its_target_s_name(tmp_path, home):
    install(TOY, [zip_of(tmp_path / "a.zip", {"one/link.txt": b"/etc/passwd"}, stat.S_IFLNK | 0o777)])
    assert not (home / "toy/one/link.txt").is_symlink() and contents(home) == {"toy/one/link.txt": b"/etc/passwd"}


def test_an_encrypted_zip_is_refused(tmp_path):
    path = zip_of(tmp_path / "a.zip", {"a.txt": b"secret"})
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    path.write_bytes(data)
    refused(path, "encrypted")


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_that_unpacks_to_too_much_is_refused(kind, tmp_path):
    source = MAKERS[kind](tmp_path, {"bomb.txt": bytes(20_000), "a.txt": b"good"})
    refused(source, "refused, unpacked it has more than")


def test_an_archive_of_too_many_files_is_refused(tmp_path, monkeypatch):
    source = tar_of(tmp_path / "many.tar", {"a.txt": b"1", "b.txt": b"2", "c.txt": b"3"})
    monkeypatch.setattr(archives, "MOST_MEMBERS", 2)
    refused(source, "or 2 members, which no data set of this package has")


def test_two_files_for_one_place_are_refused(tmp_path):
    flat = replace(TOY, place=lambda path: PurePosixPath("one", path.name))
    source = tar_of(tmp_path / "a.tar", {"x/a.txt": b"1", "y/a.txt": b"2"})
    with pytest.raises(DataError, match="one/a.txt is there twice"):
        install(flat, [source])


def flipped(data):
    """The data with one bit in the middle turned."""
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]


DAMAGES = {
    "truncated": lambda data: data[: len(data) * 3 // 5],
    "no archive": lambda data: b"<html>404 not found</html>",
    "flipped": flipped,
}


@pytest.mark.parametrize(
    ("kind", "damage"), [pair for pair in product(ARCHIVES, DAMAGES) if pair != ("tar", "flipped")]
)
def test_a_damaged_archive_is_an_error(kind, damage, tmp_path):
    """A tar that is not compressed has no checksum of what it holds."""
    noise = np.random.default_rng(0).bytes(6_000)
    source = MAKERS[kind](tmp_path, {"a.txt": noise[:2_000], "b.txt": noise[2_000:]})
    source.write_bytes(DAMAGES[damage](source.read_bytes()))
    refused(source, "damaged, or neither a folder nor a .tar")


def test_a_missing_source_and_one_without_what_is_wanted_are_errors(tmp_path):
    refused(tmp_path / "nowhere", "no such file or folder; give notes, .* crbc data toy --from DIR")
    refused(folder_of(tmp_path / "empty", {"a.md": b""}), "holds nothing of notes")


def test_a_home_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "file"))
    with pytest.raises(DataError, match=str(tmp_path / "file")):
        install(TOY, [folder_of(tmp_path / "1", {"one/a.txt": b"1"})])


# ---- what is checked -------------------------------------------------------------------------------


def test_a_changed_file_and_a_missing_one_are_found(tmp_path, home):
    install(TOY, [folder_of(tmp_path / "1", FILES)])
    (home / "toy/notes/a.txt").write_bytes(b"forged")
    with pytest.raises(DataError, match=r"a.txt: not what was installed, .* crbc data toy --from DIR"):
        verify(TOY)
    (home / "toy/notes/a.txt").unlink()
    with pytest.raises(DataError, match=r"a.txt: missing; .* crbc data toy --from DIR"):
        verify(TOY)


def test_verifying_what_is_not_there_says_how_to_get_it():
    with pytest.raises(DataError, match="no such file; install the data with: crbc data toy --from DIR"):
        verify(TOY)


def test_the_home_is_the_user_s_data_folder_unless_told(monkeypatch, home):
    assert data_home() == home
    monkeypatch.setenv("CRBC_DATA", "~/elsewhere")
    assert data_home() == Path.home() / "elsewhere"
    monkeypatch.delenv("CRBC_DATA")
    platformdirs = pytest.importorskip("platformdirs")
    assert data_home() == Path(platformdirs.user_data_dir("crbc"))


# ---- ALFWorld --------------------------------------------------------------------------------------


@pytest.fixture
def games(tmp_path):
    for split, family in (("train", "pick"), ("valid_seen", "heat")):
        for trial in range(2):
            game = generate_game(np.random.default_rng([trial, len(split)]), family, size="small")
            write_game(game, tmp_path / "json_2.1.1" / split / f"{family}-task" / f"trial_{trial}")
    return tmp_path / "json_2.1.1"


def test_installed_games_are_played_and_watched(games, home):
    assert install(DATASET, [games.parent]) == "train 2 games; valid_seen 2 games"
    panel = OfficialPanel("train")
    assert [panel[index].content.family for index in range(2)] == ["pick", "pick"]
    game = home / "alfworld/train/pick-task/trial_1" / GAME_FILE
    game.write_text(game.read_text().replace("put a ", "put two "))
    game.write_text(game.read_text() + " ")
    official._loaded.cache_clear()  # as in another process
    with pytest.raises(DataError, match=r"trial_1/game.tw-pddl: not what was installed"):
        panel[1]


def test_games_and_trajectories_may_come_in_archives_of_their_own(games, tmp_path):
    halves = []
    for name in (GAME_FILE, TRAJECTORY_FILE):
        files = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in sorted(games.rglob(name))}
        halves.append(zip_of(tmp_path / f"{name}.zip", files))
    with pytest.raises(DataError, match=r"its traj_data.json is missing; .* give both"):
        install(DATASET, halves[:1])
    assert install(DATASET, halves) == "train 2 games; valid_seen 2 games"


def test_the_command_installs_and_checks(games, capsys, home):
    from crbc_lab.cli import main

    main(["data", "alfworld", "--from", str(games)])
    assert "train 2 games; valid_seen 2 games" in capsys.readouterr().out
    main(["data", "alfworld"])
    assert str(home / "alfworld") in capsys.readouterr().out
    next((home / "alfworld").rglob(TRAJECTORY_FILE)).write_text("{}")
    assert "not what was installed" in refusal(capsys, "data", "alfworld")
