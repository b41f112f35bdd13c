"""Rollout groups for the tests: written by hand, drawn from a numpy generator, or by hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from anchors import INVALID, Rollout, RolloutGroup, Step

ANCHORS = ("s0", "s1", "s2", "s3", "s4", "s5")
ACTIONS = ("left", "right", "look", INVALID)
OUTCOMES = ("mixed", "all succeed", "all fail")


def rollout(path: str) -> Rollout:
    """The rollout a path spells: "s:a m:b +" takes a at s and b at m, and succeeds; "-" ends in failure, and "~u" is
    cut at u."""
    *steps, end = path.split()
    cut = end[1:] if end.startswith("~") else None
    assert cut or end in "+-"
    return Rollout([Step(*step.split(":")) for step in steps], end == "+", cut is not None, cut)


def group(*paths: str) -> RolloutGroup:
    return RolloutGroup([rollout(path) for path in paths])


def random_group(rng: np.random.Generator) -> RolloutGroup:
    """One to eight rollouts of up to ten steps over a few anchors: cycles, self-loops and revisits abound."""
    anchors, actions = rng.integers(1, 7), rng.integers(1, 5)
    rate = rng.choice([0.0, 0.3, 0.7, 1.0], p=[0.1, 0.4, 0.4, 0.1])
    rollouts = []
    for _ in range(rng.integers(1, 9)):
        length = rng.integers(1, 11)
        where = [0, *rng.integers(anchors, size=length - 1).tolist()]
        what = rng.integers(actions, size=length).tolist()
        steps = [Step(ANCHORS[s], ACTIONS[a]) for s, a in zip(where, what, strict=True)]
        rollouts.append(Rollout(steps, rng.random() < rate))
    return RolloutGroup(rollouts)


@st.composite
def groups(draw: st.DrawFn, max_members: int = 6, max_steps: int = 8) -> RolloutGroup:
    """Small complete groups, adversarially: hypothesis picks every anchor, action and outcome."""
    outcomes = draw(st.sampled_from(OUTCOMES))
    anchors = ANCHORS[: draw(st.integers(1, len(ANCHORS)))]
    step = st.builds(Step, st.sampled_from(anchors), st.sampled_from(ACTIONS))
    rollouts = []
    for _ in range(draw(st.integers(1, max_members))):
        steps = draw(st.lists(step, min_size=1, max_size=max_steps))
        success = draw(st.booleans()) if outcomes == "mixed" else outcomes == "all succeed"
        rollouts.append(Rollout([Step(ANCHORS[0], steps[0].action), *steps[1:]], success))
    return RolloutGroup(rollouts)


betas = st.sampled_from([0.5, 0.9, 0.95, 0.98, 0.999])
"""Discounts below one: where the paper's contraction argument holds."""
