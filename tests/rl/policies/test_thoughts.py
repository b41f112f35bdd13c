"""Reasoning models: a thought that is too long is closed, and what closes it is not trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from learner_fixtures import fresh_policy, small, write_config
from refusals import refusal
from tables import table, weighed

from crbc_envs.actions import CLOSE_THINK, CUT_THOUGHT, LENGTH
from crbc_envs.prompts import Prompt
from crbc_rl.batches import RolloutBatch, Turn, micro_batches
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.policies.transformers import END_OF_THOUGHT, TransformersPolicy
from crbc_rl.policies.vllm import Requests, VllmPolicy
from crbc_rl.rollout.metrics import rollout_metrics
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.runs.transcripts import recorded
from crbc_rl.training.minibatches import mini_batches

LIMIT, MOST = 5, 12
PROMPTS = [Prompt("# # @"), Prompt("Sokoban\n# @ $ ."), Prompt("up"), Prompt("up")]


@pytest.fixture
def policy() -> TransformersPolicy:
    policy = fresh_policy()
    policy.think_at_most(LIMIT, MOST)
    return policy


def _generate(policy: TransformersPolicy) -> list[Turn]:
    return policy.generate(PROMPTS, range(len(PROMPTS)), 1.0, MOST)


def test_a_long_thought_is_closed_and_the_answer_has_the_rest(policy: TransformersPolicy) -> None:
    close = policy.tokenizer.encode(END_OF_THOUGHT, add_special_tokens=False)
    free = fresh_policy().generate(PROMPTS, range(len(PROMPTS)), 1.0, MOST)
    for turn, other in zip(_generate(policy), free, strict=True):
        assert policy.eos not in other.response[:LIMIT], "the tests want long replies"
        begin, end = turn.forced
        assert (begin, end) == (LIMIT, LIMIT + len(close))
        assert turn.response[:begin] == other.response[:begin] and turn.response[begin:end] == close
        assert turn.logprobs[:begin] == pytest.approx(other.logprobs[:begin], abs=1e-5)
        assert turn.logprobs[begin:end] == [0.0] * len(close)
        assert end < len(turn.response) <= MOST and len(turn.logprobs) == len(turn.response)
        assert turn.text.count(CLOSE_THINK) == 1
        assert turn.finish_reason == (None if turn.response[-1] == policy.eos else LENGTH)


def test_a_closed_thought_and_a_short_reply_are_left_alone(policy: TransformersPolicy) -> None:
    assert policy.thought is not None
    expected = fresh_policy().generate(PROMPTS, range(len(PROMPTS)), 1.0, MOST)
    policy.thought = replace(policy.thought, closed=lambda tokens: len(tokens) == LIMIT)
    assert [(turn.response, turn.forced) for turn in _generate(policy)] == [(one.response, (0, 0)) for one in expected]
    policy.think_at_most(MOST, 2 * MOST)
    assert [turn.forced for turn in _generate(policy)] == [(0, 0)] * len(PROMPTS)
    policy.think_at_most(None, MOST)
    assert [turn.response for turn in _generate(policy)] == [one.response for one in expected]


def test_closed_is_what_the_text_says(policy: TransformersPolicy) -> None:
    thought = policy.thought
    assert thought is not None
    ids = policy.tokenizer.encode("box</think><action>", add_special_tokens=False)
    assert thought.forced(ids) == (0, 0) and thought.forced(ids[:1]) == (LIMIT, LIMIT + len(thought.close))


def test_sampled_tokens_are_scored_behind_what_was_put_there_which_is_not_trained(policy: TransformersPolicy) -> None:
    turns = _generate(policy)
    batch = weighed(table(turns, advantage=[1.0, -1.0, 0.5, 2.0]), policy.pad)
    scored, _ = policy.logprobs(batch, 1.0)
    for place, row in enumerate(batch.rows):
        (begin, end), n = turns[row].forced, len(turns[row].response)
        found = scored[place, :n].tolist()
        assert found == pytest.approx(turns[row].logprobs, abs=1e-4)
        assert batch.response_mask[place, :n].tolist() == [float(not begin <= k < end) for k in range(n)]
        plain = torch.tensor([turns[row].prompt + turns[row].response])
        with torch.no_grad():
            logits = policy.model(plain).logits[0, len(turns[row].prompt) - 1 : -1]
        alone = policy.scores(logits, 1.0)[range(n), turns[row].response].tolist()
        assert found[:begin] + found[end:] == pytest.approx(alone[:begin] + alone[end:], abs=1e-4)


@pytest.mark.parametrize("reach", [None, 200.0])
def test_passes_of_shared_rows_score_alike(policy: TransformersPolicy, reach: float | None) -> None:
    turns = _generate(policy)
    batch = table(turns, advantage=[1.0] * len(turns))
    found = {}
    for part in micro_batches(batch, np.arange(len(turns)), None, policy.pad, reach=reach):
        with torch.no_grad():
            scored, _ = policy.logprobs(part, 1.0)
        found |= dict(zip(part.rows, scored.tolist(), strict=True))
    for row, turn in enumerate(turns):
        assert found[row][: len(turn.response)] == pytest.approx(turn.logprobs, abs=1e-4)


def test_one_reply_that_was_closed_and_one_that_closed_itself_are_two(policy: TransformersPolicy) -> None:
    closed = _generate(policy)[0]
    itself = replace(closed, forced=(0, 0), logprobs=[-1.0] * len(closed.response))
    batch = weighed(RolloutBatch.of_turns([closed, itself]), policy.pad)
    assert sorted(batch.response_mask.sum(dim=1).tolist()) == [
        len(closed.response) - closed.forced[1] + closed.forced[0],
        len(closed.response),
    ]


def test_a_run_trains_what_it_sampled(model: Path, tmp_path: Path) -> None:
    rollout = {"num_groups": 2, "group_size": 3, "max_new_tokens": 12, "max_thought_tokens": 4}
    config = small(model, updates=1, rollout=rollout, loss={"entropy": 0.1})
    learner = Learner(config, Run.start(tmp_path / "run", config, resume=False))
    learner.train()
    record = read_metrics(tmp_path / "run")[1]
    assert record["drift"] < 1e-4 and record["grad_norm"] > 0
    batch = learner.worker.sample(2)
    closed = [turn.forced[1] > 0 for turn in batch.turns]
    assert any(closed) and record["thought_cut"] > 0
    assert rollout_metrics(batch, {}, learner.actor.policy.ends)["thought_cut"] == pytest.approx(np.mean(closed))


def test_a_template_that_opens_the_thought_is_trained_with_a_limit(tmp_path: Path) -> None:
    policy = fresh_policy()
    policy.tokenizer.chat_template += "{% if add_generation_prompt %}{{ '<think>\\n' }}{% endif %}"
    policy.save(tmp_path / "model")
    rollout = {"num_groups": 2, "group_size": 3, "max_new_tokens": 12, "max_thought_tokens": 4}
    env = {"replies": "thought", "kwargs": {"observation": "text", "max_steps": 3}}
    config = small(tmp_path / "model", updates=1, rollout=rollout, env=env, loss={"entropy": 0.1})
    learner = Learner(config, Run.start(tmp_path / "run", config, resume=False))
    assert learner.actor.policy.opens_thought
    learner.train()
    assert read_metrics(tmp_path / "run")[1]["drift"] < 1e-4
    turns = learner.worker.sample(2).turns
    closed = [turn for turn in turns if turn.forced[1]]
    assert closed and all(turn.text.startswith("<think>") and CLOSE_THINK in turn.text for turn in closed)
    assert not any(turn.cause == CUT_THOUGHT for turn in closed), "what was closed may be malformed behind it"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("rollout.max_thought_tokens=2", "credit.method=gae"), "rollout.max_thought_tokens: PPO's critic"),
        (
            ("rollout.max_thought_tokens=7",),
            "7, and 4 that close a thought, leave no answer of max_new_tokens=9: set it to",
        ),
    ],
)
def test_what_cannot_work_is_said_first(
    model: Path, tmp_path: Path, capsys: Any, changes: Sequence[str], said: str
) -> None:
    config = write_config(tmp_path / "c.yaml", model, rollout={"max_new_tokens": 9})
    assert said in refusal(capsys, "train", str(config), "--run", str(tmp_path / "run"), "--set", *changes)


def test_a_recording_gives_what_was_put_there_no_part(policy: TransformersPolicy) -> None:
    turns = _generate(policy)
    batch = table(turns, advantage=[2.0] * len(turns))
    batch = replace(batch, seen=np.full((4, len(batch.old)), 2.0))
    for turn, kept in zip(turns, recorded(batch, lambda _: ""), strict=True):
        begin, end = turn.forced
        put = [begin <= k < end for k in range(len(turn.response))]
        assert list(kept.advantages) == list(kept.clipped) == [0.0 if one else 2.0 for one in put]
        assert list(kept.ratios) == [1.0 if one else 2.0 for one in put]


def test_a_limit_is_a_part_of_one_that_is_named(model: Path, tmp_path: Path, capsys: Any) -> None:
    config = write_config(tmp_path / "c.yaml", model, rollout={"max_thought_tokens": 9})
    assert "it is a part of max_new_tokens: set that too" in refusal(capsys, "train", str(config))


@pytest.mark.parametrize("aggregation", ["token", "step", "group"])
def test_what_was_put_there_has_no_weight(policy: TransformersPolicy, aggregation: str) -> None:
    turns = [*_generate(policy)[:2], Turn([1], [5, 6, policy.eos], [-1.0, -1.0, -1.0])]
    batch = table(turns, advantage=[1.0, -1.0, 0.5])
    assert batch.sampled_length.tolist() == [len(t.response) - t.forced[1] + t.forced[0] for t in turns]
    config = small(Path("m"), loss={"aggregation": aggregation}, optim={"minibatch": 8})
    (one,) = mini_batches(batch, config, np.random.default_rng(0))
    (part,) = micro_batches(batch, one.rows, one.weights, policy.pad)
    assert (part.weights[:, None] * part.response_mask).sum().item() == pytest.approx(1.0, abs=1e-6)


def test_a_short_limit_of_replies_ends_before_that_of_thoughts(policy: TransformersPolicy) -> None:
    """Somebody evaluates with fewer tokens than were trained."""
    assert all(len(turn.response) <= 3 and turn.forced == (0, 0) for turn in policy.generate(PROMPTS, [0] * 4, 1.0, 3))
    engine = Engine(policy, lambda ids: [7] * 20)
    queue = Requests(cast(VllmPolicy, engine), 1.0, 3)
    assert queue.ready() == [] and not engine.requests
    queue.ask(0, PROMPTS[0], 1)
    assert [turn.response for _, turn in queue.ready()] == [[7, 7, 7]] and engine.requests[0][2] == 3


def test_a_tokenizer_that_cannot_write_the_tag_is_an_error(
    policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "text", lambda tokens: "?")
    with pytest.raises(ConfigError, match="max_thought_tokens: the tokenizer cannot write </think>"):
        policy.think_at_most(3, MOST)


class Engine:
    """What `Requests` uses of a `VllmPolicy`; it says the tokens of `say`, up to the request's limit."""

    waves = 1

    def __init__(self, policy: TransformersPolicy, say: Callable[[list[int]], list[int]]) -> None:
        self.policy, self.say, self.requests = policy, say, list[tuple[list[int], int, int]]()
        self.llm = SimpleNamespace(enqueue=self.enqueue, llm_engine=self)

    def sampling(self, seed: int, temperature: float, limit: int) -> tuple[int, int]:
        return seed, limit

    request = VllmPolicy.request
    answered = VllmPolicy.answered

    def enqueue(self, prompts: list[dict[str, Any]], sampling: tuple[int, int], use_tqdm: bool) -> list[str]:
        self.requests.append((prompts[0]["prompt_token_ids"], *sampling))
        return [f"{len(self.requests)}-x"]

    def step(self) -> list[Any]:
        ids, _, limit = self.requests[-1]
        said = self.say(ids)[:limit]
        reply = SimpleNamespace(token_ids=said, logprobs=[{token: SimpleNamespace(logprob=-0.5)} for token in said])
        name = str(len(self.requests))
        return [SimpleNamespace(request_id=name, finished=True, prompt_token_ids=ids, outputs=[reply])]


