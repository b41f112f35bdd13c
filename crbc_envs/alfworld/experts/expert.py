"""A scripted expert that sees the whole state. It solves a task in few steps.

To make demonstrations for imitation, use `searcher.Searcher`. It knows only what an agent sees.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import permutations, product
from typing import NamedTuple

from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.state import Action, Game, State, bits
from crbc_envs.alfworld.games.goals import APPLIANCES, Goal, read_task


def kind_of(name: str) -> str:
    """ "mug" of "mug 2"."""
    return name.rpartition(" ")[0]


def plan(game: Game, state: State | None = None) -> tuple[str, ...]:
    """The commands of a shortest plan, among plans that do one errand (take, treat, put) after another.

    It begins at `state`, or at the start. Raises `ValueError` if no plan reaches the goal, or for a task that is not
    worded as ALFWorld's.
    """
    state = game.start if state is None else state
    if engine.won(game, state):
        return ()
    goal = read_task(game.task)
    possible = (errands for errands in _errands(game, state, goal) if all(_can_be_done(game, e) for e in errands))
    best = min((_walk(game, state, errands) for errands in possible), key=len, default=None)
    if best is None:
        raise ValueError(f"{game.name}: no plan reaches the goal, {game.task}")
    return _until_won(game, state, best)


class Hint(NamedTuple):
    """What the expert says of a state."""

    command: str
    """The next command of its plan, which is admissible. "" if the goal is reached, or the expert has no plan."""
    dead_end: bool
    """Whether the item in hand can be put nowhere, and the expert has no plan that keeps it in hand.

    No other item can then be taken any more.
    """


def hint(game: Game, state: State) -> Hint:
    """The expert's hint. It takes as long as a plan."""
    commands: tuple[str, ...] = ()
    with suppress(ValueError):
        commands = plan(game, state)
    if _wins(game, state, commands):
        return Hint(commands[0] if commands else "", False)
    return Hint("", state.held >= 0 and not _put_down(game, state))


def distance(game: Game, state: State) -> float | None:
    """The length of the plan; infinite where none reaches the goal, None where the task's sentence does not tell it."""
    try:
        read_task(game.task)
    except ValueError:
        return None
    try:
        commands = plan(game, state)
    except ValueError:  # something that is in hand cannot be put down
        return math.inf
    return len(commands) if _wins(game, state, commands) else None


def _wins(game: Game, state: State, commands: Sequence[str]) -> bool:
    """Whether the commands reach the game's goal, which may be another one than that of its task's sentence."""
    for command in commands:
        state, _ = engine.step(game, state, command)
    return engine.won(game, state)


def _can_be_done(game: Game, errand: Action) -> bool:
    """Whether the receptacle accepts the object, or the object can be treated so."""
    verb, o, r = errand
    able = {"put": game.accepts[r], "clean": game.cleanable, "heat": game.heatable, "cool": game.coolable}
    return verb not in able or bool(able[verb] >> o & 1)


def _walk(game: Game, state: State, errands: Sequence[Action]) -> list[Action]:
    """The errands, with the "go to" and "open" actions that they need."""
    place, opened, walk = state.place, state.opened, []
    for errand in errands:
        r = errand.receptacle
        if game.place_of[r] != place:
            walk.append(Action("go", -1, r))
            place = game.place_of[r]
        if errand.verb in ("take", "put") and game.openable >> r & 1 and not opened >> r & 1:
            walk.append(Action("open", -1, r))
            opened |= 1 << r
        walk.append(errand)
    return walk


def _until_won(game: Game, state: State, walk: Sequence[Action]) -> tuple[str, ...]:
    """The walk as commands, until the goal is reached."""
    commands = []
    for verb, o, r in walk:
        command = game.dialect.command[verb].format(o=game.objects[o], r=game.receptacles[r])
        state, _ = engine.step(game, state, command)
        commands.append(command)
        if engine.won(game, state):
            break
    return tuple(commands)


def _errands(game: Game, state: State, goal: Goal) -> Iterator[list[Action]]:
    """All lists of errands that reach the goal."""
    finds = [
        (o, [Action("take", o, r)])
        for o, name in enumerate(game.objects)
        if kind_of(name) == goal.target and game.pickupable >> o & 1
        for r, row in enumerate(state.inside)
        if row >> o & 1
    ]
    first: list[list[Action]] = [[]]
    if state.held >= 0:
        if kind_of(game.objects[state.held]) == goal.target:
            finds.insert(0, (state.held, []))
        # The object in hand must be put down before another one can be taken.
        first = [[put] for put in _put_down(game, state)]
    for errands in _ways(game, state, goal, finds):
        yield from ([*put, *errands] for put in first) if errands[0].verb == "take" else [errands]


def _put_down(game: Game, state: State) -> list[Action]:
    """The ways to put down the object in hand; none if no receptacle accepts it."""
    return [Action("put", state.held, r) for r, kinds in enumerate(game.accepts) if kinds >> state.held & 1]


def _ways(game: Game, state: State, goal: Goal, finds: Sequence[tuple[int, list[Action]]]) -> Iterator[list[Action]]:
    """Take, treat and put, for every choice of things, receptacles and appliances."""
    if goal.family == "look":
        lamps = [o for o, name in enumerate(game.objects) if kind_of(name) == goal.lamp and game.toggleable >> o & 1]
        uses = [Action("use", o, r) for o in lamps for r, row in enumerate(state.inside) if row >> o & 1]
        yield from ([*take, use] for (_, take), use in product(finds, uses))
        return
    parents = [r for r, name in enumerate(game.receptacles) if kind_of(name) == goal.parent]
    if goal.family == "pick2":
        for p in parents:
            yield from _two(game, state, p, finds)
        return
    done = {"clean": state.clean, "heat": state.hot, "cool": state.cool}
    for (o, take), p in product(finds, parents):
        put = [Action("put", o, p)]
        if take and take[0].receptacle != p and state.inside[p] >> o & 1:
            put = []  # it is in two receptacles, and stays in this one when taken from the other
        if goal.family not in APPLIANCES or done.get(goal.family, 0) >> o & 1:
            yield [*take, *put]
            continue
        for a, name in enumerate(game.receptacles):
            if kind_of(name) == APPLIANCES[goal.family].lower():
                yield [*take, Action(goal.family, o, a), *put]


def _two(game: Game, state: State, p: int, finds: Sequence[tuple[int, list[Action]]]) -> Iterator[list[Action]]:
    """Put two things into receptacle p, or one if another is already there."""
    elsewhere = [(o, take) for o, take in finds if not state.inside[p] >> o & 1]
    there = {o for o, _ in finds} & set(bits(state.inside[p]))
    for o, take in elsewhere if there else ():
        yield [*take, Action("put", o, p)]
    for (o1, take1), (o2, take2) in permutations(elsewhere, 2):
        if o1 != o2 and take2:
            yield [*take1, Action("put", o1, p), *take2, Action("put", o2, p)]
