"""Routes that meet: what lies behind a hub is luck, and which hub is reached is skill."""

from __future__ import annotations

import numpy as np

from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds.build import LOST, WON, Outcomes, table

HORIZON = 16
ROUTES = 6
TAIL = 4
"""Steps from a hub to the end, in which nothing depends on the action."""
SURE = 0.9
"""The chance that a route leads to its own hub and not to the other."""
CHANCE = {"good": 0.65, "poor": 0.35}
"""The chance of success behind each hub."""

Place = tuple[str, int]


def hub(seed: int, index: int) -> TabularMDP:
    """One of six routes leads to the good hub, the others to the poor one. The numbers of the routes are shuffled.

    So a rollout's own end says little about its first action, and the ends of all that passed its hub say more.
    """
    rng = np.random.default_rng([93, seed, index])
    good, route = int(rng.integers(ROUTES)), rng.permutation(ROUTES).tolist()

    def outcomes(place: Place) -> dict[int, Outcomes[Place]]:
        kind, number = place
        if kind == "start":
            return {action: [(("route", route[action]), 1.0)] for action in range(ROUTES)}
        if kind == "route":
            own, other = ("good", "poor") if number == good else ("poor", "good")
            return _whatever([((own, 0), SURE), ((other, 0), 1.0 - SURE)])
        if number + 1 < TAIL:
            return _whatever([((kind, number + 1), 1.0)])
        return _whatever([(WON, CHANCE[kind]), (LOST, 1.0 - CHANCE[kind])])

    return table(("start", 0), outcomes, HORIZON)


def _whatever(outcomes: Outcomes[Place]) -> dict[int, Outcomes[Place]]:
    """Two actions that do the same."""
    return {0: outcomes, 1: outcomes}
