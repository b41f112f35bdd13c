"""The rollout function of the TRL adapter: whole groups, one row per environment step. See `crbc_rl.adapters.trl`."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from accelerate.utils import gather_object

from crbc_envs import ChatEpisode
from crbc_envs.actions import LENGTH
from crbc_envs.tasks import stream
from crbc_rl.errors import ConfigError


def tasks(number: int, split: str = "train") -> list[dict[str, str]]:
    """The rows of a data set: the first tasks of a split."""
    return [{"prompt": f"{split}/{task}"} for task in range(number)]


class GroupRollouts:
    """A `rollout_func` that plays each prompt, a row of `tasks`, with `group_size` copies of the environment.

    `kwargs` are those of `ChatEpisode`, without the split. A prompt has `rows` = `group_size` x the environment's
    `max_steps` rows. Those behind the end of an episode are fillers: they have no record, and a mask leaves them out.
    Raises `ConfigError` for an environment that shows frames, or that names no limit of steps.
    """

    def __init__(self, env_id: str, group_size: int, **kwargs: Any) -> None:
        self.episode = cache(lambda split, member: ChatEpisode(env_id, split=split, **kwargs))
        env = self.episode("train", 0).env
        if len(env.observation_space.shape or ()) > 2:
            raise ConfigError("TRL's rollout_func takes no frames: give the environment observation='text'")
        if env.max_steps is None:
            raise ConfigError(f"{env_id}: rows are counted by the limit of steps: register it with max_episode_steps")
        self.size, self.steps, self.rows = group_size, env.max_steps, group_size * env.max_steps

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Raises `ConfigError` for a part of a group, and for a prompt that is no task."""
        if len(prompts) % self.rows or any(p != prompts[i - i % self.rows] for i, p in enumerate(prompts)):
            raise ConfigError(
                f"a process holds a part of a group: give each a multiple of {self.rows} rows, in evaluation by "
                "num_generations_eval and per_device_eval_batch_size"
            )
        place = (trainer.args.seed, trainer.state.global_step, trainer.accelerator.process_index)
        waiting = self.begin(prompts[:: self.steps], *place)
        idle = waiting[0]
        while most := max(gather_object([len(waiting)])):  # an engine that processes share wants as many from each
            asked, _, _ = trainer._tokenize_prompts([*waiting.values(), *[idle] * most][:most])
            replies, scores = trainer._generate_single_turn(asked, None, {}, 1)
            turns = zip(asked, replies, scores or [None] * most, strict=True)
            for m, turn in zip(list(waiting), turns, strict=False):
                self.turns[m].append(turn)
                text = [token for token in turn[1] if token not in trainer.eos_token_ids]
                cut = LENGTH if len(text) == len(turn[1]) else None  # without an end token
                waiting[m] = self.played[m].reply(trainer.processing_class.decode(text), cut)
            waiting = {m: messages for m, messages in waiting.items() if messages}
        return self.table(trainer.eos_token_ids[:1])

    def begin(self, places: list[str], *path: int) -> dict[int, Any]:
        """The first messages of every member. The members of a group share task and seed, and no groups a seed."""
        wrong = [place for place in places if not re.fullmatch(r"\w+/\d+", str(place))]
        if wrong:
            raise ConfigError(f"prompt {str(wrong[0])[:80]!r} is no task: make the data set from tasks(...)")
        named = [place.split("/") for place in places]
        self.played = [self.episode(split, m) for m, (split, _) in enumerate(named)]
        self.turns: list[list[Any]] = [[] for _ in named]
        begun = {}
        for m, (_, task) in enumerate(named):
            group, member = divmod(m, self.size)
            seed = stream("group", *path, group, int(task))
            begun[m] = self.played[m].begin(int(task), seed, group=group, rollout=member)
        return begun

    def table(self, end: list[int]) -> dict[str, Any]:
        """The columns that TRL wants, and those of ours that it hands on with its inputs."""
        rows: list[tuple[Any, ...]] = []
        for episode, turns in zip(self.played, self.turns, strict=True):
            won = float(episode.success)
            live = zip(turns, episode.rows, strict=True)
            rows += [(*turn, [1] * len(turn[1]), record, won) for turn, record in live]
            rows += [(end, end, [0.0], [0], None, won)] * (self.steps - len(turns))
        names = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "record", "success")
        table: dict[str, Any] = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        return {**table, "logprobs": None if None in table["logprobs"] else table["logprobs"]}
