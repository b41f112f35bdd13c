"""Evaluation: the figures of a held-out panel, and by kind of task where it has kinds."""

from __future__ import annotations

from pathlib import Path

import pytest
from learner_fixtures import fresh_policy, small

from crbc_rl.rollout.evaluate import evaluate


@pytest.fixture(scope="module")
def policy():
    return fresh_policy()


def test_households_are_told_by_family(policy):
    config = small(Path("unused"), env={"id": "CRBC-ALFWorld-v0", "kwargs": {"rooms": "small", "max_steps": 1}})
    told = evaluate(policy, config, "test", 12, seed=0)
    assert told.kinds == dict.fromkeys(["clean", "cool", "heat", "look", "pick", "pick2"], (0, 2))
    assert told.to_dict()["success/heat"] == 0.0
    assert "kinds" not in told.to_dict()


def test_a_panel_without_kinds_is_told_as_a_whole(policy):
    told = evaluate(policy, small(Path("unused")), "test", 3, seed=0)
    assert told.kinds == {}
    assert not [name for name in told.to_dict() if "/" in name]
    assert told.episodes == 3
