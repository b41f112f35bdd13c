"""The critic's lessons and its loss, counted by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from critic_fixtures import BATCH, ppo
from tables import by_turn, table, weighed

from crbc_rl.batches import Turn
from crbc_rl.distributed import Distributed
from crbc_rl.training.critic import Critic

SAID = {3: [2.0, 5.0, -1.0], 1: [4.0], 2: [1.0, 3.0]}
"""What the critic is made to say in the next test, by the length of the reply."""


def test_returns_advantages_and_values_are_three_things(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A critic that says something: returns are still the outcome, values are what it said, and advantages are the one
    less the other, shifted and scaled alike."""
    critic = Critic(ppo(model), Distributed())

    def say(batch) -> torch.Tensor:
        values = torch.zeros(len(batch.turn), batch.response_length)
        for k, mask in enumerate(batch.response_mask):
            said = SAID[int(mask.sum())]
            values[k, : len(said)] = torch.tensor(said)
        return values

    monkeypatch.setattr(critic, "values", say)
    batch = critic.credit(replace(BATCH, correction=np.full(6, 0.5), old=np.full(6, -7.0)))
    assert batch.group.tolist() == [0, 0, 1]
    assert by_turn(batch, batch.returns) == [[10.0] * 3, [10.0], [0.0] * 2]
    assert by_turn(batch, batch.value) == [SAID[3], SAID[1], SAID[2]]
    lesson, _ = critic.loss(weighed(batch))
    assert lesson == critic.loss(weighed(replace(batch, correction=None, old=np.zeros(6))))[0]
    assert batch.turns == BATCH.turns
    assert batch.old.tolist() == [-7.0] * 6 and batch.correction.tolist() == [0.5] * 6
    surplus = np.array([10 - 2, 10 - 5, 10 + 1, 10 - 4, 0 - 1, 0 - 3], dtype=float)
    expected = (surplus - surplus.mean()) / surplus.std(ddof=1)
    assert batch.token_advantage == pytest.approx(expected)
    assert batch.advantage == pytest.approx([expected[:3].mean(), expected[3], expected[4:].mean()])


def _lesson(value: float, old: float, target: float) -> tuple[float, float]:
    """The loss of one token and its slope by the value."""
    batch = weighed(table([Turn([1], [2], [0.0])], returns=[[target]], value=[[old]]))
    said = torch.tensor([[value]], requires_grad=True)
    critic = Critic.__new__(Critic)
    critic.values = lambda batch: said
    loss, figures = critic.loss(batch)
    loss.backward()
    assert figures == {"loss": loss.item()}
    return loss.item(), said.grad.item()


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "slope"),
    [
        (3.0, 3.0, 5.0, 2.0, -2.0),  # half the squared error
        (3.2, 3.0, 5.0, 1.62, -1.8),
        (4.0, 3.0, 5.0, 0.5 * 1.5**2, 0.0),  # further than 0.5 towards the target: it stops pulling
        (2.0, 3.0, 5.0, 4.5, -3.0),  # away from it: it pulls on
        (2.0, 3.0, 0.0, 0.5 * 2.5**2, 0.0),
        (4.0, 3.0, 0.0, 8.0, 4.0),
        (9.0, 3.0, 5.0, 8.0, 4.0),  # shot beyond it
    ],
)
def test_a_value_s_loss_and_slope(value: float, old: float, target: float, loss: float, slope: float) -> None:
    assert _lesson(value, old, target) == pytest.approx((loss, slope), abs=1e-5)


def test_a_mini_batch_s_value_loss_counts_no_padding() -> None:
    turns = [Turn([1], [2, 3, 4], [0.0] * 3), Turn([2], [3], [0.0])]
    batch = weighed(table(turns, returns=[[1.0] * 3, [3.0]], value=[[0.0] * 3, [0.0]]))
    critic = Critic.__new__(Critic)
    critic.values = lambda batch: torch.full((2, 3), 0.4)
    loss, _ = critic.loss(batch)
    assert loss.item() == pytest.approx(0.5 * (3 * 0.6**2 + 2.6**2) / 4)


def test_a_value_stands_before_its_token(model: Path) -> None:
    """It depends on the prompt and on the tokens before it, and on none that comes after."""
    critic = Critic(ppo(model), Distributed())
    for _ in range(3):
        critic.optimise(critic.credit(BATCH), np.random.default_rng(0))

    def said(prompt: list[int], response: list[int]) -> list[float]:
        return critic.forward_no_grad(table([Turn(prompt, response, [0.0] * len(response))]), critic.values).tolist()

    base = said([3, 4], [5, 6, 7])
    assert len(base) == 3
    for place in range(3):
        response = [5, 6, 7]
        response[place] = 11
        other = said([3, 4], response)
        differs = [abs(a - b) > 1e-6 for a, b in zip(base, other, strict=True)]
        assert differs[: place + 1] == [False] * (place + 1)
        assert all(differs[place + 1 :])
    assert all(abs(a - b) > 1e-6 for a, b in zip(base, said([3, 9], [5, 6, 7]), strict=True))


def test_a_critic_learns_at_its_own_rate_and_leaves_the_policy_alone(model: Path) -> None:
    critic = Critic(ppo(model), Distributed())
    assert [g["lr"] for g in critic.optimizer.param_groups] == [1e-2]
    figures = critic.optimise(critic.credit(BATCH), np.random.default_rng(0))
    # Four of six tokens are to be 10 and a fresh critic says 0.
    assert figures["value_loss"] == pytest.approx(0.5 * 100 * 4 / 6)
    assert figures.keys() == {"value_loss", "value_grad_norm", "value_skipped_steps"} and figures["value_grad_norm"] > 0
