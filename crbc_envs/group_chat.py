"""Whole groups as conversations: messages of all members out, their replies in. For trainers that sample in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anchors import InternedRollouts, RolloutGroup
from crbc_envs.actions import cause_of, settled
from crbc_envs.chat import Message, messages
from crbc_envs.core import Outcome
from crbc_envs.prompts import HISTORY_LENGTH, Conversation, Prompt, PromptWindow, Template
from crbc_envs.vector.group import GroupVectorEnv
from crbc_envs.vector.members import member_info

Said = str | tuple[str, str | None]
"""A model's reply, or the reply and what its server says of its end (`finish_reason`)."""


class GroupChat:
    """The members of `envs`, a `GroupVectorEnv`, as conversations, one turn of any of them at a time.

    chat = GroupChat(GroupVectorEnv("CRBC-ALFWorld-v0", num_groups=2, group_size=8), prompt="text")
    waiting = chat.begin(tasks=[3, 4], seeds=[7, 7])
    while waiting:
        replies = model([chat.messages(m) for m in waiting])
        waiting = chat.reply(dict(zip(waiting, replies)))
    advantages = [credit.advantages(group) for group in chat.groups()]

    Members are numbered through: member i of group g is g * group_size + i. The members of a group are proved to begin
    alike, and in a stochastic environment each has its own noise. `prompt`, `history` and `system` are as in
    `PromptWindow.of`. Members that wait for no reply cost nothing, so each may go on by itself. Errors are those of
    `envs`, such as `gymnasium.error.ResetNeeded` for a reply to a member that has ended.
    """

    def __init__(
        self,
        envs: GroupVectorEnv,
        prompt: str | Template = "text",
        *,
        history: int = HISTORY_LENGTH,
        system: str | None = None,
    ) -> None:
        self.envs = envs
        self.causes: list[list[str]] = []
        """Why each reply of each member was invalid, one of `crbc_envs.actions.CAUSES`; "" if it was not."""
        self._windows = [PromptWindow.of(envs, prompt, history, system) for _ in range(envs.num_envs)]
        self._conversations: list[Conversation] = []

    def begin(self, tasks: Sequence[int], seeds: Sequence[int]) -> list[int]:
        """Begin task `tasks[g]` with `seeds[g]` in each group g. Returns the members that wait for a reply: all. Raises
        `ValueError` where the prompt does not show the frame that is observed."""
        observations, infos = self.envs.reset(options={"task": tasks, "group_seed": seeds})
        by_member = [member_info(infos, m) for m in range(self.envs.num_envs)]
        for window in self._windows:
            window.history.clear()
        conversations = list(map(Conversation, self._windows, observations, by_member))
        self._windows[0].require_frame(conversations[0].prompt(), observations[0])
        self._conversations = conversations
        self.causes = [[] for _ in by_member]
        return list(range(self.envs.num_envs))

    def prompt(self, member: int) -> Prompt:
        """What `member` is asked next: the text, and the frame if there is one."""
        return self._conversations[member].prompt()

    def messages(self, member: int) -> list[Message]:
        """What `member` is asked next, as messages in the form of OpenAI's clients."""
        return messages(self.prompt(member))

    def reply(self, replies: Mapping[int, Said]) -> list[int]:
        """Execute `replies`, by member: texts, or (text, `finish_reason`). Returns those that wait for another one."""
        said = {m: (one, None) if isinstance(one, str) else one for m, one in replies.items()}
        texts = [self.settled(text, reason) for text, reason in said.values()]
        return self.observe(said, self.envs.step_members(list(said), texts))

    def settled(self, text: str, finish_reason: str | None = None) -> str:
        """The reply `text` as environments read it (`crbc_envs.actions.settled`). `finish_reason`: why it ended."""
        return settled(text, self.envs.replies, finish_reason)

    def observe(self, said: Mapping[int, tuple[str, str | None]], outcome: Outcome) -> list[int]:
        """Take the environments' answers, `outcome`, where another thread has executed the replies `said`: (text,
        `finish_reason`) by member, in the order of `outcome`. Returns the members that wait for another one."""
        for place, (m, observation) in enumerate(zip(said, outcome.observations, strict=True)):
            info = member_info(outcome.infos, place)
            self._conversations[m].observe(observation, info)
            self.causes[m].append("" if info["valid"] else cause_of(said[m][0], self.envs.replies, said[m][1]))
        over = (outcome.terminated | outcome.truncated).tolist()
        return [m for m, ended in zip(said, over, strict=True) if not ended]

    def groups(self) -> list[RolloutGroup]:
        """The rollouts of every group. Raises `GroupError` while a member is active."""
        return self.envs.groups()

    def interned(self) -> InternedRollouts:
        """The rollouts of all groups as one table of numbers. Raises `GroupError` while a member is active."""
        return self.envs.interned()

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
