"""The commands that messages name: they install this package from where it came, and never from its bare name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from crbc_envs import errors
from crbc_envs.errors import UNKNOWN, install_extra, remove_stranger, requirement


def distribution(folder: Path, name: str, **files: str) -> None:
    """The metadata of an installed package, before those that are installed here."""
    info = folder / f"{name}-0.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.5\n")
    for file, text in files.items():
        (info / f"{file}.json").write_text(text)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of packages in which this one is installed, and not imported from a clone."""
    monkeypatch.setattr(errors, "_clone", lambda: None)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        ({"url": "file:///tmp/crbc-0.1.0-py3-none-any.whl"}, "/tmp/crbc-0.1.0-py3-none-any.whl[ray]"),
        ({"url": "file:///no%20clone"}, "/no clone[ray]"),
        ({"url": "https://host/crbc.whl"}, "crbc[ray] @ https://host/crbc.whl"),
        ({"url": "https://host/x", "vcs_info": {"vcs": "git", "commit_id": "c0"}}, "crbc[ray] @ git+https://host/x@c0"),
    ],
)
def test_an_extra_comes_from_where_the_package_came(installed: Path, origin: dict[str, object], wanted: str) -> None:
    distribution(installed, "crbc", direct_url=json.dumps(origin))
    assert requirement("ray") == wanted
    assert install_extra("ray").endswith(f" install '{wanted}'")


def test_where_the_source_is_unknown_a_command_names_no_package_that_a_stranger_could_register(installed: Path) -> None:
    distribution(installed, "crbc")
    command = install_extra("ray")
    assert command.endswith(f" install '{UNKNOWN}[ray]' (with your clone or wheel of crbc for {UNKNOWN})")


def test_a_clone_is_installed_editable() -> None:
    root = Path(errors.__file__).parents[1]
    assert install_extra("ray").endswith(f" install -e '{root}[ray]'")


def test_an_unrelated_anchors_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert remove_stranger() == ""
    monkeypatch.syspath_prepend(tmp_path)
    distribution(tmp_path, "anchors")
    assert remove_stranger() == f"{sys.executable} -m pip uninstall -y anchors"
    monkeypatch.setattr(errors, "find_spec", lambda name: None)  # an environment that uv made
    assert remove_stranger() == f"uv pip uninstall --python {sys.executable} anchors"


def test_where_its_files_replaced_ours_ours_are_installed_again(installed: Path) -> None:
    distribution(installed, "anchors")
    distribution(installed, "crbc", direct_url=json.dumps({"url": "file:///tmp/crbc.whl"}))
    remove, again = remove_stranger().split(" && ")
    assert remove.endswith("uninstall -y anchors")
    assert again.endswith("install --force-reinstall --no-deps /tmp/crbc.whl")
