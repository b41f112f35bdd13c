"""An update by verl's stock launcher, and the same rows in the bundled learner: the same optimizer step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import ROOT, train

from anchors import InternedRollouts, Rollout, RolloutGroup, Step
from crbc_rl import credit
from crbc_rl.batches import RolloutBatch, Turn
from crbc_rl.config import parse_config
from crbc_rl.distributed import Distributed
from crbc_rl.training.actor import Actor

UPDATE = 3
"""The policy has left its reference by then, so that the KL is not 0."""
SHORT = [
    "data.env.kwargs={observation: text, panel: v3, num_boxes: 2, max_steps: 16}",
    "actor_rollout_ref.actor.ppo_mini_batch_size=64",  # times n: as many rows as an update can have, so one step
    "trainer.val_before_train=False",
    "trainer.test_freq=-1",
    "trainer.save_freq=1",
    f"trainer.total_training_steps={UPDATE}",
]


@dataclass
class Update:
    """An update of verl's: its rows, what verl logged of it, the weights before it, and verl's folder."""

    rows: list[dict[str, Any]]
    log: dict[str, Any]
    before: dict[str, torch.Tensor]
    folder: Path
    bound: float
    """Of the relative differences."""

    @property
    def advantages(self) -> np.ndarray[Any, Any]:
        return np.array([float(row["advantages"][0]) for member in members(self.rows) for row in member])


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def update(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Update:
    folder = tmp_path_factory.mktemp(f"ranks{request.param}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRBC_RECORDED", str(folder))
        log = {record["step"]: record for record in train(folder, *SHORT, ranks=request.param, modules="verl_recorder")}
    for number in (UPDATE, UPDATE - 1):  # an update in which all of a group succeed or fail alike says little
        rows = torch.load(folder / f"rows-{number}.pt", weights_only=False)
        before = weights(folder / f"global_step_{number - 1}")
        found = Update(rows, log[number], before, folder, 1e-5 if request.param == 1 else 1e-4)
        if found.advantages.any():
            return found
    raise AssertionError("no group of two updates was mixed: run it again")


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The weights in a checkpoint of FSDP2's, in float32: verl's merger rounds them to bfloat16."""
    parts = [
        torch.load(path, weights_only=False) for path in sorted((checkpoint / "actor").glob("model_world_size_*.pt"))
    ]
    return {name: torch.cat([part[name]._local_tensor for part in parts]) for name in parts[0]}


def members(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows by rollout, in the order of groups and steps."""
    by_rollout: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["extra_fields"]["crbc"]["step"]):
        ours = row["extra_fields"]["crbc"]
        by_rollout.setdefault((ours["group"], ours["rollout"]), []).append(row)
    return [by_rollout[member] for member in sorted(by_rollout)]


def groups(rows: list[dict[str, Any]]) -> list[RolloutGroup]:
    played = []
    for member in members(rows):
        ours = [row["extra_fields"]["crbc"] for row in member]
        steps = [Step(row["anchor"], row["action"], row["reward"]) for row in ours]
        names = ("success", "truncated", "final_anchor", "score")
        played.append(Rollout(steps, **{name: ours[-1][name] for name in names}))
    return [RolloutGroup(played[i : i + 8]) for i in range(0, len(played), 8)]


def config(**credit_options: Any) -> Any:
    return parse_config(
        {
            "name": "beside-verl",
            "model": str(ROOT / "warmstarts/sokoban-tiny"),
            "protocol": "verl-agent",
            "env": {"id": "CRBC-Sokoban-v0", "kwargs": {"observation": "text"}},
            "rollout": {"num_groups": 4, "max_new_tokens": 12},
            "credit": {"reward": "outcome", "crbc": {"beta": 0.9, "w_step": 1.0}, **credit_options},
            # verl fills its last mini-batch with rows that count nothing, verl-agent with copies.
            "optim": {"lr": 3e-4, "minibatch": 2048, "order": "spread"},
        },
        "test",
    )


def test_advantages_are_those_of_the_library(update: Update) -> None:
    values = credit.advantages_batch(groups(update.rows), "crbc", **config().credit.options)
    wanted = np.concatenate([one for group in values for one in group])
    assert np.abs(update.advantages - wanted).max() < 1e-6 * max(1.0, np.abs(wanted).max())
    assert all(len(set(row["advantages"].tolist())) == 1 for row in update.rows)


def test_one_optimizer_step_is_the_bundled_learners(update: Update) -> None:
    """Loss, KL and the gradient's norm."""
    turns = [
        Turn(row["prompts"].tolist(), row["responses"].tolist(), row["old_log_probs"].tolist())
        for member in members(update.rows)
        for row in member
    ]
    batch = RolloutBatch.of(InternedRollouts.from_groups(groups(update.rows)), turns)
    actor = Actor(config(), Distributed())
    actor.policy.model.load_state_dict(update.before)
    found = actor.optimise(replace(batch, advantage=update.advantages), np.random.default_rng(0))
    assert found["kl"] > 1e-5
    for name, theirs in (("kl", "kl_loss"), ("grad_norm", "grad_norm"), ("entropy", "entropy")):
        print(name, found[name], update.log[f"actor/{theirs}"])
        assert found[name] == pytest.approx(update.log[f"actor/{theirs}"], rel=update.bound), name
    print("loss", found["loss"], update.log["actor/loss"])
    size = float(np.abs(update.advantages).mean())  # a loss is a mean of terms that cancel
    assert abs(found["loss"] - update.log["actor/loss"]) < update.bound * size


def test_a_resumed_run_goes_on_with_its_tasks_and_seeds(update: Update, monkeypatch: pytest.MonkeyPatch) -> None:
    if update.bound > 1e-5:
        pytest.skip("tasks are drawn on the driver, also of several ranks")
    again = update.folder / "again"
    monkeypatch.setenv("CRBC_RECORDED", str(again))
    place = f"trainer.resume_from_path={update.folder}/global_step_{UPDATE - 1}"
    train(again, *SHORT, "trainer.resume_mode=resume_path", place, modules="verl_recorder")
    assert not (again / f"rows-{UPDATE - 1}.pt").exists()
    straight, resumed = (torch.load(at / f"rows-{UPDATE}.pt", weights_only=False) for at in (update.folder, again))
    # The seed of a task is a function of the task, the update and data.seed.
    drawn = [{(int(row["task"]), int(row["global_steps"])) for row in some} for some in (straight, resumed)]
    assert drawn[0] == drawn[1] and len(drawn[0]) == 4
    starts = [
        {row["extra_fields"]["crbc"]["anchor"] for row in some if row["extra_fields"]["crbc"]["step"] == 0}
        for some in (straight, resumed)
    ]
    assert starts[0] == starts[1]


def test_the_colocated_trainer_gives_credit_too(tmp_path: Path) -> None:
    few = ["data.train_batch_size=2", "actor_rollout_ref.rollout.n=4", "actor_rollout_ref.actor.ppo_mini_batch_size=2"]
    short = [
        "trainer.total_training_steps=2",
        "trainer.val_before_train=False",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
    ]
    log = train(tmp_path, *few, *short, "trainer.v1.trainer_mode=crbc_colocate_async", "data.env.kwargs.max_steps=6")
    assert [(record["crbc/groups"], record["crbc/broken_groups"]) for record in log] == [(2.0, 0.0)] * 2
    assert all(record["actor/grad_norm"] >= 0.0 for record in log)
