"""TRL's `environment_factory`: the tokens of a turn get the credit of the step they led to, tool results nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded_groups
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

from anchors import Rollout, RolloutGroup, Step
from crbc_envs import ChatEpisode
from crbc_lab import tiny
from crbc_rl import credit
from crbc_rl.adapters.trl_tools import ToolCreditTrainer, ToolEnvironment, tool_tasks
from crbc_rl.errors import ConfigError

KWARGS = {"observation": "text", "max_steps": 6}
SOLVED = [row["action"] for row in recorded_groups.read()[0].rollouts[0].rows]
TASK = recorded_groups.TASKS[0]

Steps = list[tuple[int, str]]
"""The turn of each executed action, and the action."""


def call(*actions: Any, tool: str = "act", name: str = "action") -> str:
    made = [json.dumps({"name": tool, "arguments": {name: action}}) for action in actions]
    return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in made)


SCRIPTS: list[tuple[list[str], Steps]] = [
    ([*map(call, SOLVED), call("up"), "Done."], list(enumerate(SOLVED))),  # acts once more after the end
    ([call("up"), "I give up."], [(0, "up"), (1, "")]),
    ([call("up", tool="walk"), call("right", name="to"), call("right"), "No."], [(2, "right"), (3, "")]),
    ([call("down", "up"), *[call("left")] * 5, "Over."], [(0, "down"), *[(k, "left") for k in range(1, 6)]]),
    (["What is this?"], [(0, "")]),
    ([call("fly"), call(7), "Hm."], [(0, "fly"), (1, "7"), (2, "")]),
]
SIZE = len(SCRIPTS)
SMALLEST = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy whose tokenizer knows these conversations, which have a third of the tokens in that of the others."""
    environment = ToolEnvironment(recorded_groups.ENV_ID, **KWARGS)
    texts = [environment.reset(**row) for row in tool_tasks(TASK + 2)[TASK:]]
    texts += [qwen3_chat_template, json.dumps(get_json_schema(environment.act)), *(call(action) for action in SOLVED)]
    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny.train_tokenizer(texts * 2, vocabulary=1024)
    tiny.build(tokenizer, torch.Generator().manual_seed(0), shape=SMALLEST).save(folder)
    return folder


