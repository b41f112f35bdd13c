"""Group rollouts: play every group to the end with a policy, and keep all turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from crbc_envs import GroupChat, GroupVectorEnv
from crbc_envs.actions import Replies
from crbc_envs.core import Outcome
from crbc_envs.prompts import HISTORY_LENGTH, Prompt, Template
from crbc_envs.tasks import stream
from crbc_rl.batches import RolloutBatch, Turn
from crbc_rl.config import TrainConfig
from crbc_rl.policies.api import Continuous, Policy, Queue
from crbc_rl.policies.copying import Exchange, MadeUpWords
from crbc_rl.training.clock import Clock

MADE_UP = 1
"""Separates the draws of made-up words from those of the reply."""


def open_groups(
    config: TrainConfig, split: str, num_groups: int, group_size: int, replies: Replies | None = None
) -> GroupVectorEnv:
    """The config's environments on one split. `replies` is the grammar of a reply, by default the config's."""
    return GroupVectorEnv(
        config.registered_id(),
        num_groups,
        group_size,
        config.rollout.backend,
        config.rollout.num_workers,
        dynamics=config.rollout.dynamics,
        env_kwargs={**config.env.kwargs, "split": split, "replies": replies or config.replies},
    )


def collect(
    envs: GroupVectorEnv,
    policy: Policy,
    tasks: Sequence[int],
    seeds: Sequence[int],
    *,
    prompt: str | Template,
    temperature: float,
    max_new_tokens: int,
    history: int = HISTORY_LENGTH,
    system: str | None = None,
    made_up: tuple[MadeUpWords, float] | None = None,
    waves: int = 1,
    progress: Callable[[int], None] = lambda ended: None,
    on_turn: Callable[[Turn], None] = lambda turn: None,
    clock: Clock | None = None,
) -> RolloutBatch:
    """Play one group per task in `envs` to the end. Only live members are sent to `policy`: a finished one is free.

    `tasks` and `seeds` have one value per group. Every draw in a group is a function of its seed, the member and the
    step, so a group's rollouts do not depend on the other groups. `temperature` and `max_new_tokens` are those of
    `Policy.generate`. Returns all turns, in order of the groups, their rollouts and the steps of these.

    `prompt`, `history` and `system` make the prompts, as in `PromptWindow.of`. `made_up` says which words are exchanged
    for made-up ones and in what share of the prompts: the turn has those, the environment the original ones. `progress`
    is called with the number of rollouts that have ended, `on_turn` with each turn that was executed. `clock` times the
    phases "reset", and "environments" while only environments run.

    Environments step in their own thread while the policy works on other prompts. A `Continuous` policy gets each
    member's prompt as soon as it is ready. Any other policy gets batches: the groups are split into `waves` parts, and
    with two, the environments of one part step while the replies of the other are sampled.
    """
    clock = clock or Clock()
    with clock.phase("reset"):
        members = _Members(GroupChat(envs, prompt, history=history, system=system), tasks, seeds, made_up)
    numbers = np.arange(envs.num_envs).reshape(envs.num_groups, -1)
    upcoming = deque(wave.ravel().tolist() for wave in np.array_split(numbers, min(waves, envs.num_groups)))
    pending_step: Future[Outcome] | None = None
    stepping: dict[int, Turn] = {}
    ended = 0
    with ThreadPoolExecutor(1, "environments") as thread, queue_of(policy, temperature, max_new_tokens) as queue:
        while upcoming or pending_step or queue.waiting:
            if upcoming:
                members.ask(upcoming.popleft(), queue)
            replies = queue.ready()
            if pending_step:
                with clock.phase("environments"):
                    outcome = pending_step.result()
                live = members.observe(stepping, outcome, on_turn)
                members.ask(live, queue)
                ended += len(stepping) - len(live)
                progress(ended)
                pending_step = None
            if replies:
                stepping = dict(replies)
                pending_step = thread.submit(envs.step_members, list(stepping), members.texts(stepping))
    return RolloutBatch.of(envs.interned(), [turn for turns in members.turns for turn in turns])


class _Members:
    """The conversations of all members, and their turns as the policy had them."""

    def __init__(
        self, chat: GroupChat, tasks: Sequence[int], seeds: Sequence[int], made_up: tuple[MadeUpWords, float] | None
    ) -> None:
        self.chat, self.seeds, self.made_up = chat, seeds, made_up
        self.turns: list[list[Turn]] = [[] for _ in chat.begin(tasks, seeds)]
        self.exchanges: dict[int, Exchange] = {}

    def ask(self, members: Iterable[int], queue: Queue) -> None:
        """Queue the members' prompts."""
        for m in members:
            group, member = divmod(m, self.chat.envs.group_size)
            seed = stream("reply", self.seeds[group], member, len(self.turns[m]))
            queue.ask(m, self._shown(m, self.chat.prompt(m), seed), seed)

    def _shown(self, m: int, prompt: Prompt, seed: int) -> Prompt:
        """The prompt as the policy reads it: a share of them have made-up words."""
        if self.made_up is None:
            return prompt
        (words, share), draws = self.made_up, np.random.default_rng([seed, MADE_UP])
        if draws.random() >= share:
            return prompt
        exchange = self.exchanges[m] = Exchange(words, draws)
        assert prompt.source is not None  # a conversation's
        template, view = prompt.source
        source = (lambda shorter: exchange.made(template(shorter))), view  # a prompt that is shortened is made anew
        return replace(prompt, text=exchange.made(prompt.text), source=source)

    def texts(self, turns: Mapping[int, Turn]) -> list[str]:
        """The replies as the environments are to read them."""
        exchanges = [self.exchanges.pop(m, None) for m in turns]
        return [
            self.chat.settled(turn.text if one is None else one.original(turn.text), turn.finish_reason)
            for turn, one in zip(turns.values(), exchanges, strict=True)
        ]

    def observe(self, turns: Mapping[int, Turn], outcome: Outcome, on_turn: Callable[[Turn], None]) -> list[int]:
        """Store the turns with the environments' answers, and return the members that are still live."""
        live = self.chat.observe({m: (turn.text, turn.finish_reason) for m, turn in turns.items()}, outcome)
        for m, turn in turns.items():
            cause = self.chat.causes[m][-1]
            self.turns[m].append(replace(turn, cause=cause) if cause else turn)
            on_turn(self.turns[m][-1])
        return live


@contextmanager
def queue_of(policy: Policy, temperature: float, max_new_tokens: int) -> Iterator[Queue]:
    """A queue for any policy. If the policy is not `Continuous`, each `ready` generates for all queued prompts."""
    if isinstance(policy, Continuous):
        with policy.queue(temperature, max_new_tokens) as queue:
            yield queue
    else:
        yield _Batches(policy, temperature, max_new_tokens)


class _Batches:
    def __init__(self, policy: Policy, temperature: float, max_new_tokens: int) -> None:
        self.policy, self.limits = policy, (temperature, max_new_tokens)
        self.asked: list[tuple[int, Prompt, int]] = []

    @property
    def waiting(self) -> int:
        return len(self.asked)

    def ask(self, key: int, prompt: Prompt, seed: int) -> None:
        self.asked.append((key, prompt, seed))

    def ready(self) -> list[tuple[int, Turn]]:
        if not self.asked:
            return []
        keys, prompts, seeds = zip(*self.asked, strict=True)
        self.asked = []
        return list(zip(keys, self.policy.generate(prompts, seeds, *self.limits), strict=True))
