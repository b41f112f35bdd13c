"""One episode as a conversation: messages out, a reply in. For trainers that run their own loop."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from anchors import GroupError, Rollout, Step
from crbc_envs.actions import cause_of, settled
from crbc_envs.prompts import HISTORY_LENGTH, IMAGE, Conversation, Prompt, PromptWindow, Template
from crbc_envs.storage.rollouts import encode_frame
from crbc_envs.vector.contract import ForeignEnv, unwrapped_member
from crbc_envs.vector.members import INDEPENDENT, begin, dynamics_of, make_member, noise_seed

Message = dict[str, Any]
"""{"role": "system" or "user", "content": a text, or a list of parts where there are frames}, as OpenAI's clients
have it."""

ID = str | int
"""The id of a group or a rollout, as the trainer has it."""


class ChatEpisode:
    """Episodes of one environment as conversations, one after another.

    episode = ChatEpisode("CRBC-ALFWorld-v0", prompt="text", split="train")
    messages = episode.begin(task=3, seed=7, group="update 1, task 3", rollout=0)
    while messages:
        messages = episode.reply(model(messages))

    Each turn is a conversation of its own: the messages are the whole input of the model, with the last `history`
    records in the text. `env` is an id, whose environment gets `env_kwargs`, or an environment that keeps the
    contract of `check_anchor_env`. `prompt`, `history` and `system` are as in `PromptWindow.of`. The environment's
    `replies` is the grammar of a reply (`crbc_envs.actions.Replies`): "thought" by default, which reads the replies of
    any model, or "tags", as in the learner.

    `causes` says of each step so far why its reply was invalid, one of `crbc_envs.actions.CAUSES`; "" if it was valid.

    `record` is the last step as plain JSON: group, rollout, step, anchor, action, valid, reward. Once the episode has
    ended it also holds length, final_anchor, truncated, success and score. `rows` has the records of all steps, which
    are the columns of `credit.advantages_from_rows`.

    In a stochastic environment each rollout has its own noise, that of the group's member with this number: it then
    walks as it does in a `GroupVectorEnv`. `dynamics` is as there; "shared" is one noise for all.

    `judge(episode)` is asked once, when an episode has ended, for one number per step. It finds `turns`, `rows` and
    `success` there. Its answer is the column `scores` of `rows`, for the credit method of that name.
    """

    def __init__(
        self,
        env: str | gymnasium.Env[Any, Any],
        prompt: str | Template = "text",
        *,
        history: int = HISTORY_LENGTH,
        system: str | None = None,
        dynamics: str | None = None,
        judge: Callable[[ChatEpisode], Sequence[float]] | None = None,
        **env_kwargs: Any,
    ) -> None:
        self.env = _made(env, env_kwargs)
        self.dynamics = dynamics_of(self.env, dynamics)
        self.judge = judge
        self.turns: list[tuple[list[Message], str]] = []
        """The messages and the reply of each step so far, kept for a judge alone."""
        self._ask = (prompt, history, system)
        PromptWindow.of(self.env, *self._ask)  # an unknown style is an error now
        self._talk: Conversation | None = None
        self._ids: dict[str, ID] = {}
        self._steps: list[Step] = []
        self._outcome: dict[str, Any] = {}
        self._scores: list[float] = []
        self.causes: list[str] = []

    def begin(
        self, task: int | None = None, seed: int = 0, *, group: ID | None = None, rollout: ID | None = None
    ) -> list[Message]:
        """Begin `task`, an index of the panel (drawn from `seed` without one), and return the first messages.

        The members of a group have the same task, seed and `group`, and each its own `rollout`, the member's number or
        a text. Without `group` the task's id and the seed name it. Raises `ValueError` without `rollout`, where its
        members have noise of their own, and where the prompt does not show the frame that is observed.
        """
        noise = None
        if self.dynamics == INDEPENDENT:
            if rollout is None:
                raise ValueError(
                    f"begin: {self.env.domain} is stochastic: number the members of a group, rollout=0, 1, ..., or "
                    'make the episode with dynamics="shared", where chance is the same for all'
                )
            noise = noise_seed(seed, rollout)
        observation, info = begin(self.env, seed, None if task is None else {"task": task}, noise)
        rollout = 0 if rollout is None else rollout
        window = PromptWindow.of(self.env, *self._ask)
        talk = Conversation(window, observation, info)
        first = talk.prompt()
        window.require_frame(first, observation)
        self._talk = talk
        self._ids = {"group": f"{info['task_id']}/{seed}" if group is None else group, "rollout": rollout}
        self._steps, self._outcome, self._scores, self.turns, self.causes = [], {}, [], [], []
        self._asked = messages(first)
        return self._asked

    def reply(self, text: str, finish_reason: str | None = None) -> list[Message] | None:
        """Execute the model's reply `text`. Returns the next messages, None when the episode has ended.

        `finish_reason` is what the server or the sampler says of the reply's end, as OpenAI's servers do. Of a reply
        that ended at its limit of tokens ("length"), nothing is executed that may be a part of more.

        Raises `gymnasium.error.ResetNeeded` before `begin` and after the end, and `TypeError` for what is no text.
        """
        if self._talk is None or self._outcome:
            raise gymnasium.error.ResetNeeded("reply: no episode is going on; call begin() first")
        if not isinstance(text, str):
            raise TypeError(f"reply: a model's text is wanted, got {type(text).__name__}")
        before = self._talk.info
        if self.judge is not None:
            self.turns.append((self._asked, text))
        replies = self.env.replies
        observation, reward, terminated, truncated, info = self.env.step(settled(text, replies, finish_reason))
        self.causes.append("" if info["valid"] else cause_of(text, replies, finish_reason))
        self._steps.append(Step(before["anchor"], info["action"], float(reward), before["label"]))
        self._talk.observe(observation, info)
        if not (terminated or truncated):
            self._asked = messages(self._talk.prompt())  # a judge reads them later
            return self._asked
        self._end(bool(truncated))
        return None

    def _end(self, truncated: bool) -> None:
        self._outcome = {
            "length": len(self._steps),
            "final_anchor": self.info["anchor"],
            "truncated": truncated,
            "success": bool(self.info["success"]),
            "score": float(self.info["score"]),
        }
        self._scores = self.scores()

    def scores(self) -> list[float]:
        """What the judge says of the steps so far, empty without a judge. Raises `GroupError` unless that is one number
        per step."""
        if self.judge is None:
            return []
        values = np.asarray(self.judge(self), dtype=np.float64)
        if values.shape != (len(self._steps),):
            raise GroupError(f"judge: scores of shape {values.shape} for {len(self._steps)} steps; one number per step")
        return [float(value) for value in values]

    def cut(self) -> None:
        """End the episode here, as one that ran out of steps: for trainers that stop it. It has at least one step.

        Raises `gymnasium.error.ResetNeeded` before the first step and after the end.
        """
        if not self._steps or self._outcome:
            raise gymnasium.error.ResetNeeded("cut: no episode with a step is going on")
        self._end(truncated=True)

    @property
    def over(self) -> bool:
        """Whether the episode that was begun has ended."""
        return bool(self._outcome)

    @property
    def success(self) -> bool:
        """Whether the episode has ended in success."""
        return bool(self._outcome.get("success"))

    @property
    def prompt(self) -> Prompt:
        """The current situation as the prompt shows it, after the end too. Raises `ResetNeeded` before `begin`."""
        if self._talk is None:
            raise gymnasium.error.ResetNeeded("prompt: no episode is going on; call begin() first")
        return self._talk.prompt()

    @property
    def observation(self) -> Any:
        """The environment's last observation; None before `begin`."""
        return None if self._talk is None else self._talk.observation

    @property
    def info(self) -> dict[str, Any]:
        """The environment's last info."""
        return {} if self._talk is None else self._talk.info

    @property
    def record(self) -> dict[str, Any]:
        """The last step; empty before the first one."""
        return self._record(len(self._steps) - 1) if self._steps else {}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The records of all steps so far."""
        return [self._record(step) for step in range(len(self._steps))]

    def rollout(self, *, cut: bool = False) -> Rollout:
        """The episode as a rollout. Raises `GroupError` before its end.

        With `cut`, an episode that is going on ends here as one that ran out of steps; it has at least one step.
        """
        if cut and not self._outcome:
            return Rollout(self._steps, success=False, truncated=True, final_anchor=self.info.get("anchor"))
        if not self._outcome:
            raise GroupError("rollout: the episode has not ended; reply until there are no more messages")
        names = ("success", "truncated", "final_anchor", "score")
        return Rollout(self._steps, **{name: self._outcome[name] for name in names})

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _record(self, number: int) -> dict[str, Any]:
        step = self._steps[number]
        taken = {"anchor": step.anchor, "action": step.action, "valid": step.valid, "reward": step.reward}
        scored = {"scores": self._scores[number]} if self._scores else {}
        return {**self._ids, "step": number, **taken, **self._outcome, **scored}


def messages(prompt: Prompt) -> list[Message]:
    """A prompt as messages: one of the user, after a system message if there is one.

    A frame is a part of its own, as a PNG data URL, which is without loss. Raises `ValueError` if the text has not
    one place for each frame.
    """
    content: str | list[Message] = prompt.text
    if prompt.images:
        texts = prompt.text.split(IMAGE)
        if len(texts) != len(prompt.images) + 1:
            raise ValueError(f"{len(prompt.images)} frames for {len(texts) - 1} places in the prompt")
        content = [{"type": "text", "text": texts[0]}]
        for image, text in zip(prompt.images, texts[1:], strict=True):
            url = f"data:image/png;base64,{base64.b64encode(encode_frame(image)).decode()}"
            content += [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
        content = [part for part in content if part.get("text") != ""]
    before = [] if prompt.system is None else [{"role": "system", "content": prompt.system}]
    return [*before, {"role": "user", "content": content}]


def _made(env: str | gymnasium.Env[Any, Any], kwargs: dict[str, Any]) -> Any:
    """An `AnchorEnv` without Gymnasium's bookkeeping, or a `ForeignEnv`."""
    if isinstance(env, str):
        return make_member(env, kwargs)
    if kwargs:
        raise TypeError(f"ChatEpisode: {sorted(kwargs)[0]!r} goes to an environment that is made from an id")
    if isinstance(env, ForeignEnv):
        return env
    return unwrapped_member(env) or ForeignEnv(
        env, env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    )
