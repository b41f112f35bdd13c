"""Prompts that are longer than the limit: what is shortened, what stays, and what is refused."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_fixtures import small
from rich.console import Console
from vision_fixtures import fresh_vision_policy

from crbc_envs.prompts import CUT, IMAGE, Prompt, PromptWindow, View
from crbc_lab.commands import evaluate as evaluate_command
from crbc_rl.config.sections import RolloutConfig
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.policies.vllm import Requests
from crbc_rl.rollout.evaluate import evaluate
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics

ENVIRONMENTS = {
    "CRBC-ALFWorld-v0": {"rooms": "small"},
    "CRBC-WebShop-v0": {"category": "electronics", "per_page": 3},
    "CRBC-Sokoban-v0": {"observation": "text"},
}
CASES = [(name, style) for name in ENVIRONMENTS for style in ("text", "compact")] + [("CRBC-WebShop-v0", "generic")]


@pytest.fixture(scope="module")
def policy(model: Path) -> TransformersPolicy:
    return load_policy(model)


def limited(policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch, most: int, how: str = "shorten") -> None:
    monkeypatch.setattr(policy, "max_prompt_tokens", most)
    monkeypatch.setattr(policy, "truncation", how)


def real(name: str, style: str) -> tuple[PromptWindow, Any, dict[str, Any]]:
    """A window of a real environment after three of its own actions, its observation and its info."""
    env = gymnasium.make(name, split="train", **ENVIRONMENTS[name])
    window = PromptWindow.of(env.unwrapped, style if style != "generic" else _plain)
    observation, info = env.reset(seed=0, options={"task": 0})
    for _ in range(3):
        action = info["admissible_actions"][0 if name == "CRBC-Sokoban-v0" else -1]
        action = "search[screen]" if action == "click[search]" else action
        following, *_, info = env.step(action)
        window.record(observation, info["action"])
        observation = following
    env.close()
    return window, observation, info


def _plain(view: View) -> str:
    records = "\n".join(f"{seen} -> {done}" for seen, done in view.history)
    return f"{view.task}\n{records}\n{view.observation}\n{view.admissible}\nWhat now?"


def text_of(policy: TransformersPolicy, ids: list[int]) -> str:
    return str(policy.tokenizer.decode(ids))


@pytest.mark.parametrize(("name", "style"), CASES)
def test_template_task_and_actions_stay_in_a_prompt_three_times_too_long(
    policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch, name: str, style: str
) -> None:
    """A page of a real environment, behind as many lines as make the whole prompt three times the limit."""
    window, observation, info = real(name, style)
    normal = policy.encode(window.ask(observation, info))
    most = len(normal) + 60
    lines, long = 0, observation
    while len(policy.encode(window.ask(long, info))) < 3 * most:
        lines += 20
        long = "".join(f"An older line, number {i}.\n" for i in range(lines)) + observation
    asked = window.ask(long, info)
    limited(policy, monkeypatch, most)
    turn = policy.asked(asked)
    text = text_of(policy, turn.prompt)
    assert turn.shortened and len(turn.prompt) <= most
    head, tail = (text_of(policy, normal[:4]), text_of(policy, normal[-8:]))
    assert text.startswith(head) and text.endswith(tail), "the chat template"
    assert asked.text.splitlines()[0] in text, "how the template begins"
    assert info["task"] in text or info["task"] not in asked.text
    for action in info["admissible_actions"] if style in ("text", "generic") else ():
        assert action in text or action == "help", action
    assert asked.text.splitlines()[-1] in text
    assert CUT.strip() in text and "number 0." not in text
    assert len(turn.prompt) > most - 60, "no more is gone than must be"


@pytest.mark.parametrize("name", ["CRBC-ALFWorld-v0", "CRBC-WebShop-v0"])
def test_a_compact_page_keeps_its_actions_and_tells_no_wrong_place_under_any_limit(name: str) -> None:
    """Piece by piece, until nothing more can go."""
    window, observation, info = real(name, "compact")
    asked = window.ask(observation, info)
    normal = [line.replace("*]", "]").removesuffix("*") for line in asked.text.splitlines()]
    places = {line for line in normal if line.startswith(("At: ", "Holding: "))} | {"At: ...", "Holding: ..."}
    actions = {line for line in normal if line.startswith(("click[", "go to "))}
    assert actions
    cuts, most = 0, len(asked.text) - 1
    while shorter := asked.shortened(lambda prompt, most=most: len(prompt.text) <= most):
        lines = {line.replace("*]", "]").removesuffix("*") for line in shorter.text.splitlines()}
        assert actions <= lines and CUT.strip() in lines
        assert all(line in places for line in lines if line.startswith(("At: ", "Holding: ")))
        options = {f"click[{line}]" for line in normal}  # they stand without "click[]" in the page, and with it apart
        assert lines <= {*normal, *options, *places, CUT.strip()}, "nothing else is shown"
        cuts, most = cuts + 1, len(shorter.text) - 1
    assert cuts > 1


@pytest.mark.parametrize(("name", "style"), CASES[:3])
def test_the_error_names_the_limit_that_would_do(
    policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch, name: str, style: str
) -> None:
    window, observation, info = real(name, style)
    asked = window.ask(observation, info)
    limited(policy, monkeypatch, 10)
    with pytest.raises(ConfigError) as refused:
        policy.asked(asked)
    least = int(str(refused.value).partition("shorter than ")[2].partition(":")[0].replace(",", ""))
    limited(policy, monkeypatch, least)
    assert len(policy.asked(asked).prompt) == least
    limited(policy, monkeypatch, least - 1)
    with pytest.raises(ConfigError, match=f"cannot be made shorter than {least:,}"):
        policy.asked(asked)


def test_without_a_limit_a_prompt_has_the_model_s_positions_less_those_of_a_reply(model: Path) -> None:
    policy = load_policy(model, rollout=RolloutConfig(max_new_tokens=100))
    positions = policy.model.config.max_position_embeddings
    turn = policy.asked(prompt_of("a line\n" * positions))
    assert turn.shortened and positions - 105 < len(turn.prompt) <= positions - 100


def test_a_frame_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = fresh_vision_policy()
    frame = np.zeros((96, 96, 3), np.uint8)
    view = View("Sokoban", "", ("up", "down"), 9, tuple((f"long ago {i} " * 9, "up") for i in range(9)), frame=True)

    def template(view: View) -> str:
        return f"{view.task}{view.history}{IMAGE}{view.admissible}Your move?"

    asked = Prompt(template(view), (frame,), None, (template, view))
    none = Prompt(template(View("Sokoban", "", ("up", "down"), 9, (), frame=True)), (frame,))
    limited(policy, monkeypatch, len(policy.encode(asked)) // 3)
    turn = policy.asked(asked)
    assert turn.shortened and len(turn.prompt) <= policy.max_prompt_tokens
    assert turn.prompt.count(policy.image_token) == 9 and turn.images[0] is frame
    text = text_of(policy, turn.prompt)
    assert "Sokoban" in text and "('up', 'down')Your move?" in text
    assert "long ago 8" in text and "long ago 0" not in text, "the oldest records go first"
    limited(policy, monkeypatch, len(policy.encode(none)) - 1)
    with pytest.raises(ConfigError, match="cannot be made shorter than"):
        policy.asked(asked)


# ---- what goes, in order --------------------------------------------------------------------------------------------


def prompt_of(observation: str, records: int = 0) -> Prompt:
    history = tuple((f"seen {i}", f"did {i}") for i in range(records))
    view = View("the task", observation, ("go",), records, history)
    return Prompt(_plain(view), (), None, (_plain, view))


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet="ab \n", max_size=60) | st.lists(st.sampled_from(["word", "\n", " "])).map("".join),
    st.integers(0, 4),
    st.integers(0, 200),
)
def test_as_little_goes_as_possible(observation: str, records: int, most: int) -> None:
    asked = prompt_of(observation, records)
    found = asked.shortened(lambda prompt: len(prompt.text) <= most)
    whole = [prompt_of(observation, records).source[1].history[k:] for k in range(1, records + 1)]
    by_records = [_plain(View("the task", observation, ("go",), records, rest)) for rest in whole]
    fitting = [text for text in by_records if len(text) <= most]
    if fitting:
        assert found.text == fitting[0]
    elif found is not None:
        assert len(found.text) <= most
        shown = found.source[0](found.source[1]) and found.text.partition(CUT)[2].rpartition("\n('go',)")[0]
        assert observation.endswith(shown) and len(shown) < len(observation)
    else:
        bare = _plain(View("the task", CUT + observation[-1:], ("go",), records, ()))
        assert len(observation.strip()) <= 1 or len(bare) > most


def test_records_go_before_lines_lines_before_words_and_words_before_characters() -> None:
    def left(observation: str, records: int, most: int) -> str:
        found = prompt_of(observation, records).shortened(lambda prompt: len(prompt.text) <= most)
        return found.text.removeprefix("the task\n").removesuffix("\n('go',)\nWhat now?")

    frame = len("the task\n\n('go',)\nWhat now?")
    assert left("one\ntwo\nthree", 2, frame + 30) == "seen 1 -> did 1\none\ntwo\nthree"
    assert left("one is a long line\ntwo\nthree", 2, frame + 16) == "\n[...]\ntwo\nthree"
    assert left("one\ntwo\nthree", 0, frame + 12) == "\n[...]\nthree"
    assert left("one two three", 0, frame + 12) == "\n[...]\nthree"
    assert left("three", 0, frame + 9) == "\n[...]\nee"
    assert prompt_of("three", 2).shortened(lambda prompt: len(prompt.text) <= frame + 4) is None


def test_a_page_of_many_lines_is_cut_with_few_attempts() -> None:
    tried = []
    asked = prompt_of("a line\n" * 20_000)
    found = asked.shortened(lambda prompt: tried.append(1) or len(prompt.text) <= 1_000)
    assert 980 < len(found.text) <= 1_000 and len(tried) < 25


# ---- in the policies, and in runs -----------------------------------------------------------------------------------


def test_a_prompt_at_the_limit_is_whole(policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prompt_of("one\ntwo\nthree", 1)
    whole = policy.encode(asked)
    limited(policy, monkeypatch, len(whole))
    assert policy.asked(asked).prompt == whole and not policy.asked(asked).shortened
    limited(policy, monkeypatch, len(whole) - 1)
    assert policy.asked(asked).shortened
    (turn,) = policy.generate([asked], [0], 1.0, 2)
    assert turn.shortened and turn.prompt == policy.asked(asked).prompt and len(turn.response) >= 1
    limited(policy, monkeypatch, len(whole) - 1, "error")
    with pytest.raises(ConfigError, match="raise the limit, or set rollout.truncation=shorten"):
        policy.generate([asked], [0], 1.0, 2)


def test_vllm_gets_the_shortened_prompt(policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        """What `Requests` uses of a `VllmPolicy`."""

        def __init__(self) -> None:
            self.policy, self.llm, self.given = policy, self, []

        def sampling(self, *_: object) -> None:
            return None

        def request(self, turn: Any) -> list[int]:
            return list(turn.prompt)

        def enqueue(self, requests: list[list[int]], *_: object, **__: object) -> list[str]:
            self.given += requests
            return ["0-x"]

    asked = prompt_of("line\n" * 40)
    limited(policy, monkeypatch, len(policy.encode(asked)) // 2)
    engine = Engine()
    queue = Requests(engine, 1.0, 4)
    queue.ask(7, asked, 0)
    assert engine.given == [policy.asked(asked).prompt]
    assert queue.asked["0"][1].shortened


@pytest.mark.parametrize("short", [False, True])
def test_the_share_of_shortened_prompts_is_recorded_and_told(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    config = small(model, updates=1, rollout={"num_groups": 2, "group_size": 2, "max_new_tokens": 4})
    learner = Learner(config, Run.start(tmp_path / "run", config, resume=False))
    policy, whole = learner.actor.policy, learner.worker.sample(1)
    if short:
        policy.max_prompt_tokens = max(len(turn.prompt) for turn in whole.turns) - 4
    batch = learner.worker.sample(1)
    told = [turn.shortened for turn in batch.turns]
    assert any(told) == short
    assert all(len(turn.prompt) <= (policy.max_prompt_tokens or 999) for turn in batch.turns)
    assert [turn.shortened for turn in batch.select([1]).turns] == told[batch.rollouts.rows_of([1])[0] :]
    assert (evaluate(policy, config, "validation", 3, 0).prompt_cut_share > 0) == short
    learner.train()
    record = read_metrics(tmp_path / "run")[-1]
    assert record["prompt_cut"] == pytest.approx(sum(told) / len(told))
    monkeypatch.setattr(Run, "policy", lambda *_: policy)
    printed = StringIO()
    order = evaluate_command.Order("validation", 3)
    evaluate_command.evaluate(tmp_path / "run", "last", order, Console(file=printed))
    assert ("prompts shortened" in printed.getvalue()) == short
