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
from tables import table

from anchors import InternedRollouts, RolloutGroup
from crbc_rl.batches import RolloutBatch, Turn
from crbc_rl.credit.estimator import Estimator, Terms
from crbc_rl.learner import Learner, rescored
from crbc_rl.rollout.evaluate import Evaluation
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics

GROUPS = [
    group("s:a m:<invalid> +", "s:b -", "s:b m:a m:b +"),
    group("s:a +", "s:a n:b +", "s:b +"),
    group("s:a -", "s:b -", "s:<invalid> m:b -"),
]


def _turns(groups: Sequence[RolloutGroup]) -> list[Turn]:
    """Each says in its prompt where it stands, and has log-probabilities of its own."""
    return [
        Turn([g + 1, i + 1, t + 1], [5, 6], [-1.0 - g, -2.0 - 0.1 * t])
        for g, one in enumerate(groups)
        for i, rollout in enumerate(one.rollouts)
        for t in range(len(rollout))
    ]


SAMPLE = RolloutBatch.of(InternedRollouts.from_groups(GROUPS), _turns(GROUPS))


class Watched:
    """A learner whose worker has played `SAMPLE`, and whose optimiser only remembers."""

    def __init__(self, folder: Path, model: Path, **changes: Any) -> None:
        config = door_config(model, rollout={"group_size": 3}, **changes)
        self.run = Run.start(folder, config, resume=False)
        self.learner = Learner(config, self.run)
        self.done: list[tuple[str, Any]] = []
        self.watched: list[tuple[int, bool]] = []
        self.learner.worker.sample = lambda update: self.done.append(("sample", update)) or SAMPLE
        self.learner.worker.refresh = lambda: self.done.append(("refresh", None))
        self.learner.actor.optimise = self._optimise
        self.learner.worker.evaluate = self._evaluate
        self.wins = iter([2, 1, 3, 3, 2, 4, 0, 1])

    def _optimise(self, batch: RolloutBatch, dice: np.random.Generator, watch: bool) -> dict[str, float]:
        self.watched.append((self.learner.update, watch))
        self.done.append(("optimise", (batch, dice.random())))
        return {"loss": 1.0}

    def _evaluate(self, split: str, episodes: int, progress: object = None, on_batch: object = None) -> Evaluation:
        self.done.append((split, (self.learner.update, episodes)))
        won = next(self.wins) if split == "validation" else 0
        return Evaluation(split, episodes, won, 0.0, 0.0, 0.0, 1.0, 0.0)

    def named(self, name: str) -> list[Any]:
        return [value for kind, value in self.done if kind == name]


def test_every_step_is_a_row_with_its_own_credit_and_log_probabilities(model: Path, tmp_path: Path) -> None:
    """Of "grpo", whose credit has the sign of a rollout's reward against its group's mean."""
    watched = Watched(tmp_path, model, credit={"method": "grpo"})
    watched.learner.step()
    ((batch, _),) = watched.named("optimise")
    assert list(batch.turns) == list(SAMPLE.turns)
    assert batch.old.tolist() == [value for turn in batch.turns for value in turn.logprobs]
    assert batch.group.tolist() == [turn.prompt[0] - 1 for turn in batch.turns]
    assert batch.correction is None
    signs = [np.sign(batch.advantage[batch.group == g]).astype(int).tolist() for g in range(3)]
    assert signs == [[1, 1, -1, 1, 1, 1], [0] * 4, [1, 1, -1, -1]]  # the last reply of all was malformed


