"""Lengths that are measured on the expert, the limit of replies that follows, and the plan of this machine."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from paths import ROOT
from rich.console import Console

from crbc_envs.demonstrations import expert_steps
from crbc_envs.prompts import Conversation, PromptWindow
from crbc_envs.vector.members import make_member
from crbc_lab.child_runs import ChildRun
from crbc_lab.cli import main
from crbc_lab.plan import processor
from crbc_lab.plan.check import check_run
from crbc_lab.plan.lengths import SHOWN, expert_lengths
from crbc_lab.plan.plan import make_plan
from crbc_lab.plan.runtime import total
from crbc_lab.plan.show import print_plan
from crbc_lab.plan.workload import workload_of
from crbc_rl.config import TrainConfig, load_config, parse_config
from crbc_rl.errors import ConfigError
from crbc_rl.policies.load import load_policy
from crbc_rl.runs.folder import require_same
from crbc_rl.runs.own import ASKED

SHORT = "sokoban-short"
HOUSE = {"id": "CRBC-ALFWorld-v0", "prompt": "compact"}


def foreign(**rollout: Any) -> TrainConfig:
    """Households with the tokenizer of Sokoban's agent, which spells their words letter by letter."""
    sizes = {"num_groups": 2, "group_size": 2, **rollout}
    return parse_config(
        {"name": "t", "model": str(ROOT / "warmstarts/sokoban-tiny"), "env": HOUSE, "rollout": sizes}, ROOT
    )


def test_lengths_are_those_that_the_policy_reads_and_writes() -> None:
    config = load_config(SHORT)
    policy = load_policy(config.model)
    prompts: list[list[int]] = []
    replies: list[int] = []
    episodes = 0
    env = make_member(config.env.id, {**config.env.kwargs, "split": "train"})
    for observation, info, reply in expert_steps(env, np.random.default_rng(0)):
        if len(prompts) == SHOWN:
            break
        if info["step"] == 0:
            episodes += 1
            talk = Conversation(PromptWindow.of(env, "compact", history=4), observation, info)
        else:
            talk.observe(observation, info)
        prompts.append(policy.encode(talk.prompt()))
        replies.append(len(policy.tokenizer.encode(reply, add_special_tokens=False)) + 1)
    found = expert_lengths(config)
    assert found is not None
    tokens = sum(map(len, prompts))
    beginnings = {tuple(prompt[:end]) for prompt in prompts for end in range(1, 1 + len(prompt))}
    assert (found.prompt, found.reply) == pytest.approx((tokens / SHOWN, np.mean(replies)))
    assert found.shared == pytest.approx((tokens - len(beginnings)) / SHOWN)
    assert (found.turns, found.longest) == (SHOWN / episodes, max(replies))
    assert found.longest * 1.25 <= found.suggested < found.longest * 1.25 + 1


def test_a_limit_of_replies_is_derived_where_none_is_given(caplog: pytest.LogCaptureFixture) -> None:
    checked = check_run(foreign())
    assert checked.lengths is not None and checked.lengths.longest > 16
    assert checked.config.rollout.max_new_tokens == checked.lengths.suggested
    assert not caplog.records
    assert check_run(foreign(max_new_tokens=16)).config.rollout.max_new_tokens == 16  # as it says, with a warning
    assert "such replies are cut" in caplog.text
    own = load_config(SHORT)
    assert check_run(own).config == own


def test_a_derived_limit_of_replies_fits_the_context_too() -> None:
    """A prompt at its limit and a reply at the derived one are within the model's positions."""
    found = check_run(foreign())
    context, derived = found.model.context, found.config.rollout.max_new_tokens
    assert derived > 16
    check_run(foreign(max_prompt_tokens=context - derived))
    with pytest.raises(ConfigError, match=f"{context + 1:,} tokens do not fit the model's context of {context:,}"):
        check_run(foreign(max_prompt_tokens=context - derived + 1))


def test_a_training_keeps_the_derived_limit(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    few = ["updates=1", "rollout.num_groups=1", "rollout.group_size=2", "eval.episodes=1", "eval.test_episodes=1"]
    steps = ["env.kwargs.max_steps=1", "transcripts=0", "policy.lora_rank=1"]
    path.write_text(f"name: t\nmodel: {ROOT}/warmstarts/sokoban-tiny\nenv: {{id: CRBC-ALFWorld-v0, prompt: compact}}\n")
    settings = [part for value in (*few, *steps) for part in ("--set", value)]
    main(["train", str(path), "--run", str(tmp_path / "run"), *settings])
    derived = check_run(load_config(path, [*few, *steps])).config.rollout.max_new_tokens
    assert load_config(tmp_path / "run").rollout.max_new_tokens == derived > 16
    main(["train", str(path), "--run", str(tmp_path / "run"), "--resume", *settings])
    require_same(tmp_path / "run", load_config(path, [*few, *steps]))  # as `--seeds --resume` does
    with pytest.raises(ConfigError, match="rollout.max_new_tokens"):
        require_same(tmp_path / "run", load_config(path, [*few, *steps, "rollout.max_new_tokens=16"]))


@pytest.mark.parametrize("named", [None, 16])
def test_a_child_derives_the_limit_that_its_config_leaves_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: int | None
) -> None:
    monkeypatch.setattr("crbc_lab.child_runs.subprocess.Popen", lambda *told, **options: None)
    child = ChildRun("one", foreign(**({} if named is None else {"max_new_tokens": named})), tmp_path)
    child.start()
    asked = load_config(tmp_path / ASKED)
    assert asked == child.config
    assert check_run(asked).config.rollout == check_run(child.config).config.rollout


