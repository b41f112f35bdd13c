"""The release script: what it changes, what it refuses, and that the archives are made of what it changed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from paths import ROOT


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts/release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_changes_in_every_place_and_nothing_else_does(release: ModuleType) -> None:
    for name, text in release.plan("9.9.1").items():
        before, after = (ROOT / name).read_text(encoding="utf-8").splitlines(), text.splitlines()
        new = [line for line in after if line not in before]
        assert len(new) == 1 and "9.9.1" in new[0], name
        assert set(before) <= set(after) or name != "CHANGELOG.md"


@pytest.mark.parametrize("version", ["0.0.1", "0.1.0", "v0.2.0", "next", ""])
def test_a_version_that_is_none_or_not_above_is_refused(release: ModuleType, version: str) -> None:
    with pytest.raises(SystemExit, match=r"a release needs a version such as 0\.2\.0 above"):
        release.plan(version)


def test_a_place_that_is_gone_or_twice_is_refused(release: ModuleType) -> None:
    for text in ("", "version: 1\nversion: 2\nversion: 3\n"):
        with pytest.raises(SystemExit, match=r"CITATION\.cff names the version in [02] places"):
            release.changed("CITATION.cff", text, "0.2.0", "2026-01-01")


def test_archives_are_made_of_the_changed_files(release: ModuleType, tmp_path: Path) -> None:
    release.build({"crbc_rl/version.py": '__version__ = "9.9.1"\n'}, tmp_path)
    assert sorted(made.name for made in (tmp_path / "dist").iterdir()) == [
        "crbc-9.9.1-py3-none-any.whl",
        "crbc-9.9.1.tar.gz",
    ]
