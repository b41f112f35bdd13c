"""The worlds with known truth: what holds in all of them, and each against its own rules."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sokoban_boards import parse_room

from crbc_envs.sokoban.panels import SokobanPanel
from crbc_envs.sokoban.rules import MOVES
from crbc_lab.studies.mdp import TabularMDP, sample
from crbc_lab.studies.worlds import WORLDS, behaviour, diagnostics, hidden, house, lucky, sokoban
from crbc_lab.studies.worlds.behaviours import steps_lost
from crbc_lab.studies.worlds.build import LOST, WON, steps_to_success, table
from crbc_rl import credit

SMALL = {
    name: [world.make(seed, index) for seed in (0, 1) for index in range(3)]
    for name, world in WORLDS.items()
    if not name.startswith("alfworld")
}
CORRIDOR = parse_room("######\n#@_$.#\n######")
"""Two moves right solve it; the box cannot be moved any other way."""


def chances(mdp: TabularMDP, policy: np.ndarray) -> np.ndarray:
    """The matrix of a policy's moves between states, success and failure, (n, n + 2)."""
    n = len(mdp.successor)
    matrix = np.zeros((n, n + 2))
    weight = policy[..., None] * mdp.probability
    np.add.at(matrix, (np.arange(n)[:, None, None], mdp.successor), weight)
    return matrix


def success(mdp: TabularMDP, policy: np.ndarray) -> float:
    matrix = chances(mdp, policy)
    here, won = np.eye(1, len(matrix))[0], 0.0
    for _ in range(mdp.horizon):
        after = here @ matrix
        here, won = after[:-2], won + after[-2]
    return float(won)


def check(mdp: TabularMDP) -> None:
    """What every world promises."""
    n, actions, _ = mdp.successor.shape
    np.testing.assert_allclose(mdp.probability.sum(axis=2), mdp.admissible, atol=1e-12)
    assert (mdp.probability >= 0.0).all() and mdp.admissible.any(axis=1).all()
    assert mdp.successor.min() >= 0 and mdp.successor.max() <= n + 1
    assert mdp.anchor.shape == (n,) and set(mdp.anchor.tolist()) == set(range(mdp.anchor.max() + 1))
    # everything can be reached from the start
    uniform = mdp.admissible / mdp.admissible.sum(axis=1, keepdims=True)
    edges, seen = chances(mdp, uniform)[:, :n] > 0.0, np.eye(1, n, dtype=bool)[0]
    for _ in range(n):
        seen |= edges[seen].any(axis=0)
    assert seen.all()
    assert np.isfinite(mdp.distance[0]) and success(mdp, uniform) > 0.0
    assert all(mask.shape == (n, actions) and mdp.admissible[mask].all() for mask in mdp.marks.values())


@pytest.mark.parametrize("name", SMALL)
def test_what_every_world_promises(name):
    for mdp in SMALL[name]:
        check(mdp)
        _, first = np.unique(mdp.anchor, return_index=True)
        np.testing.assert_array_equal(mdp.admissible, mdp.admissible[first][mdp.anchor])


@pytest.mark.parametrize("name", SMALL)
def test_two_numbers_give_one_process(name):
    made, again = WORLDS[name].make(1, 2), SMALL[name][5]
    for field in dataclasses.fields(made):
        np.testing.assert_equal(getattr(made, field.name), getattr(again, field.name))


@pytest.mark.parametrize("name", ["sokoban", "slip", "lucky", "house", "shop"])
def test_other_numbers_give_other_processes(name):
    shapes = [(mdp.successor.tolist(), mdp.probability.tolist()) for mdp in SMALL[name]]
    assert all(one != other for i, one in enumerate(shapes) for other in shapes[:i])


@pytest.mark.parametrize("name", SMALL)
def test_behaviours_are_policies_of_what_is_seen(name):
    for mdp in SMALL[name]:
        for which in WORLDS[name].behaviours:
            policy = behaviour(mdp, which, np.random.default_rng(0))
            np.testing.assert_allclose(policy.sum(axis=1), 1.0)
            assert (policy[~mdp.admissible] == 0.0).all()
            assert success(mdp, policy) > 0.0
            np.testing.assert_array_equal(policy, behaviour(mdp, which, np.random.default_rng(0)))


@pytest.mark.parametrize("which", ["mix0.3", "soft1"])
def test_states_that_look_alike_have_one_policy(which):
    rows = {
        "a": {0: [("b", 0.5), ("c", 0.5)], 1: [("b", 1.0)]},
        "b": {0: [(WON, 1.0)], 1: [("a", 1.0)]},
        "c": {0: [("a", 1.0)], 1: [(WON, 1.0)]},
    }
    mdp = table("a", rows.__getitem__, 9, seen=lambda state: state == "a")
    assert mdp.anchor.tolist() == [0, 1, 1] and mdp.admissible.all()
    _, one, other = behaviour(mdp, which, np.random.default_rng(0))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize("name", ["mix1.5", "mix-0.1", "soft", "best", "mixnan", "softinf", ""])