def test_an_evaluation_of_a_config_has_the_derived_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sokoban, household = (str(ROOT / "warmstarts" / name) for name in ("sokoban-tiny", "alfworld-tiny"))
    Path("t.yaml").write_text(yaml.safe_dump({"name": "t", "env": HOUSE}))
    limits, short = [], "env.kwargs.max_steps=1"
    for model, other in ((sokoban, None), (sokoban, household), (household, sokoban)):
        given = ["--set", short, f"model={model}", *(["--model", other] if other else [])]
        Path("out.json").unlink(missing_ok=True)
        with suppress(SystemExit):  # its only reply may be invalid
            main(["eval", "t.yaml", "--episodes", "1", "--out", "out.json", *given])
        told = json.loads(Path("out.json").read_text())
        limits.append(told["policy"].get("max_new_tokens", told["max_new_tokens"]))
        asked = check_run(load_config("t.yaml", [short, f"model={other or model}"]))
        assert limits[-1] == told["max_new_tokens"] == asked.config.rollout.max_new_tokens
    assert limits[0] == limits[2] > limits[1]


def test_this_machine_is_planned_by_its_measured_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "SECONDS", 0.02)
    config = load_config(SHORT, ["rollout.max_prompt_tokens=100"])
    plan = make_plan(config, hardware="CPU")
    assert plan.gpus == 1 and plan.hardware.device == "processor" and plan.phases is not None
    assert plan.memory is not None and plan.memory.fits(plan.gib) and plan.gib == processor.main_memory()
    assert plan.work is not None and plan.checked.lengths is not None
    assert plan.work.prompt == plan.checked.lengths.prompt and plan.work.step > 0
    assert plan.seconds is not None and plan.seconds > config.updates * total(plan.phases)
    shown = io.StringIO()
    print_plan(plan, Console(file=shown, width=200), Path("runs"))
    assert "on one processor, GiB" in shown.getvalue() and "the run with its evaluations: " in shown.getvalue()
    assert "GPUs on one node" not in shown.getvalue()


def test_what_helps_on_this_machine_is_no_more_gpus() -> None:
    config = load_config(SHORT, ["rollout.max_prompt_tokens=1000"])

    def remedies(hardware: str) -> str:
        memory = make_plan(config, hardware=hardware).memory
        assert memory is not None
        return " ".join(make_plan(config, gib=0.99 * memory.peak / 2**30, hardware=hardware).remedies)

    here = remedies("cpu")
    assert here and "GPUs" not in here and "GPUs" in remedies("a100")


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [(SHORT, {"gpus": 2}, "leave --gpus and --nodes out"), ("paper/alfworld-qwen2.5-1.5b", {}, "vllm samples on GPUs")],
)
def test_what_a_processor_cannot_do_is_refused(config: str, options: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_plan(load_config(config), hardware="cpu", **options)


def test_twice_the_evaluations_take_twice_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (3.46, 0.0, 0.0))
    rates = processor.this_processor(1, 128)
    assert rates.name.endswith("1 thread, at a load of 3.5")
    monkeypatch.setattr(processor, "this_processor", lambda threads, hidden: rates)
    few, many = (make_plan(load_config(SHORT, [f"eval.test_episodes={n}"]), hardware="cpu") for n in (100, 200))
    assert few.seconds is not None and many.seconds is not None and few.phases == many.phases
    assert many.seconds > few.seconds
    none = few.seconds - (many.seconds - few.seconds)  # prefill and environments are linear, decoding nearly so
    assert few.phases is not None and none > 0.8 * few.checked.config.updates * total(few.phases)


def test_replies_that_must_be_shorter_than_the_measured_ones_are_the_expert_s() -> None:
    config = load_config("alfworld-tiny", ["env.prompt=text"])
    lengths = expert_lengths(config)
    work = workload_of(config, lengths)
    assert lengths is not None and work is not None
    assert (work.prompt, work.reply, work.solved) == (lengths.prompt, lengths.reply, lengths.turns)
