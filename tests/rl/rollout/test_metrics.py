"""The figures of a record are those of all that was played, whatever part of it is trained on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from door_env import Clerk, DoorEnv, Doors, door_config, worker_of

from anchors import InternedRollouts, Rollout, RolloutGroup, Step
from crbc_envs.actions import tagged
from crbc_envs.tasks import Task
from crbc_rl.batches import RolloutBatch, Turn
from crbc_rl.rollout.metrics import peak_memory, rollout_metrics, speeds
from crbc_rl.rollout.worker import RolloutWorker

OPEN, KNOCK = tagged("open"), tagged("knock")
END = 1
"""The last token of all the replies here."""


def mixed_worker(rounds: int, **changes: Any) -> tuple[RolloutWorker, list[InternedRollouts]]:
    """A worker whose replies succeed in some groups always, in some never, in the others for some; and a list of what
    its environments have recorded, round by round."""

    def say(asked: Any) -> str:
        chance = (asked.door % 5) / 4
        return OPEN if np.random.default_rng([asked.door, asked.ticket, asked.seed % 1000]).random() < chance else KNOCK

    worker = worker_of(Clerk(say), door_config(env={"kwargs": {"max_steps": 1}}, rollout={"rounds": rounds}, **changes))
    recorded: list[InternedRollouts] = []
    interned = worker.envs.interned

    def spy() -> InternedRollouts:
        recorded.append(interned())
        return recorded[-1]

    worker.envs.interned = spy
    return worker, recorded


def test_success_is_that_of_all_groups_played_and_not_of_the_chosen() -> None:
    worker, recorded = mixed_worker(6)
    differences = []
    for update in range(1, 6):
        recorded.clear()
        batch = worker.sample(update)
        figures = rollout_metrics(batch, worker.kinds, [END])
        won = np.concatenate([part.success for part in recorded])
        steps = np.concatenate([part.length for part in recorded])
        reward = np.concatenate([part.returns for part in recorded])
        rates = np.concatenate([part.success_rate for part in recorded])
        assert figures["success"] == won.mean()
        assert figures["reward"] == pytest.approx(reward.mean())
        assert figures["steps"] == steps.sum()
        assert figures["length"] == steps.mean()
        assert figures["groups_played"] == 3 * len(recorded)
        assert figures["groups_kept"] == batch.rollouts.num_groups == 3
        assert figures["mixed_groups"] == ((rates > 0) & (rates < 1)).mean()
        differences.append(abs(figures["success"] - batch.rollouts.success.mean()))
    assert max(differences) > 0.05, "the chosen groups have another success rate"


def test_without_more_rounds_all_groups_are_both() -> None:
    worker, _ = mixed_worker(1)
    batch = worker.sample(1)
    assert batch.all_groups is None
    figures = rollout_metrics(batch, worker.kinds, [END])
    assert figures["groups_played"] == figures["groups_kept"] == 3
    assert figures["success"] == batch.rollouts.success.mean()


class Painted(Doors):
    def _task(self, index: int) -> Task[int]:
        task = super()._task(index)
        return Task(task.id, task.text, task.content, task.digest, kind=("red", "blue")[index % 2])


def test_success_by_kind_of_task(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = DoorEnv.__init__

    def painted(self: DoorEnv, split: str = "train", *arguments: Any, **options: Any) -> None:
        begin(self, split, *arguments, **options)
        self.panel = Painted(split, size=100_000)

    monkeypatch.setattr(DoorEnv, "__init__", painted)
    worker, recorded = mixed_worker(6)
    figures = rollout_metrics(worker.sample(2), worker.kinds, [END])
    expected: dict[str, list[float]] = {}
    for part in recorded:
        for task, rate in zip(part.tasks or (), part.success_rate.tolist(), strict=True):
            expected.setdefault(f"success/{('red', 'blue')[int(task.rpartition('/')[2]) % 2]}", []).append(rate)
    assert {key: value for key, value in figures.items() if key.startswith("success/")} == pytest.approx(
        {key: float(np.mean(rates)) for key, rates in expected.items()}
    )
    assert len(expected) == 2


# ---- tokens, by hand ------------------------------------------------------------------------------


def three_turns() -> RolloutBatch:
    """Two groups of one rollout each; the second has two steps, the last of them cut."""
    groups = [
        RolloutGroup([Rollout([Step("s", "a")], True)]),
        RolloutGroup([Rollout([Step("s", "a"), Step("t", "b")], False)]),
    ]
    turns = [Turn([5] * 4, [7, 9], [0.0] * 2), Turn([5] * 6, [9], [0.0]), Turn([5] * 8, [7, 7, 7], [0.0] * 3)]
    return RolloutBatch.of(InternedRollouts.from_groups(groups), turns)


def test_lengths_of_prompts_and_replies_by_hand() -> None:
    figures = rollout_metrics(three_turns(), {}, ends=(9,))
    assert figures["response_length"] == 2.0 and figures["response_max"] == 3
    assert figures["prompt_length"] == 6.0 and figures["prompt_max"] == 8
    assert figures["response_cut"] == pytest.approx(1 / 3)


def test_speeds_by_hand() -> None:
    """Generated counts what was played, trained what is trained on, in both epochs."""
    whole = three_turns()
    chosen = replace(whole.select([0]), all_groups=whole)
    seconds = {"generate": 1.5, "environments": 0.5, "reset": 9.0, "tensors": 1.0, "reference": 2.0, "train": 1.0}
    assert speeds(chosen, 2, seconds) == {
        "tokens_per_second/generated": 6 / 2.0,
        "tokens_per_second/trained": 2 * 6 / 4.0,
    }
    assert speeds(whole, 1, {"generate": 2.0}) == {"tokens_per_second/generated": 3.0}


def test_peak_memory_is_that_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    held = bytearray(b"x" * (64 << 20))  # written, hence in memory
    assert peak_memory(torch.device("cpu")) > len(held) / 2**30
    done: list[str] = []
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3 << 30)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: done.append(str(device)))
    assert peak_memory(torch.device("cuda", 1)) == 3.0
    assert done == ["cuda:1"]
