"""What kinds of anchor merge: figures by hand, what they must be in the environments, and the command."""

from __future__ import annotations

from dataclasses import replace

import pytest
import toy_env  # noqa: F401  registers Corridor-v0

from anchors.key import ANCHOR_KINDS
from benchmarks import anchor_kinds as study

SMALL = study.Settings(groups=4, group_size=4)


@pytest.fixture(scope="module")
def household():
    cells = study.run("CRBC-ALFWorld-v0", SMALL, rooms="small")
    return {(cell.behaviour, cell.kind): cell for cell in cells}


def visits(*rows):
    """Visits from rows of (rollout, key of every kind but the state, state, distance)."""
    return [
        study.Visit(rollout, {**dict.fromkeys(ANCHOR_KINDS, key), study.STATE: state}, distance)
        for rollout, key, state, distance in rows
    ]


def test_figures_by_hand():
    """Anchor a stands for two states at one distance, b for one state of one rollout, c for two at two distances. State
    3 has two anchors."""
    group = visits(
        (0, "a", "1", 4), (1, "a", "2", 4), (0, "b", "3", 3), (0, "b", "3", 3), (1, "c", "3", 3), (1, "c", "4", 2)
    )
    cell = study._metrics("random", "paper", 0.5, [group, visits((0, "a", "1", 1))])
    assert cell.visits == 7
    assert cell.metrics == {
        "anchors": 2.0,
        "aliased": 2 / 4,
        "aliased_visits": 4 / 7,
        "unequal": 1 / 4,
        "unequal_visits": 2 / 7,
        "split": 1 / 5,
        "shared": 1 / 4,
        "shared_visits": 2 / 7,
    }
    unknown = study._metrics("random", "paper", 0.5, [visits((0, "a", "1", None))])
    assert (unknown.metrics["unequal"], unknown.metrics["aliased"]) == (None, 0.0)


@pytest.mark.parametrize("behaviour", study.BEHAVIOURS)
def test_alfworlds_kinds_differ_as_their_meanings_do(household, behaviour):
    paper, situation, observation, state = (household[behaviour, kind].metrics for kind in ANCHOR_KINDS)
    assert paper["anchors"] > situation["anchors"] > max(state["anchors"], observation["anchors"])
    assert observation["aliased"] > situation["aliased"] > state["aliased"] == state["unequal"] == state["split"] == 0
    assert paper["split"] > situation["split"] > 0
    assert observation["unequal"] > situation["unequal"]
    assert observation["shared"] > situation["shared"]


def test_the_expert_helps_and_a_seed_gives_the_same(household):
    assert household["half expert", "paper"].success > household["random", "paper"].success + 0.3
    again = study.run("CRBC-ALFWorld-v0", SMALL, rooms="small")
    assert again == list(household.values())
    assert study.run("CRBC-ALFWorld-v0", replace(SMALL, seed=1), rooms="small") != again


def test_without_invalid_replies_paper_and_situation_are_one():
    cells = study.run("CRBC-ALFWorld-v0", replace(SMALL, groups=2, invalid=0.0), rooms="small")
    assert [c.metrics for c in cells if c.kind == "paper"] == [c.metrics for c in cells if c.kind == "situation"]


@pytest.mark.parametrize(("env_id", "options"), [("CRBC-Sokoban-v0", {}), ("CRBC-WebShop-v0", {"observation": "text"})])
def test_where_kinds_coincide_their_figures_do(env_id, options):
    cells = study.run(env_id, replace(SMALL, groups=2), **options)
    for behaviour in study.BEHAVIOURS:
        paper, situation, observation, state = (c.metrics for c in cells if c.behaviour == behaviour)
        assert paper == situation == observation
        assert (paper == state) == (env_id == "CRBC-Sokoban-v0")
        assert paper["split"] == 0


def test_an_environment_with_one_kind_is_refused():
    with pytest.raises(ValueError, match="^corridor has anchors of one kind, 'own', and not 'paper'$"):
        study.run("Corridor-v0", SMALL)


def test_the_command_prints_a_table_for_each_behaviour(monkeypatch, capsys):
    monkeypatch.setattr(study, "QUICK", replace(SMALL, groups=1, group_size=2))
    study.main(["CRBC-Sokoban-v0", "--quick", "--set", "level=8x8-1box"])
    said = capsys.readouterr().out
    assert "CRBC-Sokoban-v0: 1 groups of 2, 10% of the replies invalid" in said
    assert all(f"{behaviour}: success" in said for behaviour in study.BEHAVIOURS)
    assert all(said.count(f"{kind} ") >= 2 for kind in ANCHOR_KINDS)
