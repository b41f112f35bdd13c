"""Warm starts: lessons, and what a step of imitation does."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
import toy_env  # registers Corridor-v0
from learner_fixtures import fresh_policy
from paths import ROOT

from crbc_envs.actions import tagged
from crbc_envs.errors import DataError
from crbc_envs.prompts import Prompt
from crbc_lab.commands import warmstart as warmstart_module
from crbc_lab.commands.warmstart import (
    _as_turn,
    _backward,
    _corrections,
    _demonstrations,
    success_of,
    warmstart,
)
from crbc_lab.commands.warmstart_config import WarmstartConfig, load_warmstart_config
from crbc_rl.batches import Turn
from crbc_rl.config import load_config
from crbc_rl.errors import ConfigError
from crbc_rl.policies.copying import MadeUpWords
from crbc_rl.policies.load import load_policy

TEXT_WORLDS = ["alfworld", "webshop"]


@pytest.fixture(autouse=True)
def few_lessons(monkeypatch):
    """A vocabulary from a few of the lessons: to make them takes most of a short warm start."""
    monkeypatch.setattr(warmstart_module, "SAMPLE", 60)


def gradients(turns, parts):
    policy = fresh_policy()
    nll = _backward(policy, turns, parts)
    return nll, [p.grad for p in policy.model.parameters()]


def test_a_batch_read_in_parts_has_the_gradient_of_the_whole():
    turns = [Turn(list(range(5, 9 + 7 * i)), [3, 4 + i, 1], [0.0] * 3) for i in range(7)]
    whole, parts = (gradients(turns, parts) for parts in (1, 3))
    assert whole[0] == pytest.approx(parts[0], rel=1e-5)
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(whole[1], parts[1], strict=True))


def test_a_lesson_goes_on_with_the_thought_that_the_template_opens():
    """What the model then reads and writes is the prompt and the reply as the environment reads it."""
    policy = fresh_policy()
    policy.tokenizer.chat_template += "{% if add_generation_prompt %}{{ '<think>' }}{% endif %}"
    for reply, whole in (
        ("<think>box left</think><action>up</action>", "<think>box left</think><action>up</action>"),
        ("<action>up</action>", "<think></think><action>up</action>"),
    ):
        turn = _as_turn(policy, Prompt("Your move?"), reply)
        assert policy.text(turn.prompt).endswith("<think>")
        assert policy.ended(turn, turn.response, turn.logprobs, (0, 0)).text == whole
        assert policy.tokenizer.decode([*turn.prompt, *turn.response[:-1]]).endswith(f"assistant\n{whole}")


def test_a_step_of_the_decay_is_a_step_at_a_smaller_rate(tmp_path):
    def weights(**changes):
        few = {"threads": 1, "steps": 1, "batch": 4, "warmup": 1, "max_new_tokens": 4, "eval": {"test_episodes": 1}}
        config = WarmstartConfig(out=str(tmp_path / "w"), teacher={"hasty": 0.5}, **few, **changes)
        return warmstart(config).model.state_dict()

    decayed, small, full = weights(lr=4e-3, decay=4), weights(lr=1e-3), weights(lr=4e-3)
    assert all(torch.equal(decayed[name], small[name]) for name in small)
    assert not all(torch.equal(full[name], small[name]) for name in small)


@pytest.mark.parametrize("world", TEXT_WORLDS)
def test_the_teacher_s_replies_fit_the_training_config(world):
    """What it teaches in the shipped tokens is neither cut short in training nor beyond the model's positions."""
    config = load_config(ROOT / "configs" / f"{world}_tiny.yaml")
    lessons = load_warmstart_config(ROOT / "configs" / f"warmstart_{world}.yaml")
    assert Path(lessons.out) == Path(config.model)
    policy = load_policy(config.model)
    assert sum(parameter.numel() for parameter in policy.model.parameters()) <= 1_400_000
    for prompt, reply in islice(_demonstrations(lessons), 300):
        length = len(policy.tokenizer.encode(reply)) + 1
        assert length <= config.rollout.max_new_tokens, reply
        assert len(policy.encode(prompt)) + length <= policy.model.config.max_position_embeddings


SOKOBAN = {"id": "CRBC-Sokoban-v0", "kwargs": {"observation": "text"}}


def test_lessons_come_from_each_environment_in_turn(tmp_path):
    config = WarmstartConfig(out=str(tmp_path / "w"), env=SOKOBAN, also=[{"level": "8x8-1box"}, {"height": 7}])
    rows = [prompt.text.count("\n") - 1 for prompt, _ in islice(_demonstrations(config), 30)]
    assert rows == [6, 8, 7] * 10


