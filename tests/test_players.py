"""Who plays which groups, and which of the groups that were played are trained on."""

from __future__ import annotations

from typing import Any

import pytest
from door_env import Asked, Clerk, door_config, players_of

from crbc_envs.actions import tagged
from crbc_rl.credit import advantages_batch
from crbc_rl.distributed import World
from crbc_rl.rollout.collect import Sample
from crbc_rl.rollout.worker import Players

OPEN, KNOCK = tagged("open"), tagged("knock")


def _attempts(*outcomes: str) -> tuple[Clerk, Players]:
    """Three groups of four in each attempt: "w" wins, "l" loses, "m" is mixed. An episode is one step, so every
    attempt is one call."""
    clerk = Clerk()

    def say(asked: Asked) -> str:
        place = sum(other.call == asked.call for other in clerk.asked[: clerk.asked.index(asked)])
        kind = outcomes[asked.call][place // 4]
        return OPEN if kind == "w" or (kind == "m" and place % 4 < 2) else KNOCK

    clerk.say = say
    config = door_config(env={"kwargs": {"max_steps": 1}}, rollout={"rounds": len(outcomes)})
    return clerk, players_of(clerk, config)


def _rates(sample: Sample) -> list[float]:
    return [group.success_rate for group in sample.groups]


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
    clerk, players = _attempts(*outcomes)
    sample = players.sample(1)
    assert clerk.batches == played
    everyone = [(asked.door, asked.ticket) for asked in clerk.asked][::4]
    doors = [everyone[g][0] for g in kept]
    assert [group.task for group in sample.groups] == [f"door/train/{door // 3}" for door in doors]
    wanted = "".join(outcomes)
    assert _rates(sample) == [{"w": 1.0, "l": 0.0, "m": 0.5}[wanted[g]] for g in kept]
    for group, turns in zip(sample.groups, sample.turns, strict=True):
        said = [[turn.text for turn in member] for member in turns]
        assert said == [[OPEN if rollout.success else KNOCK] for rollout in group.rollouts]
    credit = advantages_batch(sample.interned, "grpo")
    assert [[bool(gain[0] > 0) for gain in group] for group in credit] == [
        [rollout.success and rate == 0.5 for rollout in group.rollouts]
        for group, rate in zip(sample.groups, _rates(sample), strict=True)
    ]


def test_the_memory_is_left_to_the_trainer_once_after_sampling() -> None:
    clerk, players = _attempts("wml", "lwm", "mlw")
    clerk.calls.clear()
    players.sample(1)
    assert clerk.calls == ["sleep"]


def test_a_model_that_samples_for_itself_is_not_given_its_own_weights() -> None:
    clerk = Clerk()
    players = players_of(clerk, door_config())
    assert players.exact and players.engine is clerk
    players.refresh()
    assert clerk.calls == []


def test_an_engine_of_its_own_wakes_before_it_takes_over_what_was_learned() -> None:
    clerk = Clerk()
    players = players_of(clerk, door_config())
    players.exact = False
    players.refresh()
    assert clerk.calls == ["wake", "load"]


class Pretended(World):
    """One of two processes; what both gave is put together by the test."""

    __slots__ = ("given", "others")

    def gather(self, value: Any) -> list[Any]:
        self.given.append(value)
        return self.others.pop(0) if self.others else [value] * self.size


def _pretended(rank: int, size: int = 2) -> Pretended:
    world = Pretended(rank, size)
    object.__setattr__(world, "given", [])
    object.__setattr__(world, "others", [])
    return world


def _asked(clerk: Clerk) -> list[tuple[str, int]]:
    return [(asked.text, asked.seed) for asked in clerk.asked]


def test_two_processes_play_between_them_what_one_plays() -> None:
    config = door_config(rollout={"num_groups": 4})
    whole, parts = Clerk(), [Clerk(), Clerk()]
    alone = players_of(whole, config).sample(2)
    worlds = [_pretended(0), _pretended(1)]
    for clerk, world in zip(parts, worlds, strict=True):
        players_of(clerk, config, world).sample(2)
    assert sorted(_asked(whole)) == sorted(_asked(parts[0]) + _asked(parts[1]))
    assert len(parts[0].asked) == len(parts[1].asked)
    given = [world.given[0] for world in worlds]
    for rank in (0, 1):
        world = _pretended(rank)
        world.others.append(given)
        together = players_of(Clerk(), config, world).sample(2)
        assert together.groups == alone.groups and together.turns == alone.turns


def test_two_processes_evaluate_between_them_what_one_evaluates() -> None:
    config = door_config(rollout={"num_groups": 4})
    whole, parts = Clerk(), [Clerk(), Clerk()]
    alone = players_of(whole, config).evaluate("test", 5)
    worlds = [_pretended(0), _pretended(1)]
    for clerk, world in zip(parts, worlds, strict=True):
        players_of(clerk, config, world).evaluate("test", 5)
    assert sorted(_asked(whole)) == sorted(_asked(parts[0]) + _asked(parts[1]))
    assert [len(world.given[0]) for world in worlds] == [3, 2]
    world = _pretended(1)
    world.others.append([world.given[0] for world in worlds])
    assert players_of(Clerk(), config, world).evaluate("test", 5) == alone


def test_processes_that_hold_one_model_together_play_the_same_and_count_once() -> None:
    config = door_config(rollout={"num_groups": 4}, generator={"tensor_parallel": 2})
    alone = players_of(Clerk(), door_config(rollout={"num_groups": 4}))
    worlds, asked = [_pretended(rank, 4) for rank in range(4)], []
    for world in worlds:
        players = players_of(clerk := Clerk(), config, world)
        players.sample(1)
        asked.append(_asked(clerk))
        players.evaluate("test", 3)
    assert asked[0] == asked[1] and asked[2] == asked[3]
    assert not set(asked[0]) & set(asked[2])
    world = _pretended(3, 4)
    world.others.extend([other.given[call] for other in worlds] for call in (0, 1))
    together = players_of(Clerk(), config, world)
    sample, expected = together.sample(1), alone.sample(1)
    assert sample.groups == expected.groups and sample.turns == expected.turns
    assert together.evaluate("test", 3) == alone.evaluate("test", 3)


def test_groups_that_are_chosen_or_joined_are_credited_as_they_are() -> None:
    def outcomes(sample: Sample) -> list[list[bool]]:
        return [[gain[0] > 0 for gain in group] for group in advantages_batch(sample.interned, "grpo")]

    _, players = _attempts("mlw")
    sample = players.sample(1)
    mixed, lost, won = [True, True, False, False], [False] * 4, [False] * 4
    assert sample.counted is not None and outcomes(sample) == [mixed, lost, won]
    assert outcomes(sample.chosen([1, 0])) == [lost, mixed]
    assert sample.chosen([1, 0]).turns == [sample.turns[1], sample.turns[0]]
    assert outcomes(sample.joined(sample.chosen([0]))) == [mixed, lost, won, mixed]
