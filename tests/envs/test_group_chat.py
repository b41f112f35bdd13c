"""Groups as conversations: the same walks by every door, also where chance decides, and replies of any kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from anchors import GroupError, Rollout
from crbc_envs import ChatEpisode, GroupChat, GroupVectorEnv
from crbc_rl import credit
from crbc_rl.adapters import trl_rollouts
from crbc_rl.adapters.trl import StepCreditTrainer
from crbc_rl.adapters.trl_rollouts import GroupRollouts
from crbc_rl.adapters.trl_tools import ToolCreditTrainer, ToolEnvironment

LAKE, KWARGS = "CRBC-FrozenLake-v0", {"slippery": True, "max_steps": 30}
SIZE, TASK, SEED = 8, 3, 11
MOVES = ("right", "down", "right", "down", "left", "up")


def move(member: int, step: int) -> str:
    return MOVES[(step * 5 + member // 4) % len(MOVES)]


def walked(dynamics: str | None = None) -> list[Rollout]:
    """The walks of a group, in which half of the members act alike."""
    envs = GroupVectorEnv(LAKE, 1, SIZE, dynamics=dynamics, **KWARGS)
    envs.reset(options={"task": [TASK], "group_seed": [SEED]})
    step = 0
    while envs.active.any():
        envs.step([move(m, step) if alive else None for m, alive in enumerate(envs.active)])
        step += 1
    return list(envs.groups()[0].rollouts)


def conversations(dynamics: str | None = None, ids: Any = lambda m: m) -> list[Rollout]:
    episode, rollouts = ChatEpisode(LAKE, dynamics=dynamics, **KWARGS), []
    for m in range(SIZE):
        waiting, step = episode.begin(TASK, SEED, group="g", rollout=ids(m)), 0
        while waiting:
            waiting, step = episode.reply(move(m, step)), step + 1
        rollouts.append(episode.rollout())
    return rollouts


@pytest.mark.parametrize("dynamics", [None, "shared"])
def test_a_group_walks_alike_by_every_door(dynamics: str | None) -> None:
    there = walked(dynamics)
    alike = len({tuple(step.anchor for step in rollout.steps) for rollout in there[:4]})
    assert alike > 1 if dynamics is None else alike == 1  # each has its own luck, or all have one
    assert conversations(dynamics) == there

    chat = GroupChat(GroupVectorEnv(LAKE, 1, SIZE, dynamics=dynamics, **KWARGS))
    waiting, step = chat.begin([TASK], [SEED]), 0
    while waiting:
        waiting, step = chat.reply({m: f"so</think><action>{move(m, step)}</action>" for m in waiting}), step + 1
    assert list(chat.groups()[0].rollouts) == there

    rollouts = GroupRollouts(LAKE, SIZE, dynamics=dynamics, **KWARGS)
    steps = [0] * SIZE

    def generate(asked: list[int], *_: Any) -> tuple[list[list[int]], None]:
        said = []
        for m in asked:
            said.append([*map(ord, move(m, steps[m])), 0])
            steps[m] += 1
        return said, None

    trainer = SimpleNamespace(
        args=SimpleNamespace(seed=SEED),
        state=SimpleNamespace(global_step=0),
        accelerator=SimpleNamespace(process_index=0),
        eos_token_ids=[0],
        processing_class=SimpleNamespace(decode=lambda ids: "".join(map(chr, ids))),
        _tokenize_prompts=lambda prompts: ([m for m, one in enumerate(rollouts.played) if not one.over], None, None),
        _generate_single_turn=generate,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trl_rollouts, "stream", lambda name, *place: SEED)
        rollouts([f"train/{TASK}"] * rollouts.rows, trainer)
    assert [episode.rollout() for episode in rollouts.played] == there
    assert with_a_tool(dynamics) == there


def with_a_tool(dynamics: str | None) -> list[Rollout]:
    """The same as TRL's environment with a tool, numbered by its place in the group."""
    environment, walks = ToolEnvironment(LAKE, dynamics=dynamics, **KWARGS), []
    for number in numbers_of_tools(SIZE):
        environment.reset(TASK, seed=SEED, rollout=number)
        for step in range(30):
            environment._turn += 1
            environment.act(move(number, step))
        walks.append(environment._episode.rollout())
    return walks


