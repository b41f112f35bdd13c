"""The agent loop and the tasks: what verl gets of an episode, frames too, and what it says of mistakes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import verl  # noqa: F401 (it imports the adapter)
from command import ROOT
from omegaconf import OmegaConf
from test_recorded import config
from transformers import AutoProcessor, AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.utils import create_rl_dataset
from verl.trainer.ppo.v1 import AgentLoopWorkerTQ
from verl.workers.rollout.replica import TokenOutput
from vision_fixtures import fresh_vision_policy

from crbc_envs import ChatEpisode
from crbc_rl import credit
from crbc_rl.adapters.verl import credit_options
from crbc_rl.adapters.verl_rollouts import ChatLoop, Tasks
from crbc_rl.credit import CreditError
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.panel import choose

TASK = {
    "task": 3,
    "split": "train",
    "kind": "",
    "seed": 0,
    "repeat": -1,
    "uid": "u",
    "session_id": 1,
    "global_steps": 2,
}
RGB = "{id: CRBC-Sokoban-v0, prompt: image, kwargs: {observation: rgb, max_steps: 2, pixels: 56}}"


class Engine:
    """Says the same each time, and keeps what it was asked."""

    def __init__(self, tokenizer: Any, said: str) -> None:
        self.asked: list[dict[str, Any]] = []
        self.ids = [*tokenizer(said, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]

    async def generate(self, request_id: str, **asked: Any) -> TokenOutput:
        self.asked.append({"request": request_id, **asked})
        return TokenOutput(token_ids=self.ids, log_probs=[-0.25] * len(self.ids), extra_fields={"global_steps": 2})


def loop(ours: Any, tokenizer: Any, engine: Any, processor: Any = None, **more: Any) -> ChatLoop:
    ChatLoop.idle.clear()
    return ChatLoop(
        trainer_config=DictConfigWrap(ours),
        server_manager=engine,
        tokenizer=tokenizer,
        processor=processor,
        dataset_cls=Tasks,
        data_config=DictConfigWrap(ours.data),
        **more,
    )


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(ROOT / "warmstarts/sokoban-tiny")


def test_each_step_is_an_output_with_the_learners_prompt(tokenizer: Any) -> None:
    ours, engine = config(), Engine(tokenizer, "<think></think><action>left</action>")
    outputs = asyncio.run(loop(ours, tokenizer, engine).run({"temperature": 1.0}, **TASK))
    play = ChatEpisode("CRBC-Sokoban-v0", "compact", observation="text", max_steps=8, replies="tags")
    messages, prompts = play.begin(3, 0), []
    while messages:
        prompts.append(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))
        messages = play.reply("<think></think><action>left</action>")
    assert [output.prompt_ids for output in outputs] == prompts
    rows = [output.extra_fields["crbc"] for output in outputs]
    assert [(row["group"], row["rollout"], row["step"]) for row in rows] == [("u", 1, t) for t in range(len(rows))]
    assert [row["anchor"] for row in rows] == [row["anchor"] for row in play.rows]
    assert len({one["request"] for one in engine.asked}) == 1  # one server keeps what the prompts share
    assert all(one["sampling_params"] == {"temperature": 1.0, "max_tokens": 24} for one in engine.asked)
    told = outputs[-1].extra_fields["reward_extra_info"]
    assert told == {"acc": 0.0, "score": 0.0, "steps": len(rows), "kind": ""}
    assert outputs[0].response_ids == engine.ids and outputs[0].response_logprobs == [-0.25] * len(engine.ids)


@pytest.mark.parametrize("length", [2, 1])  # at the limit; and below, where the engine's own was reached
def test_a_reply_that_was_cut_executes_nothing(length: int, tokenizer: Any) -> None:
    ours = config("data.max_response_length=2", "data.env.replies=thought")
    engine = Engine(tokenizer, "left left left")
    engine.ids = engine.ids[:length]
    outputs = asyncio.run(loop(ours, tokenizer, engine).run({}, **TASK))
    assert not any(output.extra_fields["crbc"]["valid"] for output in outputs)


def test_a_reply_ends_with_each_special_token(tokenizer: Any) -> None:
    # Gemma's turns end with <end_of_turn>, while its eos is another.
    engine = Engine(tokenizer, "left")
    engine.ids[-1] = next(token for token in tokenizer.all_special_ids if token != tokenizer.eos_token_id)
    outputs = asyncio.run(loop(config("data.env.replies=thought"), tokenizer, engine).run({}, **TASK))
    assert all(output.extra_fields["crbc"]["valid"] for output in outputs)


def test_frames_reach_the_engine_and_the_actor(tmp_path: Path) -> None:
    fresh_vision_policy().save(tmp_path)
    processor = AutoProcessor.from_pretrained(tmp_path)
    processor.chat_template = (  # as Qwen's, which writes a place for a part that is an image
        "{% for m in messages %}{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for part in m.content %}{% if part.type == 'image' %}" + processor.image_token + "{% else %}"
        "{{ part.text }}{% endif %}{% endfor %}{% endif %}\n{% endfor %}assistant\n"
    )
    ours = config(f"actor_rollout_ref.model.path={tmp_path}", "data.max_prompt_length=2000", env=RGB)
    engine = Engine(processor.tokenizer, "<think>box</think><action>up</action>")
    played = loop(ours, processor.tokenizer, engine, processor, hf_model_type="qwen2_5_vl")
    outputs = asyncio.run(played.run({}, **TASK))
    place = processor.tokenizer.convert_tokens_to_ids(processor.image_token)
    for asked, output in zip(engine.asked, outputs, strict=True):
        (frame,) = asked["image_data"]
        assert frame.size == (56, 56) and output.multi_modal_data == {"images": [frame]}
        assert output.prompt_ids.count(place) == (56 // 28) ** 2
        inputs = AgentLoopWorkerTQ.__ray_metadata__.modified_class._compute_multi_modal_inputs(
            SimpleNamespace(processor=processor, tokenizer=processor.tokenizer, _get_mm_processor_kwargs=lambda _: {}),
            output,
            torch.tensor(output.prompt_ids + output.response_ids),
        )
        assert inputs["image_grid_thw"].tolist() == [[1, 4, 4]]
    first = ChatEpisode("CRBC-Sokoban-v0", "image", observation="rgb", max_steps=2, pixels=56)
    first.begin(3, 0)
    assert np.array_equal(np.asarray(engine.asked[0]["image_data"][0]), first.prompt.images[0])


def test_validation_plays_the_tasks_of_crbc_eval() -> None:
    ours = config("+data.panel=even", env="{id: CRBC-ALFWorld-v0, prompt: text}")
    played = [
        create_rl_dataset(ours.data[name], ours.data, None, None, max_samples=20)
        for name in ("val_files", "train_files")
    ]
    panel = ChatEpisode("CRBC-ALFWorld-v0", split="validation").env.panel
    assert [row["task"] for row in played[0]] == list(choose(panel, "validation", 20, "even").tasks)
    assert [row["task"] for row in played[1]] == list(range(20))
    assert {row["kind"] for row in played[0]} == {panel.kind(task) for task in range(len(panel))}
    assert {row["repeat"] for row in played[0]} == {0} and {row["repeat"] for row in played[1]} == {-1}
    assert len(create_rl_dataset(["train"], ours.data, None, None)) == len(ChatEpisode("CRBC-ALFWorld-v0").env.panel)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["+algorithm.credits.method=gigpo"], "algorithm.credits is read by nobody"),
        (["algorithm.credit.method=gigpoo"], "no estimator 'gigpoo'; did you mean 'gigpo'"),
        (["++algorithm.credit.crbc.bta=0.9"], "no option 'bta'; did you mean 'beta'"),
        (["algorithm.adv_estimator=grpo"], "algorithm.adv_estimator=grpo: .* needs algorithm.adv_estimator=crbc"),
        (["actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent"], "needs .*default_agent_loop=crbc"),
        (["algorithm.use_kl_in_reward=True"], "needs algorithm.use_kl_in_reward=False"),
        (["algorithm.credit.method=nowhere:mine"], "nowhere"),
        (["+algorithm.credit.scale=big"], "scale must be a finite number"),
        (["data.val_files=train"], "data.val_files=train: held-out tasks are those of another split"),
        (["actor_rollout_ref.rollout.n=1"], "rollout.n=1: credit compares the rollouts of a group"),
        (["data.custom_cls.path=/elsewhere.py"], "data.custom_cls.path=/elsewhere.py: .* needs data.custom_cls.path"),
    ],
)
def test_a_mistake_in_the_command_is_one_sentence(given: list[str], told: str) -> None:
    with pytest.raises((ConfigError, CreditError), match=told) as caught:
        credit_options(config(*given))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ("{}", "data.env.id names no environment"),
        ("{id: CRBC-Sokobann-v0}", "Sokobann"),
        ("{id: CRBC-Sokoban-v0, promt: text}", "unknown key 'env.promt'; did you mean 'prompt'"),
    ],
)
def test_a_wrong_environment_is_one_sentence(env: str, told: str) -> None:
    data = OmegaConf.merge(OmegaConf.masked_copy(config().data, ["val_files"]), {"env": OmegaConf.create(env)})
    with pytest.raises(Exception, match=told):
        Tasks("train", None, data)


def test_a_split_is_one_and_a_panel_is_known() -> None:
    with pytest.raises(ConfigError, match="name one split each"):
        Tasks(["train", "test"], None, config().data)
    with pytest.raises(ConfigError, match="data.panel=evn: a panel is one of first, even, paper"):
        Tasks("validation", None, config("+data.panel=evn").data)


def test_a_reply_without_a_token_ends_the_session_with_a_sentence(tokenizer: Any) -> None:
    engine = Engine(tokenizer, "up")
    engine.ids = []
    with pytest.raises(ConfigError, match="the engine gave a reply without a token"):
        asyncio.run(loop(config(), tokenizer, engine).run({}, **TASK))


def test_a_prompt_that_is_too_long_is_an_error_and_not_cut(tokenizer: Any) -> None:
    ours = config("data.max_prompt_length=30")
    with pytest.raises(ConfigError, match="a prompt has .* tokens: set data.max_prompt_length, 30, to more"):
        asyncio.run(loop(ours, tokenizer, Engine(tokenizer, "up")).run({}, **TASK))


def test_the_estimator_says_which_trainer_it_needs() -> None:
    with pytest.raises(ConfigError, match=r"trainer.v1.trainer_mode=crbc"):
        get_adv_estimator_fn("crbc")(token_level_rewards=None, response_mask=None)


def test_environment_prompt_and_estimator_may_be_ones_own(tokenizer: Any) -> None:
    env = "{id: 'lake_env:Lake-v0', prompt: 'own:prompt'}"
    ours = config("algorithm.credit.method=own:mean_credit", "+algorithm.credit.mean_credit.share=0.25", env=env)
    engine = Engine(tokenizer, "<think></think><action>right</action>")
    outputs = asyncio.run(loop(ours, tokenizer, engine).run({}, **TASK))
    asked = tokenizer.decode(outputs[0].prompt_ids)
    assert "Which one?" in asked and outputs[0].extra_fields["crbc"]["action"] == "right"
    rows = [{**output.extra_fields["crbc"], "success": True, "truncated": False} for output in outputs]
    options = credit_options(ours)
    assert options["weighting"] == "step"
    options["weighting"] = "rollout"
    values, _ = credit.advantages_of_update(rows, group_size=1, **options)
    assert values.tolist() == [0.25] * len(rows)
