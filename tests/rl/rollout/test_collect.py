"""Rollouts as they are collected: who is asked when, and what comes of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from learner_fixtures import fresh_policy, small

from anchors import INVALID
from crbc_envs import GroupVectorEnv
from crbc_envs.actions import tagged
from crbc_envs.prompts import Prompt
from crbc_envs.sokoban.env import SokobanEnv
from crbc_rl.batches import RolloutBatch, Turn
from crbc_rl.credit import advantages_interned
from crbc_rl.policies.api import Queue, answer
from crbc_rl.policies.copying import MadeUpWords
from crbc_rl.rollout.collect import collect, open_groups, queue_of
from crbc_rl.training.clock import Clock


class Scripted:
    """A policy that answers from a function of the prompt, and counts what it is asked."""

    def __init__(self, reply: str) -> None:
        self.reply, self.asked = reply, 0

    def generate(self, prompts, seeds, temperature, max_new_tokens) -> list[Turn]:
        self.asked += len(prompts)
        return [Turn([len(prompt.text)], [1], [0.0], self.reply) for prompt in prompts]


def _play(policy: Scripted, **kwargs: object) -> tuple[GroupVectorEnv, object]:
    envs = GroupVectorEnv("CRBC-Sokoban-v0", 6, 2, observation="text", replies="tags")
    sample = collect(envs, policy, range(6), range(6), prompt="compact", temperature=1.0, max_new_tokens=4)
    return envs, sample


class Timed(SokobanEnv):
    def __init__(self, timeout: int = 60, **options: Any) -> None:
        super().__init__(**options)
        self.timeout = timeout


def test_the_environment_gets_every_argument_of_a_config(tmp_path: Path) -> None:
    gymnasium.register("Timed-v0", entry_point=Timed)
    config = small(tmp_path, env={"id": "Timed-v0", "kwargs": {"timeout": 5, "observation": "text"}})
    with closing(open_groups(config, "test", 1, 2)) as envs:
        told = [(env.timeout, env.panel.split, env.replies) for env in envs.members.envs]
    assert told == [(5, "test", "tags")] * 2
    del gymnasium.registry["Timed-v0"]


def test_only_live_members_generate() -> None:
    policy = Scripted("<think>x</think><action>right</action>")
    _, sample = _play(policy)
    steps = sum(len(rollout) for group in sample.rollouts.groups() for rollout in group.rollouts)
    assert policy.asked == steps == len(sample.turns)


class Buyer(Scripted):
    """Searches, opens the first product and buys it; to the first prompt of all it answers `reply`."""

    def generate(self, prompts, seeds, temperature, max_new_tokens) -> list[Turn]:
        return [Turn([1], [1], [0.0], self._answer(prompt.text)) for prompt in prompts]

    def _answer(self, prompt: str) -> str:
        found = re.search(r"\[(buy now|b0gen\w+)\]", prompt)
        said = f"click[{found[1]}]" if found else "search[shoes]"
        first, self.reply = self.reply, ""
        return tagged(first or said)


def test_what_only_a_purchase_tells_does_not_disturb_who_still_shops() -> None:
    """`info["reward_parts"]` is a mapping that members have who have bought."""
    envs = GroupVectorEnv("CRBC-WebShop-v0", 2, 1, max_steps=8, replies="tags")
    sample = collect(envs, Buyer("nonsense"), [0, 1], [0, 1], prompt="compact", temperature=1.0, max_new_tokens=4)
    first, second = ([step.action for step in group.rollouts[0].steps] for group in sample.rollouts.groups())
    assert first[0] == INVALID and len(first) == len(second) + 1 == 4
    assert first[-1] == second[-1] == "click[buy now]"


class Searcher(Scripted):
    """Searches for the task's own sentence, and keeps what it read."""

    def generate(self, prompts, seeds, temperature, max_new_tokens) -> list[Turn]:
        self.read = [prompt.text for prompt in prompts]
        return [Turn([1], [1], [0.0], tagged(f"search[{_task(prompt.text)}]")) for prompt in prompts]


