"""The wheel and the source archive are the product: whoever installs one needs no clone."""

from __future__ import annotations

import email
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from effort import FULL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT, SUPPORT

from crbc_rl.version import __version__

SETS = "updates=2 rollout.num_groups=2 rollout.group_size=4 eval.every=2 eval.episodes=4 eval.test_episodes=4"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel and a source archive of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True, capture_output=True
    )
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def test_the_wheel_holds_what_its_users_need_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    for folder in ("configs", "warmstarts"):
        files = [path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*") if path.is_file()]
        assert files and {f"crbc_rl/shipped/{file}" for file in files} <= names
    assert {f"{package}/py.typed" for package in ("anchors", "crbc_envs", "crbc_rl", "crbc_lab")} <= names
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {
        *("anchors", "crbc_envs", "crbc_rl", "crbc_lab"),
        "crbc_verifiers.py",
    }
    assert built[0].stat().st_size < 25 * 2**20  # two adapters of SmolLM2 are 19 MB of it


def test_the_metadata_is_complete(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        place = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(wheel.read(place))
        scripts = wheel.read(place.replace("METADATA", "entry_points.txt")).decode()
    for field in ("Name", "Version", "Summary", "License-Expression", "Author", "Keywords", "Requires-Python"):
        assert told[field], field
    assert told["Description-Content-Type"] == "text/markdown" and "# crbc" in told.get_payload()
    assert "Typing :: Typed" in told.get_all("Classifier", []) and "crbc = crbc_lab.cli:main" in scripts


def test_the_source_archive_has_all_that_the_wheel_has_and_the_tests(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive, zipfile.ZipFile(built[0]) as wheel:
        sources = {name.partition("/")[2] for name in archive.getnames()}
        wheeled = {name.removeprefix("crbc_rl/shipped/") for name in wheel.namelist() if ".dist-info/" not in name}
    assert wheeled <= sources
    assert {"README.md", "LICENSE", "NOTICE", "tests/test_distribution.py", "scripts/train.sh"} <= sources


class Installed:
    """An environment of its own, and commands run in it from an empty folder."""

    def __init__(self, folder: Path, work: Path) -> None:
        venv.create(folder, with_pip=True)
        self.bin, self.work = folder / "bin", work
        # No Chromium on the PATH: the site refuses before it is played.
        self.variables = {**os.environ, "PATH": str(self.bin), "COLUMNS": "80"}
        self.variables.pop("PYTHONPATH", None)

    def run(self, *command: str | Path, status: int = 0) -> str:
        """What a command printed."""
        done = subprocess.run(command, cwd=self.work, env=self.variables, capture_output=True, text=True, check=False)
        assert done.returncode == status, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def pip(self, *what: str) -> None:
        self.run(self.bin / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *what)

    def lend(self, extra: str) -> None:
        """Link the packages that an extra of crbc requires, and that those require, from the environment of the tests:
        installing torch once more takes minutes. What is there already stays."""
        (site,) = self.bin.parent.glob("lib/python*/site-packages")
        there = {canonicalize_name(found.name): found for found in metadata.distributions(path=[str(site)])}
        wanted, seen = [Requirement(f"crbc[{extra}]")], set()
        for requirement in wanted:  # which grows
            name = canonicalize_name(requirement.name)
            if (key := (name, frozenset(requirement.extras))) in seen:
                continue
            seen.add(key)
            found = there.get(name) or metadata.distribution(name)
            for one in map(Requirement, found.requires or []):
                for which in ("", *requirement.extras):
                    if one.marker is None or one.marker.evaluate({"extra": which}):
                        wanted.append(one)
            if name not in there:
                for top in {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}:
                    if not (site / top).exists():
                        (site / top).symlink_to(found.locate_file(top))

    def crbc(self, *args: str, status: int = 0) -> str:
        return self.run(self.bin / "crbc", *args, status=status)


@pytest.mark.full
def test_the_core_of_the_source_archive_plays_every_id(built: tuple[Path, Path], tmp_path: Path) -> None:
    there = Installed(tmp_path / "env", tmp_path)
    there.pip(str(built[1]))
    found = json.loads(there.run(there.bin / "python", SUPPORT / "core_play.py").splitlines()[-1])
    assert all(found[name]["reward"] > 0 for name in ("CRBC-ALFWorld-v0", "CRBC-Sokoban-v0", "CRBC-WebShop-v0"))
    assert re.search(r"selenium is missing: .* -m pip install .*\[site\]", found["CRBC-WebShopSite-v0"]["refused"])
    assert re.search(r" -m pip install .*\[alfworld\]", found["textworld"]["refused"])
    assert re.search(r" -m pip install .*\[sokoban\]", found["gym-sokoban"]["refused"])
    assert all("reward" in came or "refused" in came for came in found.values())


@pytest.mark.full
def test_the_wheel_trains_evaluates_and_reports_from_an_empty_folder(built: tuple[Path, Path], tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    there = Installed(tmp_path / "env", work)
    there.pip(str(built[0]))
    assert there.crbc("--version") == f"crbc {__version__}\n"

    refused = there.crbc("train", "sokoban-tiny", status=2)
    assert refused.startswith("error: the crbc command needs anyio, filelock") and refused.count("\n") == 1
    if FULL:
        there.pip(f"torch=={_torch()}")  # as the set-up script does, since the ordinary build brings gigabytes
    else:
        there.lend("train")
    there.run(*shlex.split(refused.rpartition("not installed here: ")[2]))

    sets = ["--set", *SETS.split()]
    assert "a plan; nothing is started" in there.crbc("train", "sokoban-tiny", "--dry-run")
    trained = there.crbc("train", "sokoban-tiny", *sets)
    assert "held-out success" in trained and (work / "runs/sokoban-tiny-seed0/report.html").is_file()
    assert "4 test tasks" in there.crbc("eval", "runs/sokoban-tiny-seed0")
    assert "report.html" in there.crbc("report", "runs/sokoban-tiny-seed0")
    for name in ("alfworld-tiny", "webshop-tiny"):
        assert "held-out success" in there.crbc("train", name, *sets, "--set", "updates=1")
    assert "saved" in there.crbc("warmstart", "warmstart-sokoban", "--steps", "2")
    assert (work / "warmstarts/sokoban-tiny/model.safetensors").is_file()
    assert "nothing is missing that training needs" in there.crbc("doctor")
    assert {path.name for path in work.iterdir()} == {"runs", "warmstarts"}


def _torch() -> str:
    import torch

    return str(torch.__version__).partition("+")[0]