def numbers_of_tools(size: int) -> list[int]:
    """The members that the trainer makes of two groups' rows."""
    given: list[Any] = []
    seeds: list[set[int]] = []

    class Parent:
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            given.extend(row["rollout"] for row in inputs)
            seeds.append({row["seed"] for row in inputs})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepCreditTrainer, "_generate_and_score_completions", Parent._generate_and_score_completions)
        trainer = object.__new__(ToolCreditTrainer)
        trainer.__dict__.update(num_generations=size, num_generations_eval=size, args=SimpleNamespace(seed=5))
        trainer.accelerator = SimpleNamespace(process_index=0)
        for step, training, own in (
            (2, True, {}),
            (2, False, {}),
            (2, True, {"seed": 3}),
            (9, False, {}),
            (3, True, {}),
        ):
            trainer.__dict__.update(model=SimpleNamespace(training=training), state=SimpleNamespace(global_step=step))
            trainer._generate_and_score_completions([{"task": TASK, **own}] * 2 * size)
    update, evaluated, own, again, later = seeds
    assert own == {3} and evaluated == again, "the data set's if any, and the same noise in each evaluation"
    assert len(update) == len(later) == len(evaluated) == 2, "each of two groups has its own"
    assert not update & later and not update & evaluated, "and other noise in each update"
    assert given == [*range(size)] * 10
    return given[:size]


def test_a_text_stands_for_a_member_and_the_same_text_for_the_same_one() -> None:
    one, other = (conversations(ids=lambda m: f"rollout {m}") for _ in range(2))
    assert one == other != conversations()
    assert len({tuple(step.anchor for step in rollout.steps) for rollout in one[:4]}) > 1


def test_a_stochastic_world_asks_which_member_begins() -> None:
    with pytest.raises(
        ValueError, match=r"is stochastic: number the members of a group, rollout=0, 1, \.\.\., or make"
    ):
        ChatEpisode(LAKE, **KWARGS).begin(TASK)
    assert ChatEpisode(LAKE, dynamics="shared", **KWARGS).begin(TASK)
    assert ChatEpisode("CRBC-Sokoban-v0", observation="text").begin(TASK)
    with pytest.raises(ValueError, match="dynamics must be one of shared, independent"):
        ChatEpisode(LAKE, dynamics="loose", **KWARGS)


def test_an_episode_that_is_cut_becomes_rows_and_credit() -> None:
    episode, rows = ChatEpisode("CRBC-Sokoban-v0", observation="text"), []
    for rollout, steps in enumerate((1, 3)):
        episode.begin(TASK, group="g", rollout=rollout)
        with pytest.raises(gymnasium.error.ResetNeeded, match="cut: no episode with a step is going on"):
            episode.cut()
        for _ in range(steps):
            episode.reply("up")
        episode.cut()
        assert episode.over and not episode.success and episode.rollout().truncated
        with pytest.raises(gymnasium.error.ResetNeeded):
            episode.reply("up")
        rows += episode.rows
    assert [(row["length"], row["truncated"], row["success"]) for row in rows] == [(1, True, False)] + [
        (3, True, False)
    ] * 3
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert credit.advantages_from_rows(**columns, group_size=2).tolist() == [0.0] * 4


def test_members_go_on_one_by_one_and_a_group_begins_anew() -> None:
    chat = GroupChat(GroupVectorEnv("CRBC-Sokoban-v0", 2, 2, observation="text", max_steps=2), "compact", history=1)
    first = [chat.messages(m) for m in chat.begin([1, 2], [5, 6])]
    assert first[0] == first[1] != first[2] == first[3]
    assert chat.reply({3: "up"}) == [3] and chat.reply({3: ("<action>up", None)}) == []
    assert chat.causes == [[], [], [], ["", "cut in action"]]
    assert [chat.messages(m) for m in (0, 1, 2)] == first[:3]
    with pytest.raises(GroupError):
        chat.groups()
    assert chat.reply(dict.fromkeys((0, 1, 2), ("up", "length"))) == [0, 1, 2] and chat.causes[0] == ["cut in thought"]
    assert chat.reply(dict.fromkeys((0, 1, 2), "left")) == []
    assert [len(group.rollouts) for group in chat.groups()] == [2, 2]
    assert [chat.messages(m) for m in chat.begin([1, 2], [5, 6])] == first and chat.causes == [[], [], [], []]
    np.testing.assert_array_equal(chat.envs.active, True)