def _task(prompt: str) -> str:
    return re.search(r"task: (.*)", prompt, re.IGNORECASE)[1]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_policy_that_reads_made_up_words_acts_in_the_original_ones(share: float) -> None:
    def play(made_up: tuple[MadeUpWords, float] | None) -> tuple[list[str], list[str]]:
        envs, policy = GroupVectorEnv("CRBC-WebShop-v0", 40, 1, max_steps=1, replies="tags"), Searcher("")
        sample = collect(
            envs, policy, range(40), range(40), prompt="compact", temperature=1.0, max_new_tokens=4, made_up=made_up
        )
        steps = [s for group in sample.rollouts.groups() for rollout in group.rollouts for s in rollout.steps]
        return policy.read, [step.action for step in steps]

    plain, actions = play(None)
    words = MadeUpWords.of([(prompt, "") for prompt in plain])
    read, again = play((words, share))
    assert again == actions and len(set(actions)) > 30
    other = sum(one != two for one, two in zip(plain, read, strict=True)) / len(plain)
    assert other == share if share in (0, 1) else 0.2 < other < 0.8
    assert read == play((words, share))[0]  # the draws are the groups'


def test_a_prompt_that_is_shortened_keeps_its_made_up_words() -> None:
    """It is made anew from its template, which knows the original words alone."""
    seen: list[Prompt] = []

    class Watched(Searcher):
        def generate(self, prompts, *rest) -> list[Turn]:
            seen.extend(prompts)
            return super().generate(prompts, *rest)

    def play(words: MadeUpWords, share: float) -> list[Prompt]:
        seen.clear()
        envs = GroupVectorEnv("CRBC-WebShop-v0", 40, 1, max_steps=2, replies="tags")
        told = {"prompt": "compact", "temperature": 1.0, "max_new_tokens": 4}
        collect(envs, Watched(""), range(40), range(40), **told, made_up=(words, share))
        return [*seen]

    plain = play(MadeUpWords([], []), 0.0)
    shown = play(MadeUpWords.of([(prompt.text, "") for prompt in plain]), 1.0)
    made_up = 0
    for one, other in zip(plain, shown, strict=True):
        most = len(other.text) - 1
        short = other.shortened(lambda prompt, most=most: len(prompt.text) <= most)
        if short is not None:
            assert _task(short.text) == _task(other.text)
            made_up += _task(short.text) != _task(one.text)
    assert made_up


@pytest.mark.parametrize("reply", ["\0" * 1_000_000, "", "<action>up</action>", "<think>" * 100_000, "up"])
def test_a_hostile_reply_is_the_invalid_action(reply: str) -> None:
    _, sample = _play(Scripted(reply))
    for group in sample.rollouts.groups():
        for rollout in group.rollouts:
            assert {step.action for step in rollout.steps} == {INVALID}
            assert len({step.anchor for step in rollout.steps}) == 1
            assert not rollout.success


class OneByOne(Scripted):
    """Replies come a few at a time, in no order, and by what was asked alone; some calls have none."""

    @contextmanager
    def queue(self, temperature: float, max_new_tokens: int) -> Iterator[Queue]:
        self.waiting, self.dice, self.most = {}, np.random.default_rng(0), 0
        self.given_up = None

        class Waiting:
            waiting = property(lambda _: len(self.waiting))
            ask = staticmethod(self.ask)
            ready = staticmethod(self.ready)

        try:
            yield Waiting()
        finally:
            self.given_up = len(self.waiting)

    def ask(self, key: int, prompt: Prompt, seed: int) -> None:
        assert key not in self.waiting  # nobody is asked twice before he answered
        self.waiting[key] = prompt, seed
        self.most = max(self.most, len(self.waiting))

    def ready(self) -> list[tuple[int, Turn]]:
        some = self.dice.permutation(sorted(self.waiting))[: self.dice.integers(3)].tolist()
        return [(key, *moving([self.waiting[key][0]], [self.waiting.pop(key)[1]])) for key in some]


