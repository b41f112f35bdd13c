"""Three tiny processes that each ask one question of a credit estimator.

They follow the definitions of AgentCreditBench 0.5.0 (DelayedEffectEnv, RecoveryEnv, VariableHorizonEnv), so figures
can be compared with theirs. The last one pays graded rewards there. Here they are chances of success.
"""

from __future__ import annotations

from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds.build import LOST, WON, Outcomes, table

HORIZON = 16
GOOD, BAD = 0, 1
CHANCE = {GOOD: 0.8, BAD: 0.2}
"""The chance of success after either first action."""

STOP, CONTINUE = 0, 1
STOPS = (0.0, 0.5, 0.25, 0.75, 0.0)
"""The chance of success when stopping at each turn."""


def needle(_seed: int, _index: int) -> TabularMDP:
    """The first of 16 steps decides. The others change nothing: is there credit for them?

    The first action sets the chance of success to .8 or .2. The agent sees that choice and the number of the step.
    """

    def outcomes(state: tuple[int, int]) -> dict[int, Outcomes[tuple[int, int]]]:
        step, choice = state
        if step == 0:
            return {first: [((1, first), 1.0)] for first in (GOOD, BAD)}
        if step < HORIZON - 1:
            return {a: [((step + 1, choice), 1.0)] for a in (0, 1)}
        return {a: [(WON, CHANCE[choice]), (LOST, 1.0 - CHANCE[choice])] for a in (0, 1)}

    return table((0, 0), outcomes, HORIZON)


def repair(_seed: int, _index: int) -> TabularMDP:
    """A bad step that the next one repairs: is the first to blame, and the second to praise?

    The good action wins at once. After the bad one the agent repairs, which wins, or gives up.
    """
    rows: dict[str, dict[int, Outcomes[str]]] = {
        "start": {0: [(WON, 1.0)], 1: [("mistake", 1.0)]},
        "mistake": {0: [(WON, 1.0)], 1: [(LOST, 1.0)]},
    }
    return table("start", rows.__getitem__, 2, marks={"bad": [("start", 1)], "repair": [("mistake", 0)]})


def stop(_seed: int, _index: int) -> TabularMDP:
    """Luck and skill: stop now, or go on? A well chosen stop may lose, and a bad one may win.

    Going on is right at the first and the third turn. The last turn has one action.
    """

    def outcomes(turn: int) -> dict[int, Outcomes[int]]:
        rows: dict[int, Outcomes[int]] = {STOP: [(WON, STOPS[turn]), (LOST, 1.0 - STOPS[turn])]}
        if turn + 1 < len(STOPS):
            rows[CONTINUE] = [(turn + 1, 1.0)]
        return rows

    return table(0, outcomes, len(STOPS))
