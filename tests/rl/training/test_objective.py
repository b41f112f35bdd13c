"""A loss of one's own in the place of the whole policy loss."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from learner_fixtures import small, small_config
from paths import ROOT
from tables import table, weighed

from crbc_lab.plan.check import check_run
from crbc_rl.batches import Turn, micro_batches
from crbc_rl.config import LossConfig, TrainConfig, extensions, load_config
from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError
from crbc_rl.training.actor import Actor
from crbc_rl.training.loss import check_objective, objective_of, policy_loss
from crbc_rl.training.trainable import _added

TURNS = [Turn([5, 6, 7], [8, 9], [-3.0, -3.0]), Turn([5, 6, 7], [10, 11], [-3.0, -3.0])]
DOCUMENTED = re.search(r"### A loss of your own.*?```python\n(.*?)```", (ROOT / "docs/learner.md").read_text(), re.S)

NAMED = "def named(logprobs, *rest):\n    return logprobs.sum(), {'success': 1.0}\n"


@pytest.fixture
def own(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A config beside `my_loss.py`, which has the page's example."""
    assert DOCUMENTED is not None
    (tmp_path / "my_loss.py").write_text(DOCUMENTED[1] + "\nnumber = 3\n" + NAMED)
    monkeypatch.setenv(extensions.VARIABLE, "1")
    monkeypatch.delitem(sys.modules, "my_loss", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    def config(objective: str) -> TrainConfig:
        data = small_config(model, loss={"objective": objective, "kl": 0.0}, optim={"lr": 0.01, "minibatch": 8})
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(data))
        return load_config(tmp_path / "config.yaml")

    return config


def trained(config: TrainConfig) -> tuple[Actor, dict[str, float]]:
    """The policy after an update in which the first reply was better than the second."""
    actor = Actor(config, Distributed())
    batch = table(TURNS, advantage=[1.0, -1.0], old=[[-3.0, -3.0], [-3.0, -3.0]])
    return actor, actor.optimise(batch, np.random.default_rng(0))


def preference(actor: Actor) -> float:
    """How much more probable the better reply is, in logarithms."""
    scores = actor.score(table(TURNS))
    return float(scores[:2].sum() - scores[2:].sum())


def test_the_example_of_the_page_trains(own: Any, model: Path) -> None:
    before = preference(Actor(small(model, loss={"kl": 0.0}), Distributed()))
    actor, metrics = trained(own("my_loss:cispo"))
    assert preference(actor) > before + 0.1
    assert {"weight_clipped", "advantage_abs", "grad_norm"} <= metrics.keys() and "drift" not in metrics
    assert check_run(own("my_loss:cispo")).config.loss.objective == "my_loss:cispo"


def test_its_gradient_is_that_of_the_formula(own: Any) -> None:
    batch = weighed(table(TURNS, advantage=[1.0, -1.0], old=[[-3.0, -1.0], [-3.0, -2.0]]))
    logprobs = torch.tensor([[-2.0, -1.5], [-3.0, -2.1]], requires_grad=True)  # ratios e, e^-.5, 1, e^-.1
    loss, metrics = objective_of(own("my_loss:cispo"))(logprobs, logprobs, None, batch, LossConfig())
    loss.backward()
    kept = torch.tensor([[1.2, np.exp(-0.5)], [1.0, np.exp(-0.1)]])
    torch.testing.assert_close(logprobs.grad, -kept * torch.tensor([[1.0], [-1.0]]) / 4, check_dtype=False)
    assert metrics["weight_clipped"] == 0.25  # one of four tokens


def test_the_built_in_loss_under_its_full_name_trains_to_the_same_bytes(own: Any) -> None:
    named, plain = (trained(own(name)) for name in ("crbc_rl.training.loss:policy_loss", "clipped"))
    assert named[1] == plain[1]
    for one, other in zip(named[0].policy.model.parameters(), plain[0].policy.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("clippd", "no objective 'clippd': use 'clipped', or a function of yours, as module:attribute"),
        ("my_loss:cisp", "has no 'cisp'; did you mean 'cispo'"),
        ("my_loss:number", "my_loss:number is no function, but int"),
        ("my_loss:named", "loss.objective: my_loss:named: its metric 'success' is one of the run's own; rename it"),
    ],
)
def test_what_is_no_loss_is_refused_before_a_run(own: Any, objective: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_run(own(objective))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda *given: policy_loss(*given)[0],
        lambda *given: (policy_loss(*given)[0].detach(), {}),
        lambda *given: (given[0].sum(dim=1), {}),
        lambda *given: (given[0].sum(), {"loss": torch.ones(())}),
    ],
    ids=["no metrics", "no gradient", "no scalar", "tensors as metrics"],
)
def test_what_a_loss_returns_is_checked(wrong: Any) -> None:
    assert check_objective(policy_loss, "theirs", LossConfig()) is policy_loss
    with pytest.raises(ConfigError, match="theirs must return a scalar tensor with a gradient and a dict of numbers"):
        check_objective(wrong, "theirs", LossConfig())


def test_replies_without_an_advantage_reach_a_loss_of_ones_own(own: Any, model: Path) -> None:
    """It may teach them all the same, as a regulariser does."""
    assert not Actor(own("my_loss:cispo"), Distributed()).by_advantage
    assert Actor(own("clipped"), Distributed()).by_advantage
    assert not Actor(small(model, loss={"kl": 0.01}), Distributed()).by_advantage


def test_a_loss_never_sees_a_pass_without_turns(own: Any) -> None:
    """Several ranks read as many passes each, and one of them may have no turn left for its own."""
    actor = Actor(own("my_loss:cispo"), Distributed())
    actor.objective = lambda *given: pytest.fail("it was asked")
    (tokens,) = micro_batches(table(TURNS[:1]), np.arange(1), np.ones(1), 0, 8, rank=1, ranks=2)
    loss, metrics = actor.loss(tokens)
    assert loss.item() == 0.0 and loss.requires_grad and metrics == {}
    assert _added([{"loss": 1.0, "ratio_max": 2.0}, {}]) == {"loss": 1.0, "ratio_max": 2.0}


def test_a_loss_is_tried_as_the_run_will_call_it() -> None:
    compares = lambda *given: (given[2].sum() - given[0].sum(), {})  # noqa: E731
    check_objective(compares, "theirs", LossConfig(kl=0.01))
    with pytest.raises(AttributeError, match="NoneType"):
        check_objective(compares, "theirs", LossConfig(kl=0.0))
    with pytest.raises(RuntimeError, match="must match"):  # weights are per step, not per token
        check_objective(lambda *given: ((given[0] * given[3].weights).sum(), {}), "theirs", LossConfig())
