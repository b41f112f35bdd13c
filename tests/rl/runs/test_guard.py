"""Training that is no longer finite, and replies that are all invalid."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learner_fixtures import small

from crbc_rl.credit.metrics import Slope
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.policies.load import load_policy
from crbc_rl.runs.folder import Run
from crbc_rl.runs.guard import Guard
from crbc_rl.runs.metrics import read_metrics

ENV = {"kwargs": {"observation": "text", "max_steps": 4}}
CHANGES = {"updates": 3, "save_every": 1, "env": ENV, "optim": {"lr": 1e-3, "minibatch": 4}}
CHANGES["credit"] = {"method": "gae"}  # so that every update has a gradient


def learner(model: Path, folder: Path, **changes: Any) -> Learner:
    config = small(model, **{**CHANGES, **changes})
    return Learner(config, Run.start(folder, config, resume=False))


def spoil(trainable: Any, bad: set[int]) -> None:
    """The losses of the passes whose numbers are in `bad` are not a number."""
    loss, passes = trainable.loss, iter(range(10**6))

    def spoilt(batch: Any) -> Any:
        value, figures = loss(batch)
        factor = float("nan") if next(passes) in bad else 1.0
        return value * factor, {**figures, "loss": figures["loss"] * factor}

    trainable.loss = spoilt


def test_one_bad_step_is_left_out_and_counted(model: Path, tmp_path: Path) -> None:
    trained = learner(model, tmp_path, updates=1)
    spoil(trained.actor, {1})
    trained.train()
    assert read_metrics(tmp_path)[1]["skipped_steps"] == 1.0
    assert trained.actor.skipped == 0 and trained.actor.finite()


@pytest.mark.parametrize(("which", "key"), [("actor", "optim.lr"), ("critic", "critic.lr")])
def test_three_bad_steps_in_a_row_end_the_run_and_keep_the_checkpoint(
    model: Path, tmp_path: Path, which: str, key: str
) -> None:
    trained = learner(model, tmp_path)
    before = getattr(trained, which)
    spoil(before, {1, 3, 4, 5})
    wrong = rf"update 1: the loss was not finite in 3 optimizer steps in a row; .+ smaller {key} than"
    with pytest.raises(ConfigError, match=wrong) as told:
        trained.train()
    assert "\n" not in str(told.value)
    assert [record["update"] for record in read_metrics(tmp_path)] == [0]
    kept = Run.open(tmp_path).last_checkpoint()
    assert kept is not None and kept.name == "000000" and load_policy(kept)


def test_weights_that_are_not_finite_are_never_saved(model: Path, tmp_path: Path) -> None:
    trained = learner(model, tmp_path, optim={"lr": 1e-3, "minibatch": 10_000})
    weight = trained.actor.named[0][1]
    trained.actor.optimizer.register_step_post_hook(lambda *_: weight.data.view(-1)[:1].fill_(float("inf")))
    with pytest.raises(ConfigError, match=r"update 1: the weights are no longer finite; .+ smaller optim\.lr than"):
        trained.train()
    kept = Run.open(tmp_path).last_checkpoint()
    assert kept is not None
    assert all(torch.isfinite(weight).all() for weight in load_policy(kept).model.state_dict().values())


@pytest.mark.parametrize(
    ("anchors", "choice"),
    [
        ("observation-1", 'anchor="situation" or "state" in'),
        ("situation-1", 'Choose anchor="state" in'),
        ("state-1", "own code"),
        ("own-1", "own code"),
    ],
)
def test_hidden_state_is_said_once_with_what_to_choose(
    model: Path, caplog: pytest.LogCaptureFixture, anchors: str, choice: str
) -> None:
    hiding = Slope(np.array([[0.8], [0.85], [1.0]]) * np.ones(20))
    guard, other = Guard(small(model)), Guard(small(model, credit={"method": "grpo"}))
    for update in range(1, 4):
        other.calibrate(update, hiding, anchors)
        guard.calibrate(update, hiding, anchors)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"update 2: the anchors ({anchors}) hide state")  # twenty groups are few
    assert all(word in said for word in (choice, "gigpo", "must mix", "depth 0"))


def test_invalid_replies_alone_are_said_once_after_three_updates(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard(small(model))
    with caplog.at_level(logging.WARNING):
        for update, share in enumerate([1.0, 1.0, 0.99, 1.0, 1.0], 1):
            guard.check(update, {"invalid": share}, {})
        assert not caplog.records
        for update in (6, 7):
            guard.check(update, {"invalid": 1.0}, {})
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("update 6: every reply of the last 3 updates was invalid")
    assert all(word in said for word in ("record_every", "crbc view", "env.prompt", "max_new_tokens = 4"))


def test_a_loss_of_ones_own_that_is_not_finite_ends_the_run_at_once(model: Path) -> None:
    record = {"invalid": 0.0, "skipped_steps": 1.0}
    Guard(small(model)).check(7, record, {})  # the built-in one may lose a step
    own = small(model, loss={"objective": "crbc_rl.training.loss:policy_loss"})
    with pytest.raises(ConfigError, match="update 7: loss.objective: .*policy_loss is not finite"):
        Guard(own).check(7, record, {})


@pytest.mark.parametrize(
    ("waves", "generate", "environments", "told"),
    [(1, 2.0, 1.5, True), (1, 9.0, 1.5, False), (1, 0.1, 0.9, False), (2, 2.0, 1.5, False)],
)
def test_waiting_for_environments_is_told_once(
    model: Path, caplog: pytest.LogCaptureFixture, waves: int, generate: float, environments: float, told: bool
) -> None:
    guard = Guard(small(model, rollout={"waves": waves}))
    for update in (1, 2):
        guard.wait(update, {"generate": generate, "environments": environments})
    said = [record.getMessage() for record in caplog.records]
    assert [line.startswith("update 1: sampling waited 2 s for the environments") for line in said] == [True] * told
