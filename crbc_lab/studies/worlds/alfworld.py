"""Small ALFWorld rooms, solved exactly over all that can be reached in them.

The rooms and tasks are those of the generator, with fewer receptacles and things. The exact engine plays. A state is
the engine's state with as much of the text as the kind of anchor shows, so the anchor is a function of it.

**One restriction.** The item history in the text grows without end, and so would the states. Only its last
`REMEMBERED` entries count here. Anchors are those of CRBC-ALFWorld-v0 until an episode has moved or changed items more
often than that. From then on, anchors that differ in older entries alone are one. The kinds "observation" and "state"
do not show the history, so for them nothing is restricted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from anchors import INVALID
from anchors.key import AnchorKind
from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.describe import describe
from crbc_envs.alfworld.engine.game import GameFile, parse
from crbc_envs.alfworld.engine.state import Game, State
from crbc_envs.alfworld.games.generate import Puzzle, draw_puzzle, fits, game_file
from crbc_envs.alfworld.games.goal_counts import counts
from crbc_envs.alfworld.games.goals import APPLIANCES
from crbc_envs.alfworld.games.household import FIXED, Household, draw_layout, pick
from crbc_envs.alfworld.observation import Tracker
from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds.build import WON, Outcomes, TooManyStates, table

HORIZON = 50
REMEMBERED = 4
"""The entries of the item history that count. A shortest solution makes two or three."""

MOST_STATES = 3_000
"""Rooms with more states, of the kind "paper", are drawn anew."""

MOST_EXACT = 100
"""Rooms with more states of the engine are drawn anew. They would hardly ever have fewer than `MOST_STATES`."""

FAMILIES = ("pick", "look", "clean", "heat", "cool")
"""The families of tasks, which alternate. "pick2" needs two things of a kind, and then has too many states."""


class Node(NamedTuple):
    """A state of the process. `text` is the game's last text, and `history` the last commands that it counts."""

    state: State
    text: str
    history: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """A game as a process. `actions` has the command of each action, and `payloads` what each anchor is the key of."""

    mdp: TabularMDP
    actions: tuple[str, ...]
    payloads: tuple[str, ...]


def room(seed: int, index: int, kind: AnchorKind) -> TabularMDP:
    return solve(parse(game(seed, index)), kind).mdp


def solve(game: Game, kind: AnchorKind, most: int | None = None) -> Room:
    """All that can be reached in a game. An invalid reply is one more action, `<invalid>`, which keeps the state.

    Raises `TooManyStates` if there are more than `most` states.
    """
    label: dict[str, int] = {INVALID: 0}
    payloads: dict[str, None] = {}
    shows, echoes = kind != "state", kind in ("paper", "observation")
    remembered = REMEMBERED if kind in ("paper", "situation") else 0

    def outcomes(node: Node) -> dict[int, Outcomes[Node]]:
        kept = node._replace(text=engine.NOTHING_HAPPENS) if echoes else node
        rows: dict[int, Outcomes[Node]] = {0: [(kept, 1.0)]}
        for command in engine.admissible(game, node.state):
            state, text = engine.step(game, node.state, command)
            history = _recorded(game, node.history, command)[-remembered:] if remembered else ()
            after = WON if engine.won(game, state) else Node(state, text if shows else "", history)
            rows[label.setdefault(command, len(label))] = [(after, 1.0)]
        return rows

    def seen(node: Node) -> str:
        payload = describe(game, node.state) if kind == "state" else node.text
        if kind in ("paper", "situation"):
            payload = _tracker(game, node).text(node.text, engine.admissible(game, node.state))
        payloads.setdefault(payload)
        return payload

    start = Node(game.start, engine.intro(game) if shows else "", ())
    mdp = table(start, outcomes, HORIZON, seen, most=most)
    return Room(mdp, tuple(label), tuple(payloads))


def _recorded(game: Game, history: tuple[str, ...], command: str) -> tuple[str, ...]:
    """The item history after an executed command."""
    tracker = Tracker(game)
    tracker.record(command)
    return (*history, *tracker.history)


def _tracker(game: Game, node: Node) -> Tracker:
    """What the environment adds to the text at this node."""
    tracker, state = Tracker(game), node.state
    if here := game.receptacles_at[state.place]:
        tracker.location = ", ".join(sorted(game.receptacles[r] for r in here))
    if state.held >= 0:
        tracker.held = game.objects[state.held]
        done = {"clean": state.clean, "hot": state.hot, "cool": state.cool, "on": state.toggled, "sliced": state.sliced}
        tracker.status[tracker.held] = {word for word, mask in done.items() if mask >> state.held & 1}
    tracker.history = list(node.history)
    return tracker


# ---- rooms --------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def game(seed: int, index: int) -> GameFile:
    """The smallest part of a small household in which its task can be done, with one more receptacle.

    Half of the draws have one more thing as well. Rooms with more than `MOST_STATES` states are drawn anew, so of the
    rooms that are kept, fewer have one.
    """
    rng = np.random.default_rng([5, seed, index])
    family = FAMILIES[index % len(FAMILIES)]
    while True:
        asked = counts(family).draw(rng)
        layout = draw_layout(rng, asked.room, "small")
        if not fits(layout.furniture, asked.goal):
            continue
        puzzle = _part(rng, draw_puzzle(rng, layout, asked.goal), others=int(rng.integers(2)))
        if puzzle is None:
            continue
        file = game_file(rng, puzzle, "put")  # the older wording, which has no `help`
        parsed = parse(file)
        try:
            solve(parsed, "state", MOST_EXACT)  # tells most large rooms at once
            solve(parsed, "paper", MOST_STATES)
        except TooManyStates:
            continue
        return file


def _part(rng: np.random.Generator, puzzle: Puzzle, others: int) -> Puzzle | None:
    """The puzzle with what its goal needs, one more receptacle, and `others` more things; None if there are none."""
    layout, goal = puzzle.household.layout, puzzle.goal
    loose = [thing for thing in puzzle.household.things if thing.inside and not thing.within]
    things = [next((thing for thing in loose if thing.kind == kind), None) for kind in (goal.target, goal.lamp) if kind]
    needed = [thing for thing in things if thing]
    if len(needed) < len(things):
        return None
    names = {receptacle.name for thing in needed for receptacle in thing.inside}
    for kind in filter(None, (goal.parent, APPLIANCES.get(goal.family))):
        names.add(pick(rng, [receptacle.name for receptacle in layout.receptacles if receptacle.kind == kind]))
    names.add(pick(rng, [receptacle.name for receptacle in layout.receptacles if receptacle.name not in names]))
    more = [
        thing
        for thing in loose
        if thing.kind not in (goal.target, *FIXED) and {receptacle.name for receptacle in thing.inside} <= names
    ]
    if len(more) < others:
        return None
    needed += [more[n] for n in rng.permutation(len(more))[:others]]
    part = replace(layout, receptacles=tuple(r for r in layout.receptacles if r.name in names))
    return Puzzle(Household(part, tuple(thing for thing in puzzle.household.things if thing in needed)), goal)
