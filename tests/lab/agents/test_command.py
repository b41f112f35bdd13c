"""`crbc agents`, its configs and its mistakes; and the transcripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from learner_fixtures import fresh_policy
from paths import ROOT
from scripted_model import FaultyModel, ScriptedPolicy, agents_config, play, served, wanderer, write_agents_config

from crbc_envs.storage.rollouts import read_groups, read_recording
from crbc_lab import cli
from crbc_lab.agents.config import ModelSection, load_agents_config
from crbc_lab.commands import agents
from crbc_lab.commands.agents import fitted, open_model
from crbc_rl.config.extensions import Module
from crbc_rl.errors import ConfigError

CONFIGS = sorted((ROOT / "configs/agents").glob("*.yaml"))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def crbc(*args: str) -> int:
    try:
        cli.main(list(args))
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


# ---- configs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_shipped_configs_are_valid_and_named_as_their_files(path: Path) -> None:
    config = load_agents_config(path, (), "http://localhost:8000/v1", "m")
    environment, _, agent = path.stem.partition("_")
    assert (config.name, config.agent) == (f"{environment}-{agent}", agent)
    assert config.env.id.lower() == f"crbc-{environment}-v0" and config.env.prompt == "text"
    assert config.split == "test" and config.model.temperature == 0.4
    assert load_agents_config(Path(f"agents/{config.name}"), (), "http://x/v1", "m").identity() == config.identity()


def test_a_result_depends_on_the_modules_and_the_weights(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    weights = tmp_path / "mine/model.safetensors"
    weights.write_bytes(b"first")
    config = load_agents_config(write_agents_config(tmp_path / "config.yaml", model={"name": "mine", "endpoint": None}))
    before = config.identity()
    weights.write_bytes(b"later")
    assert {name for name, value in config.identity().items() if before[name] != value} == {"weights"}
    told = [
        config.model_copy(update={"modules": {"halls": Module(file=file, sha256=digest)}}).identity()
        for file, digest in (("/here/halls.py", "a" * 64), ("/there/halls.py", "a" * 64), ("/here/halls.py", "b" * 64))
    ]
    assert told[0] == told[1] != told[2] != config.identity()


def test_a_model_folder_is_relative_to_the_config_or_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here/mine").mkdir(parents=True)
    (tmp_path / "theirs").mkdir()
    path = write_agents_config(tmp_path / "config.yaml", model={"name": "theirs", "endpoint": None})
    monkeypatch.chdir(tmp_path / "here")
    assert load_agents_config(path).model.name == str(tmp_path / "theirs")
    assert load_agents_config(path, model="mine").model.name == str(tmp_path / "here/mine")
    with pytest.raises(ConfigError, match="theirs is no folder with a model; for one behind a server add --endpoint"):
        load_agents_config(path, model="theirs")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"agent": "reacts"}, "agent: .*'direct', 'react' or 'reflexion'"),
        ({"seeds": [1, 1]}, "seeds: name different whole numbers"),
        ({"limits": {"money": 1.0}}, "limits.money: a budget in money needs prices.input"),
        ({"model": {"options": {"stream": True}}}, "model.options: 'stream' is set by the command"),
        ({"env": {"kwargs": {"observation": "rgb"}}}, "react keeps a transcript of texts"),
    ],
)
def test_a_wrong_config_is_told(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    agent = changes.pop("agent", "react")
    with pytest.raises(ConfigError, match=said) as error:
        load_agents_config(write_agents_config(tmp_path / "config.yaml", agent, **changes))
    assert "\n" not in str(error.value)


def test_a_file_of_own_examples_replaces_the_expert_s(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("A room.\n> up\nDone.\n---\nA yard.\n> down\nDone.\n")
    policy = ScriptedPolicy(wanderer)
    play(agents_config(tmp_path, episodes=1, react={"file": "own.txt"}), tmp_path / "run", policy)
    assert "Here are two examples.\n\nA room.\n> up\nDone.\n\nA yard.\n> down\nDone.\n\nHere is" in policy.asked[0]


def test_an_environment_without_an_expert_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crbc_envs.sokoban.env import SokobanEnv

    monkeypatch.setattr(SokobanEnv, "expert", lambda env, rng, **options: None)
    with pytest.raises(ConfigError, match=r"has no expert to play them: set react.examples=0, or name a file"):
        play(agents_config(tmp_path), tmp_path / "run", ScriptedPolicy(wanderer))


# ---- the command ------------------------------------------------------------------------------------


def test_the_command_plays_tells_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENT_KEY", "sk-secret-of-mine")
    prices = {"input": 1.0, "output": 2.0}
    write_agents_config(tmp_path / "config.yaml", "reflexion", reflexion={"trials": 2}, prices=prices, seeds=[0, 1])
    model = FaultyModel(wanderer, ("429", "json"))
    with served(model) as url:
        command = ["agents", "config.yaml", "--endpoint", url, "--key-variable", "AGENT_KEY"]
        assert crbc(*command, "--dry-run") == 0
        shown = capsys.readouterr().out
        assert "nothing is asked or written" in shown and "Here is the task." in shown and "at most 132" in shown
        assert not model.requests and not (tmp_path / "runs").exists()

        assert crbc(*command, "--set", "limits.tokens=2000") == 1
        shown = capsys.readouterr().out
        assert "NOT COMPLETE" in shown and "of 2,000 tokens are spent" in shown
        assert crbc(*command) == 0
        shown = capsys.readouterr().out
        assert "scripted, reflexion: success" in shown and "within 2 trial(s)" in shown and "seed 1  " in shown
        assert "faults: 429 " in shown and "USD" in shown and "NOT COMPLETE" not in shown
        assert crbc(*command) == 0
        assert "this start: 0 calls asked, 0 from the cache" in capsys.readouterr().out
    told = json.loads((tmp_path / "runs/small/agents.json").read_text())
    assert told["complete"] and told["episodes"] == 12 and told["panel"]["tasks"] == 6
    assert told["spent"]["cost"] == pytest.approx((told["spent"]["calls"] * (100 * 1.0 + 7 * 2.0)) / 1e6)
    assert max(model.answered.values()) == 1
    for path in (tmp_path / "runs").rglob("*"):
        assert not path.is_file() or b"secret-of-mine" not in path.read_bytes(), path


def test_a_local_model_of_few_positions_keeps_half_of_them_for_the_prompt(tmp_path: Path) -> None:
    """The usual limit of replies is more than such a model has."""
    fresh_policy().save(tmp_path / "model")
    config = agents_config(tmp_path)
    local = ModelSection(name=str(tmp_path / "model"))
    found = fitted(config.model_copy(update={"model": local}))
    assert found.model.max_tokens == 1_024 == open_model(found).max_prompt_tokens
    named = config.model_copy(update={"model": ModelSection(name=local.name, max_tokens=2_048)})
    assert fitted(named) == named
    with pytest.raises(ConfigError, match="2,048 new tokens leaves no room for a prompt"):
        open_model(named)
    assert fitted(config) == config, "a server's model has its own limit"


def test_a_shipped_config_takes_a_local_model_of_few_positions(tmp_path: Path) -> None:
    fresh_policy().save(tmp_path / "model")
    for path in CONFIGS:
        local = ["model.name=" + str(tmp_path / "model")]
        assert fitted(load_agents_config(path, local)).model.max_tokens == 1_024


def test_only_the_splits_that_are_played_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    checked = agents.check_env
    monkeypatch.setattr(agents, "check_env", lambda config, splits: seen.append(splits) or checked(config, splits))
    for agent, react in (("direct", {}), ("react", {"examples": 0}), ("react", {}), ("reflexion", {})):
        agents.check(agents_config(tmp_path, agent, react=react))
    assert seen == [["test"], ["test"], ["test", "train"], ["test", "train"]]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("agents", "agents/alfworld-reakt"), "did you mean 'agents/alfworld-react'"),
        (("agents", "agents/alfworld-react"), "--endpoint URL --model NAME, or --model DIR"),
    ],
)
def test_a_mistake_is_one_line_and_status_two(
    args: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert crbc(*args) == 2
    shown = capsys.readouterr().err
    assert said in shown and shown.count("\n") == 1 and "a bug in crbc" not in shown
    assert not list(tmp_path.iterdir())


# ---- transcripts ------------------------------------------------------------------------------------


def test_transcripts_are_readable(tmp_path: Path) -> None:
    def replies(text: str) -> str:
        if text.endswith("New plan:"):
            return "Walk up, then search for the \x1b[2Jbox."
        return "think: Which way?" if not text.endswith("OK.\n>") else "up"

    config = agents_config(tmp_path, "reflexion", episodes=1, reflexion={"trials": 2, "stuck": 0})
    play(config, tmp_path / "run", ScriptedPolicy(replies))
    path = tmp_path / "run/rollouts/seed0/000000.parquet"
    recording = read_recording(path)
    assert recording.env_id == "CRBC-Sokoban-v0" and recording.turns is not None
    first, _, trial, _ = recording.turns
    assert first.reply == "> think: Which way?\nOK.\n> up" and first.reply_ids == ()
    assert "Your memory for the task below:" in trial.prompt and "Walk up, then search for the" in trial.prompt
    (group,) = read_groups(path, anchor="paper-1")
    assert [len(rollout) for rollout in group.rollouts] == [2, 2]
