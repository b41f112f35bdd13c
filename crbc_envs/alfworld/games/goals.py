"""The goals of the six task families: as sentences, as PDDL goals, and as data.

Sentences and goals are ALFWorld's interface (Shridhar et al., 2021; MIT licence, see NOTICE).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TREATED = {"clean": "cleanable", "heat": "heatable", "cool": "coolable"}
"""The property that a thing needs for the family's treatment."""

APPLIANCES = {"clean": "SinkBasin", "heat": "Microwave", "cool": "Fridge"}
"""The kind of receptacle at which a family's treatment is done."""

SENTENCES = {
    "pick": ("put a {target} in {parent}.", "put some {target} on {parent}."),
    "look": ("look at {target} under the {lamp}.", "examine the {target} with the {lamp}."),
    "clean": ("put a clean {target} in {parent}.", "clean some {target} and put it in {parent}."),
    "heat": ("put a hot {target} in {parent}.", "heat some {target} and put it in {parent}."),
    "cool": ("put a cool {target} in {parent}.", "cool some {target} and put it in {parent}."),
    "pick2": ("put two {target} in {parent}.", "find two {target} and put them in {parent}."),
}
"""The two wordings of each family's tasks."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a task.

    `target` is the kind of thing and `parent` the kind of receptacle to put it into. In the "look" family,
    `parent` is "" and `lamp` is the kind of lamp to look at the thing under.
    """

    family: str
    target: str
    parent: str = ""
    lamp: str = ""


_KINDS = {word: rf"(?P<{word}>\w+)" for word in ("target", "parent", "lamp")}
_PATTERNS = [
    (family, re.compile(sentence.replace(".", r"\.").format(**_KINDS)))
    for family, sentences in SENTENCES.items()
    for sentence in sentences
]


def read_task(task: str) -> Goal:
    """The goal of a task's sentence, with kinds in lower case. Raises `ValueError` for any other sentence."""
    for family, pattern in _PATTERNS:
        match = pattern.search(task)
        if match:
            return Goal(family, **match.groupdict())
    raise ValueError(f"not an ALFWorld task: {task!r}")


_PLACED = (
    "(and (exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r)"
    " (objectType ?o {target}Type) (receptacleType ?r {parent}Type){treated}))))"
)
_PLACED_TWO = (
    "(and (exists (?r - receptacle) (exists (?o1 - object) (and"
    " (objectType ?o1 {target}Type) (receptacleType ?r {parent}Type) (inReceptacle ?o1 ?r)"
    " (exists (?o2 - object) (and (not (= ?o1 ?o2))"
    " (objectType ?o2 {target}Type) (receptacleType ?r {parent}Type) (inReceptacle ?o2 ?r)))))))"
)
_LIT = (
    "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and"
    " (objectType ?ot {lamp}Type) (toggleable ?ot) (isToggled ?ot)"
    " (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))"
    " (exists (?o - object ?a - agent) (and (objectType ?o {target}Type) (holds ?a ?o))))"
)


def goal_pddl(goal: Goal) -> str:
    """The goal in PDDL, as in a problem file."""
    done = {"clean": "isClean", "heat": "isHot", "cool": "isCool"}.get(goal.family)
    treated = f" ({TREATED[goal.family]} ?o) ({done} ?o)" if done else ""
    text = {"look": _LIT, "pick2": _PLACED_TWO}.get(goal.family, _PLACED)
    return text.format(target=goal.target, parent=goal.parent, lamp=goal.lamp, treated=treated)
