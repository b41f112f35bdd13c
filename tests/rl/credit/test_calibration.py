"""The calibration slope: by hand, by brute force, and in worlds whose anchors are known to be Markov or not."""

from __future__ import annotations

import numpy as np
import pytest
from effort import effort
from numpy.typing import NDArray
from strategies import group, random_group

from anchors import INVALID, EmpiricalProcess, Rollout, RolloutGroup, Step
from crbc_envs import GroupVectorEnv
from crbc_lab.studies.mdp import TabularMDP, sample
from crbc_lab.studies.worlds import WORLDS, behaviour
from crbc_lab.studies.worlds.build import WON, Outcomes, table
from crbc_rl import credit
from crbc_rl.credit.metrics import NO_SLOPE, calibration_metrics, run_calibration


def test_a_group_by_hand() -> None:
    """beta = 1. m hides what was done at s: V(m) = 1/2, A(s, a) = (1/2 + 1/2 + 1) / 3 - 1/2 = 1/6 = -A(s, b), so that
    sum A^2 = 1/6. Own returns less 1/2 are +-1/2 by the action, sum A (g - v) = 1/2, and the slope is 3. Each visit to
    m is compared with three others, so that its part of the slope, 2, is 4/3 of that in `upper`."""
    hiding = group("s:a m:c +", "s:a m:c +", "s:a +", "s:b m:c -", "s:b m:c -", "s:b -")
    found = credit.calibration([hiding], 1.0)
    assert [found.slope, found.upper, *found.harm] == pytest.approx([3, 1 + 8 / 3, 0, 2], abs=1e-12)
    assert np.isnan(found.error) and found.process.anchors == ("s", "m")


def cut_group(rng: np.random.Generator) -> RolloutGroup:
    """A random group some of whose rollouts are cut, with rewards."""
    rollouts = []
    for played in random_group(rng).rollouts:
        steps = [Step(step.anchor, step.action, float(rng.normal())) for step in played.steps]
        cut = not played.success and rng.random() < 0.5
        rollouts.append(Rollout(steps, played.success, cut, f"s{rng.integers(7)}" if cut else None))
    return RolloutGroup(rollouts)


def brute(groups: list[RolloutGroup], beta: float, reward: str) -> list[float]:
    """sum A (g - v) / sum A^2 by loops over visits, and the same where V is the mean over other rollouts' visits: 1 and
    the sum over later steps of their TD errors times the discounted A of the earlier ones, by sum A^2."""
    process = EmpiricalProcess.from_groups(groups)
    full = credit.closure(process, beta, truncation="successor", reward=reward, invalid_cost=0.1)
    rollouts, pair = process.steps()
    own: list[float] = []
    members = [played for each in groups for played in each.rollouts]
    for played, end, on in zip(members, rollouts.final_anchor, rollouts.goes_on, strict=True):
        tail = [full.V[end] if on else 0.0]
        for t, step in reversed(list(enumerate(played.steps))):
            earned = step.reward if reward == "step" else float(played.success and t == len(played) - 1)
            tail.append(beta * (earned - 0.1 * (not step.valid) + tail[-1]))
        own += tail[:0:-1]
    mean = np.bincount(rollouts.anchor, own) / np.bincount(rollouts.anchor)
    A = full.A[pair]
    rows = list(zip(rollouts.rollout.tolist(), rollouts.anchor.tolist(), strict=True))
    target, later = np.zeros(len(rows)), 0.0
    for k, (rollout, _) in enumerate(rows):
        played, step = members[rollout], int(rollouts.step[k])
        last = step == len(played) - 1
        earned = played.steps[step].reward if reward == "step" else float(played.success and last)
        after = full.V[rollouts.final_anchor[rollout]] if last and rollouts.goes_on[rollout] else 0.0
        after = after if last else full.V[rollouts.anchor[k + 1]]
        target[k] = beta * (earned - 0.1 * (not played.steps[step].valid) + after)
    for k, (rollout, anchor) in enumerate(rows):
        others = [target[j] for j, (one, here) in enumerate(rows) if here == anchor and one != rollout]
        before = sum(beta**back * A[k - back] for back in range(1, int(rollouts.step[k]) + 1))
        later += before * (target[k] - np.mean(others)) if others else 0.0
    square = (A * A).sum()
    return [float((A * (own - mean[rollouts.anchor])).sum() / square), 1.0 + later / square]


@pytest.mark.parametrize("reward", ["outcome", "step"])
def test_td_errors_give_the_slope_of_own_returns(reward: str) -> None:
    rng, options = np.random.default_rng(3), {"beta": 0.9, "reward": reward, "invalid_cost": 0.1}
    for _ in range(effort(20, full=200)):
        groups = [cut_group(rng) for _ in range(3)]
        found = credit.calibration(groups, **options)
        if found.evidence:
            slope, upper = brute(groups, 0.9, reward)
            assert [found.slope, 1 + found.harm.sum(), found.upper] == pytest.approx([slope, slope, upper])
        other, alone = credit.calibration(groups[::-1], **options), credit.calibration(groups[1:], **options)
        ours, theirs = ([one.slope, one.error, one.upper] for one in (found, other))
        assert ours == pytest.approx(theirs, nan_ok=True)
        assert found.by_kind("abb")["b"].slope == pytest.approx(alone.slope, nan_ok=True)