def moving(prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[Turn]:
    """A move that prompt and seed decide."""
    moves = ("up", "down", "left", "right", "nonsense")
    said = [moves[(seed + len(prompt.text)) % 5] for prompt, seed in zip(prompts, seeds, strict=True)]
    return [Turn([seed % 97], [1], [0.0], tagged(move)) for seed, move in zip(seeds, said, strict=True)]


class Batches(Scripted):
    """The same replies, to all prompts of a call together."""

    def generate(self, prompts, seeds, temperature, max_new_tokens) -> list[Turn]:
        self.asked += 1
        return moving(prompts, seeds)


def played(policy: object, waves: int = 1, clock: Clock | None = None, **options: object) -> RolloutBatch:
    settings = {"observation": "text", "replies": "tags", "max_steps": 12, **options}
    with_groups = GroupVectorEnv("CRBC-Sokoban-v0", 5, 3, **settings)
    asked = {"prompt": "compact", "temperature": 1.0, "max_new_tokens": 4}
    sample = collect(with_groups, policy, range(5), range(5), **asked, waves=waves, clock=clock)
    with_groups.close()
    return sample


def same(one: RolloutBatch, other: RolloutBatch) -> bool:
    """Also as credit reads them, though anchors are numbered as they were met."""
    gains, others = (advantages_interned(batch.rollouts, "crbc") for batch in (one, other))
    alike = one.rollouts.groups() == other.rollouts.groups() and one.turns == other.turns
    return alike and np.allclose(gains, others, atol=1e-12)


@pytest.mark.parametrize("waves", [2, 3, 5, 9])
def test_waves_change_nothing_but_who_is_shown_together(waves: int) -> None:
    together, apart = Batches(""), Batches("")
    assert same(played(together), played(apart, waves))
    assert apart.asked > together.asked


@pytest.mark.parametrize("backend", ["sync", "process"])
def test_replies_that_come_one_by_one_make_the_same_rollouts(backend: str) -> None:
    policy = OneByOne("")
    assert same(played(Batches("")), played(policy, backend=backend))
    assert policy.most == 15 and policy.given_up == 0


def test_equal_tokens_in_waves_of_a_real_policy() -> None:
    policy = fresh_policy()
    one, other = played(policy), played(policy, 2)
    assert one.rollouts.length.tolist() == other.rollouts.length.tolist()
    assert [turn.response for turn in one.turns] == [turn.response for turn in other.turns]


class Meeting(Batches):
    """Ends a reply only once environments have begun to step meanwhile, from the second call on."""

    def __init__(self) -> None:
        super().__init__("")
        self.stepping = threading.Event()

    def generate(self, prompts, seeds, temperature, max_new_tokens) -> list[Turn]:
        if self.asked == 1:
            assert self.stepping.wait(timeout=30)
        return super().generate(prompts, seeds, temperature, max_new_tokens)


def test_environments_step_while_the_next_wave_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Meeting()
    step = GroupVectorEnv.step_members

    def watched(envs: GroupVectorEnv, *arguments: object) -> object:
        assert threading.current_thread() is not threading.main_thread()
        policy.stepping.set()
        return step(envs, *arguments)

    monkeypatch.setattr(GroupVectorEnv, "step_members", watched)
    played(policy, waves=2)
    assert policy.asked > 2


def test_an_error_of_an_environment_is_raised_and_what_was_asked_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = OneByOne("")

    def broken(envs: GroupVectorEnv, members: Sequence[int], actions: Sequence[str]) -> object:
        raise OSError("the shop burned down")

    monkeypatch.setattr(GroupVectorEnv, "step_members", broken)
    with pytest.raises(OSError, match="the shop burned down"):
        played(policy)
    assert policy.given_up > 0


def test_an_answer_is_in_the_order_of_the_questions() -> None:
    prompts, seeds = [Prompt("x" * n) for n in range(9)], list(range(100, 109))
    with queue_of(OneByOne(""), 1.0, 4) as queue:
        assert answer(queue, prompts, seeds) == moving(prompts, seeds)
        assert queue.waiting == 0


def test_the_seconds_spent_on_environments_alone_are_told() -> None:
    clock = Clock()
    played(Batches(""), clock=clock)
    seconds = clock.take()
    assert {"reset", "environments"} <= set(seconds)
    assert 0 < seconds["environments"] < seconds["update"]
