"""One update of a study's training with a tiny random model: the paper's configs, on embedded data."""

from __future__ import annotations

import pytest

from crbc_rl.cli import main
from crbc_rl.commands.plumbing import SMALL, one_update, tiny_config
from crbc_rl.studies.comparison.definition import load_study
from crbc_rl.studies.comparison.trainings import trainings


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


@pytest.mark.parametrize("env", ["alfworld-1.5b", "sokoban-vl-3b"])
def test_an_update_is_made_with_a_model_of_the_config_s_kind(env):
    record = one_update(config_of(env))
    assert record["update"] == 1 and record["steps"] > 0 and record["grad_norm"] >= 0


@pytest.mark.slow
def test_the_command_makes_one_of_every_training(capsys):
    main(["study", "depth", "--scale", "paper", "--tiny"])
    told = capsys.readouterr().out
    for key in ("crbc,depth=0", "crbc,depth=1", "crbc,depth=2", "crbc,depth=3", "crbc: "):
        assert f"paper/alfworld-1.5b/{key}" in told
    assert "says nothing about success" in told
