"""`protocol`, `credit.reward` and `credit.weighting` as keys of a config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from learner_fixtures import small, small_config, write_config

from crbc_lab.plan.check import check_run
from crbc_rl import credit
from crbc_rl.config import load_config, parse_config
from crbc_rl.config.protocols import PROTOCOLS, choices, deviations
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run

BARE = {"name": "bare", "model": "m"}


def value(config: Any, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(config, section), name)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_fills_every_key_that_is_not_named(protocol: str) -> None:
    config = parse_config({**BARE, "protocol": protocol, "env": {"id": "CRBC-WebShop-v0"}}, "here")
    assert {choice.key: value(config, choice.key) for choice in PROTOCOLS[protocol]} == {
        choice.key: choice.value for choice in PROTOCOLS[protocol]
    }
    assert deviations(config) == []
    plain = parse_config(BARE, "here")
    assert any(value(plain, choice.key) != choice.value for choice in PROTOCOLS[protocol])
    assert len({choice.key for choice in PROTOCOLS[protocol]}) == len(PROTOCOLS[protocol])


def test_what_a_config_or_an_override_names_goes_before_the_protocol(tmp_path: Path) -> None:
    path = write_config(tmp_path / "c.yaml", Path("m"), protocol="verl-agent", loss={"dual_clip": None})
    config = load_config(path, ["loss.kl=0", "optim.order=spread"])
    found = {choice.key: (value, choice.value) for choice, value in deviations(config)}
    assert found == {"loss.dual_clip": (None, 3.0), "loss.kl": (0.0, 0.01), "optim.order": ("spread", "ranks")}
    assert (config.loss.entropy, config.credit.weighting) == (0.001, "step")


def test_a_saved_config_names_what_its_protocol_said() -> None:
    config = parse_config({**BARE, "protocol": "paper"}, "here")
    saved = config.model_dump()
    assert (saved["loss"]["ratio"], saved["loss"]["dual_clip"]) == ("response", None)
    again = parse_config(saved, "there")
    assert again == config and deviations(again) == []


def test_verl_agent_s_rewards_are_the_environment_s_in_sokoban() -> None:
    for env_id, reward in (("CRBC-Sokoban-v0", "environment"), ("CRBC-ALFWorld-v0", "outcome")):
        config = parse_config({**BARE, "protocol": "verl-agent", "env": {"id": env_id}}, "here")
        assert config.credit.reward == reward
        assert deviations(config) == []
    assert parse_config({**BARE, "protocol": "verl-agent"}, "here").credit.reward == "environment"  # the default id
    assert parse_config({**BARE, "protocol": "paper"}, "here").credit.reward == "outcome"
    assert choices(None, "CRBC-Sokoban-v0") == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": "verl"}, r"protocol: .*'verl-agent' or 'paper' \(got 'verl'\)"),
        ({"protocol": "paper", "loss": {"ratios": "token"}}, r"unknown key 'loss.ratios'; did you mean 'ratio'"),
        ({"credit": {"reward": "score"}}, r"credit.reward: .*'outcome' or 'environment' \(got 'score'\)"),
    ],
)
def test_a_wrong_key_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config({**small_config(Path("m")), **change}, "here.yaml")


@pytest.mark.parametrize("method", [*credit.METHODS, "gae"])
def test_every_method_takes_the_environment_s_rewards(method: str) -> None:
    config = small(Path("m"), credit={"method": method, "reward": "environment", "weighting": "step"})
    kept = {"crbc", "crbc_plus", "g2po", "graphgpo"}
    expected = {("group_reward" if method in kept else "reward"): "step", "weighting": "step"}
    if method == "gae":
        expected = {}
    assert config.credit.options == expected
    assert config.credit.earns == "step"


def test_a_method_s_own_section_goes_before_what_all_share() -> None:
    section = {"reward": "score", "weighting": "rollout"}
    config = small(Path("m"), credit={"method": "grpo", "reward": "environment", "weighting": "step", "grpo": section})
    assert config.credit.options == section


def test_a_module_s_method_without_rewards_says_so(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_credit.py").write_text(
        "import numpy as np\n\ndef flat(process):\n    return np.ones(len(process.steps()[1]))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRBC_ALLOW_IMPORT", "1")
    check_run(small(model, credit={"method": "own_credit:flat"}))
    with pytest.raises(ConfigError, match="flat has no option 'reward'"):
        check_run(small(model, credit={"method": "own_credit:flat", "reward": "environment"}))


def test_a_module_s_method_takes_what_the_config_says_of_all(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_terms.py").write_text(
        "from crbc_rl import credit\n\n"
        "def returns(process, earned, *, gamma=0.9):\n    return earned.returns(gamma)\n\n"
        "won = credit.estimator(w_group=1.0, rewards=('outcome',), on_success=True)(returns)\n"
        "paid = credit.estimator(w_group=1.0)(returns)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRBC_ALLOW_IMPORT", "1")
    shared = {"reward": "environment", "weighting": "step"}
    for name, key in (("won", "group_reward"), ("paid", "reward")):
        config = small(model, credit={"method": f"own_terms:{name}", **shared})
        assert config.credit_options() == {key: "step", "weighting": "step"}
        check_run(config)
    config = small(model, protocol="verl-agent", credit={"method": "own_terms:paid", "paid": {"gamma": 0.5}})
    assert config.credit_options() == {"reward": "step", "weighting": "step", "gamma": 0.5}
    learner = Learner(config, Run.start(tmp_path / "run", config, resume=False))
    assert learner.credit_options == config.credit_options()


@pytest.mark.parametrize(
    "change",
    [
        {"method": "crbc", "crbc": {"w_group": 0, "w_step": 0}},
        {"method": "gigpo", "gigpo": {"w_group": 0, "w_step": 0}},
        {"method": "graft", "graft": {"w_step": 0}},
        {"method": "grpo", "grpo": {"success_reward": 0, "invalid_penalty": 0}},
        {"method": "gigpo", "gigpo": {"success_reward": 0, "invalid_penalty": 0}},
    ],
    ids=lambda change: f"{change['method']}",
)
def test_a_run_whose_advantages_are_all_zero_is_refused(change: dict[str, Any], model: Path) -> None:
    with pytest.raises(ConfigError, match=r"every advantage is 0, .* so nothing would be learned"):
        check_run(small(model, credit=change))


@pytest.mark.parametrize("method", credit.METHODS)
def test_every_method_s_defaults_learn(method: str, model: Path) -> None:
    check_run(small(model, credit={"method": method}))
    check_run(small(model, credit={"method": method, "reward": "environment"}))
    with pytest.raises(ConfigError, match=r"rollout.group_size: 1, .* every advantage would be 0"):
        check_run(small(model, credit={"method": method}, rollout={"group_size": 1}))
