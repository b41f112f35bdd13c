"""ChatEpisode: what the learner's prompts say, as messages; and what is recorded of an episode."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from foreign_envs import CountdownEnv

from anchors import INVALID, GroupError, RolloutGroup
from crbc_envs import ChatEpisode, GroupVectorEnv, Prompt
from crbc_envs.actions import tagged
from crbc_envs.group_chat import GroupChat
from crbc_envs.prompts import IMAGE
from crbc_envs.storage.rollouts import decode_frame
from crbc_rl import credit
from crbc_rl.batches import Turn
from crbc_rl.rollout.collect import collect

KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("CRBC-Sokoban-v0", "compact", {"observation": "text"}),
    ("CRBC-Sokoban-v0", "image", {"observation": "rgb"}),
    ("CRBC-ALFWorld-v0", "text", {}),
    ("CRBC-WebShop-v0", "text", {}),
]


def reply(seed: int) -> str:
    rng = np.random.default_rng(seed)
    words = ["up", "down", "left", "right", "look", "go to shelf 1", "search[red shoes]", "click[back to search]"]
    return "nonsense" if rng.random() < 0.2 else tagged(words[rng.integers(len(words))])


class Kept:
    """A policy that keeps its prompts and replies, in the order of asking."""

    def __init__(self) -> None:
        self.asked: list[tuple[Prompt, str]] = []

    def generate(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], temperature: float, max_new_tokens: int
    ) -> list[Turn]:
        turns = [Turn([1], [1], [0.0], reply(seed)) for seed in seeds]
        self.asked += [(prompt, turn.text) for prompt, turn in zip(prompts, turns, strict=True)]
        return turns


def text_of(messages: list[dict[str, Any]]) -> str:
    """The text of messages, with a placeholder for each frame."""
    content = messages[-1]["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] if part["type"] == "text" else IMAGE for part in content)


def frames_of(messages: list[dict[str, Any]]) -> list[np.ndarray]:
    content = messages[-1]["content"]
    parts = [] if isinstance(content, str) else content
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [decode_frame(base64.b64decode(url.removeprefix("data:image/png;base64,"))) for url in urls]


@pytest.mark.parametrize("history", [0, 2])
@pytest.mark.parametrize(("env_id", "style", "kwargs"), KINDS, ids=lambda value: str(value))
def test_messages_are_the_learners_prompts(env_id: str, style: str, kwargs: dict[str, Any], history: int) -> None:
    policy = Kept()
    with_tags = {**kwargs, "max_steps": 6, "replies": "tags"}
    envs = GroupVectorEnv(env_id, 1, 1, **with_tags)
    options = {"history": history, "system": "Be brief."}
    batch = collect(envs, policy, [3], [5], prompt=style, temperature=1.0, max_new_tokens=4, **options)
    episode = ChatEpisode(env_id, style, history=history, system="Be brief.", max_steps=6, **kwargs)
    messages = episode.begin(3, 5)
    for prompt, said in policy.asked:
        assert messages is not None
        assert messages[0] == {"role": "system", "content": "Be brief."} and len(messages) == 2
        assert text_of(messages) == prompt.text
        for ours, theirs in zip(frames_of(messages), prompt.images, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        messages = episode.reply(said)
    assert messages is None and episode.over
    (group,) = batch.rollouts.groups()
    assert [episode.rollout()] == list(group.rollouts)


def played(episode: ChatEpisode, **ids: Any) -> None:
    messages = episode.begin(2, 9, **ids)
    count = 0
    while messages:
        messages = episode.reply(reply(1000 * ids["rollout"] + count))
        count += 1


def test_the_records_are_rows_for_credit() -> None:
    episode = ChatEpisode("CRBC-Sokoban-v0", observation="text", max_steps=8)
    rows, rollouts = [], []
    for rollout in range(8):
        played(episode, group="a", rollout=rollout)
        rows += json.loads(json.dumps(episode.rows))
        rollouts.append(episode.rollout())
    assert rows[-1] == json.loads(json.dumps(episode.record))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert set(columns) == {
        *("group", "rollout", "step", "anchor", "action", "valid", "reward"),
        *("length", "final_anchor", "truncated", "success", "score"),
    }
    found = credit.advantages_from_rows(**columns, method="graphgpo")
    wanted = np.concatenate(credit.advantages(RolloutGroup(rollouts), "graphgpo"))
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    assert INVALID in columns["action"]


def test_before_the_end_there_is_no_outcome() -> None:
    episode = ChatEpisode("CRBC-Sokoban-v0", observation="text")
    assert episode.record == {} and not episode.over and not episode.success
    with pytest.raises(gymnasium.error.ResetNeeded, match="call begin"):
        episode.reply("up")
    episode.begin(0)
    episode.reply(tagged("up"))
    assert set(episode.record) == {"group", "rollout", "step", "anchor", "action", "valid", "reward"}
    assert episode.record["group"] == f"{episode.info['task_id']}/0"
    with pytest.raises(GroupError, match="has not ended"):
        episode.rollout()
    with pytest.raises(TypeError, match="a model's text is wanted, got NoneType"):
        episode.reply(None)  # type: ignore[arg-type]
    assert len(episode.rows) == 1
    episode.begin(1)
    assert episode.rows == []


def test_after_the_end_nothing_is_executed() -> None:
    episode = ChatEpisode("CRBC-Sokoban-v0", observation="text", max_steps=1)
    episode.begin(0)
    assert episode.reply(tagged("up")) is None
    assert episode.record["length"] == 1 and episode.record["truncated"] and not episode.success
    with pytest.raises(gymnasium.error.ResetNeeded):
        episode.reply(tagged("up"))
    assert len(episode.rows) == 1


def test_environments_that_are_made_already() -> None:
    env = gymnasium.make("crbc_envs:CRBC-Sokoban-v0", observation="text", max_steps=2)
    episode = ChatEpisode(env, "compact")
    episode.begin(0)
    assert episode.reply("up") is not None and episode.record["action"] == "up"  # its grammar is "thought"
    with pytest.raises(TypeError, match="'split' goes to an environment that is made from an id"):
        ChatEpisode(env, split="test")
    with pytest.raises(ValueError, match="no prompt style 'txt'.*did you mean 'text'"):
        ChatEpisode("CRBC-Sokoban-v0", "txt")


def test_a_prompt_that_does_not_show_what_is_observed_is_refused() -> None:
    """Sokoban's default observation is a frame, which only the style "image" shows."""
    with pytest.raises(ValueError, match="sokoban: the observation is a frame, and the prompt has no place for it"):
        ChatEpisode("CRBC-Sokoban-v0").begin(0)
    with pytest.raises(ValueError, match="the prompt shows a frame, and the observation is none"):
        ChatEpisode("CRBC-Sokoban-v0", "image", observation="text").begin(0)
    chat = GroupChat(GroupVectorEnv("CRBC-Sokoban-v0", 1, 2), "compact")
    with pytest.raises(ValueError, match="the prompt has no place for it"):
        chat.begin([0], [0])
    chat.close()
    seen = ChatEpisode("CRBC-Sokoban-v0", lambda view: f"{IMAGE} {view.task}").begin(0)
    assert len(frames_of(seen)) == 1


