"""ALFWorld's exact engine: what each action changes in the state, in any order, and that it changes nothing else."""

from __future__ import annotations

from itertools import product

import pytest
from alfworld_games import kitchen

from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.game import parse

GAME = parse(kitchen())
APPLE, LAMP = (1 << GAME.objects.index(name) for name in ("apple 2", "desklamp 1"))
COUNTER, CABINET, DRAWER, FRIDGE = (
    GAME.receptacles.index(f"{name} 1") for name in ("countertop", "cabinet", "drawer", "fridge")
)
TAKE = ("go to countertop 1", "take apple 2 from countertop 1")
CUT = ("go to cabinet 1", "open cabinet 1", "take knife 1 from cabinet 1", "go to countertop 1",
       "slice apple 2 with knife 1", "move knife 1 to sinkbasin 1", "take apple 2 from countertop 1")  # fmt: skip
WAYS = {
    "clean": ("go to sinkbasin 1", "clean apple 2 with sinkbasin 1"),
    "heat": ("go to microwave 1", "heat apple 2 with microwave 1"),
    "cool": ("go to fridge 1", "cool apple 2 with fridge 1"),
    "use": ("go to countertop 1", "use desklamp 1"),
}
TOLD = {
    (False, ""): ("There's nothing special about apple 2.", "This is a sliced apple 2."),
    (True, ""): ("This is a clean apple 2.", "This is a clean sliced apple 2."),
    (False, "heat"): ("This is a hot apple 2.", "This is a hot sliced apple 2."),
    (False, "cool"): ("This is a cold apple 2.", "This is a cool sliced apple 2."),
    (True, "heat"): ("This is a hot and clean apple 2.", "This is a hot and clean sliced apple 2."),
    (True, "cool"): ("This is a cool and clean apple 2.", "This is a cool and clean sliced apple 2."),
}
"""What is said of an apple that is clean or not, and was heated or cooled last: whole, and sliced."""


def after(state, *commands):
    for command in commands:
        state, text = engine.step(GAME, state, command)
        assert text != engine.NOTHING_HAPPENS or command.startswith("go to "), command  # the agent may be there
    return state


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("first", WAYS)
def test_heat_and_cold_end_each_other_and_nothing_else_ends(first, sliced):
    before = after(GAME.start, *(CUT if sliced else TAKE))
    for verbs in ((), *product([first], WAYS, WAYS)):
        state = after(before, *(command for verb in verbs for command in WAYS[verb]))
        last = next((verb for verb in reversed(verbs) if verb in ("heat", "cool")), "")
        changed = {
            "clean": APPLE * ("clean" in verbs),
            "hot": APPLE * (last == "heat"),
            "cool": APPLE * (last == "cool"),
            "toggled": LAMP * ("use" in verbs),  # what was used twice has still been used
            "sliced": APPLE * sliced,
        }
        assert state == before._replace(place=state.place, **changed), verbs
        assert engine.step(GAME, state, "examine apple 2")[1] == TOLD["clean" in verbs, last][sliced]


@pytest.mark.parametrize(("one", "other"), [(CABINET, DRAWER), (DRAWER, CABINET)])
def test_a_receptacle_opens_and_closes_alone(one, other):
    a, b = 1 << one, 1 << other
    state = after(GAME.start, "go to drawer 1")
    doors = [("open", one, a), ("open", other, a | b), ("close", one, b), ("close", other, 0), ("open", one, a)]
    for verb, r, opened in doors:
        expected = state._replace(opened=opened)
        state = after(state, f"{verb} {GAME.receptacles[r]}")
        assert state == expected
        other_verb = f"{'close' if opened >> r & 1 else 'open'} {GAME.receptacles[r]}"
        assert other_verb in engine.admissible(GAME, state)
        assert f"{verb} {GAME.receptacles[r]}" not in engine.admissible(GAME, state)


def test_taking_and_putting_move_one_object_which_stays_what_it_is():
    before = after(GAME.start, "go to fridge 1", "open fridge 1", "go to countertop 1")
    state = after(before, "take apple 2 from countertop 1", *WAYS["clean"], *WAYS["heat"], "go to fridge 1")
    inside, beside, taken = (list(row) for row in (before.inside, before.beside, before.taken))
    inside[COUNTER] &= ~APPLE
    beside[GAME.place_of[COUNTER]] &= ~APPLE
    taken[COUNTER] |= APPLE
    held = before._replace(
        place=GAME.place_of[FRIDGE],
        held=GAME.objects.index("apple 2"),
        inside=tuple(inside),
        beside=tuple(beside),
        taken=tuple(taken),
        clean=APPLE,
        hot=APPLE,
    )
    assert state == held
    inside[FRIDGE] |= APPLE
    beside[GAME.place_of[FRIDGE]] |= APPLE
    put = held._replace(held=-1, inside=tuple(inside), beside=tuple(beside))
    assert after(state, "move apple 2 to fridge 1") == put
    taken[FRIDGE] |= APPLE
    assert after(put, "take apple 2 from fridge 1") == held._replace(taken=tuple(taken))
    assert after(put, "take apple 2 from fridge 1", "move apple 2 to fridge 1") == put