def test_anchors_without_a_label_are_named_by_themselves() -> None:
    groups = [group(*["s:a m:c +", "s:b m:c -"] * 3, "s:a -", "s:b +")] * 4
    found = credit.calibration(groups, 1.0)
    assert {name for name, _ in found.worst()} == {"m"}


def test_without_success_it_says_that_it_cannot_tell() -> None:
    found = credit.calibration([group("s:a m:c -", "s:b -")] * 2)
    assert calibration_metrics(found) == {} and not found.hidden and not found.worst()
    assert str(found) == "calibration slope: too little success to tell, in 0 groups actions differ"


def test_a_run_has_the_slope_of_its_own_reward_and_none_where_the_closure_has_none() -> None:
    rng = np.random.default_rng(1)
    malformed = Rollout([Step("s0", INVALID, 1.0), Step("s1", "a", 0.5)], success=True)
    groups = [RolloutGroup([*cut_group(rng).rollouts, malformed]) for _ in range(4)]
    process = EmpiricalProcess.from_groups(groups)
    found = run_calibration(process, "crbc", {"beta": 0.9, "reward": "step", "depth": 1, "invalid_cost": 0.3})
    assert found.slope == credit.calibration(process, 0.9, reward="step", invalid_cost=0.3).slope
    assert run_calibration(process, "gigpo", {"beta": 0.1}).slope == credit.calibration(process).slope
    circle = RolloutGroup([Rollout([Step("s", "a", 1.0)], False, True, "s")] * 2)
    assert run_calibration(EmpiricalProcess.from_group(circle), "crbc", {"beta": 1.0, "reward": "step"}) is NO_SLOPE


# ---- in worlds whose dynamics are known -------------------------------------------------------------


def corridor(index: int, keyless: bool = False) -> TabularMDP:
    """Nine cells, a key to take and a door behind the last; `keyless` anchors do not tell whether the key is held."""
    start, key = np.random.default_rng([index, 9]).integers(9, size=2).tolist()

    def outcomes(state: tuple[int, bool]) -> dict[int, Outcomes[tuple[int, bool]]]:
        cell, held = state
        to = {0: (cell - 1, held), 1: (cell + 1, held), 2: (cell, True), 3: WON}
        able = {0: cell > 0, 1: cell < 8, 2: cell == key and not held, 3: cell == 8 and held}
        return {action: [(to[action], 1.0)] for action in to if able[action]}

    return table((start, False), outcomes, 30, seen=(lambda state: state[0]) if keyless else None)


def plays(name: str, skill: str) -> list[tuple[TabularMDP, NDArray[np.float64]]]:
    """Processes and their policies; the one in the keyless corridor knows what its anchors hide, as an agent may."""
    made = [corridor(i, name == "keyless") if name not in WORLDS else WORLDS[name].make(5, i) for i in range(20)]
    known = [corridor(i) if name == "keyless" else mdp for i, mdp in enumerate(made)]
    return [(mdp, behaviour(known[i], skill, np.random.default_rng([3, i]))) for i, mdp in enumerate(made)]


def slope(pool: list[tuple[TabularMDP, NDArray[np.float64]]], number: int, size: int = 8) -> credit.Calibration:
    """Of an update of sixteen groups."""
    chosen = np.random.default_rng([1, number]).choice(len(pool), 16, replace=False).tolist()
    drawn = sample([(*pool[k], np.random.default_rng([2, number, k])) for k in chosen], 1, size)
    return credit.calibration(EmpiricalProcess.from_interned(drawn.rollouts))


@pytest.mark.parametrize("name", ["corridor", "slip", "lucky", "house", "shop"])
def test_where_anchors_are_markov_it_is_one_and_nothing_is_said(name: str) -> None:
    """With chance and without. In groups of eight it lies a little below, which `hidden` allows for."""
    pool, pooled = plays(name, "mix0.3"), NO_SLOPE
    large = slope(pool, 0, size=256)
    assert abs(large.slope - 1.0) < 3 * large.error < 0.1
    for number in range(effort(40, full=200)):
        pooled = pooled.then(slope(pool, number))
        assert not pooled.hidden


def test_slippery_ice_is_markov() -> None:
    rng = np.random.default_rng(0)
    envs = GroupVectorEnv("CRBC-FrozenLake-v0", effort(100, full=600), 8, slippery=True)
    envs.reset(seed=0)
    while envs.active.any():
        envs.step(rng.choice(["left", "down", "right", "up"], envs.num_envs, p=[0.1, 0.4, 0.4, 0.1]).tolist())
    found = credit.calibration(envs.groups())
    assert abs(found.slope - 1.0) < 3 * found.error < 0.3 and not found.hidden


@pytest.mark.parametrize(("name", "skill"), [("keyless", "mix0.5"), ("alfworld-observation", "mix0.2")])
def test_where_anchors_hide_state_it_is_well_below_one(name: str, skill: str) -> None:
    pool, pooled = plays(name, skill), NO_SLOPE
    for number in range(6):
        pooled = pooled.then(slope(pool, number))
    assert pooled.hidden and pooled.slope < 0.9