def test_the_queue_of_vllm_closes_thoughts_and_asks_for_the_rest(policy: TransformersPolicy) -> None:
    assert policy.thought is not None
    prompt, close = policy.asked(PROMPTS[0]).prompt, list(policy.thought.close)
    engine = Engine(policy, lambda ids: [7] * 9 if len(ids) == len(prompt) else [8, 9, policy.eos])
    queue = Requests(cast(VllmPolicy, engine), 1.0, MOST)
    queue.ask(3, PROMPTS[0], 11)
    ((key, turn),) = queue.ready()
    thought = prompt + [7] * LIMIT + close
    (first, seed, length), (second, other, rest) = engine.requests
    assert (first, seed, length) == (prompt, 11, LIMIT) and seed != other
    assert (second, rest) == (thought, MOST - LIMIT - len(close))
    assert key == 3 and turn.response == [7] * LIMIT + close + [8, 9, policy.eos]
    assert turn.forced == (LIMIT, LIMIT + len(close)) and turn.finish_reason is None
    assert turn.logprobs == [-0.5] * LIMIT + [0.0] * len(close) + [-0.5] * 3
    assert queue.waiting == 0


def test_the_queue_of_vllm_leaves_short_replies_and_closed_thoughts_alone(policy: TransformersPolicy) -> None:
    assert policy.thought is not None
    prompt = policy.asked(PROMPTS[0]).prompt
    engine = Engine(policy, lambda ids: [7, 8, policy.eos])
    queue = Requests(cast(VllmPolicy, engine), 1.0, MOST)
    queue.ask(0, PROMPTS[0], 1)
    assert [turn.response for _, turn in queue.ready()] == [[7, 8, policy.eos]] and len(engine.requests) == 1
    policy.thought = replace(policy.thought, closed=lambda tokens: True)
    engine = Engine(policy, lambda ids: [7] * 20)
    queue = Requests(cast(VllmPolicy, engine), 1.0, MOST)
    queue.ask(0, PROMPTS[0], 1)
    ((_, turn),) = queue.ready()
    assert turn.response == [7] * MOST and turn.forced == (0, 0) and turn.finish_reason == LENGTH
    assert [limit for _, _, limit in engine.requests] == [LIMIT, MOST - LIMIT]
    assert engine.requests[1][0] == prompt + [7] * LIMIT
