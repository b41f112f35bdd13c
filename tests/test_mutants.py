"""The list of deliberate faults fits the tree it is meant for (scripts/mutants.py)."""

import tomllib

import pytest
from paths import ROOT

MUTANTS = [
    pytest.param(mutant, id=f"{path.stem}-{number}")
    for path in sorted((ROOT / "scripts" / "mutants").glob("*.toml"))
    for number, mutant in enumerate(tomllib.loads(path.read_text("utf-8"))["mutant"])
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_listed_fault_has_one_place_and_tests_that_exist(mutant):
    assert (ROOT / mutant["file"]).read_text("utf-8").count(mutant["find"]) == 1
    assert mutant["find"] != mutant["replace"] and mutant["why"]
    assert mutant["tests"] and all((ROOT / test.split("::")[0]).is_file() for test in mutant["tests"])


def test_no_fault_is_listed_twice():
    changes = [(mutant["file"], mutant["find"], mutant["replace"]) for (mutant,) in (p.values for p in MUTANTS)]
    assert len(set(changes)) == len(changes) > 0