def test_an_environment_of_another_class() -> None:
    episode = ChatEpisode(CountdownEnv(), "compact")
    messages = episode.begin(5)
    while messages:
        messages = episode.reply("down")
    assert episode.rollout().steps[0].label == episode.rollout().steps[0].anchor


def test_a_judge_is_asked_once_for_a_number_per_step() -> None:
    asked: list[int] = []

    def judge(episode: ChatEpisode) -> list[float]:
        assert episode.over and len(episode.turns) == len(episode.rows) and "scores" not in episode.rows[0]
        asked.append(len(episode.turns))
        return [float(said in text_of(seen)) for seen, said in episode.turns]

    episode = ChatEpisode("CRBC-Sokoban-v0", "compact", observation="text", max_steps=3, judge=judge)
    for _ in range(2):
        seen, prompts = episode.begin(task=3), []
        for said in ("Sokoban", tagged("up"), "no move"):
            prompts.append((seen, said))
            seen = episode.reply(said)
        assert episode.turns == prompts
        assert [row["scores"] for row in episode.rows] == [float(said in text_of(seen)) for seen, said in prompts]
    assert asked == [3, 3]
    json.dumps(episode.rows)


@pytest.mark.parametrize("given", [[0.5], [0.5, 1.0, 2.0, 3.0], 0.5, [[0.5]] * 3], ids=str)
def test_a_judge_that_gives_another_number_of_scores_is_refused(given: Any) -> None:
    episode = ChatEpisode("CRBC-Sokoban-v0", observation="text", max_steps=3, judge=lambda _: given)
    episode.begin(task=3)
    episode.reply("up")
    episode.reply("up")
    with pytest.raises(GroupError, match="judge: scores of shape .* for 3 steps; one number per step"):
        episode.reply("up")


def test_without_a_judge_rows_have_no_scores_and_turns_are_not_kept() -> None:
    episode = ChatEpisode("CRBC-Sokoban-v0", observation="text", max_steps=1)
    episode.begin(task=3)
    episode.reply("up")
    assert "scores" not in episode.rows[0] and not episode.turns and not episode.scores()


def test_the_time_limit_of_an_instance_binds_its_episodes() -> None:
    chat = ChatEpisode(gymnasium.make("CRBC-Sokoban-v0", observation="text", max_episode_steps=3))
    chat.begin(task=0, seed=0)
    replies = 0
    while chat.reply("?"):
        replies += 1
    assert (replies, chat.rollout().truncated) == (2, True)
