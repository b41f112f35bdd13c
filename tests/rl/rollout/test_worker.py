"""Who plays which groups, and which of the groups that were played are trained on."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from door_env import Asked, Clerk, DoorEnv, door_config, worker_of
from learner_fixtures import fresh_policy, small

from anchors import InternedRollouts
from crbc_envs import GroupVectorEnv
from crbc_envs.actions import tagged
from crbc_rl.batches import RolloutBatch
from crbc_rl.credit import METHODS, advantages_batch, advantages_interned
from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.evaluate import play_panel
from crbc_rl.rollout.panel import EvalPanel
from crbc_rl.rollout.worker import RolloutWorker
from crbc_rl.training.actor import Actor

OPEN, KNOCK = tagged("open"), tagged("knock")


def _attempts(*outcomes: str) -> tuple[Clerk, RolloutWorker]:
    """Three groups of four in each attempt: "w" wins, "l" loses, "m" is mixed. An episode is one step, so every
    attempt is one call."""
    clerk = Clerk()

    def say(asked: Asked) -> str:
        place = sum(other.call == asked.call for other in clerk.asked[: clerk.asked.index(asked)])
        kind = outcomes[asked.call][place // 4]
        return OPEN if kind == "w" or (kind == "m" and place % 4 < 2) else KNOCK

    clerk.say = say
    config = door_config(env={"kwargs": {"max_steps": 1}}, rollout={"rounds": len(outcomes)})
    return clerk, worker_of(clerk, config)


def _rates(sample: RolloutBatch) -> list[float]:
    return sample.rollouts.success_rate.tolist()


@pytest.mark.parametrize(
    ("outcomes", "played", "kept"),
    [
        (("mwm",), 1, [0, 1, 2]),  # one round takes what comes
        (("mmm", "mmm"), 1, [0, 1, 2]),  # enough at once
        (("wml", "mmm", "mmm"), 2, [1, 3, 4]),  # the first mixed ones of both, and no third round
        (("wml", "lwm", "wlw"), 3, [0, 1, 5]),  # too few: the first of the rest, in the order they were played
        (("wlw", "lll"), 2, [0, 1, 2]),  # none
        (("lll", "wmw"), 2, [0, 1, 4]),
        (("wwm", "mww", "wmw"), 3, [2, 3, 7]),
    ],
)
def test_groups_are_played_until_enough_are_mixed_and_the_mixed_ones_kept(
    outcomes: tuple[str, ...], played: int, kept: list[int]
) -> None:
    clerk, worker = _attempts(*outcomes)
    sample = worker.sample(1)
    assert clerk.batches == played
    everyone = [(asked.door, asked.ticket) for asked in clerk.asked][::4]
    doors = [everyone[g][0] for g in kept]
    assert [group.task for group in sample.rollouts.groups()] == [f"door/train/{door // 3}" for door in doors]
    wanted = "".join(outcomes)
    assert _rates(sample) == [{"w": 1.0, "l": 0.0, "m": 0.5}[wanted[g]] for g in kept]
    groups = sample.rollouts.groups()
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert [turn.text for turn in sample.turns] == [OPEN if rollout.success else KNOCK for rollout in rollouts]
    credit = advantages_batch(sample.rollouts, "grpo")
    assert [[bool(gain[0] > 0) for gain in group] for group in credit] == [
        [rollout.success and rate == 0.5 for rollout in group.rollouts]
        for group, rate in zip(groups, _rates(sample), strict=True)
    ]


def test_the_memory_is_left_to_the_trainer_once_after_sampling() -> None:
    clerk, worker = _attempts("wml", "lwm", "mlw")
    clerk.calls.clear()
    worker.sample(1)
    assert clerk.calls == ["sleep"]


def test_a_model_that_samples_for_itself_is_not_given_its_own_weights() -> None:
    clerk = Clerk()
    worker = worker_of(clerk, door_config())
    assert worker.engine_is_policy and worker.engine is clerk
    worker.refresh()
    assert clerk.calls == []


def test_an_engine_of_its_own_wakes_before_it_takes_over_what_was_learned() -> None:
    clerk = Clerk()
    worker = worker_of(clerk, door_config())
    worker.engine_is_policy = False
    worker.refresh()
    assert clerk.calls == ["wake", "load"]


class Pretended(Distributed):
    """One of two processes; what both gave is put together by the test."""

    __slots__ = ("given", "others")

    def gather(self, value: Any) -> list[Any]:
        sent = pickle.loads(pickle.dumps(value))  # noqa: S301 - made here
        self.given.append(sent)
        return self.others.pop(0) if self.others else [sent] * self.size


def _pretended(rank: int, size: int = 2) -> Pretended:
    pretended = Pretended(rank, size)
    object.__setattr__(pretended, "given", [])
    object.__setattr__(pretended, "others", [])
    return pretended


def _asked(clerk: Clerk) -> list[tuple[str, int]]:
    return [(asked.text, asked.seed) for asked in clerk.asked]


def test_two_processes_play_between_them_what_one_plays() -> None:
    config = door_config(rollout={"num_groups": 4})
    whole, parts = Clerk(), [Clerk(), Clerk()]
    alone = worker_of(whole, config).sample(2)
    ranks = [_pretended(0), _pretended(1)]
    for clerk, rank in zip(parts, ranks, strict=True):
        worker_of(clerk, config, rank).sample(2)
    assert sorted(_asked(whole)) == sorted(_asked(parts[0]) + _asked(parts[1]))
    assert len(parts[0].asked) == len(parts[1].asked)
    given = [rank.given[0] for rank in ranks]
    for number in (0, 1):
        rank = _pretended(number)
        rank.others.append(given)
        together = worker_of(Clerk(), config, rank).sample(2)
        assert together.rollouts.groups() == alone.rollouts.groups() and together.turns == alone.turns


def test_two_processes_evaluate_between_them_what_one_evaluates() -> None:
    config = door_config(rollout={"num_groups": 4})
    whole, parts = Clerk(), [Clerk(), Clerk()]
    alone = worker_of(whole, config).evaluate("test", 5)
    ranks = [_pretended(0), _pretended(1)]
    for clerk, rank in zip(parts, ranks, strict=True):
        worker_of(clerk, config, rank).evaluate("test", 5)
    assert sorted(_asked(whole)) == sorted(_asked(parts[0]) + _asked(parts[1]))
    assert [len(rank.given[0]["task"]) for rank in ranks] == [3, 2]
    rank = _pretended(1)
    rank.others.append([other.given[0] for other in ranks])
    assert worker_of(Clerk(), config, rank).evaluate("test", 5) == alone


def test_a_process_without_a_task_to_evaluate_gives_nothing_and_knows_the_figures() -> None:
    config = door_config(rollout={"num_groups": 4})
    ranks = [_pretended(0), _pretended(1)]
    for rank in ranks:
        rank.others.append([play_panel(Clerk(), config, "test", range(1)[r::2], config.seed) for r in (0, 1)])
        told = worker_of(Clerk(), config, rank).evaluate("test", 1)
        assert told == worker_of(Clerk(), config).evaluate("test", 1)
    assert [len(rank.given[0]) > 0 for rank in ranks] == [True, False]


class Key(str):
    """An anchor that counts how often one of its kind is hashed, while it is wanted."""

    hashed = 0
    counting = False

    def __hash__(self) -> int:
        Key.hashed += Key.counting
        return super().__hash__()


@pytest.mark.parametrize("processes", [1, 2])
def test_no_anchor_is_looked_up_by_name_between_the_environments_and_the_advantages(
    monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """Through dynamic sampling, and through what two ranks send each other."""

    def counting(on: bool, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            Key.counting = on
            return method(*arguments, **options)

        return called

    anchor = DoorEnv._anchor
    monkeypatch.setattr(DoorEnv, "_anchor", lambda env: Key(anchor(env)))
    monkeypatch.setattr(GroupVectorEnv, "reset", counting(False, GroupVectorEnv.reset))
    monkeypatch.setattr(GroupVectorEnv, "interned", counting(True, GroupVectorEnv.interned))
    monkeypatch.setattr(Key, "hashed", 0)
    # Everyone behind an even door fails, so that a second round is played and groups are chosen.
    clerk = Clerk(lambda asked: OPEN if asked.door % 2 and asked.seed % 3 == 0 else KNOCK)
    config = door_config(rollout={"num_groups": 4, "rounds": 6})
    rank = _pretended(0, processes) if processes > 1 else None
    batch = worker_of(clerk, config, rank).sample(1)
    assert len({asked.ticket for asked in clerk.asked}) > 4 / processes, "one round was enough"
    for method in METHODS:
        advantages_interned(batch.rollouts, method)
    assert Key.hashed == 0
    groups = batch.rollouts.groups()
    assert {type(step.anchor) for group in groups for r in group.rollouts for step in r.steps} == {Key}
    InternedRollouts.from_groups(groups)
    assert Key.hashed > 0, "it counts"
    Key.counting = False


def test_processes_that_hold_one_model_together_play_the_same_and_count_once() -> None:
    config = door_config(rollout={"num_groups": 4}, generator={"tensor_parallel": 2})
    alone = worker_of(Clerk(), door_config(rollout={"num_groups": 4}))
    ranks, asked = [_pretended(rank, 4) for rank in range(4)], []
    for rank in ranks:
        worker = worker_of(clerk := Clerk(), config, rank)
        worker.sample(1)
        asked.append(_asked(clerk))
        worker.evaluate("test", 3)
    assert asked[0] == asked[1] and asked[2] == asked[3]
    assert not set(asked[0]) & set(asked[2])
    rank = _pretended(3, 4)
    rank.others.extend([other.given[call] for other in ranks] for call in (0, 1))
    together = worker_of(Clerk(), config, rank)
    sample, expected = together.sample(1), alone.sample(1)
    assert sample.rollouts.groups() == expected.rollouts.groups() and sample.turns == expected.turns
    assert together.evaluate("test", 3) == alone.evaluate("test", 3)


def test_processes_that_hold_one_model_together_and_play_otherwise_are_an_error() -> None:
    config = door_config(rollout={"num_groups": 4}, generator={"tensor_parallel": 2})
    ranks = [_pretended(rank) for rank in range(2)]
    for rank in ranks:
        worker_of(Clerk(), config, rank).sample(1)
    ranks[1].given[0].turns[-1].prompt.append(7)
    rank = _pretended(0)
    rank.others.append([other.given[0] for other in ranks])
    worker = worker_of(Clerk(), config, rank)
    with pytest.raises(ConfigError, match=r"ranks 0 and 1 share one model \(.*=2\) and have played"):
        worker.sample(1)


def test_groups_that_are_chosen_or_joined_are_credited_as_they_are() -> None:
    def outcomes(sample: RolloutBatch) -> list[list[bool]]:
        return [[gain[0] > 0 for gain in group] for group in advantages_batch(sample.rollouts, "grpo")]

    _, worker = _attempts("mlw")
    sample = worker.sample(1)
    mixed, lost, won = [True, True, False, False], [False] * 4, [False] * 4
    assert outcomes(sample) == [mixed, lost, won]
    assert outcomes(sample.select([1, 0])) == [lost, mixed]
    assert sample.select([1, 0]).turns == [*sample.turns[4:8], *sample.turns[:4]]
    assert outcomes(RolloutBatch.concat([sample, sample.select([0])])) == [mixed, lost, won, mixed]


def test_a_repeated_task_is_played_with_the_number_of_its_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that its second episode draws other numbers than its first."""
    panel = EvalPanel("first", "test", (3, 5, 3), (0, 0, 1))
    monkeypatch.setattr("crbc_rl.rollout.worker.eval_panel", lambda *asked: panel)
    clerk = Clerk()
    clerk.say = lambda asked: KNOCK
    done: list[tuple[int, int]] = []
    evaluation = worker_of(clerk, door_config()).evaluate("test", 3, lambda *counts: done.append(counts))
    assert evaluation.outcomes["task"] == [3, 3, 5] and done[-1] == (3, 3)
    first = [asked.seed for asked in clerk.asked if asked.step == 0]
    assert len(set(first)) == 3, "an episode of its own for each"


def test_prompts_are_remembered_within_an_update_and_no_longer(tmp_path: Path) -> None:
    fresh_policy().save(tmp_path)
    config = small(tmp_path, generator={"prefix_cache": 0.01})
    actor = Actor(config, Distributed())
    worker, prefixes = RolloutWorker(config, Distributed(), actor), actor.policy.prefixes
    assert prefixes is not None and prefixes.most_bytes == int(0.01 * 2**30)
    first = worker.sample(1)
    asked = sum(len(turn.prompt) for turn in first.turns)
    assert 0 < worker.read["rollout/prefill_tokens"] < asked and worker.read["rollout/prefix_bytes"] > 0
    assert len(prefixes) == 0
    worker.evaluate("validation", 4)
    assert len(prefixes) == 0  # else a resumed run, which does not evaluate again, would round otherwise
    assert worker.sample(1).turns == first.turns
