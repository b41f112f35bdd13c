"""The study of shared noise: its truth by simulation, its figures by hand, and the direction of its result."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import crbc_envs
from anchors import Rollout, RolloutGroup, Step
from crbc_lab.cli import main
from crbc_lab.studies import dynamics as study

SMALL = study.Settings(groups=40, group_sizes=(2, 16))


@pytest.fixture(scope="module")
def cells():
    return {(cell.dynamics, cell.group_size): cell for cell in study.run(SMALL)}


@pytest.mark.full
@pytest.mark.parametrize("error", study.ERRORS)
def test_more_rollouts_help_and_more_so_with_noise_of_their_own(cells, error):
    fall = {}
    for dynamics in ("shared", "independent"):
        few, many = (cells[dynamics, size].errors[error][0] for size in SMALL.group_sizes)
        assert few > many > 0
        fall[dynamics] = many / few
    assert fall["independent"] < (1.0 if error == "credit" else 0.8) * fall["shared"]  # of credit, 40 groups say less
    assert cells["independent", 16].errors[error][0] < cells["shared", 16].errors[error][0]


def test_shared_noise_makes_groups_flat_and_worlds_look_settled():
    shared, own = study.run(replace(SMALL, groups=10, group_sizes=(16,)))
    assert (shared.dynamics, own.dynamics) == ("shared", "independent")
    assert shared.flat > own.flat
    assert shared.settled > 1.5 * own.settled


def test_both_begin_alike_on_the_same_maps_and_a_seed_gives_the_same():
    settings = replace(SMALL, groups=3, group_sizes=(2,))
    (shared, groups), (own, others) = (study.play(settings, dynamics) for dynamics in ("shared", "independent"))
    for one, other in zip(shared, own, strict=True):
        np.testing.assert_array_equal(one.behaviour, other.behaviour)
    starts = [[rollout.steps[0].anchor for group in some for rollout in group.rollouts] for some in (groups, others)]
    assert starts[0] == starts[1]
    assert study.play(settings, "independent")[1] == others


def truth(seed=3, **options):
    return study.Truth.of(study._level(seed), replace(SMALL, **options), np.random.default_rng(seed))


def test_the_truth_is_what_long_simulation_finds():
    found, rng = truth(skill=12.0, spread=1.0), np.random.default_rng(0)
    env = gymnasium.make("FrozenLake-v1", desc=study.generate_random_map(4, seed=3), is_slippery=True)
    won = []
    for _ in range(600):
        cell, _ = env.reset(seed=int(rng.integers(2**31)))
        for _ in range(study.MAX_STEPS):
            cell, reward, over, _, _ = env.step(int(rng.choice(4, p=found.behaviour[cell])))
            if over:
                break
        won.append(reward > 0)
    assert abs(np.mean(won) - found.success) < 4 * np.std(won) / np.sqrt(len(won))
    assert 0.1 < found.success < 0.9


def test_credit_of_the_truth_has_mean_zero_and_its_values_obey_their_equation():
    found = truth()
    np.testing.assert_allclose((found.behaviour * found.A).sum(axis=1), 0, atol=1e-12)
    ahead = (found.behaviour * (found.P @ np.append(found.V, (1, 0)))).sum(axis=1)
    np.testing.assert_allclose(found.V, found.beta * ahead, atol=1e-12)
    np.testing.assert_allclose(found.P.sum(axis=2), 1)


def test_figures_of_a_group_by_hand():
    """One rollout steps right from cell 0 to cell 1 and falls into a hole; the other does the same and wins."""
    here, there = (Step(f"{cell:032x}", "right", label=f"b'MAP {cell}'") for cell in (0, 1))
    group = RolloutGroup([Rollout([here, there], success=won) for won in (False, True)])
    found = replace(truth(), beta=1.0)
    success, value, step, flat, settled, often = study._row(found, group)
    V, A = found.V[:2], found.A[:2, 2]
    assert (flat, settled, often) == (0.0, 0.0, 0.0)
    assert success == pytest.approx((0.5 - found.success) ** 2)
    assert value == pytest.approx(np.mean((0.5 - V) ** 2))
    assert step == pytest.approx(np.mean(A**2))
    twice = study._row(found, RolloutGroup(group.rollouts * 2))
    assert twice[4:] == (1.0, 2.0)  # cell 0 always led to cell 1, cell 1 to both ends


def test_its_lake_keeps_the_contract():
    with closing(gymnasium.make(study.SPEC)) as env:
        report = crbc_envs.check_anchor_env(env, episodes=4, fuzz=10)
    assert report.noise > 0.5


def test_the_command_prints_and_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, "QUICK", replace(SMALL, groups=2, group_sizes=(2,)))
    main(["study", "dynamics", "--quick", "--out", str(tmp_path / "new")])
    assert "slippery FrozenLake, 2 groups" in capsys.readouterr().out
    written = json.loads((tmp_path / "new" / "dynamics.json").read_text())
    assert [cell["dynamics"] for cell in written["cells"]] == ["shared", "independent"]
    assert written["settings"]["seed"] == 0
