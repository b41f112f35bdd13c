"""The recorded groups through Trinity-RFT's own formatter, workflow runner, serialisation, experience pipeline and
conversion for its trainer. Replies are replayed, and no model is there; everything else is Trinity's."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import recorded_groups
import torch
from recorded_groups import ENV_ID, KINDS, SIZE
from trinity.algorithm import ADVANTAGE_FN
from trinity.buffer.pipelines.experience_pipeline import ExperiencePipeline
from trinity.buffer.reader.file_reader import TaskFileReader
from trinity.buffer.schema.formatter import TaskFormatter
from trinity.common.config import AlgorithmConfig, Config, StorageConfig
from trinity.common.config_validator import AlgorithmConfigValidator
from trinity.common.experience import Experience
from trinity.explorer.workflow_runner import WorkflowRunner
from trinity.trainer.verl.utils import to_data_proto

from crbc_envs.vector.members import make_member
from crbc_rl.adapters.trinity import ChatWorkflow, StepCredit, write_tasks
from crbc_rl.credit.errors import CreditError
from crbc_rl.errors import ConfigError

GROUPS = recorded_groups.read()
ENV = {"id": ENV_ID, "prompt": "compact", "kwargs": {"observation": "text", "max_steps": 8}}
EOS = 0


class Replay:
    """Trinity's `ModelWrapper`: the replies of the run that asks. A run of `lost` loses its engine after two."""

    def __init__(self, group: int, lost: set[tuple[int, int]], most: int = 400) -> None:
        self.replies = [[*rollout.replies] for rollout in GROUPS[group].rollouts]
        self.lost = {member for other, member in lost if other == group}
        self.config = SimpleNamespace(max_response_tokens=most)
        self.runs: list[Any] = []
        self.truncate: str | None = None

    @property
    async def model_version_async(self) -> int:
        return 3

    async def clean_workflow_state(self) -> None: ...

    async def chat_async(self, messages: Any, **sampling: Any) -> list[Experience]:
        assert sampling["n"] == 1 and messages[-1]["role"] == "user"
        if (task := asyncio.current_task()) not in self.runs:
            self.runs.append(task)  # which begin in order
        member = self.runs.index(task)
        await asyncio.sleep(0)  # the others' turn
        if member in self.lost and len(self.replies[member]) < 3:
            raise ConnectionError("the engine is gone")
        text = self.replies[member].pop(0)
        prompt, reply = [7, 8, len(messages[-1]["content"])], [*text.encode(), EOS]
        told = {"response_text": text, "logprobs": torch.zeros(len(reply)), "truncate_status": self.truncate}
        return [Experience(tokens=torch.tensor(prompt + reply), prompt_length=len(prompt), **told)]


def runner(model: Replay) -> Any:
    made = object.__new__(WorkflowRunner)
    made.logger = logging.getLogger("runner")
    made.config = SimpleNamespace(
        explorer=SimpleNamespace(rollout_model=SimpleNamespace(enable_history=False)), mode="both"
    )
    made.model_wrapper, made.auxiliary_model_wrappers = model, []
    made.workflow_instance, made.runner_state = None, {}
    made.concurrent_run_fn = made._asynchronous_run  # whose runs of a task are told apart by their asyncio task
    return made


def task(number: int, **env: Any) -> Any:
    storage = StorageConfig(
        default_workflow_type="crbc_rl.adapters.trinity.ChatWorkflow",
        workflow_args={"env": {**ENV, **env}},
        repeat_times=SIZE,
    )
    made = TaskFormatter(storage).format({"split": "train", "task": GROUPS[number].task})
    assert made.workflow is ChatWorkflow
    return replace(made, batch_id=1, task_id=number)


def played(lost: set[tuple[int, int]] | None = None) -> list[Experience]:
    """The experiences of all groups as the pipeline gets them, in any order."""
    chunks = []
    for number in range(len(GROUPS)):
        status, chunk = asyncio.run(
            runner(Replay(number, lost or set())).run_task(task(number), "1", repeat_times=SIZE)
        )
        assert status.total_runs == SIZE
        assert status.completed_runs == SIZE - sum(group == number for group, _ in lost or ())
        chunks.append(chunk)
    exps = [exp for chunk in chunks for exp in Experience.deserialize_many(chunk)]
    random.Random(0).shuffle(exps)
    return exps