def test_a_row_has_the_credit_of_its_own_step_by_the_method_and_options_of_the_config(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def numbered(estimator: Estimator, process: object, timed: object, **options: object) -> Terms:
        asked.append((estimator.name, options))
        rows = [
            100.0 * g + 10.0 * i + np.arange(len(rollout))
            for g, one in enumerate(GROUPS)
            for i, rollout in enumerate(one.rollouts)
        ]
        return Terms(None, np.concatenate(rows))

    watched = Watched(tmp_path, model, credit={"method": "crbc", "crbc": {"beta": 0.9}})
    monkeypatch.setattr(Estimator, "terms", numbered)
    watched.learner.step()
    ((batch, _),) = watched.named("optimise")
    assert asked == [("crbc", {"beta": 0.9})]
    for turn, advantage in zip(batch.turns, batch.advantage, strict=True):
        g, i, t = (n - 1 for n in turn.prompt)
        assert advantage == 100.0 * g + 10.0 * i + t


def test_an_update_samples_then_learns_then_hands_on(model: Path, tmp_path: Path) -> None:
    watched = Watched(tmp_path, model)
    watched.learner.update = 3
    watched.learner.step()
    assert [name for name, _ in watched.done] == ["sample", "optimise", "refresh"]
    assert watched.named("sample") == [3]


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
    watched.learner._save = lambda place, written: saved.append(watched.learner.update) or (place / "x").touch()
    watched.learner.train()
    assert watched.named("sample") == [1, 2, 3, 4, 5, 6, 7]
    assert watched.named("validation") == [(0, 4), (3, 4), (6, 4), (7, 4)]
    assert watched.named("test") == [(0, 6), (7, 6)]
    assert saved == [0, 2, 4, 6, 7]
    assert [update for update, watch in watched.watched if watch] == [3, 6, 7], "whose transcripts are kept"
    records = read_metrics(tmp_path)
    assert [record["update"] for record in records] == list(range(8))
    assert [record["validation/successes"] for record in records if "validation/success" in record] == [2, 1, 3, 3]
    assert watched.run.best().name == "000006", "the first of two that are as good"
    assert watched.learner.best == pytest.approx(3 / 4)


# ---- an engine of its own -----------------------------------------------------------------------------

OLD = [[-1.0, -2.0], [-3.0, -0.5, -1.0]]
SAMPLED = [[-1.5, -1.0], [-3.0, -2.5, -1.1]]


def _rescored(**settings: Any) -> tuple[RolloutBatch, dict[str, float]]:
    turns = [Turn([i], [1] * len(values), values) for i, values in enumerate(SAMPLED)]
    batch = table(turns, group=[0, 1], advantage=[0.0, 1.0])
    engine = {"generator": {"engine": settings.pop("engine", "vllm")}}
    actor = SimpleNamespace(score=lambda batch: np.concatenate(OLD))
    return rescored(batch, actor, door_config(loss=settings, **engine))


def test_ratios_start_from_the_trained_model_and_factors_make_up_for_the_engine() -> None:
    batch, figures = _rescored(correction_cap=2.0)
    assert batch.old.tolist() == [*OLD[0], *OLD[1]]
    assert [turn.logprobs for turn in batch.turns] == SAMPLED
    assert list(zip(batch.group.tolist(), batch.advantage.tolist(), strict=True)) == [(0, 0.0), (1, 1.0)]
    assert batch.correction is not None
    assert batch.correction[:2].tolist() == pytest.approx([math.exp(0.5), math.exp(-1.0)])
    assert batch.correction[2:].tolist() == pytest.approx([1.0, 2.0, math.exp(0.1)])  # exp(2) is above the cap
    assert figures["mismatch"] == pytest.approx((0.5 + 1.0 + 0.0 + 2.0 + 0.1) / 5)
    assert figures["mismatch_max"] == pytest.approx(2.0)


@pytest.mark.parametrize(("cap", "greatest"), [(1.0, 1.0), (5.0, 5.0), (50.0, math.exp(2.0))])
def test_a_factor_is_at_most_the_cap(cap: float, greatest: float) -> None:
    batch, _ = _rescored(correction_cap=cap)
    assert batch.correction is not None
    assert batch.correction[3] == pytest.approx(greatest)
    assert batch.correction[1] == pytest.approx(math.exp(-1.0)), "and may be small"


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
    batch, figures = _rescored(correction=correction, engine=engine)
    assert (batch.correction is not None) == made
    assert batch.old.tolist() == [*OLD[0], *OLD[1]]
    assert figures["mismatch_max"] == pytest.approx(2.0)


def test_a_model_that_samples_for_itself_is_not_rescored_and_any_other_is(model: Path, tmp_path: Path) -> None:
    watched = Watched(tmp_path, model)
    scored: list[int] = []
    watched.learner.actor.score = lambda batch: scored.append(len(batch)) or np.full(len(batch.old), -9.0)
    assert "mismatch" not in watched.learner.step() and not scored
    watched.learner.worker.engine_is_policy = False
    assert watched.learner.step()["mismatch_max"] == pytest.approx(8.0)
    assert scored == [14]
    batch, _ = watched.named("optimise")[-1]
    assert batch.old.tolist() == [-9.0] * 28
