"""Behaviour policies of a `TabularMDP`, as functions of what the agent sees."""

from __future__ import annotations

import re

import numpy as np

from anchors import sum_by
from anchors.columns import Floats
from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds.build import likeliest

FAR = 6.0
"""The largest loss of an action in steps: larger losses and dead ends count as this."""


def behaviour(mdp: TabularMDP, name: str, rng: np.random.Generator) -> Floats:
    """The policy of a behaviour's name, (n, A); zero at inadmissible actions.

    "mixW" takes a best action with probability W and any admissible one otherwise. "softA" is softmax(-A x steps lost
    + N(0, 1)); the noise is drawn once per anchor and action. Where states share an anchor, both use the mean over
    these states. Where such states differ in their admissible actions, the policy is limited to those of the state.

    Raises `ValueError` for an unknown name.
    """
    matched = re.fullmatch(r"(mix|soft)(\d+(?:\.\d+)?)", name)
    kind, number = (matched[1], float(matched[2])) if matched else ("", 0.0)
    if not kind or (kind == "mix" and number > 1.0):
        raise ValueError(f"behaviour: {name!r} is unknown; give mixW, W from 0 to 1, or softA, such as mix0.3 or soft1")
    lost = steps_lost(mdp)
    if kind == "mix":
        best = (lost == 0.0) & mdp.admissible
        weight = number * _seen(mdp, best / best.sum(axis=1, keepdims=True))
        weight += (1.0 - number) * _seen(mdp, mdp.admissible / mdp.admissible.sum(axis=1, keepdims=True))
    else:
        noise = rng.standard_normal((int(mdp.anchor.max()) + 1, lost.shape[1]))[mdp.anchor]
        logits = np.where(mdp.admissible, noise - number * _seen(mdp, lost), -np.inf)
        weight = np.exp(logits - logits.max(axis=1, keepdims=True))
    weight = np.where(mdp.admissible, weight, 0.0)
    policy: Floats = weight / weight.sum(axis=1, keepdims=True)
    return policy


def preferences(mdp: TabularMDP, skill: float) -> Floats:
    """The logits of "soft`skill`" without its noise, by what the agent sees, (O, A)."""
    logits = np.zeros((mdp.num_anchors, mdp.num_actions))
    logits[mdp.anchor] = -skill * _seen(mdp, steps_lost(mdp))
    return logits


def steps_lost(mdp: TabularMDP) -> Floats:
    """The steps that each action loses against the best one, at most `FAR` (n, A); 0 at dead ends.

    Each action counts by its likeliest outcome, as `distance` does.
    """
    after = np.append(mdp.distance, [0.0, np.inf])[likeliest(mdp.successor, mdp.probability)]
    after = np.where(mdp.admissible, after, np.inf)
    best = after.min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # inf - inf: at a dead end no action is better than another
        lost = np.where(np.isinf(best), 0.0, after - best)
    return np.minimum(lost, FAR)


def _seen(mdp: TabularMDP, values: Floats) -> Floats:
    """The mean of `values` (n, A) over the states with the same anchor at which the action is admissible."""
    size = (int(mdp.anchor.max()) + 1, values.shape[1])
    cell = (mdp.anchor[:, None] * size[1] + np.arange(size[1])).ravel()
    total = sum_by(cell, (values * mdp.admissible).ravel(), size[0] * size[1])
    count = sum_by(cell, mdp.admissible.ravel().astype(np.float64), size[0] * size[1])
    mean: Floats = (total / np.maximum(count, 1.0)).reshape(size)[mdp.anchor]
    return mean
