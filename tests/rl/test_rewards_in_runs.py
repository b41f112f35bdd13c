"""A run whose steps earn scores or the environment's own rewards, and one whose own function scores them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learner_fixtures import small

from crbc_lab.plan.check import check_run
from crbc_rl import credit
from crbc_rl.config import TrainConfig, extensions
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics

WEBSHOP = {"id": "CRBC-WebShop-v0", "prompt": "compact", "kwargs": {"max_steps": 3}}
SOKOBAN = {"id": "CRBC-Sokoban-v0", "prompt": "compact", "kwargs": {"observation": "text", "max_steps": 3}}


def config_of(model: Path, method: str, **changes: Any) -> TrainConfig:
    few = {"every": 1, "episodes": 1, "test_episodes": 1}
    return small(model, updates=1, save_every=1, eval=few, **{"credit": {"method": method}, **changes})


def trained(config: TrainConfig, folder: Path) -> Any:
    """The batch that the one update of a run has learned from."""
    learner = Learner(config, Run.start(folder, config, resume=False))
    seen, optimise = [], learner.actor.optimise
    learner.actor.optimise = lambda batch, dice, watch: seen.append(batch) or optimise(batch, dice, watch)
    learner.train()
    assert np.isfinite(read_metrics(folder)[1]["loss"])
    return seen[0]


@pytest.mark.parametrize(("env", "reward"), [(WEBSHOP, "score"), (SOKOBAN, "step")], ids=["webshop", "sokoban"])
def test_a_run_learns_from_scores_or_step_rewards(
    env: dict[str, Any], reward: str, model: Path, tmp_path: Path
) -> None:
    batch = trained(
        config_of(model, "graft", env=env, credit={"method": "graft", "graft": {"reward": reward}}), tmp_path
    )
    rewarded = credit.advantages_interned(batch.rollouts, "graft", reward=reward)
    np.testing.assert_array_equal(batch.advantage, rewarded)
    if reward == "step":  # a penalty per move: without a success the outcome has no credit at all
        assert rewarded.any() and not credit.advantages_interned(batch.rollouts, "graft").any()


OWN = """
from crbc_rl import credit

def judged(process, **options):
    return credit.scores(process, scores=judge, **options)

def judge(rollouts):
    return [float(len(rollouts.action_names[action])) for action in rollouts.action.tolist()]
"""


def test_a_run_learns_from_a_function_of_ones_own_that_scores_steps(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_judge.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(extensions.VARIABLE, "1")
    own = {"method": "own_judge:judged", "judged": {"kind": "reward", "gamma": 0.5}}
    batch = trained(config_of(model, "", env=SOKOBAN, credit=own), tmp_path / "run")
    names, actions = batch.rollouts.action_names, batch.rollouts.action.tolist()
    wanted = credit.advantages_interned(
        batch.rollouts, "scores", scores=[float(len(names[a])) for a in actions], kind="reward", gamma=0.5
    )
    np.testing.assert_allclose(batch.advantage, wanted, atol=1e-6)
    assert batch.advantage.any()


def test_a_horizon_below_the_limit_of_steps_is_refused_before_the_run(model: Path, tmp_path: Path) -> None:
    def config(horizon: int) -> TrainConfig:
        return config_of(model, "crbc", env=SOKOBAN, credit={"crbc": {"horizon": horizon}})

    said = r"credit\.crbc\.horizon: 2, and an episode may have 3 steps: set it to 3 or more$"
    with pytest.raises(ConfigError, match=said):
        check_run(config(2))
    check_run(config(3))