def test_unknown_behaviours_are_refused(name):
    with pytest.raises(ValueError, match="behaviour: .* is unknown"):
        behaviour(SMALL["repair"][0], name, np.random.default_rng(0))


# ---- Sokoban ------------------------------------------------------------------------------------


def test_a_corridor_by_hand():
    mdp = sokoban.of_room(CORRIDOR)
    assert mdp.successor[..., 0].tolist() == [[0, 0, 0, 1], [1, 1, 0, 2]]
    assert mdp.distance.tolist() == [2, 1]
    np.testing.assert_array_equal(steps_lost(mdp), [[1, 1, 1, 0], [1, 1, 2, 0]])
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(behaviour(mdp, "mix0.6", rng), [[0.1, 0.1, 0.1, 0.7]] * 2)
    noise = np.random.default_rng(5).standard_normal((2, 4))
    logits = np.exp(noise - 0.5 * steps_lost(mdp))
    np.testing.assert_allclose(
        behaviour(mdp, "soft0.5", np.random.default_rng(5)), logits / logits.sum(axis=1, keepdims=True)
    )


def test_sokoban_is_played_by_the_rooms_rules():
    rng = np.random.default_rng(0)
    for index in range(6):
        room, mdp = SokobanPanel("train")[index].content, WORLDS["sokoban"].make(0, index)
        for _ in range(20):
            here, state = room.start, 0
            for move in rng.integers(4, size=mdp.horizon):
                here, state = room.move(here, MOVES[move]), mdp.successor[state, move, 0]
                assert room.solved(here) == (state == len(mdp.successor))
                if room.solved(here):
                    break


def test_dead_ends_lose_nothing_and_lead_to_dead_ends():
    for mdp in SMALL["sokoban"]:
        dead = np.isinf(mdp.distance)
        after = np.append(mdp.distance, [0.0, np.inf])[mdp.successor[..., 0]]
        assert np.isinf(after[dead]).all() and (steps_lost(mdp)[dead] == 0.0).all()
        np.testing.assert_array_equal(after.min(axis=1)[~dead], mdp.distance[~dead] - 1)


def test_slips_keep_the_room_and_its_behaviours():
    for sure, slip in zip(SMALL["sokoban"], SMALL["slip"], strict=True):
        policy = np.zeros((len(sure.successor), 4))
        policy[:, 2] = 1.0
        random = np.full((len(sure.successor), 4), 0.25)
        expected = 0.8 * chances(sure, policy) + 0.2 * chances(sure, random)
        np.testing.assert_allclose(chances(slip, policy), expected, atol=1e-15)
        np.testing.assert_array_equal(steps_lost(slip), steps_lost(sure))


@pytest.mark.parametrize(("name", "horizon"), [("sokoban", 15), ("sokoban-h20", 20), ("sokoban-h50", 50)])
def test_longer_horizons_change_nothing_else(name, horizon):
    for short, long in zip(SMALL["sokoban"], SMALL[name], strict=True):
        assert long.horizon == horizon
        np.testing.assert_array_equal(short.successor, long.successor)


# ---- the others ---------------------------------------------------------------------------------


def test_shortcuts_are_rare_and_no_short_way():
    risky = 0
    for mdp in SMALL["lucky"]:
        n = len(mdp.successor)
        chain = np.isfinite(mdp.distance)
        shortcut = (mdp.probability * (mdp.successor == n)).sum(axis=2) * (mdp.distance[:, None] > 1.0)
        assert shortcut.max() <= 0.15 and n - chain.sum() <= lucky.TRAPS
        risky += int((shortcut[chain] > 0.0).sum())
        # Nothing leads out of the dead end, and it does not end the episode.
        assert np.isin(mdp.successor[~chain][..., 0], np.flatnonzero(~chain)).all()
        assert not (mdp.probability * (mdp.successor == n + 1)).any()
        assert (mdp.distance[chain] >= 1.0).all() and mdp.distance[0] == chain.sum()
    assert risky >= len(SMALL["lucky"])


def test_a_house_has_ways_back_and_needs_every_phase():
    for mdp in SMALL["house"]:
        assert len(mdp.successor) == 60 and mdp.successor.shape[1] == 8 and mdp.horizon == 50
        assert np.isfinite(mdp.distance).all() and mdp.distance[0] >= 4
        after = mdp.successor[..., 0]
        # one step wins, and every door leads back through some door
        assert (after == 60).sum() == 1
        for state in range(60):
            assert all(state in after[there, : house.DOORS] for there in after[state, : house.DOORS])
        # waiting, and at most rooms a hand or its opposite, changes nothing
        assert (after[:, house.WAIT] == np.arange(60)).all()
        assert (after[:, house.HAND] != np.arange(60)).sum() == 4
        assert (after[:, house.BACK] != np.arange(60)).sum() == 4


