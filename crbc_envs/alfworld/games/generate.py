"""Generates tasks in random households, in ALFWorld's game file format.

Every generated game can be solved, without a search for a solution: each receptacle can be reached and opened at
any time, the things that the task needs are in reach, and their target receptacle can hold them. Rules and texts
are ALFWorld's (`rules/`, and the sentences and goals below; Shridhar et al., 2021; MIT licence, see NOTICE).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Literal

import numpy as np

from crbc_envs.alfworld.engine.dialect import split_task
from crbc_envs.alfworld.engine.game import FAMILIES, GameFile
from crbc_envs.alfworld.games.goal_counts import counts
from crbc_envs.alfworld.games.goals import APPLIANCES, SENTENCES, Goal, goal_pddl
from crbc_envs.alfworld.games.household import (
    FIXED,
    HOLDS,
    PROPERTIES,
    THINGS,
    Household,
    Layout,
    Size,
    draw_layout,
    furnish,
    pick,
    sources,
)

Verb = Literal["move", "put"]
VERBS: tuple[Verb, ...] = ("move", "put")
"""The wording of the game: `move X to Y` since ALFWorld 0.4, `put X in/on Y` before."""

TASK_TYPES = {family: task_type for task_type, family in FAMILIES.items()}

ROOMS_OF = {
    "pick": ("kitchen", "living room", "bedroom", "bathroom"),
    "look": ("living room", "bedroom"),
    "clean": ("kitchen", "bathroom"),
    "heat": ("kitchen",),
    "cool": ("kitchen",),
    "pick2": ("kitchen", "living room", "bedroom", "bathroom"),
}
"""The rooms in which a family's tasks can take place."""


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A household and the goal in it."""

    household: Household
    goal: Goal

    def digest(self) -> str:
        """The hash of the puzzle (hex), independent of names and wording."""
        return hashlib.sha256(f"{self.goal} {self.household.arrangement()}".encode()).hexdigest()


def fits(furniture: tuple[str, ...], goal: Goal) -> bool:
    """Whether a household with this furniture can be made in which the goal can be reached, and is not yet."""
    if goal.lamp:
        return sources(furniture, goal.lamp) and sources(furniture, goal.target)
    needed = {goal.parent, APPLIANCES.get(goal.family, goal.parent)}
    return needed.issubset(furniture) and sources(furniture, goal.target, but=goal.parent)


def draw_puzzle(rng: np.random.Generator, layout: Layout, goal: Goal) -> Puzzle:
    """Draw a household with this layout for a goal that fits it."""
    needs = {goal.target: counts(goal.family).draw_copies(rng)}
    if goal.lamp:
        needs[goal.lamp] = 1
    # At the start nothing is clean, hot or cool. A thing that must only be moved may not be at its target yet.
    keep_out = (goal.target, goal.parent) if goal.family in ("pick", "pick2") else None
    return Puzzle(furnish(rng, layout, needs, keep_out), goal)


def generate_game(
    rng: np.random.Generator, family: str, room: str | None = None, size: Size = "full", verb: Verb = "move"
) -> GameFile:
    """Draw a goal of the family as often as published tasks ask for it, and a household for it; in `room`, if given.

    Raises `ValueError` for an unknown family, or a room that does not suit the family.
    """
    if family not in ROOMS_OF:
        raise ValueError(f"family must be one of {', '.join(ROOMS_OF)}; got {family!r}")
    if room is not None and room not in ROOMS_OF[family]:
        raise ValueError(f"a {family} task takes place in a {' or '.join(ROOMS_OF[family])}; got {room!r}")
    asked = counts(family).draw(rng)
    while asked.room != (room or asked.room):
        asked = counts(family).draw(rng)
    layout = draw_layout(rng, asked.room, size)
    while not fits(layout.furniture, asked.goal):
        layout = draw_layout(rng, asked.room, size)
    return game_file(rng, draw_puzzle(rng, layout, asked.goal), verb)


def reworded(game: GameFile, verb: Verb) -> GameFile:
    """A game in the words of a generation, with the rules that are generated; `walkthrough` as well."""
    task, _ = split_task(game.grammar)
    domain, grammar = _rules(verb)
    words = (
        (r"^move (.*) to (.*)$", r"put \1 in/on \2") if verb == "put" else (r"^put (.*) in/on (.*)$", r"move \1 to \2")
    )
    walkthrough = game.walkthrough and tuple(re.sub(*words, command) for command in game.walkthrough)
    grammar = grammar.replace("UNKNOWN GOAL.", task)
    return replace(game, domain=domain, grammar=grammar, walkthrough=walkthrough)


# ---- the official format ---------------------------------------------------------------------------


def game_file(rng: np.random.Generator, puzzle: Puzzle, verb: Verb = "move") -> GameFile:
    """The puzzle as a game file. The wording of its task is drawn from two."""
    goal = puzzle.goal
    words = {"target": goal.target.lower(), "parent": goal.parent.lower(), "lamp": goal.lamp.lower()}
    sentence = pick(rng, SENTENCES[goal.family]).format(**words)
    name = f"{TASK_TYPES[goal.family]}-{goal.target}-None-{goal.parent or goal.lamp}-{puzzle.digest()[:12]}"
    domain, grammar = _rules(verb)
    return GameFile(
        name=name,
        family=goal.family,
        domain=domain,
        grammar=grammar.replace("UNKNOWN GOAL.", sentence),
        problem=_problem(name, puzzle),
    )


_PUT_WORDS = {
    "You arrive at {r.name}.": "You arrive at {lend.name}.",
    "You move the {o.name} to the {r.name}.": "You put the {o.name} in/on the {r.name}.",
    '"move {o} to {r}"': '"put {o} in/on {r}"',
}
"""Texts of the older games, by text of the newer ones. The older games also have no `help`."""


@lru_cache(maxsize=2)
def _rules(verb: Verb) -> tuple[str, str]:
    """The domain and the grammar for a wording. Raises `ValueError` for an unknown one."""
    folder = resources.files("crbc_envs.alfworld.games") / "rules"
    domain = (folder / "domain.pddl").read_text(encoding="utf-8")
    grammar = (folder / "grammar.twl2").read_text(encoding="utf-8")
    if verb not in VERBS:
        raise ValueError(f"verb must be one of {', '.join(VERBS)}; got {verb!r}")
    if verb == "put":
        for new, old in _PUT_WORDS.items():
            grammar = grammar.replace(new, old)
        grammar = grammar[: grammar.index("action help")]
        domain = domain[: domain.index("  (:action help")] + ")\n"
    return domain, grammar


_KINDS = "\n".join(
    [f"    {kind}Type - otype" for kind in sorted({kind for room in THINGS.values() for kind in room})]
    + [f"    {kind}Type - rtype" for kind in sorted(HOLDS)]
)


def _problem(name: str, puzzle: Puzzle) -> str:
    """The PDDL problem, in the layout of the published ones."""
    household, layout = puzzle.household, puzzle.household.layout
    places = {layout.start, *(r.place for r in layout.receptacles), *(thing.place for thing in household.things)}
    objects = [f"{thing.name} - object" for thing in household.things]
    objects += [f"{receptacle.name} - receptacle" for receptacle in layout.receptacles]
    objects += [f"{place} - location" for place in sorted(places)]
    facts = [f"atLocation agent1 {layout.start}", *_receptacle_facts(puzzle), *_thing_facts(household)]
    return "\n".join(
        [
            f"(define (problem plan_{name})",
            "  (:domain alfred)",
            "  (:objects",
            "    agent1 - agent",
            _KINDS,
            *(f"    {line}" for line in objects),
            "  )",
            "  (:init",
            *(f"    ({fact})" for fact in facts),
            "  )",
            f"  (:goal {goal_pddl(puzzle.goal)})",
            ")\n",
        ]
    )


def _receptacle_facts(puzzle: Puzzle) -> list[str]:
    layout = puzzle.household.layout
    there = {thing.kind for thing in puzzle.household.things}
    facts = [
        f"canContain {kind}Type {thing}Type"
        for kind in sorted(set(layout.furniture))
        for thing in HOLDS[kind]
        if thing in there
    ]
    for name, kind, place, openable in layout.receptacles:
        facts += [f"receptacleType {name} {kind}Type", f"receptacleAtLocation {name} {place}"]
        if openable:
            facts.append(f"openable {name}")
    return facts


def _thing_facts(household: Household) -> list[str]:
    facts = []
    for name, kind, place, inside, within in household.things:
        facts += [f"objectType {name} {kind}Type", f"objectAtLocation {name} {place}"]
        if kind not in FIXED:
            facts.append(f"pickupable {name}")
        facts += [f"{predicate} {name}" for predicate, kinds in PROPERTIES.items() if kind in kinds]
        facts += [f"inReceptacle {name} {receptacle.name}" for receptacle in inside]
        if within:
            facts.append(f"inReceptacleObject {name} {within}")
    return facts
