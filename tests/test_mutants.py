"""The lists of deliberate faults fit the tree that they are meant for (scripts/mutants.py)."""

import tomllib

from paths import ROOT

LISTS = ROOT / "scripts" / "mutants"
LISTED = [fault for path in sorted(LISTS.glob("*.toml")) for fault in tomllib.loads(path.read_text("utf-8"))["mutant"]]
FRESH = [fault for path in sorted(LISTS.glob("fresh/*.toml")) for fault in tomllib.loads(path.read_text())["mutant"]]


def misfits(fault: dict[str, str], text: str) -> bool:
    return text.count(fault["find"]) != 1 or fault["find"] == fault["replace"] or not fault["why"]


def test_every_fault_has_one_place() -> None:
    texts = {name: (ROOT / name).read_text("utf-8") for name in {fault["file"] for fault in LISTED + FRESH}}
    assert [f"{one['file']}: {one['why']}" for one in LISTED + FRESH if misfits(one, texts[one["file"]])] == []


def test_every_listed_fault_names_tests_that_exist() -> None:
    assert [one for one in LISTED if not one["tests"]] == []
    assert {
        name for one in LISTED for test in one["tests"] if not (ROOT / (name := test.split("::")[0])).is_file()
    } == set()


def test_no_fault_is_listed_twice() -> None:
    changes = [(fault["file"], fault["find"], fault["replace"]) for fault in LISTED]
    assert len(set(changes)) == len(changes) > 500