def test_only_the_first_step_of_the_needle_matters():
    (mdp,) = SMALL["needle"][:1]
    assert (mdp.successor[1:, 0] == mdp.successor[1:, 1]).all()
    assert (mdp.probability[1:, 0] == mdp.probability[1:, 1]).all()
    for first, expected in ((diagnostics.GOOD, 0.8), (diagnostics.BAD, 0.2)):
        policy = np.full((len(mdp.successor), 2), 0.5)
        policy[0] = np.eye(2)[first]
        assert success(mdp, policy) == pytest.approx(expected)


def test_a_repaired_path_by_hand():
    (mdp,) = SMALL["repair"][:1]
    assert mdp.successor[..., 0].tolist() == [[2, 1], [2, 3]] and mdp.horizon == 2
    assert success(mdp, np.full((2, 2), 0.5)) == 0.75
    assert mdp.marks["bad"].tolist() == [[False, True], [False, False]]
    assert mdp.marks["repair"].tolist() == [[False, False], [True, False]]


def test_stopping_has_advantages_of_both_signs():
    (mdp,) = SMALL["stop"][:1]
    assert mdp.admissible.sum(axis=1).tolist() == [2, 2, 2, 2, 1]
    value, on = 0.0, []  # of going on under a fair coin, backwards from the last turn
    for chance in reversed(diagnostics.STOPS[:-1]):
        on.append(value > chance)
        value = 0.5 * (value + chance)
    assert on[::-1] == [True, False, True, False]
    assert success(mdp, np.array([[0.5, 0.5]] * 4 + [[1.0, 0.0]])) == pytest.approx(value)


# ---- building ----------------------------------------------------------------------------------


def test_a_table_by_hand_with_aliases_and_missing_actions():
    rows = {
        "a": {0: [("b", 0.5), ("c", 0.5)], 1: [(LOST, 1.0)]},
        "b": {0: [(WON, 1.0)], 1: [("a", 1.0), ("unreachable", 0.0)]},
        "c": {1: [(WON, 0.1), ("c", 0.9)]},
    }
    mdp = table("a", rows.__getitem__, 9, seen=lambda state: state == "a", marks={"x": [("c", 1)]})
    assert mdp.successor.tolist() == [[[1, 2], [4, 4]], [[3, 4], [0, 4]], [[4, 4], [3, 2]]]
    assert mdp.probability.tolist() == [[[0.5, 0.5], [1, 0]], [[1, 0], [1, 0]], [[0, 0], [0.1, 0.9]]]
    assert mdp.anchor.tolist() == [0, 1, 1] and mdp.horizon == 9
    assert mdp.admissible.tolist() == [[True, True], [True, True], [False, True]]
    assert mdp.distance.tolist() == [2, 1, np.inf]  # the first of two equal outcomes counts; luck does not
    assert mdp.marks["x"].tolist() == [[False, False], [False, False], [False, True]]
    # "b" and "c" look alike. Action 0 is only there in "b", and best; action 1 is best in one of the two.
    expected = [[1, 0], [1 / 1.5, 0.5 / 1.5], [0, 1]]
    np.testing.assert_allclose(behaviour(mdp, "mix1", np.random.default_rng(0)), expected)


def test_steps_to_success_of_a_line():
    n = 6
    successor = np.stack([np.maximum(np.arange(n) - 1, 0), np.arange(n) + 1], axis=1)[..., None]
    steps = steps_to_success(successor, np.ones((n, 2, 1)), np.ones((n, 2), dtype=bool))
    assert steps.tolist() == [6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("make", [hidden.errands, hidden.carried, hidden.coloured])
def test_worlds_that_hide_state_are_solvable_and_hide_some(make):
    each = [make(seed, index) for seed in (0, 1) for index in range(4)]
    assert len({mdp.successor.tobytes() + mdp.anchor.tobytes() for mdp in each}) > 4
    for mdp in each:
        check(mdp)
        assert mdp.num_anchors < len(mdp) and mdp.distance[0] <= mdp.horizon
    assert each[0].successor.tobytes() == make(0, 0).successor.tobytes()


def test_errands_that_are_not_seen_leave_the_closure_the_groups_term_alone():
    mdp, rng = hidden.errands(0, 0), np.random.default_rng(0)
    uniform = mdp.admissible / mdp.admissible.sum(axis=1, keepdims=True)
    rollouts = sample([(mdp, uniform, rng)], groups=4, group_size=8).rollouts
    of_steps = credit.advantages_batch(rollouts, "crbc", w_group=0.0)
    assert max(abs(a) for group in of_steps for rollout in group for a in rollout[:-1]) < 1e-9
    own = credit.advantages_batch(rollouts, "gigpo", w_group=0.0)
    assert max(abs(a) for group in own for rollout in group for a in rollout[:-1]) > 0.1
    assert success(mdp, uniform) == pytest.approx(0.249, abs=0.001)


def test_a_key_that_is_held_opens_the_door():
    for index in range(4):
        mdp = hidden.carried(0, index)
        won = (mdp.probability * (mdp.successor == len(mdp))).sum(axis=(1, 2)) > 0
        assert won.sum() == 1 and mdp.anchor[won][0] in mdp.anchor[~won]
