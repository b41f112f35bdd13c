"""examples/one_file.py does what the learner does: the same replies, and the same weights but for rounding."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from safetensors.torch import load_file

from crbc_rl.config import load_config
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run


@pytest.fixture
def one_file(project, monkeypatch):
    spec = importlib.util.spec_from_file_location("one_file", project / "examples" / "one_file.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "one_file", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_two_updates_lead_to_the_learner_s_weights(project, one_file, tmp_path, capsys):
    # Enough groups that some are mixed. Else gradients are near zero, and Adam turns their rounding into steps.
    sizes = ["updates=2", "threads=1", "rollout.num_groups=4", "rollout.group_size=4", "optim.minibatch=32"]
    no_eval = ["eval.episodes=1", "eval.test_episodes=1", "optim.order=group"]
    paper = [
        "credit.crbc.beta=0.98",
        "credit.crbc.w_step=5.0",
        "loss.kl=0.01",
        "optim.lr=1e-4",
        "optim.schedule=constant",
    ]
    config = load_config(project / "configs" / "sokoban_tiny.yaml", [*sizes, *no_eval, *paper])
    run = Run.start(tmp_path / "run", config, resume=False)
    Learner(config, run).train()
    learned = load_file(run.last_checkpoint() / "model.safetensors")

    settings = one_file.Settings(updates=2, num_groups=4, group_size=4, minibatch=32)
    policy = one_file.train(settings)
    assert len(capsys.readouterr().out.splitlines()) == 2
    start, mine = load_file(settings.model / "model.safetensors"), policy.model.state_dict()
    for name in start:
        if not name.endswith("k_proj.bias"):  # it moves no attention: Adam makes its rounding large
            moved = (learned[name] - start[name]).abs().mean()
            assert moved > 1e-5
            assert (learned[name] - mine[name]).abs().mean() < 1e-4 * moved, name
