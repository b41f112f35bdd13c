"""The accuracy study as a whole: its sample, its statistics, its tables and its command."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import ttest_1samp

from crbc_lab.commands import studying
from crbc_lab.studies import credit_accuracy as study
from crbc_lab.studies import credit_tables
from crbc_lab.studies.credit_metrics import BY_GROUP, METRICS, PARTS
from crbc_lab.studies.estimators import CRBC, ORACLE, Estimator, standard, variants
from crbc_lab.studies.worlds import WORLDS
from crbc_rl import credit
from crbc_rl.credit.api import check_options
from crbc_rl.credit.errors import CreditError
from crbc_rl.errors import ConfigError

SMALL = study.Settings(instances=7, behaviours=2, rollouts=24, group_sizes=(4, 8), draws="choose", seed=3)
SOKOBAN = WORLDS["sokoban"]
FEW = [e for e in standard() if e.name in ("crbc", "crbc_plus", "crbc K=0 step", "crbc step", "grpo", "graphgpo")]


@pytest.fixture(scope="module")
def cells() -> list[study.WorldScores]:
    return study.judge(SOKOBAN, FEW, SMALL)


def test_a_cell_has_every_metric_of_every_estimator(cells):
    assert [cell.group_size for cell in cells] == [4, 8]
    for cell in cells:
        assert cell.estimators == (*(e.name for e in FEW), ORACLE)
        assert set(cell.scores) == {*BY_GROUP, *PARTS}
        assert all(score.shape == (7, 2, len(FEW) + 1) for score in cell.scores.values())
        assert cell.success.shape == cell.failed.shape == (7, 2)
        # A group without a success is no surprise where J is small, and there is none where J is 1.
        assert (cell.failed[cell.success > 0.95] == 0).all() and cell.failed.mean() < 0.7


def test_the_truth_is_best(cells):
    for cell in cells:
        for metric, best in (("rank", 1), ("sign", 1), ("zero", 0)):
            assert study.estimate(cell, metric)[0][-1] == pytest.approx(best, abs=1e-9)
        assert study.estimate(cell, "cosine")[0].argmax() == len(FEW)
        assert study.estimate(cell, "mean_cosine")[0][-1] == pytest.approx(1, abs=0.1)
    names = cells[1].estimators
    middle, width = study.difference(cells[1], "rank", CRBC)
    assert middle[names.index(CRBC)] == width[names.index(CRBC)] == 0
    # The final advantages of GRPO rank worst, and the closure's step term ranks better than visit means.
    assert middle.argmin() == names.index("grpo") and middle[names.index("grpo")] < -width[names.index("grpo")]
    assert middle[names.index("crbc step")] > middle[names.index("crbc K=0 step")]


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_processes(cells):
    told: list[tuple[int, int]] = []
    again = study.judge(SOKOBAN, FEW, SMALL, lambda done, total: told.append((done, total)), jobs=2)
    assert told == [(1, 2), (2, 2)]
    for one, two in zip(cells, again, strict=True):
        for name, score in one.scores.items():
            np.testing.assert_array_equal(score, two.scores[name])


def test_draws_to_choose_and_to_report_share_nothing(cells):
    lucky = WORLDS["lucky"]
    chosen = {replace(SMALL, seed=seed, draws=draws).world_seed for seed in range(20) for draws in ("choose", "report")}
    assert len(chosen) == 40
    one, two = (
        study.judge(lucky, FEW[:1], replace(SMALL, group_sizes=(4,), draws=draws))[0] for draws in ("choose", "report")
    )
    assert not np.isclose(one.success, two.success).any()


def test_ones_own_method_is_judged():
    def zeros(process):
        return np.zeros(len(process.pair))

    def short(process):
        return np.zeros(3)

    (cell,) = study.judge(SOKOBAN, [*FEW[:1], Estimator("nothing", zeros)], replace(SMALL, group_sizes=(8,)))
    at = cell.estimators.index("nothing")
    for metric, expected in (("rank", 0), ("sign", 0), ("zero", 1), ("cosine", 0)):
        assert study.estimate(cell, metric)[0][at] == pytest.approx(expected, abs=1e-12), metric
    assert np.isnan(study.estimate(cell, "mean_cosine")[0][at])
    with pytest.raises(CreditError, match=r"short gave an array of shape \(3,\)"):
        study.judge(SOKOBAN, [Estimator("three", short)], SMALL)


def test_intervals_are_students():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(12, 3))
    middle, width = study.interval(values)
    for i in range(3):
        expected = ttest_1samp(values[:, i], 0).confidence_interval(0.95)
        np.testing.assert_allclose([middle[i] - width[i], middle[i] + width[i]], expected)
    assert np.isnan(study.interval(values[:1])[1]).all()


def test_the_mean_gradients_ratio_has_a_jackknife():
    """Against the delete-one jackknife written out."""
    rng = np.random.default_rng(1)
    parts = {"aligned": rng.uniform(0.3, 0.4, 6), "kept": rng.uniform(0.4, 0.6, 6), "toward": rng.uniform(0.1, 1, 6)}
    scores = {name: part[:, None, None] for name, part in parts.items()}
    cell = study.WorldScores("w", 8, ("b",), ("e",), np.ones((6, 1)), np.zeros((6, 1)), scores)
    for metric, ratio in (
        ("mean_cosine", lambda p: np.sqrt(p["aligned"].sum() / p["kept"].sum())),
        ("noise", lambda p: (len(p["kept"]) - p["kept"].sum()) / p["kept"].sum()),
    ):
        without = np.array([ratio({name: np.delete(part, i) for name, part in parts.items()}) for i in range(6)])
        expected = 6 * ratio(parts) - 5 * without
        np.testing.assert_allclose(study.by_instance(cell, metric)[:, 0], expected)


def test_methods_come_as_trained_on_and_as_step_terms():
    found = standard()
    names = [estimator.name for estimator in found]
    assert len(set(names)) == len(names) and set(credit.METHODS) <= set(names)
    step = {"w_group": 0.0, "w_step": 1.0}
    assert variants("grpo") == [("grpo", {})]
    assert variants("graphgpo") == [
        ("graphgpo", {"omega": 0.8}),
        ("graphgpo step", {"omega": 0.8, **step}),
        ("graphgpo mean", {"omega": 0.8, "mode": "mean_norm"}),
        ("graphgpo mean step", {"omega": 0.8, "mode": "mean_norm", **step}),
    ]
    for estimator in found:
        check_options(estimator.method, dict(estimator.options))


def test_tables_and_json(cells, tmp_path: Path):
    out = io.StringIO()
    console = Console(file=out, width=80)
    credit_tables.explain(console)
    credit_tables.print_world(cells, SOKOBAN, SMALL, console)
    said = out.getvalue()
    assert "crbc K=0 step" in said and "…" not in said
    assert all(metric in said for metric in METRICS)
    credit_tables.write_json(cells, [SOKOBAN], SMALL, tmp_path / "s.json")
    sizes = json.loads((tmp_path / "s.json").read_text())["worlds"]["sokoban"]["by_group_size"]
    assert set(sizes) == {"4", "8"}
    assert sizes["8"]["scores"]["truth"]["rank"] == [1.0, 0.0] and sizes["8"]["minus_crbc"]["crbc"]["sign"] == [0, 0]


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(study, "QUICK", replace(SMALL, instances=2))
    monkeypatch.setattr(studying, "console", Console(width=100))
    out = tmp_path / "new" / "folder"
    studying.credit_accuracy(out=out, quick=True, world=("repair", "stop", "repair"), group_size=(4,))
    said = capsys.readouterr().out
    assert "credit_accuracy.json" in said and "crbc K=1" in said and "stop now or go on" in said
    assert sorted(p.name for p in out.iterdir()) == ["credit_accuracy.json"]
    data = json.loads((out / "credit_accuracy.json").read_text())
    assert list(data["worlds"]) == ["repair", "stop"] and data["settings"]["draws"] == "report"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world": ("sokobann",)}, "did you mean 'sokoban'"),
        ({"group_size": (8, 1)}, "--group-size 1: a group has at least 2"),
    ],
)
def test_mistakes_are_refused_before_anything_is_drawn(options, message, tmp_path: Path):
    with pytest.raises(ConfigError, match=message):
        studying.credit_accuracy(out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
