"""The files of requirements/, by which the set-up installs, and scripts/lock.py, which writes them."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from paths import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
lock = importlib.import_module("lock")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
BLOCKS = {name: lock.blocks(path.read_text("utf-8")) for name, path in lock.FILES.items()}


def wanted(extra):
    """What an extra asks for, by whatever way."""
    for text in [*PROJECT["project"]["dependencies"], *EXTRAS[extra]]:
        requirement = Requirement(text)
        if requirement.name == "crbc":
            yield from (inner for name in requirement.extras for inner in wanted(name))
        else:
            yield requirement


@pytest.mark.parametrize(("extra", "files"), [("train", ("build", "train")), ("dev", ("build", "train", "dev"))])
def test_what_an_extra_asks_for_has_a_version_that_fits(extra, files):
    """Who fails here has changed pyproject.toml: python3 scripts/lock.py"""
    found = {name: text for file in files for name, text in BLOCKS[file].items()}
    asked = [*wanted(extra), *map(Requirement, PROJECT["build-system"]["requires"])]
    assert len(asked) > 15
    for requirement in asked:
        if requirement.name == "torch":
            assert Version(importlib.import_module("setup").TORCH) in requirement.specifier
            continue
        versions = re.findall(r"^\S+==(\S+)", found[canonicalize_name(requirement.name)], re.MULTILINE)
        assert versions and all(version in requirement.specifier for version in versions), requirement


def test_every_package_has_digests_and_nothing_says_where_it_came_from():
    for file, path in lock.FILES.items():
        text = path.read_text("utf-8")
        assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\n", entry) for entry in BLOCKS[file].values())
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        allowed = r"[\w.-]+==[\w.+!]+( ; [\w .<>=!'()]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?"
        assert lines and [line for line in lines if not re.fullmatch(allowed, line)] == []


def test_no_package_is_in_two_files():
    names = [name for found in BLOCKS.values() for name in found]
    assert len(names) == len(set(names)) and {"jinja2", "pip", "pytest"} <= set(names)


def test_torch_and_its_packages_are_left_out_and_versions_for_two_pythons_stay_together():
    text = (
        "# a head\n"
        "numpy==2.4 ; python_full_version < '3.12' \\\n    --hash=sha256:aa\n"
        "numpy==2.5 ; python_full_version >= '3.12' \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n"
        "nvidia-cublas==13 ; sys_platform == 'linux' \\\n    --hash=sha256:dd\n"
        "torch==2.13.0 \\\n    --hash=sha256:ee\n"
        "torchdata==1 \\\n    --hash=sha256:ff\n"
    )
    found = lock.blocks(text)
    assert list(found) == ["numpy", "torchdata"]
    assert found["numpy"].count("--hash") == 3 and found["torchdata"] == "torchdata==1 \\\n    --hash=sha256:ff\n"