def algorithm(**options: Any) -> AlgorithmConfig:
    """The page's config, after Trinity's own validation."""
    config = Config()
    config.algorithm = AlgorithmConfig(
        algorithm_type="grpo",
        repeat_times=SIZE,
        advantage_fn="crbc_rl.adapters.trinity.StepCredit",
        advantage_fn_args=options or None,
    )
    AlgorithmConfigValidator().validate(config)
    return config.algorithm


def credited(exps: list[Experience], **options: Any) -> tuple[list[Experience], dict[str, float]]:
    pipeline: Any = SimpleNamespace(operators=[], auxiliary_models={})
    ExperiencePipeline._set_algorithm_operators(pipeline, algorithm(**options))
    (operator,) = pipeline.operators
    exps, metrics = asyncio.run(operator.process(exps))
    return exps, metrics


def worst(exps: list[Experience], wanted: Any, broken: int = -1) -> float:
    """The largest difference to `wanted` at any sampled token of the batch that Trinity's trainer makes."""
    batch = to_data_proto(exps, EOS, model=object(), logger=logging.getLogger("trainer"))
    largest = 0.0
    for exp, found, mask in zip(exps, batch.batch["advantages"], batch.batch["response_mask"].bool(), strict=True):
        group = int(exp.eid.task)
        right = 0.0 if group == broken else wanted[group * SIZE + exp.eid.run][exp.eid.step]
        assert mask.sum() == len(exp.tokens) - exp.prompt_length and not found[~mask].any()
        largest = max(largest, float((found[mask].double() - right).abs().max()))
    return largest


@pytest.mark.parametrize(("method", "options"), KINDS, ids=str)
def test_each_step_gets_its_own_credit(method: str, options: dict[str, Any]) -> None:
    named = {"earns" if name == "reward" else name: value for name, value in options.items()}
    exps, metrics = credited(played(), method=method, **named)
    assert len(exps) == sum(len(rollout.rows) for group in GROUPS for rollout in group.rollouts)
    assert worst(exps, recorded_groups.advantages(GROUPS, method, **options)) < 1e-6
    successes = [rollout.rows[-1]["success"] for group in GROUPS for rollout in group.rollouts]
    assert metrics["crbc/success"] == np.mean(successes) and metrics["crbc/broken_groups"] == 0.0


def test_the_rows_are_those_of_the_environment() -> None:
    for exp in played():
        row = GROUPS[exp.eid.task].rollouts[exp.eid.run].rows[exp.eid.step]
        found = exp.info["crbc"]
        assert {**found, "group": row["group"], "rollout": row["rollout"]} == row
        assert found["group"] == f"1/{exp.eid.task}" and exp.reward == float(row["success"])
        assert exp.metrics["steps"] == row["length"]


def test_a_run_that_fails_costs_its_group_its_credit() -> None:
    with pytest.warns(UserWarning, match="has rows of 3 rollouts, of 4; 1 of 3 groups get no credit"):
        exps, metrics = credited(played({(1, 2)}), method="crbc")
    assert metrics["crbc/broken_groups"] == 1.0
    assert worst(exps, recorded_groups.advantages(GROUPS, "crbc"), broken=1) < 1e-6


def test_a_lost_row_is_named() -> None:
    exps = [exp for exp in played() if (exp.eid.task, exp.eid.run, exp.eid.step) != (1, 2, 3)]
    with pytest.warns(UserWarning, match=r"group '1/1', rollout '\w+', step 3: the row is lost; 1 of 3 groups"):
        exps, _ = credited(exps, method="crbc")
    assert worst(exps, recorded_groups.advantages(GROUPS, "crbc"), broken=1) < 1e-6


def test_runs_of_a_task_begin_alike_and_another_batch_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    class Seen(Exception): ...

    def begin(self: Any, task: int, seed: int, **_: Any) -> Any:
        seeds.append(seed)
        raise Seen

    monkeypatch.setattr("crbc_envs.ChatEpisode.begin", begin)
    for changes in ({}, {}, {"batch_id": 2}, {"is_eval": True}, {"is_eval": True, "batch_id": "2/validation"}):
        workflow = replace(task(0), **changes).to_workflow(Replay(0, set()))
        with pytest.raises(Seen):
            asyncio.run(workflow.run_async())
    assert seeds[0] == seeds[1] != seeds[2] and seeds[3] == seeds[4] not in seeds[:3]