def test_it_states_what_it_was_taught_and_how_often_it_succeeds(tmp_path):
    few = {"threads": 1, "steps": 2, "batch": 4, "max_new_tokens": 4, "eval": {"test_episodes": 6}}
    env = {"id": "CRBC-Sokoban-v0", "kwargs": {"observation": "text", "max_steps": 4}}
    config = WarmstartConfig(out=str(tmp_path / "w"), env=env, made_up=0.5, **few, also=[{"level": "8x8-1box"}])
    found = []
    policy = warmstart(config, on_test=found.append)
    told = json.loads((tmp_path / "w" / "warmstart.json").read_text())
    assert told["made_up"] == 0.5 and told["steps"] == 2 and told["teacher"] == {}
    assert "down" in MadeUpWords.load(tmp_path / "w").common  # for `rollout.made_up`
    assert told["success"]["episodes"] == 6 and told["success"]["split"] == "test"
    assert [told["success"], *told["success_also"]] == json.loads(json.dumps([one.to_dict() for one in found]))
    assert found == [success_of(policy, world, 10**6) for world in config.environments()]
    again = tmp_path / "again"
    warmstart(config.model_copy(update={"out": str(again)}))
    for file in sorted((tmp_path / "w").iterdir()):
        assert file.read_bytes() == (again / file.name).read_bytes(), file.name


def test_the_policy_is_corrected_where_it_came_to(tmp_path, monkeypatch):
    monkeypatch.setattr(warmstart_module, "BATCH", 24)
    env = {**SOKOBAN, "prompt": "compact", "history": 4}
    config = WarmstartConfig(out=str(tmp_path / "w"), env=env, max_new_tokens=4)
    pairs = list(islice(_corrections(config, fresh_policy()), 90))
    assert pairs == list(islice(_corrections(config, fresh_policy()), 90))
    # Four tokens hold no action. So the policy stays at the first board of each task, and is told each time what to do.
    boards = Counter(prompt.text for prompt, _ in pairs)
    assert len(boards) <= 24 and max(boards.values()) > 3
    assert all(reply.startswith("<think>box ") and reply.endswith("</action>") for _, reply in pairs)


def test_corrections_are_lessons_of_the_second_half(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        warmstart_module,
        "_corrections",
        lambda config, policy: (asked.append(1) or pair for pair in _demonstrations(config)),
    )
    few = {"threads": 1, "steps": 5, "batch": 8, "max_new_tokens": 4, "eval": {"test_episodes": 1}}
    config = WarmstartConfig(out=str(tmp_path / "w"), env=SOKOBAN, dagger=0.5, **few)
    seen = []
    warmstart(config, tell=lambda step, nll: seen.append(len(asked)))
    assert seen == [0, 0, 4, 8, 12]


def test_a_lapse_is_said_and_what_the_expert_says_is_done(tmp_path):
    """The shopper is told to buy too early, and is still taught the option that comes after the first one."""
    config = load_warmstart_config(ROOT / "configs/warmstart_webshop.yaml")
    assert config.lapse is not None
    share = {"lapse": config.lapse.model_copy(update={"share": 0.6}), "slips": 0.0}
    lessons = list(islice(_demonstrations(config.model_copy(update=share)), 600))
    careful = list(islice(_demonstrations(config.model_copy(update={"lapse": None, "slips": 0.0})), 600))
    lapse = tagged("click[buy now]", config.lapse.thought)

    def choosing(pairs):
        return [reply for prompt, reply in pairs if prompt.text.count("*\n") == 1 and "click[buy now]" in prompt.text]

    assert all("click[buy now]" in prompt.text for prompt, reply in lessons if reply == lapse)
    after_one, without = choosing(lessons), choosing(careful)
    assert len(after_one) > 30 and len(without) > 30
    assert 0.45 < np.mean([reply == lapse for reply in after_one]) < 0.75
    assert lapse not in without and set(after_one) > {lapse}


def test_nobody_can_correct_without_an_expert(tmp_path):
    with pytest.raises(ConfigError, match="dagger: Corridor-v0 has no expert"):
        warmstart(own(tmp_path, dagger=0.5))


def test_the_policy_s_replies_are_read_in_its_corrections_as_they_were_played(tmp_path, monkeypatch):
    read_by = []
    monkeypatch.setattr(
        warmstart_module, "corrected_steps", lambda env, *_, **__: iter([read_by.append(env.replies)] * 0)
    )
    monkeypatch.setattr(warmstart_module, "BATCH", 1)
    config = WarmstartConfig(out=str(tmp_path / "w"), env=SOKOBAN, max_new_tokens=4)
    monkeypatch.setattr(warmstart_module, "cycle", iter)  # of one environment, once
    assert not list(_corrections(config, fresh_policy()))
    assert read_by == [config.replies] == ["tags"]