class Spy(ToolCreditTrainer):
    """Keeps, for each row that reaches TRL's loss, the tokens of its turns and their advantages."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trained: list[list[tuple[str, list[float]]]] = []

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        mask, ids = inputs["completion_mask"] * inputs["tool_mask"], inputs["completion_ids"]
        self.second = int((mask[0].diff() == 1).nonzero()[0]) + 1 if (mask[0].diff() == 1).any() else 0
        assert inputs["advantages"].shape == ids.shape and not inputs["advantages"][mask == 0].any()
        for row in range(len(ids)):
            turns: list[tuple[list[int], list[float]]] = []
            for k in range(ids.shape[1]):
                if mask[row, k] and (k == 0 or not mask[row, k - 1]):
                    turns.append(([], []))
                if mask[row, k]:
                    turns[-1][0].append(int(ids[row, k]))
                    turns[-1][1].append(float(inputs["advantages"][row, k]))
            decode = self.processing_class.decode
            self.trained.append([(decode(said, skip_special_tokens=True), credits) for said, credits in turns])
        return super()._compute_loss(model, inputs)


def speak(monkeypatch: pytest.MonkeyPatch, scripts: list[list[str]]) -> None:
    """The model says these turns: one script for each row, in its order."""
    calls = iter(range(99))

    def generate(self: Any, prompt_ids: Any, *_: Any, **__: Any) -> Any:
        number, tokenizer = next(calls), self.processing_class
        said = [script[number] for script in scripts if number < len(script)]
        assert len(said) == len(prompt_ids)
        return [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in said], None

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", generate)


def trainer(
    model: Path,
    folder: Path,
    method: str = "crbc",
    rows: int = 2 * SIZE,
    credit_options: Any = None,
    eval_dataset: Any = None,
    **changes: Any,
) -> Spy:
    judge = {"judge": recorded_groups.judge} if method == "scores" else {}
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = qwen3_chat_template
    options = {
        "per_device_train_batch_size": rows,
        "num_generations": SIZE,
        "max_completion_length": 1800,
        "max_steps": 1,
        "shuffle_dataset": False,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        **changes,
    }
    return Spy(
        AutoModelForCausalLM.from_pretrained(model),
        GRPOConfig(output_dir=str(folder), **options),
        method=method,
        credit_options=credit_options or {},
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(tool_tasks(TASK + 2)[TASK:]),
        eval_dataset=eval_dataset,
        environment_factory=lambda: ToolEnvironment(recorded_groups.ENV_ID, **KWARGS, **judge),
    )


def replayed(task: int, steps: Steps, cut: bool = False) -> Rollout:
    """The rollout of these actions; "" is malformed. One that has not ended is `cut`, or a failure."""
    episode = ChatEpisode(recorded_groups.ENV_ID, replies="thought", **KWARGS)
    episode.begin(task)
    for _, action in steps:
        episode.reply(action)
    if episode.over:
        return episode.rollout()
    taken = [Step(row["anchor"], row["action"], row["reward"]) for row in episode.rows]
    return Rollout(taken, success=False, truncated=cut, final_anchor=episode.info["anchor"])


def expected(
    task: int, played: list[tuple[list[str], Steps]], method: str, cut: bool = False, **options: Any
) -> list[Any]:
    """For each member its turns, each with the advantage of the first step at or after it, else 0."""
    group = RolloutGroup([replayed(task, steps, cut) for _, steps in played])
    if method == "scores":
        options["scores"] = [[recorded_groups.score(action) for _, action in steps] for _, steps in played]
    rows = []
    for (script, steps), own in zip(played, credit.advantages(group, method, **options), strict=True):
        led = [next((s for s, (turn, _) in enumerate(steps) if turn >= k), None) for k in range(len(script))]
        rows.append([(said, 0.0 if s is None else own[s]) for said, s in zip(script, led, strict=True)])
    return rows


def assert_equal(trained: list[Any], wanted: list[Any]) -> None:
    assert len(trained) == len(wanted)
    for found, own in zip(sorted(trained), sorted(wanted), strict=True):
        assert [said for said, _ in found] == [said for said, _ in own]
        for (_, credits), (_, value) in zip(found, own, strict=True):
            assert credits == pytest.approx([value] * len(credits), abs=1e-6)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("crbc", {}),
        pytest.param("grpo", {}, marks=pytest.mark.full),
        ("crbc_plus", {"reward": "step"}),
        ("scores", {"kind": "reward", "gamma": 0.9}),
    ],
    ids=str,
)
def test_each_turn_gets_the_credit_of_its_step(
    method: str, options: dict[str, Any], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak(monkeypatch, [script for script, _ in SCRIPTS] * 2)
    spy = trainer(model, tmp_path, method, credit_options=options)
    spy.train()
    # The second task is another room, where the solution of the first is none, and the action after it is executed.
    second = [(SCRIPTS[0][0], [*SCRIPTS[0][1], (len(SOLVED), "up")]), *SCRIPTS[1:]]
    wanted = expected(TASK, SCRIPTS, method, **options) + expected(TASK + 1, second, method, **options)
    assert replayed(TASK, SCRIPTS[0][1]).success
    assert_equal(spy.trained, wanted)
    assert np.ptp([value for row in wanted for _, value in row]) > 0
    assert spy.state.log_history[0]["reward"] == pytest.approx(1 / (2 * SIZE))


def test_an_evaluation_has_groups_of_its_own_size(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speak(monkeypatch, [script for script, _ in SCRIPTS[:3]] * 2)
    tasks = Dataset.from_list(tool_tasks(TASK + 2)[TASK:])
    spy = trainer(
        model, tmp_path, eval_dataset=tasks, num_generations_eval=3, per_device_eval_batch_size=6, eval_strategy="no"
    )
    spy.evaluate()
    second = [(SCRIPTS[0][0], [*SCRIPTS[0][1], (len(SOLVED), "up")]), *SCRIPTS[1:3]]
    assert_equal(spy.trained, expected(TASK, SCRIPTS[:3], "crbc") + expected(TASK + 1, second, "crbc"))


@pytest.mark.parametrize(
    ("limit", "method"),
    [
        ("max_tool_calling_iterations", "crbc"),
        ("max_completion_length", "crbc"),
        ("max_tool_calling_iterations", "scores"),
    ],
)
def test_an_episode_that_trl_cuts_is_truncated(
    limit: str, method: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last turn with a result, or without one that fits, is a step; a call that TRL never executes is none."""
    actions = [["up", "left", "down"], ["left", "left", "up"], ["right", "up", "up"]] * (SIZE // 3)
    few = limit == "max_tool_calling_iterations"
    speak(monkeypatch, [list(map(call, each if few else each[:1])) for each in actions])
    spy = trainer(model, tmp_path, method, rows=SIZE, **{limit: 2 if few else 80})
    spy.train()
    played = [
        (list(map(call, each if few else each[:1])), list(enumerate(each[: 2 if few else 1]))) for each in actions
    ]
    assert_equal(spy.trained, expected(TASK, played, method, cut=True))
    assert all(not environment._episode.over for environment in spy.environments)
    records = spy.environments[0]._records(2 if few else 1)
    assert [record["truncated"] for record in records] == [True] * (2 if few else 1)


def test_a_reply_that_its_budget_cuts_is_no_action(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget ends within the second reply of each: an episode that is truncated after its first step."""
    speak(monkeypatch, [[call("up"), call("left")]] * SIZE)
    whole = trainer(model, tmp_path, rows=SIZE, max_tool_calling_iterations=1)
    whole.train()
    assert [text for text, _ in whole.trained[0]] == [call("up"), call("left")]
    speak(monkeypatch, [[call("up"), call("left")]] * SIZE)
    cut = trainer(model, tmp_path, rows=SIZE, max_completion_length=whole.second + 4)
    cut.train()
    assert len(cut.trained[0]) == 2 and cut.trained[0][1][0] != call("left")
    for environment in cut.environments:
        assert environment._turns == [0] and [row["valid"] for row in environment._episode.rows] == [True]
        assert [row["truncated"] for row in environment._records(2, True)] == [True]


def test_a_first_reply_that_its_budget_cuts_is_a_malformed_step_of_a_truncated_episode() -> None:
    environment = ToolEnvironment(recorded_groups.ENV_ID, **KWARGS)
    environment.reset(task=4)
    (row,) = environment._records(1, True)
    assert (row["valid"], row["truncated"], row["success"], row["length"]) == (False, True, False, 1)


def test_a_part_of_a_group_and_a_system_message_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a process holds 5 rows: give it n x 6 by per_device_eval_batch_size"):
        trainer(model, tmp_path)._generate_and_score_completions([{}] * 5)
    with pytest.raises(ConfigError, match=r"system: a tool answers .* give this one to tool_tasks\(text=\.\.\.\)"):
        ToolEnvironment(recorded_groups.ENV_ID, system="Think.", **KWARGS)


def test_groups_of_an_update_have_luck_of_their_own(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", lambda _, rows: asked.extend(rows) or {})
    with pytest.raises(KeyError):  # after the rows were handed on
        trainer(model, tmp_path)._generate_and_score_completions([{"task": 3}] * SIZE + [{"task": 4}] * SIZE)
    seeds = [row["seed"] for row in asked]
    assert len({*seeds[:SIZE]}) == len({*seeds[SIZE:]}) == 1 and seeds[0] != seeds[SIZE]
    assert [row["rollout"] for row in asked] == [*range(SIZE)] * 2


def test_a_tool_has_a_schema_and_no_frames() -> None:
    environment = ToolEnvironment(recorded_groups.ENV_ID, **KWARGS)
    assert environment.reset(**tool_tasks(5)[4]).startswith("Your task is: Push every box")
    schema = get_json_schema(environment.act)["function"]
    assert schema["name"] == "act" and list(schema["parameters"]["properties"]) == ["action"]
    with pytest.raises(ConfigError, match="a tool shows no frames: give the environment observation='text'"):
        ToolEnvironment(recorded_groups.ENV_ID).reset(task=0)


def test_an_environment_begins_anew_with_the_task_and_seed_of_its_row() -> None:
    environment = ToolEnvironment("CRBC-FrozenLake-v0", slippery=True, max_steps=6)

    def played(**row: Any) -> list[Any]:
        said: list[Any] = [environment.reset(**row)]
        for _ in range(7):
            environment._turn += 1
            said += [environment.act("right"), environment.act("left")]
        return [*said, environment.get_reward(), environment._records(7)]

    first = played(task=3, seed=2)
    assert first[2] == "Not executed: one action in a turn." and first[14] == "The episode has ended."
    assert played(task=3, seed=2) == first
    for other, alike in (({"task": 3, "seed": 4}, True), ({"task": 4}, False), ({"task": 3, "split": "test"}, False)):
        found = played(**{"seed": 2, **other})
        assert found != first and (found[0] == first[0]) == alike  # the noise of another seed, from the same start
    assert played(task=3, seed=2) == first


def test_a_process_with_a_part_of_a_group_is_refused(model: Path, tmp_path: Path) -> None:
    changes = {"steps_per_generation": 2, "gradient_accumulation_steps": 1}
    assert trainer(model, tmp_path, rows=SIZE // 2, **changes).num_generations == SIZE
    with pytest.raises(ValueError, match="must be divisible by num_generations|make it n x 6 rows"):
        trainer(model, tmp_path, rows=SIZE // 2)