@pytest.mark.parametrize(("most", "executed"), [(400, True), (1, False)])
def test_a_reply_that_was_cut_executes_nothing_that_may_be_more(most: int, executed: bool) -> None:
    ChatWorkflow.idle.clear()
    model = Replay(0, set(), most=most)  # of every reply
    model.replies = [["up"] * 8]  # or "upward"
    exps = asyncio.run(task(0).to_workflow(model).run_async())
    assert {exp.info["crbc"]["valid"] for exp in exps} == {executed}


def test_a_run_that_fails_gives_its_environment_back() -> None:
    ChatWorkflow.idle.clear()
    with pytest.raises(ConnectionError):
        asyncio.run(task(1).to_workflow(Replay(1, {(1, 0)})).run_async())
    assert [len(waiting) for waiting in ChatWorkflow.idle.values()] == [1]
    assert len(asyncio.run(task(0).to_workflow(Replay(0, set())).run_async())) == len(GROUPS[0].rollouts[0].rows)
    assert [len(waiting) for waiting in ChatWorkflow.idle.values()] == [1]


def test_an_environment_that_shows_frames_is_refused() -> None:
    with pytest.raises(ConfigError, match="takes no frames here: give the environment observation='text'"):
        write_tasks("nowhere", {"id": ENV_ID}, "train")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "crbcc"}, "crbcc"),
        ({"method": "crbc", "bata": 0.9}, "bata"),
        ({"method": "crbc", "scale": 0.0}, "scale"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises((CreditError, ConfigError, ValueError), match=said) as caught:
        credited([], **options)
    assert "\n" not in str(caught.value)


def test_what_has_no_environment_or_no_place_for_its_prompt_is_one_sentence() -> None:
    model = Replay(0, set())
    with pytest.raises(ConfigError, match="workflow_args.env.id names no environment"):
        asyncio.run(replace(task(0), workflow_args={}).to_workflow(model).run_async())
    model.truncate = "prompt_truncated"
    with pytest.raises(ConfigError, match="longer than model.max_prompt_tokens"):
        asyncio.run(task(0).to_workflow(model).run_async())
    with pytest.raises(ConfigError, match="needs experiences of crbc_rl.adapters.trinity.ChatWorkflow"):
        StepCredit()([Experience(tokens=torch.tensor([1, 2]), prompt_length=1)])


def test_the_file_of_tasks_is_what_trinity_reads(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        assert write_tasks(tmp_path / "tasks", ENV, split, 3) == 3
        storage = StorageConfig(
            path=str(tmp_path / "tasks"),
            split=split,
            batch_size=3,
            default_workflow_type="crbc_rl.adapters.trinity.ChatWorkflow",
            workflow_args={"env": ENV},
        )
        read = asyncio.run(TaskFileReader(storage).read())
        assert [one.raw_task for one in read] == [{"split": split, "task": number} for number in range(3)]


def test_the_tasks_are_those_that_an_evaluation_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crbc_rl.adapters.trinity.choose", lambda panel, split, size: SimpleNamespace(tasks=(5, 3, 4)))
    assert write_tasks(tmp_path, ENV, "validation", 3) == 3
    lines = (tmp_path / "validation.jsonl").read_text().splitlines()
    assert [json.loads(line)["task"] for line in lines] == [5, 3, 4]


def test_other_data_than_the_config_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"workflow_args\.env\.revision: it is of installed official data"):
        write_tasks(tmp_path, {**ENV, "revision": "0" * 64}, "train")


def test_an_argument_of_an_environment_may_be_called_prompt(tmp_path: Path) -> None:
    gymnasium.register("Asked-v0", lambda prompt, **kwargs: make_member(ENV_ID, kwargs))
    env = {**ENV, "id": "Asked-v0", "kwargs": {**ENV["kwargs"], "prompt": "of its own"}}
    assert write_tasks(tmp_path, env, "train", 2) == 2


def test_without_trinity_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['trinity'] = None; import crbc_envs.errors as e; import crbc_rl.adapters as a\n"
    code += "a.version = lambda name: None\nimport crbc_rl.adapters.trinity"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "this adapter needs trinity-rft, which is not installed" in told.splitlines()[-1]


def test_advantages_come_from_the_pipeline_and_not_from_the_trainer() -> None:
    fn = ADVANTAGE_FN.get("crbc_rl.adapters.trinity.StepCredit")
    assert not fn.compute_in_trainer() and algorithm().advantage_fn_args == {"method": "crbc"}
