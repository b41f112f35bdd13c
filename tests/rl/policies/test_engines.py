"""Sampling engines by name, and engines of one's own."""

import pytest
import torch
from learner_fixtures import small

from crbc_lab.plan.plan import make_plan
from crbc_rl.config import extensions, read
from crbc_rl.distributed import Distributed
from crbc_rl.learner import Learner
from crbc_rl.policies import engines
from crbc_rl.policies.engines import Engine, engine_of
from crbc_rl.policies.load import load_policy
from crbc_rl.rollout.worker import RolloutWorker
from crbc_rl.runs.folder import Run
from crbc_rl.training.actor import Actor


def clerk(config, policy):
    """An engine of one's own: a copy of the model."""
    return load_policy(config.model)


class Shop:
    engine = Engine(clerk, package="no-such-package", extra="[none]")


@pytest.fixture
def own(monkeypatch):
    """A module "mine" with a function and an `Engine`, as if it had been found and permitted."""
    found = {"mine:clerk": clerk, "mine:Shop.engine": Shop.engine}
    monkeypatch.setattr(engines, "load", lambda name, modules, key: found[name])
    monkeypatch.setattr(read, "locate", lambda module, folders, key: extensions.Module(file="x", sha256="y"))


def test_a_function_is_an_engine_that_samples_apart_from_the_trained_model(model, own):
    config = small(model, generator={"engine": "mine:clerk"})
    assert engine_of(config) == Engine(clerk)
    worker = RolloutWorker(config, Distributed(), Actor(config, Distributed(), None))
    assert not worker.engine_is_policy  # so its log-probabilities are computed again, and corrected
    worker.close()
    assert make_plan(config).gpus == 1


def test_an_engine_s_package_is_asked_for(model, own):
    config = small(model, generator={"engine": "mine:Shop.engine"})
    assert [finding.name for finding in make_plan(config).checked.findings] == ["no-such-package"]


def test_a_copy_has_weights_of_the_precision_and_buffers_in_full(model):
    config = small(model, policy={"precision": "bfloat16"})
    copy = engines.ENGINES["transformers"].create(config, load_policy(config.model)).model
    assert {weight.dtype for weight in copy.parameters()} == {torch.bfloat16}
    assert {buffer.dtype for buffer in copy.buffers()} == {torch.float32}, "frequencies of positions"
    assert not any(weight.requires_grad for weight in copy.parameters())


@pytest.mark.slow
def test_training_with_a_copy_is_training_with_the_model_itself(model, own, tmp_path):
    def trained(name, engine):
        config = small(model, updates=2, generator={"engine": engine}, loss={"correction": "none"})
        run = Run.start(tmp_path / name, config, resume=False)
        learner = Learner(config, run)
        learner.train()
        return dict(learner.actor.policy.weights())

    one, other = trained("one", "transformers"), trained("other", "mine:clerk")
    for name, weight in one.items():
        assert weight.allclose(other[name], atol=1e-5), name
