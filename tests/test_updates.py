"""One update of the learner: what it makes of a sample, in which order, and what it tells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from door_env import door_config
from strategies import group

from anchors import RolloutGroup
from crbc_rl.batches import Row, Turn
from crbc_rl.learner import Learner, rescored
from crbc_rl.rollout.collect import Sample
from crbc_rl.rollout.evaluate import Evaluation
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics

GROUPS = [
    group("s:a m:<invalid> +", "s:b -", "s:b m:a m:b +"),
    group("s:a +", "s:a n:b +", "s:b +"),
    group("s:a -", "s:b -", "s:<invalid> m:b -"),
]


def _turns(groups: Sequence[RolloutGroup]) -> list[list[list[Turn]]]:
    """Each says in its prompt where it stands, and has log-probabilities of its own."""
    return [
        [
            [Turn([g + 1, i + 1, t + 1], [5, 6], [-1.0 - g, -2.0 - 0.1 * t]) for t in range(len(rollout))]
            for i, rollout in enumerate(one.rollouts)
        ]
        for g, one in enumerate(groups)
    ]


SAMPLE = Sample(GROUPS, _turns(GROUPS), waited=1.5)


class Watched:
    """A learner whose players have played `SAMPLE`, and whose optimiser only remembers."""

    def __init__(self, folder: Path, model: Path, **changes: Any) -> None:
        config = door_config(model, rollout={"group_size": 3}, **changes)
        self.run = Run.start(folder, config, resume=False)
        self.learner = Learner(config, self.run)
        self.done: list[tuple[str, Any]] = []
        self.learner.players.sample = lambda update: self.done.append(("sample", update)) or SAMPLE
        self.learner.players.refresh = lambda: self.done.append(("refresh", None))
        self.learner.trainer.optimise = self._optimise
        self.learner.players.evaluate = self._evaluate
        self.wins = iter([2, 1, 3, 3, 2, 4, 0, 1])

    def _optimise(self, groups: list[list[Row]], dice: np.random.Generator) -> dict[str, float]:
        self.done.append(("optimise", (groups, dice.random())))
        return {"loss": 1.0}

    def _evaluate(self, split: str, episodes: int) -> Evaluation:
        self.done.append((split, (self.learner.update, episodes)))
        won = next(self.wins) if split == "validation" else 0
        return Evaluation(split, episodes, won, 0.0, 0.0, 1.0, 0.0)

    def named(self, name: str) -> list[Any]:
        return [value for kind, value in self.done if kind == name]


def test_every_step_is_a_row_with_its_own_credit_and_log_probabilities(model: Path, tmp_path: Path) -> None:
    """Of "grpo", whose credit has the sign of a rollout's reward against its group's mean."""
    watched = Watched(tmp_path, model, credit={"method": "grpo"})
    watched.learner.step()
    ((groups, _),) = watched.named("optimise")
    assert [[row.turn for row in g] for g in groups] == [[t for i in g for t in i] for g in SAMPLE.turns]
    assert all(list(row.old) == row.turn.logprobs for g in groups for row in g)
    assert [{row.group for row in g} for g in groups] == [{0}, {1}, {2}]
    assert all(row.correction is None for g in groups for row in g)
    signs = [[int(np.sign(row.advantage)) for row in g] for g in groups]
    assert signs == [[1, 1, -1, 1, 1, 1], [0] * 4, [1, 1, -1, -1]]  # the last reply of all was malformed


def test_a_row_has_the_credit_of_its_own_step_by_the_method_and_options_of_the_config(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def numbered(interned: object, method: str, **options: object) -> list[list[np.ndarray]]:
        asked.append((method, options))
        return [
            [100.0 * g + 10.0 * i + np.arange(len(rollout)) for i, rollout in enumerate(one.rollouts)]
            for g, one in enumerate(GROUPS)
        ]

    monkeypatch.setattr("crbc_rl.credit.advantages_batch", numbered)
    watched = Watched(tmp_path, model, credit={"method": "crbc", "crbc": {"beta": 0.9}})
    watched.learner.step()
    ((groups, _),) = watched.named("optimise")
    assert asked == [("crbc", {"beta": 0.9})]
    for row in (row for one in groups for row in one):
        g, i, t = (n - 1 for n in row.turn.prompt)
        assert row.advantage == 100.0 * g + 10.0 * i + t


def test_an_update_samples_then_learns_then_hands_on(model: Path, tmp_path: Path) -> None:
    watched = Watched(tmp_path, model)
    watched.learner.update = 3
    watched.learner.step()
    assert [name for name, _ in watched.done] == ["sample", "optimise", "refresh"]
    assert watched.named("sample") == [3]
    assert watched.learner.seconds["environments"] == 1.5


def test_the_figures_of_a_sample_are_those_of_a_hand_count(model: Path, tmp_path: Path) -> None:
    watched = Watched(tmp_path, model)
    record = watched.learner.step()
    assert record["success"] == pytest.approx(5 / 9)
    assert record["length"] == pytest.approx(14 / 9) and record["steps"] == 14
    assert record["invalid"] == pytest.approx(2 / 14)
    assert record["mixed_groups"] == pytest.approx(1 / 3)
    assert record["loss"] == 1.0
    assert watched.run.groups()[0] == GROUPS[0], "the most mixed one is kept for the report"


def test_every_update_shuffles_by_the_seed_and_its_number(model: Path, tmp_path: Path) -> None:
    drawn = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        watched = Watched(tmp_path / name, model, seed=seed)
        for update in (1, 2, 2):
            watched.learner.update = update
            watched.learner.step()
        drawn[name] = [dice for _, dice in watched.named("optimise")]
    assert drawn["a"] == drawn["b"]
    assert drawn["a"][1] == drawn["a"][2] != drawn["a"][0]
    assert not set(drawn["a"]) & set(drawn["c"])


def test_validations_tests_and_saves_come_when_they_are_due(model: Path, tmp_path: Path) -> None:
    """Of 7 updates: every 3rd and the last; tests first and last."""
    settings = {"every": 3, "episodes": 4, "test_episodes": 6}
    watched = Watched(tmp_path, model, updates=7, save_every=2, eval=settings)
    saved: list[int] = []
    watched.learner._save = lambda place: saved.append(watched.learner.update) or (place / "x").touch()
    watched.learner.train()
    assert watched.named("sample") == [1, 2, 3, 4, 5, 6, 7]
    assert watched.named("validation") == [(0, 4), (3, 4), (6, 4), (7, 4)]
    assert watched.named("test") == [(0, 6), (7, 6)]
    assert saved == [0, 2, 4, 6, 7]
    records = read_metrics(tmp_path)
    assert [record["update"] for record in records] == list(range(8))
    assert [record["validation/successes"] for record in records if "validation/success" in record] == [2, 1, 3, 3]
    assert watched.run.best().name == "000006", "the first of two that are as good"
    assert watched.learner.best == pytest.approx(3 / 4)


# ---- an engine of its own -----------------------------------------------------------------------------

OLD = [[-1.0, -2.0], [-3.0, -0.5, -1.0]]
SAMPLED = [[-1.5, -1.0], [-3.0, -2.5, -1.1]]


def _rescored(**settings: Any) -> tuple[list[list[Row]], dict[str, float]]:
    turns = [Turn([i], [1] * len(values), values) for i, values in enumerate(SAMPLED)]
    rows = [[Row(turn, i, float(i), turn.logprobs)] for i, turn in enumerate(turns)]
    engine = {"generator": {"engine": settings.pop("engine", "vllm")}}
    return rescored(rows, SimpleNamespace(score=lambda rows: OLD), door_config(loss=settings, **engine))


def test_ratios_start_from_the_trained_model_and_factors_make_up_for_the_engine() -> None:
    groups, figures = _rescored(correction_cap=2.0)
    assert [row.old for g in groups for row in g] == OLD
    assert [row.turn.logprobs for g in groups for row in g] == SAMPLED
    assert [(row.group, row.advantage) for g in groups for row in g] == [(0, 0.0), (1, 1.0)]
    assert groups[0][0].correction == pytest.approx([math.exp(0.5), math.exp(-1.0)])
    assert groups[1][0].correction == pytest.approx([1.0, 2.0, math.exp(0.1)])  # exp(2) is above the cap
    assert figures["mismatch"] == pytest.approx((0.5 + 1.0 + 0.0 + 2.0 + 0.1) / 5)
    assert figures["mismatch_max"] == pytest.approx(2.0)


@pytest.mark.parametrize(("cap", "greatest"), [(1.0, 1.0), (5.0, 5.0), (50.0, math.exp(2.0))])
def test_a_factor_is_at_most_the_cap(cap: float, greatest: float) -> None:
    groups, _ = _rescored(correction_cap=cap)
    assert groups[1][0].correction[1] == pytest.approx(greatest)
    assert groups[0][0].correction[1] == pytest.approx(math.exp(-1.0)), "and may be small"


@pytest.mark.parametrize(
    ("correction", "engine", "made"),
    [
        ("auto", "vllm", True),
        ("auto", "transformers", False),
        ("truncate", "transformers", True),
        ("truncate", "vllm", True),
        ("none", "vllm", False),
        ("none", "transformers", False),
    ],
)
def test_factors_are_made_where_the_config_wants_them(correction: str, engine: str, made: bool) -> None:
    groups, figures = _rescored(correction=correction, engine=engine)
    assert all((row.correction is not None) == made for g in groups for row in g)
    assert [row.old for g in groups for row in g] == OLD
    assert figures["mismatch_max"] == pytest.approx(2.0)


def test_a_model_that_samples_for_itself_is_not_rescored_and_any_other_is(model: Path, tmp_path: Path) -> None:
    watched = Watched(tmp_path, model)
    scored: list[int] = []
    watched.learner.trainer.score = lambda rows: scored.append(len(rows)) or [[-9.0, -9.0] for _ in rows]
    assert "mismatch" not in watched.learner.step() and not scored
    watched.learner.players.exact = False
    assert watched.learner.step()["mismatch_max"] == pytest.approx(8.0)
    assert scored == [14]
    groups, _ = watched.named("optimise")[-1]
    assert {tuple(row.old) for g in groups for row in g} == {(-9.0, -9.0)}
