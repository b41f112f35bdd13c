"""OpenEnv's environment in this process: the Task API, what `reset` takes, and the version sentence."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from openenv.core.env_server.serialization import serialize_observation
from pydantic import ValidationError
from reply_shapes import SHAPES, Shape, expert_moves, known_move

from crbc_envs import ChatEpisode
from crbc_rl.adapters.openenv import CrbcAction, CrbcObservation
from crbc_rl.adapters.openenv_env import MOST_TASKS, CrbcEnvironment

ENVS: dict[str, dict[str, Any]] = {
    "CRBC-ALFWorld-v0": {},
    "CRBC-WebShop-v0": {},
    "CRBC-Sokoban-v0": {"observation": "rgb", "prompt": "image"},
}


@pytest.fixture
def env() -> CrbcEnvironment:
    return CrbcEnvironment("CRBC-Sokoban-v0", observation="text")


def tagged(action: str) -> str:
    return f"<think></think><action>{action.replace('<your query>', 'red shoe')}</action>"


@pytest.mark.parametrize(("env_id", "kwargs"), ENVS.items(), ids=ENVS)
def test_an_episode_is_a_chat_episode(env_id: str, kwargs: dict[str, Any]) -> None:
    env, direct = CrbcEnvironment(env_id, **kwargs), ChatEpisode(env_id, split="test", **kwargs)
    seen = env.reset(split="test", index=3, seed=7, group="g", rollout=2)
    messages: Any = direct.begin(3, 7, group="g", rollout=2)
    for turn in range(60):
        wire = serialize_observation(seen)
        assert (wire["observation"]["messages"], seen.done) == (messages or [], messages is None)
        assert (seen.record, seen.reward) == (direct.record, direct.record.get("reward"))
        assert (seen.anchor, seen.task_id) == (direct.info["anchor"], direct.info["task_id"])
        assert seen.rows == (direct.rows if seen.done else [])
        assert env.state.step_count == turn
        if seen.done:
            break
        reply = tagged(seen.admissible_actions[turn * 7 % len(seen.admissible_actions)]) if turn % 3 else "no tags"
        seen, messages = env.step(CrbcAction(text=reply)), direct.reply(reply)
    assert seen.done


def test_two_sessions_count_their_own_steps() -> None:
    one, other = (CrbcEnvironment("CRBC-Sokoban-v0", observation="text") for _ in range(2))
    one.reset(index=3, episode_id="one")
    one.step(CrbcAction(text=tagged("up")))
    other.reset(index=3, episode_id="other")
    for env, expected in ((one, ("one", 1)), (other, ("other", 0))):
        assert (env.state.episode_id, env.state.step_count) == expected


def test_the_task_api_is_split_and_index(env: CrbcEnvironment) -> None:
    direct = ChatEpisode("CRBC-Sokoban-v0", observation="text", split="validation")
    assert env.list_splits() == ["train", "validation", "test"]
    assert env.num_tasks("validation") == len(direct.env.panel)
    task = direct.env.panel[4]
    assert env.get_task("validation", 4) == {"id": task.id, "index": 4, "text": task.text}
    assert [t["index"] for t in env.get_task_range("validation", 3, 6)] == [3, 4, 5]
    assert [t["index"] for t in env.get_task_range("validation", stop=2)] == [0, 1]
    assert len(env.list_tasks("validation")) == MOST_TASKS
    assert env.reset(split="validation", index=4).task_id == task.id
    with pytest.raises(IndexError, match="validation panel"):
        env.get_task("validation", len(direct.env.panel))
    with pytest.raises(ValueError, match="tasks; ask for at most 100 at a time"):
        env.get_task_range("validation")
    with pytest.raises(ValueError, match="split must be one of"):
        env.num_tasks("nope")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"idx": 3}, "reset: idx: Extra inputs are not permitted, got 3"),
        ({"index": "3"}, "reset: index: .* valid integer, got '3'"),
        ({"index": True}, "reset: index: .* valid integer, got True"),
        ({"index": 10**6}, "task 1000000 is not in the train panel"),
        ({"index": -1}, "task -1 is not in the train panel"),
        ({"seed": -1}, "reset: seed: "),
        ({"seed": float("nan")}, "reset: seed: "),
        ({"split": "nope"}, "split must be one of"),
        ({"group": ["a"]}, "reset: group: "),
        ({"episode_id": 5}, "reset: episode_id: .* valid string, got 5"),
    ],
    ids=str,
)
def test_what_is_no_task_is_one_short_line(env: CrbcEnvironment, task: dict[str, Any], said: str) -> None:
    env.reset(index=0)
    with pytest.raises((ValueError, IndexError), match=said) as caught:
        env.reset(**task)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)
    assert env.reset(index=0).messages


def test_a_failed_reset_leaves_no_episode(env: CrbcEnvironment) -> None:
    env.reset(index=0)
    with pytest.raises(IndexError):
        env.reset(index=10**6)
    with pytest.raises(ValueError, match="no episode is going on; call reset first"):
        env.step(CrbcAction(text=tagged("up")))


def test_without_index_and_seed_tasks_vary(env: CrbcEnvironment) -> None:
    assert len({env.reset().task_id for _ in range(20)}) > 10
    assert env.reset(seed=5).task_id == env.reset(seed=5).task_id
    row = play(env, seed=5).rows[0]
    assert (row["group"], row["rollout"]) == (f"{env.reset(seed=5).task_id}/5", 0)
    assert play(env, index=3, episode_id="e1").rows[0]["rollout"] == "e1"
    rows = play(env, index=3, episode_id="e1", rollout=4).rows
    assert rows[0]["rollout"] == 4
    assert (env.state.episode_id, env.state.step_count) == ("e1", len(rows))


def play(env: CrbcEnvironment, **task: Any) -> CrbcObservation:
    seen = env.reset(**task)
    while not seen.done:
        seen = env.step(CrbcAction(text=tagged("up")))
    return seen


def test_an_ended_episode_takes_no_step(env: CrbcEnvironment) -> None:
    play(env, index=0)
    with pytest.raises(ValueError, match="no episode is going on"):
        env.step(CrbcAction(text=tagged("up")))


@pytest.mark.parametrize("text", [5, None])
def test_what_is_no_reply_is_refused(text: Any) -> None:
    with pytest.raises(ValidationError):
        CrbcAction(text=text)


def test_close_closes_the_environment_of_every_split(env: CrbcEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(ChatEpisode, "close", lambda episode: closed.append(episode.env.panel.split))
    for split in ("train", "test", "train"):
        env.reset(split=split, index=0)
    env.close()
    env.close()
    assert sorted(closed) == ["test", "train"]
    with pytest.raises(ValueError, match="no episode is going on"):
        env.step(CrbcAction(text=tagged("up")))


def test_environments_of_a_process_share_their_games_and_play_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = [CrbcEnvironment("CRBC-WebShop-v0") for _ in range(8)]
    shops = {id(env.episode("train").env.shop) for env in envs}
    assert len(shops) == 1
    inside, most = [0], [0]
    reply = ChatEpisode.reply

    def watched(episode: ChatEpisode, *said: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(0.001)  # lets the others run
        try:
            return reply(episode, *said)
        finally:
            inside[0] -= 1

    monkeypatch.setattr(ChatEpisode, "reply", watched)
    threads = [threading.Thread(target=play, args=(env,), kwargs={"index": i}) for i, env in enumerate(envs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_reply_of_any_shape_tells_its_success(shape: Shape) -> None:
    kwargs = {"observation": "text", "num_boxes": 1, "height": 5, "width": 5, "max_steps": 20}
    moves = expert_moves("CRBC-Sokoban-v0", "test", range(1), **kwargs)
    env = CrbcEnvironment("CRBC-Sokoban-v0", history=0, **kwargs)
    seen = env.reset(split="test", index=0)
    while not seen.done:
        move = known_move(moves, seen.messages[-1]["content"])
        seen = env.step(CrbcAction(text=shape.text(*move), finish_reason=shape.finish_reason))
        assert seen.cause == shape.cause
    assert seen.record["success"] == (not shape.cause)


def test_a_stochastic_world_gives_each_member_the_noise_of_its_number() -> None:
    lake, kwargs = "CRBC-FrozenLake-v0", {"slippery": True, "max_steps": 20}
    env, direct = CrbcEnvironment(lake, **kwargs), ChatEpisode(lake, **kwargs)
    walks = []
    for rollout in range(4):
        seen = env.reset(index=3, seed=11, rollout=rollout)
        waiting: Any = direct.begin(3, 11, rollout=rollout)
        while waiting:
            waiting, seen = direct.reply("right"), env.step(CrbcAction(text="right"))
        assert seen.done and [row["anchor"] for row in seen.rows] == [row["anchor"] for row in direct.rows]
        walks.append(tuple(row["anchor"] for row in seen.rows))
    assert len(set(walks)) > 1
    with pytest.raises(ValueError, match="is stochastic: number the members"):
        env.reset(index=3, seed=11)


def test_a_trainer_cuts_an_episode(env: CrbcEnvironment) -> None:
    env.reset(index=3, group="g", rollout=1)
    env.step(CrbcAction(text="up"))
    seen = env.step(CrbcAction(text="", cut=True))
    assert seen.done and [row["truncated"] for row in seen.rows] == [True] and env.state.step_count == 1
    assert seen.reward == 0.0, "the step before has told its own"
