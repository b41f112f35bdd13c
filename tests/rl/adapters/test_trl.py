"""TRL: its loss gets the credit of each step, at that step's own tokens, and hardly a filler."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import recorded_groups
import torch
from datasets import Dataset
from learner_fixtures import fresh_policy
from paths import ROOT, SUPPORT
from recorded_groups import SIZE, TASKS
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from crbc_rl.adapters import trl as trl_module
from crbc_rl.adapters.trl import GroupRollouts, StepCreditTrainer, tasks
from crbc_rl.errors import ConfigError

GROUPS = recorded_groups.read()
REPLIES = [rollout.replies for group in GROUPS for rollout in group.rollouts]
STEPS = recorded_groups.KWARGS["max_steps"]
ROWS, LIVE, PARTS = len(REPLIES) * STEPS, sum(map(len, REPLIES)), 4
SCALE = 0.5

Row = tuple[tuple[int, ...], tuple[int, ...], float]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest of policies: most of an update of the others' would be its passes."""
    folder = tmp_path_factory.mktemp("model")
    fresh_policy(shape={"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}).save(folder)
    return folder


class Spy(StepCreditTrainer):
    """Plays the recorded replies, and keeps the rows that reach TRL's loss."""

    scores: Any = None
    lost = range(0)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trained: list[Row] = []
        self.fillers = self.calls = 0
        self.losses: list[tuple[float, float]] = []
        self.last: dict[str, Any] = {}

    def _generate_single_turn(self, prompt_ids: Any, *args: Any) -> Any:
        said = [replies[self.calls] for replies in REPLIES if self.calls < len(replies)]
        self.calls += 1
        ids = [[*self.processing_class(text)["input_ids"], self.processing_class.eos_token_id] for text in said]
        assert len(ids) == len(prompt_ids)
        return ids, self.scores and [[self.scores] * len(reply) for reply in ids]

    def _calculate_rewards(self, inputs: list[dict[str, Any]], *args: Any) -> Any:
        for row in self.lost:
            inputs[row]["record"] = None
        return super()._calculate_rewards(inputs, *args)

    def token_credit(self, inputs: list[dict[str, Any]], *rest: Any) -> Any:
        self.records, self.credits = [row["record"] for row in inputs], super().token_credit(inputs, *rest)
        self.broken = self._metrics["train" if self.model.training else "eval"]["crbc/broken_groups"][-1]
        return self.credits

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        self.last, credits = inputs, inputs["advantages"]
        assert credits.shape == inputs["completion_ids"].shape
        for row in range(len(credits)):
            there, asked = inputs["completion_mask"][row] == 1, inputs["prompt_mask"][row] == 1
            assert not credits[row][~there].any() and len(set(credits[row][there].tolist())) == 1
            if inputs["tool_mask"][row][there].all():
                prompt, reply = inputs["prompt_ids"][row][asked], inputs["completion_ids"][row][there]
                self.trained.append((tuple(prompt.tolist()), tuple(reply.tolist()), float(credits[row][0])))
            else:
                assert not credits[row].any()
                self.fillers += 1
        with torch.no_grad():  # credit is constant in a row, so TRL's own form, one advantage a row, has the same loss
            alike = super()._compute_loss(model, {**inputs, "advantages": credits[:, 0]})
        loss = super()._compute_loss(model, inputs)
        self.losses.append((loss.item(), alike.item()))
        return loss


def config(folder: Path, **changes: Any) -> GRPOConfig:
    options = {
        "per_device_train_batch_size": ROWS // PARTS,
        "steps_per_generation": PARTS,
        "gradient_accumulation_steps": 1,
        "num_generations": SIZE * STEPS,
        "max_completion_length": 24,
        "max_steps": PARTS,
        "shuffle_dataset": False,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        **changes,
    }
    return GRPOConfig(output_dir=str(folder), **options)


def rollouts(**more: Any) -> GroupRollouts:
    return GroupRollouts(recorded_groups.ENV_ID, SIZE, prompt="compact", **recorded_groups.KWARGS, **more)


def trainer(model: Path, folder: Path, kind: Any = Spy, changes: Any = None, **kwargs: Any) -> Any:
    panel = tasks(max(TASKS) + 1)
    options = {
        "rollout_func": rollouts(),
        "train_dataset": Dataset.from_list([panel[task] for task in TASKS]),
        **kwargs,
    }
    made = AutoModelForCausalLM.from_pretrained(model)
    return kind(
        made, config(folder, **(changes or {})), processing_class=AutoTokenizer.from_pretrained(model), **options
    )


@pytest.mark.parametrize(
    ("method", "options"),
    [
        recorded_groups.KINDS[0],
        *(pytest.param(*kind, marks=pytest.mark.slow) for kind in recorded_groups.KINDS[1:3]),
        *recorded_groups.KINDS[3:6],
        pytest.param(*recorded_groups.KINDS[6], marks=pytest.mark.slow),
        ("scores", {"kind": "reward", "gamma": 0.9}),
    ],
    ids=str,
)
def test_the_loss_gets_the_recorded_credit_at_each_rows_tokens(
    method: str, options: dict[str, Any], model: Path, tmp_path: Path
) -> None:
    judge = {"judge": recorded_groups.judge} if method == "scores" else {}
    spy = trainer(
        model,
        tmp_path,
        method=method,
        credit_options=options,
        scale=SCALE,
        changes={"log_completions": True, "num_completions_to_print": 1, "logging_steps": 1},
        rollout_func=rollouts(**judge),
    )
    spy.train()
    wanted = np.concatenate(recorded_groups.advantages(GROUPS, method, **options))
    turns = [turn for member in spy.rollout_func.turns for turn in member]
    ours = sorted((tuple(turn[0]), tuple(turn[1]), SCALE * value) for turn, value in zip(turns, wanted, strict=True))
    assert len(spy.trained) == len(ours) == LIVE
    for (prompt, reply, found), (own, said, value) in zip(sorted(spy.trained), ours, strict=True):
        assert (prompt, reply) == (own, said) and found == pytest.approx(value, abs=1e-6)
    assert np.ptp(wanted) > 0 and ROWS > LIVE
    assert spy.fillers == -LIVE % PARTS > 0
    played = [
        [{k: row[k] for k in row if k != "scores"} for row in episode.rows] for episode in spy.rollout_func.played
    ]
    assert [rollout.rows for group in GROUPS for rollout in group.rollouts] == played
    shown = pd.read_parquet(tmp_path / "completions" / f"completions_{PARTS:05}.parquet")
    live = [row * STEPS + step for row, replies in enumerate(REPLIES) for step in range(len(replies))]
    np.testing.assert_allclose(shown["advantage"][live], SCALE * wanted, atol=1e-5)
    successes = np.mean([rollout.rows[-1]["success"] for group in GROUPS for rollout in group.rollouts])
    assert spy.state.log_history[0]["reward"] == pytest.approx(successes)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss_type": "grpo"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence"},
        pytest.param({"loss_type": "bnpo"}, marks=pytest.mark.slow),
        pytest.param({"loss_type": "dr_grpo"}, marks=pytest.mark.slow),
        {"loss_type": "luspo", "importance_sampling_level": "sequence"},
        {"loss_type": "dapo", "beta": 0.1, "num_iterations": 2},
        {"loss_type": "cispo", "off_policy_mask_threshold": 0.1},
        pytest.param({"loss_type": "sapo", "top_entropy_quantile": 0.5}, marks=pytest.mark.slow),
        {"loss_type": "vespo", "gradient_accumulation_steps": PARTS, "max_steps": 1},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_every_loss_of_trl_takes_credit_by_token(changes: dict[str, Any], model: Path, tmp_path: Path) -> None:
    times = changes.get("num_iterations", 1)
    spy = trainer(
        model, tmp_path, changes={"max_steps": PARTS * times, "learning_rate": 1e-3, **changes, "epsilon": 0.01}
    )
    spy.train()
    assert len(spy.losses) == PARTS * times
    for loss, alike in spy.losses:
        assert loss == pytest.approx(alike, rel=1e-4, abs=1e-6)
    assert any(loss for loss, _ in spy.losses)


def test_a_loss_that_averages_rows_has_no_fillers_in_its_mean(model: Path, tmp_path: Path) -> None:
    """At a ratio of 1 the loss of "grpo" is minus the mean credit of the rows."""
    changes = {"loss_type": "grpo", "steps_per_generation": 1, "per_device_train_batch_size": ROWS, "max_steps": 1}
    spy = trainer(model, tmp_path, changes=changes)
    spy.train()
    assert spy.fillers == 0 and spy.losses[0][0] == pytest.approx(-np.mean([row[2] for row in spy.trained]), rel=1e-4)


def test_log_probabilities_of_an_engine_reach_the_loss(model: Path, tmp_path: Path) -> None:
    spy = trainer(model, tmp_path)
    spy.scores = -1.5
    spy.train()
    mask = spy.last["completion_mask"] * spy.last["tool_mask"] == 1
    assert set(spy.last["sampling_per_token_logps"][mask].tolist()) == {-1.5}


@pytest.mark.parametrize("lost", ["first", "last", "whole"])
def test_a_row_lost_between_rollout_and_loss_is_named(lost: str, model: Path, tmp_path: Path) -> None:
    spy, member = trainer(model, tmp_path), 5
    last, first = len(REPLIES[member]) - 1, member * STEPS
    spy.lost = {"first": [first], "last": [first + last], "whole": range(first, first + STEPS)}[lost]
    said = f"group 1, rollout 1, step {last if lost == 'last' else 0}: the row is lost"
    with pytest.warns(UserWarning, match="group 1 has rows of 3 rollouts, of 4" if lost == "whole" else said):
        spy.train()
    of_group = [row for row, record in enumerate(spy.records) if record and record["group"] == 1]
    assert spy.broken == 1.0 and of_group and not spy.credits[of_group].any() and spy.credits.any()


@pytest.mark.full
def test_two_processes_play_a_group_each(model: Path, tmp_path: Path) -> None:
    """Their groups end at different times. Each asks the engine for as many replies, and trains on as many rows."""
    file = tmp_path / "process"
    started = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(SUPPORT / "trl_processes.py")]
    path = os.pathsep.join([str(ROOT), str(SUPPORT)])
    done = subprocess.run(
        [sys.executable, *started, str(model), str(file)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    one, two = found = [json.loads(Path(f"{file}.{rank}.json").read_text()) for rank in range(2)]
    assert one["asked"] == two["asked"] and one["weights"] == two["weights"]
    for group, process in zip(GROUPS, found, strict=False):
        members = [[(row["anchor"], row["action"]) for row in rollout.rows] for rollout in group.rollouts]
        assert members == [[(row["anchor"], row["action"]) for row in rows] for rows in process["played"]]
        wanted = np.concatenate(recorded_groups.advantages([group], "crbc"))
        assert len(process["trained"]) == max(sum(map(len, p["played"])) for p in found)
        live = sorted(credit for text, credit in process["trained"] if text != "<|im_end|>")
        np.testing.assert_allclose(live, np.sort(wanted), atol=1e-5)


def test_an_update_of_cut_replies_alone_goes_on(model: Path, tmp_path: Path) -> None:
    spy = trainer(model, tmp_path, StepCreditTrainer, changes={"mask_truncated_completions": True})
    spy._generate_single_turn = lambda asked, *_: ([[5, 5] for _ in asked], None)
    spy.train()
    assert spy.state.global_step == PARTS


def test_the_log_has_the_groups_of_all_processes(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = trainer(model, tmp_path)
    records = [row for group in GROUPS for rollout in group.rollouts for row in rollout.rows]
    monkeypatch.setattr(trl_module, "gather_object", lambda parts: [*parts, {**parts[0], "success": 1.0}])
    spy.step_credit(records, SIZE)
    told = {name: values[-1] for name, values in spy._metrics["train" if spy.model.training else "eval"].items()}
    assert told["crbc/groups"] == 2 * len(GROUPS) and told["crbc/rollouts"] == 2 * SIZE * len(GROUPS)
    assert 0.5 < told["crbc/success"] < 1.0


def test_evaluation_plays_its_own_split(model: Path, tmp_path: Path) -> None:
    rows = SIZE * STEPS
    spy = trainer(
        model, tmp_path, eval_dataset=Dataset.from_list(tasks(3, "test")), changes={"per_device_eval_batch_size": ROWS}
    )
    panel = spy.rollout_func.episode("test", 0).env.panel
    spy._generate_single_turn = lambda asked, *_: ([[spy.processing_class.eos_token_id] for _ in asked], None)
    assert spy.evaluate()["eval_reward"] == 0.0
    played = {episode.info["task_id"] for episode in spy.rollout_func.played}
    assert played == {panel[task].id for task in range(3)} and len(spy.last["advantages"]) == rows * 3


class Speaker:
    """Says "right" for the model of a trainer with this seed at this update."""

    eos_token_ids = (9,)

    def __init__(self, seed: int, update: int, process: int = 0) -> None:
        self.args, self.state = SimpleNamespace(seed=seed), SimpleNamespace(global_step=update)
        self.accelerator = SimpleNamespace(process_index=process)
        self.processing_class = SimpleNamespace(decode=lambda _: "<think></think><action>right</action>")

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[list[Any], None, None]:
        return [[1]] * len(prompts), None, None

    def _generate_single_turn(self, asked: list[Any], *_: Any) -> tuple[list[Any], None]:
        return [[2, 9]] * len(asked), None


def test_rollouts_follow_the_seed_and_the_update_and_nothing_before_them() -> None:
    made = {"slippery": True, "max_steps": 8}
    used = GroupRollouts("CRBC-FrozenLake-v0", 2, **made)
    prompts = ["train/3"] * 16 + ["train/4"] * 16 + ["train/3"] * 16

    def records(rollouts: GroupRollouts, *place: int) -> list[Any]:
        return [record and {**record, "group": None} for record in rollouts(prompts, Speaker(*place))["record"]]

    first = records(used, 7, 0)
    others = [records(used, 8, 0), records(used, 7, 1), records(used, 7, 2)]
    assert records(used, 7, 0) == first == records(GroupRollouts("CRBC-FrozenLake-v0", 2, **made), 7, 0)
    assert first[0]["anchor"] == first[32]["anchor"] and first[:16] != first[32:], "a task again has other luck"
    assert records(used, 7, 0, 1) != first, "and so has another process"
    assert all(other[0]["anchor"] == first[0]["anchor"] and other != first for other in others)
    assert others[1] != others[2]


@pytest.mark.parametrize("prompts", [["train/1"] * 11, ["train/1"] * 6 + ["train/2"] * 6, ["train/1"] * 13])
def test_a_process_with_a_part_of_a_group_is_refused(prompts: list[str]) -> None:
    with pytest.raises(ConfigError, match="a process holds a part of a group: give each a multiple of 12 rows"):
        GroupRollouts("CRBC-Sokoban-v0", 3, max_steps=4, observation="text")(prompts, None)


def test_rows_want_a_limit_of_steps() -> None:
    with pytest.raises(ConfigError, match="register it with max_episode_steps"):
        GroupRollouts("foreign_envs:SplitCountdown-v0", 3)


@pytest.mark.parametrize(
    ("changes", "kwargs", "said"),
    [
        ({"num_generations": 4}, {}, "num_generations=4: a prompt has 32 rows, set it to 32"),
        (
            {"per_device_train_batch_size": 32, "steps_per_generation": 1},
            {"rollout_func": None},
            "rollout_func is missing",
        ),
        ({"num_generations": 48}, {}, "num_generations=48: a prompt has 32 rows"),
        ({"num_generations_eval": 1}, {}, "num_generations_eval=1: leave it out, or set it to 32"),
        ({}, {"reward_funcs": [len]}, "reward_funcs: without effect on credit"),
        ({}, {"tools": [len]}, "tools: without effect on credit"),
        ({}, {"method": "crcb"}, "unknown credit method 'crcb'.*crbc"),
        ({}, {"credit_options": {"betta": 1}}, "crbc has no option 'betta'"),
    ],
)
def test_settings_that_would_be_silently_wrong_are_refused(
    changes: dict[str, Any], kwargs: dict[str, Any], said: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        trainer(model, tmp_path, changes=changes, **kwargs)


def test_prompts_that_are_no_tasks_and_frames_are_refused() -> None:
    class Args:
        seed = 0

    class Trainer:
        args, state = Args, type("State", (), {"global_step": 0})
        accelerator = SimpleNamespace(process_index=0)

    with pytest.raises(ConfigError, match="prompt 'Solve it' is no task: make the data set from tasks"):
        rollouts()(["Solve it"] * SIZE * STEPS, Trainer)
    with pytest.raises(ConfigError, match="takes no frames: give the environment observation='text'"):
        GroupRollouts("CRBC-Sokoban-v0", SIZE)


@pytest.mark.parametrize("module", ["trl", "trl_tools"])
def test_another_version_of_trl_gets_a_sentence(module: str, run_python: Any) -> None:
    code = f"""
import sys
import crbc_rl.adapters
from crbc_envs import errors
crbc_rl.adapters.version = lambda package: "1.17.0"
try:
    import crbc_rl.adapters.{module}
except errors.RequirementError as error:
    print(error, "torch" in sys.modules)
"""
    said = r"this adapter was tested with trl from 1.16 to below 1.17, and 1.17.0 is installed: .*\[trl\]\W* False"
    assert re.fullmatch(said, run_python(code))
