import numpy as np
import pytest
from rich.console import Console

from anchors import Rollout, RolloutGroup, Step
from anchors.rollout import INVALID
from benchmarks import refused_steps
from benchmarks.refused_steps import METHODS, credits, groups


def test_the_penalty_is_in_the_group_s_term_alone_for_grpo_and_crbc():
    """One of four wins, and one of the others has a refused reply: its return is lower by .1 of 10."""
    won, lost = ([Step("a", "go"), Step("b", action)] for action in ("take", "stay"))
    played = [
        RolloutGroup(
            [
                Rollout(won, success=True),
                Rollout(lost, success=False),
                Rollout(lost, success=False),
                Rollout([Step("a", "go"), Step("b", INVALID)], success=False),
            ]
        )
    ]

    def cost(method):
        return credits(played, method) - credits(played, method, invalid_penalty=0.0)

    assert cost("crbc") == pytest.approx(cost("grpo")) and cost("grpo")[-1] < 0
    returns = np.array([10.0, 0.0, 0.0, -0.1])
    assert credits(played, "grpo")[-1] == pytest.approx((returns - returns.mean())[-1] / returns.std(ddof=1), abs=1e-3)
    assert cost("gigpo")[-1] < cost("grpo")[-1] and cost("graphgpo")[-1] < cost("grpo")[-1]


def test_groups_have_refused_steps_and_every_method_a_row(monkeypatch):
    monkeypatch.setattr(refused_steps, "REFUSED", 0.3)
    played = groups(2, 3, seed=0)
    assert [len(group.rollouts) for group in played] == [3, 3]
    assert any(step.action == INVALID for group in played for one in group.rollouts for step in one.steps)
    with (console := Console(width=120)).capture() as shown:
        refused_steps.report(console, 2, 3, 0)
    assert all(f" {method} " in shown.get() for method in METHODS) and "of 6 rollouts won" in shown.get()
    assert "in groups that won and lost" in shown.get()