class Terse(toy_env.CorridorEnv):
    """Its expert replies with bare actions."""

    def expert(self, rng, **options):
        def reply(observation, info):
            actions = info["admissible_actions"]
            return next((action for action in actions if "door" in action or "take" in action), "right")

        return reply


gymnasium.register("Terse-v0", entry_point=Terse)


def test_lessons_that_the_policy_could_not_play_are_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"expert of Terse-v0 replies '.*', and env.replies=tags reads no action in it: .*tagged"
    ):
        warmstart(own(tmp_path, env={"id": "Terse-v0", "kwargs": {}}))
    thought = own(tmp_path, env={"id": "Terse-v0", "kwargs": {}, "replies": "thought"})
    assert all("<" not in reply for _, reply in islice(_demonstrations(thought), 40))


# ---- without an expert -----------------------------------------------------------------------------


def own(tmp_path, **changes):
    data = {"out": str(tmp_path / "w"), "threads": 1, "steps": 1, "batch": 4, "random_episodes": 40}
    data |= {"eval": {"test_episodes": 1}, **changes}
    return WarmstartConfig(**{"env": {"id": "Corridor-v0", "kwargs": {}}, **data})


def test_successful_random_play_is_the_demonstration_where_there_is_no_expert(tmp_path):
    outcomes = []
    config = own(tmp_path)
    pairs = list(islice(_demonstrations(config, outcomes.append), 400))
    assert len(outcomes) == 40 and 0 < sum(outcomes) < 40
    assert all(reply.startswith("<think></think><action>") for _, reply in pairs)
    # Only successes: as many doors are opened as episodes are begun.
    begun = sum("> " not in prompt.text for prompt, _ in pairs)
    opened = sum("<action>open door" in reply for _, reply in pairs)
    assert abs(begun - opened) <= 1
    assert pairs == list(islice(_demonstrations(config), 400))  # a function of the seed


def test_the_history_of_a_demonstration_has_the_executed_actions(tmp_path):
    config = own(tmp_path, env={"id": "Corridor-v0", "kwargs": {}, "history": 1})
    before = None
    for prompt, reply in islice(_demonstrations(config), 50):
        if "> " in prompt.text:
            assert f"> {before}\n" in prompt.text
        before = reply.partition("<action>")[2].removesuffix("</action>")


def test_random_play_that_never_succeeds_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match="none of 5 episodes of random play succeeded: raise random_episodes"):
        warmstart(own(tmp_path, random_episodes=5, env={"id": "Corridor-v0", "kwargs": {"max_steps": 2}}))
    assert not (tmp_path / "w").exists()


def test_a_warm_start_makes_the_checks_of_a_run(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'Corridor-v0'"):
        warmstart(own(tmp_path, env={"id": "Coridor-v0", "kwargs": {}}))
    with pytest.raises(ConfigError, match="no prompt style 'haiku'"):
        warmstart(own(tmp_path, env={"id": "Corridor-v0", "kwargs": {}, "prompt": "haiku"}))
    with pytest.raises(ConfigError, match="a tiny policy reads text alone"):
        warmstart(own(tmp_path, env={"id": "CRBC-Sokoban-v0", "kwargs": {}, "prompt": "image"}))


# ---- the folder that it writes ---------------------------------------------------------------------


def test_a_warm_start_replaces_a_warm_start_and_nothing_else(tmp_path):
    few = {"threads": 1, "steps": 1, "batch": 2, "max_new_tokens": 4, "eval": {"test_episodes": 1}}
    config = WarmstartConfig(out=str(tmp_path / "w"), **few)
    for _ in range(2):
        warmstart(config)
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
    (tmp_path / "w/notes.md").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds other files than a warm start, such as notes\.md"):
        warmstart(config)
    assert (tmp_path / "w/notes.md").read_text() == "mine"


def test_a_warm_start_is_written_below_a_link_but_through_none(tmp_path):
    (tmp_path / "disk/mine").mkdir(parents=True)
    (tmp_path / "disk/mine/warmstart.json").write_text("{}")
    (tmp_path / "below").symlink_to(tmp_path / "disk")
    (tmp_path / "link").symlink_to(tmp_path / "disk/mine")
    path = tmp_path / "warm.yaml"
    for out, found in (("below/new", "disk/new"), ("link", "link"), ("below/..", "."), ("below", "below")):
        path.write_text(f"out: {out}\n")
        assert Path(load_warmstart_config(path).out) == (tmp_path / found).absolute()
    with pytest.raises(DataError, match="link is a link to"):
        warmstart(WarmstartConfig(out=str(tmp_path / "link"), threads=1, steps=1, batch=2))
    assert (tmp_path / "disk/mine/warmstart.json").read_text() == "{}"
