"""The accuracy study: its truth against simulation and brute force, its scores by hand, its command."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import spearmanr

from anchors import EmpiricalProcess
from crbc_envs.sokoban.panels import SokobanPanel
from crbc_envs.sokoban.rules import MOVES, parse_room
from crbc_rl import credit
from crbc_rl.commands import table
from crbc_rl.studies import credit_accuracy as study
from crbc_rl.studies import credit_figure, credit_tables
from crbc_rl.studies.tabular import (
    HORIZON,
    TabularRoom,
    evaluate,
    mixture,
    sample_groups,
    soft,
    success_rates,
)

CORRIDOR = parse_room("######\n#@_$.#\n######")
"""Two moves right solve it; the box cannot be moved any other way."""

SMALL = study.Settings(rooms=6, groups=2, behaviours=("mix0.3", "soft0.7"), group_sizes=(4, 8), depths=(0, 1), seed=3)


@pytest.fixture(scope="module")
def rooms() -> list[TabularRoom]:
    return study.rooms_of(SMALL)


@pytest.fixture(scope="module")
def cells() -> list[study.Cell]:
    return study.run(SMALL)


def test_a_corridor_by_hand() -> None:
    room = TabularRoom.of(CORRIDOR)
    # the start, and one step to the right of it; solved is number 2
    assert room.successor.tolist() == [[0, 0, 0, 1], [1, 1, 0, 2]]
    assert room.distance.tolist() == [2, 1, 0]
    np.testing.assert_array_equal(room.gap, [[1, 1, 1, 0], [1, 1, 2, 0]])
    np.testing.assert_allclose(mixture(room, 0.6), [[0.1, 0.1, 0.1, 0.7]] * 2)


def test_rooms_hold_the_rules_and_the_distances() -> None:
    panel = SokobanPanel("train")
    for index in range(5):
        room = TabularRoom.of(panel[index].content)
        finite = np.isfinite(room.distance[:-1])
        # the best move of a state that can be solved comes one nearer; dead ends lead to dead ends
        after = room.distance[room.successor].min(axis=1)
        np.testing.assert_array_equal(after[finite], room.distance[:-1][finite] - 1)
        assert np.isinf(after[~finite]).all() and (room.gap[~finite] == 0).all()


def test_success_is_that_of_the_corridors_three_state_chain() -> None:
    room = TabularRoom.of(CORRIDOR)
    p = np.array([1.0, 0.0, 0.0])
    step = np.array([[3 / 4, 1 / 4, 0], [1 / 4, 2 / 4, 1 / 4], [0, 0, 1]])
    for _ in range(HORIZON):
        p = p @ step
    uniform = mixture(room, 0.0)
    assert evaluate(room, uniform).success == pytest.approx(p[2], abs=1e-14)
    np.testing.assert_allclose(success_rates(room, np.stack([uniform, mixture(room, 1.0)])), [p[2], 1.0])


def test_truth_is_centred_and_agrees_with_simulation(rooms: list[TabularRoom]) -> None:
    rng = np.random.default_rng(1)
    for room in rooms[4:7]:  # shorter rooms may have few states
        policy = soft(room, 0.7, rng)
        truth = evaluate(room, policy)
        np.testing.assert_allclose((policy * truth.A).sum(axis=1), 0, atol=1e-12)
        (group,) = sample_groups(room, policy, 1, 4000, rng)
        assert group.success_rate == pytest.approx(truth.success, abs=0.04)
        # With very many rollouts the visit-local credit, undiscounted, is the finite-horizon truth.
        process = EmpiricalProcess.from_group(group)
        credit_0 = credit.closure(process, beta=1.0, depth=0).A
        often = process.pair_count > 400
        state = np.array([int(a) for a in process.anchors])[process.pair_anchor]
        move = np.array([MOVES.index(action) for _, action in process.pairs])
        assert often.sum() > 5
        np.testing.assert_allclose(credit_0[often], truth.A[state, move][often], atol=0.1)


def test_sampled_rollouts_follow_the_rules(rooms: list[TabularRoom]) -> None:
    room = rooms[0]
    groups = sample_groups(room, mixture(room, 0.3), 3, 5, np.random.default_rng(2))
    assert [len(g) for g in groups] == [5, 5, 5]
    for rollout in (r for g in groups for r in g.rollouts):
        state = 0
        for step in rollout.steps:
            assert step.anchor == str(state)
            state = room.successor[state, MOVES.index(step.action)]
        assert rollout.success == (state == len(room)) != rollout.truncated
        assert len(rollout) == HORIZON or rollout.success


def test_rank_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(3)
    truth, rows = rng.integers(4, size=9).astype(float), rng.integers(3, size=(5, 9)).astype(float)
    expected = [spearmanr(row, truth).statistic for row in rows]
    np.testing.assert_allclose(study._spearman(rows, truth), expected, atol=1e-12)
    assert study._spearman(np.ones((1, 9)), truth).tolist() == [0.0]


def test_the_truth_scores_perfectly_and_closure_beats_visit_means(cells: list[study.Cell]) -> None:
    names = credit_tables.names_of(SMALL)
    assert names[-1] == study.ORACLE and names[:3] == ["crbc K=0", "crbc K=1", "crbc"]
    assert set(credit.METHODS) <= set(names)
    for cell, (size, behaviour) in zip(cells, product(SMALL.group_sizes, SMALL.behaviours), strict=True):
        assert (cell.group_size, cell.behaviour) == (size, behaviour)
        for metric, best in (("rank", 1), ("sign", 1), ("zero", 0)):
            here = cell.scores[metric][:, -1]
            np.testing.assert_allclose(here[~np.isnan(here)], best, atol=1e-12)
        assert (cell.sums[:, -1, 4] == 0).all()  # its squared error
    pooled = study.pool(cells)
    assert pooled["rank"][0][names.index("crbc")] > pooled["rank"][0][names.index("crbc K=0")]
    lead, error = study.lead(cells, "rank", names.index("crbc"))
    assert lead[names.index("crbc")] == 0 and error[names.index("crbc")] == 0 and lead[0] > 0


def test_scaled_error_is_the_least_squares_one() -> None:
    rng = np.random.default_rng(4)
    t, c = rng.normal(size=30), rng.normal(size=30)
    sums = np.array([[30, t @ t, c @ t, c @ c, ((c - t) ** 2).sum()]])
    best = min(np.sqrt(((k * c - t) ** 2).mean()) for k in np.linspace(-2, 2, 40001))
    assert study._rmse(sums, "rmse_scaled")[0] == pytest.approx(best, abs=1e-8)
    assert study._rmse(sums, "rmse")[0] == pytest.approx(np.sqrt(((c - t) ** 2).mean()))


def test_batched_credit_is_each_groups_own(rooms: list[TabularRoom]) -> None:
    rng = np.random.default_rng(5)
    groups = [g for room in rooms[:3] for g in sample_groups(room, mixture(room, 0.3), 2, 6, rng)]
    which = study.estimators((0, 2), 0.98)
    together = list(study._by_group(EmpiricalProcess.from_groups(groups), which))
    for group, part in zip(groups, together, strict=True):
        (alone,) = study._by_group(EmpiricalProcess.from_group(group), which)
        # Actions are numbered in order of first sight, so pairs may be listed in another order.
        one, two = (np.lexsort((p.move, p.state)) for p in (part, alone))
        np.testing.assert_array_equal(part.state[one], alone.state[two])
        np.testing.assert_array_equal(part.gated[one], alone.gated[two])
        np.testing.assert_allclose(part.credit[:, one], alone.credit[:, two], atol=1e-9)


def test_methods_come_with_their_step_term_and_both_modes() -> None:
    names = [e.name for e in study.estimators((0,), 0.98)]
    assert names[:3] == ["crbc K=0", "crbc", "crbc / sigma"] and len(set(names)) == len(names)
    assert study.variants("grpo") == {"grpo": {}}
    step_only = {"w_group": 0.0, "w_step": 1.0}
    assert study.variants("graphgpo") == {
        "graphgpo": {"omega": 0.8, **step_only},
        "graphgpo mean": {"omega": 0.8, **step_only, "mode": "mean_norm"},
    }
    for method in credit.METHODS:
        for options in study.variants(method).values():
            credit.check_options(method, options)


def test_a_settled_anchor_is_not_credited(rooms: list[TabularRoom]) -> None:
    # What a policy that never errs was seen to do leaves no choice to credit but ties among best moves.
    groups = sample_groups(rooms[0], mixture(rooms[0], 1.0), 1, 8, np.random.default_rng(7))
    assert groups[0].success_rate == 1.0 and all(r.final_anchor is None for r in groups[0].rollouts)
    (part,) = study._by_group(EmpiricalProcess.from_groups(groups), study.estimators((), 0.98))
    assert np.abs(part.credit[0]).max() < 1e-12


def test_runs_are_seeded(cells: list[study.Cell]) -> None:
    again = study.run(SMALL)
    for one, two in zip(cells, again, strict=True):
        np.testing.assert_array_equal(one.sums, two.sums)
    other = study.run(replace(SMALL, seed=4))
    assert not np.array_equal(cells[0].sums, other[0].sums)


def test_unknown_behaviours_are_refused(rooms: list[TabularRoom]) -> None:
    with pytest.raises(ValueError, match="mixW or softA"):
        study.behaviour_of("greedy", rooms[0], np.random.default_rng(0))


def test_tables_json_and_picture(cells: list[study.Cell], tmp_path: Path) -> None:
    out = io.StringIO()
    credit_tables.show(cells, SMALL, Console(file=out, width=80))
    assert "crbc K=0" in out.getvalue() and "…" not in out.getvalue()
    credit_tables.write_json(cells, SMALL, tmp_path / "s.json")
    data = json.loads((tmp_path / "s.json").read_text())
    assert len(data["cells"]) == 4 and set(data["by_group_size"]) == {"4", "8"}
    assert data["by_group_size"]["8"]["scores"]["truth"]["rank"] == [1.0, 0.0]
    credit_figure.draw(cells, SMALL, tmp_path / "s.png")
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(study, "QUICK", SMALL)
    monkeypatch.setattr(table, "console", Console(width=100))
    table.study("credit-accuracy", out=tmp_path / "new" / "folder", quick=True)
    said = capsys.readouterr().out
    assert "credit_accuracy.json" in said and "crbc K=1" in said
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == [
        "credit_accuracy.json",
        "credit_accuracy.png",
    ]
