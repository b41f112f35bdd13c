"""One update of a study's training with a tiny random model: the paper's configs, on embedded data."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_update import SMALL, by_chance, one_update, tiny_config

from crbc_envs.vector.members import make_member
from crbc_lab.studies.comparison.definition import load_study
from crbc_lab.studies.comparison.trainings import trainings

NO_GRADIENT = 1e-3
"""Below this a gradient is the entropy's alone, with the paper's coefficients."""


def config_of(env, variant="crbc"):
    found = trainings(load_study("main"), "paper", env, 1, {})
    return next(one.config for one in found if one.config.credit.method == variant)


@pytest.mark.parametrize("env", ["alfworld-1.5b", "webshop-7b", "sokoban-vl-3b"])
def test_what_is_compared_stays_as_it_is(env, tmp_path):
    config = config_of(env)
    small = tiny_config(config, tmp_path)
    assert (small.credit, small.loss, small.env.prompt) == (config.credit, config.loss, config.env.prompt)
    assert small.optim.lr == config.optim.lr and small.optim.order == config.optim.order
    assert "data" not in small.env.kwargs and small.updates == 1
    assert small.rollout.group_size == SMALL["rollout"]["group_size"]


@pytest.mark.parametrize(
    ("env", "variant"),
    [
        pytest.param("alfworld-1.5b", "gae", marks=pytest.mark.full),
        pytest.param("sokoban-vl-3b", "crbc", marks=pytest.mark.slow),
        pytest.param("webshop-1.5b", "grpo", marks=pytest.mark.full),  # its prompts are the longest
    ],
)
def test_an_update_is_made_with_a_model_of_the_config_s_kind_and_with_credit(env, variant):
    record = one_update(config_of(env, variant))
    assert record["update"] == 1 and record["steps"] > 0
    assert 0 < record["success"] < 1 and record["grad_norm"] > NO_GRADIENT


@pytest.mark.parametrize("env_id", ["CRBC-ALFWorld-v0", "CRBC-WebShop-v0", "CRBC-Sokoban-v0"])
def test_replies_alone_choose_actions_and_outcomes(env_id):
    kind = type(make_member(env_id, {}))
    replies = [str(np.random.default_rng(i).random()) for i in range(40)]

    def play(env, i):
        env.reset(seed=0, options={"task": 0})
        steps = []
        for reply in (replies[i], "no action", replies[-i]):
            *_, ended, truncated, info = env.step(reply)
            steps.append((info["action"], info["valid"], info["success"], ended))
            if ended or truncated:
                break
        return steps

    first, second = (by_chance(kind)(max_steps=3, replies="tags") for _ in range(2))
    played = [play(first, i) for i in range(20)]
    assert played == [play(second, i) for i in range(20)]
    assert all(valid for steps in played for _, valid, _, _ in steps)
    assert len({steps[0][0] for steps in played}) > 1
    won = [steps[-1][2] for steps in played]
    assert 4 <= sum(won) <= 16 and not any(success for steps in played for _, _, success, _ in steps[:-1])
    assert all(ended >= success for steps in played for _, _, success, ended in steps)
