"""A prompt and an estimator of one's own, as a user of verl names them: own:prompt, own:mean_credit."""

from __future__ import annotations

from typing import Any

from crbc_envs.prompts import View


def prompt(view: View) -> str:
    return f"You see {view.observation}. You may: {', '.join(view.admissible)}. Which one?"


def mean_credit(process: Any, share: float = 0.5) -> Any:
    """Half of each rollout's success for each of its steps."""
    rollouts = process.steps()[0]
    return share * rollouts.success[rollouts.rollout].astype(float)
