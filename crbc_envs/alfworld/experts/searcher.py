"""A scripted expert that knows only what an agent sees. Its actions are demonstrations for imitation.

It reads the task and, at each step, the admissible commands. With an empty hand, these name everything in reach.
It searches receptacle kinds in order of how often they hold the thing, and within a kind by number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from crbc_envs.actions import tagged
from crbc_envs.alfworld.experts.expert import kind_of
from crbc_envs.alfworld.games.goals import APPLIANCES, read_task
from crbc_envs.alfworld.games.household import attraction

_COMMAND = re.compile(
    r"(?P<verb>go to|open|examine|use|take|move|put|clean|heat|cool) (?P<thing>\w+ \d+)"
    r"(?: (?:from|to|in/on|with) (?P<receptacle>\w+ \d+))?"
)


class Command(NamedTuple):
    """The parts of a command. `verb` is "put" also for `move ... to ...`. `thing` may be a receptacle."""

    text: str
    verb: str
    thing: str
    receptacle: str


def read_command(text: str) -> Command | None:
    """Parse a command. None for look, inventory, help, close and slice, which no task needs."""
    match = _COMMAND.fullmatch(text)
    if match is None:
        return None
    verb = "put" if match["verb"] == "move" else match["verb"]
    return Command(text, verb, match["thing"], match["receptacle"] or "")


class Searcher:
    """`act(admissible)` proposes a command. `record(command)` then tells which command was executed; it may differ.

    A `blind` one does not know where things usually are. It searches in the order in which the commands list the
    receptacles, those that it has not been to first. So each step follows from what a prompt shows.
    """

    def __init__(self, task: str, blind: bool = False) -> None:
        self.goal = read_task(task)
        self._blind = blind
        self.aim = ""
        """The purpose of the last proposal, such as "find mug". A thing within reach has its number, as in
        "find mug 2", and "find mug inside" opens a receptacle: the thought decides what kind of action follows."""
        self._receptacles: list[str] = []
        self._been: set[str] = set()
        self._unseen: list[str] = []
        """Receptacles where the thing may still be."""
        self._maybe_lamp: list[str] = []
        """Receptacles where the lamp may still be."""
        self._lamp_at = ""
        self._spotted: dict[str, str] = {}
        """The receptacle of each known thing of the wanted kind."""
        self._held = ""
        self._treated: set[str] = set()
        self._placed: set[str] = set()
        self._parents: list[str] = []
        """The receptacles that the things may be put into. Two things belong into the same one."""
        self._refused: set[tuple[str, str]] = set()
        """A kind of thing and a receptacle that does not take it."""

    def act(self, admissible: Sequence[str]) -> str:
        """The next command, one of `admissible`. Raises `ValueError` if none of them helps."""
        commands = [command for command in map(read_command, admissible) if command]
        self._update(commands)
        if not self._held:
            return self._find(commands)
        if kind_of(self._held) != self.goal.target:
            return self._put_away(commands)
        if self.goal.family == "look":
            return self._light(commands)
        if self.goal.family in APPLIANCES and self._held not in self._treated:
            return self._treat(commands)
        self.aim = f"put {self.goal.target}"
        return self._put_in(commands, self._parents)

    def record(self, executed: str) -> None:
        """Record the executed command. Text that is not a command is ignored."""
        command = read_command(executed)
        if command is None:
            return
        _, verb, thing, receptacle = command
        if verb == "take":
            self._held = thing
            self._spotted.pop(thing, None)
            self._placed.discard(thing)
        elif verb == "put":
            self._held = ""
            if self.goal.family == "pick2" and kind_of(thing) == self.goal.target and receptacle in self._parents:
                self._placed.add(thing)  # in the other families one that is rightly there has won
        elif verb == self.goal.family:
            self._treated.add(thing)
        elif verb in ("heat", "cool") and self.goal.family in ("heat", "cool"):
            self._treated.discard(thing)

    # ---- knowledge ----

    def _update(self, commands: Sequence[Command]) -> None:
        """Update the knowledge from the admissible commands."""
        here = [command.thing for command in commands if command.verb == "examine" and command.thing != self._held]
        closed = {command.thing for command in commands if command.verb == "open"}
        if not self._receptacles:
            self._begin([command.thing for command in commands if command.verb == "go to"] + here)
        self._been.update(here)
        self._maybe_lamp = [r for r in self._maybe_lamp if r not in here]
        if not self._held:
            self._unseen = [r for r in self._unseen if r not in here or r in closed]
            # A thing that should be here but cannot be taken is elsewhere, or in a receptacle that was closed again.
            gone = [thing for thing, r in self._spotted.items() if r in here and r not in closed]
            for thing in gone:
                del self._spotted[thing]
        for _, verb, thing, receptacle in commands:
            if verb == "take" and kind_of(thing) == self.goal.target and thing not in self._placed:
                self._spotted[thing] = receptacle
            if verb == "use" and kind_of(thing) == self.goal.lamp:
                self._lamp_at = here[0]

    def _begin(self, receptacles: Sequence[str]) -> None:
        likely = sorted(receptacles, key=lambda r: _likely(r, self.goal.target))
        self._receptacles = list(receptacles) if self._blind else likely
        self._unseen = list(self._receptacles)
        lamps = sorted(receptacles, key=lambda r: _likely(r, self.goal.lamp))
        self._maybe_lamp = list(receptacles) if self._blind else lamps
        parents = [r for r in likely if kind_of(r) == self.goal.parent]
        self._parents = parents[:1] if self.goal.family == "pick2" else parents

    # ---- actions ----

    def _find(self, commands: Sequence[Command]) -> str:
        self.aim = f"find {self.goal.target}"
        for command in commands:
            if command.verb == "take" and command.thing in self._spotted:
                self.aim = f"find {command.thing}"
                return command.text
        if self._spotted:
            return self._reach(commands, min(self._spotted.values()))
        for command in commands:
            if command.verb == "open" and command.thing in self._unseen:
                self.aim += " inside"
                return command.text
        if not self._unseen:  # a receptacle was closed again, or a thing was moved
            self._unseen = list(self._receptacles)
        new = [r for r in self._unseen if r not in self._been] if self._blind else []
        return self._reach(commands, next(iter([*new, *self._unseen])))

    def _light(self, commands: Sequence[Command]) -> str:
        self.aim = f"use {self.goal.lamp}"
        for command in commands:
            if command.verb == "use" and kind_of(command.thing) == self.goal.lamp:
                self.aim = f"use {command.thing}"
                return command.text
        return self._reach(commands, self._lamp_at or next(iter(self._maybe_lamp), ""))

    def _treat(self, commands: Sequence[Command]) -> str:
        family = self.goal.family
        self.aim = f"{family} {self.goal.target}"
        for command in commands:
            if command.verb == family and command.thing == self._held:
                self.aim = f"{family} {self._held}"
                return command.text
        appliance = APPLIANCES[family].lower()
        return self._reach(commands, next((r for r in self._receptacles if kind_of(r) == appliance), ""))

    def _put_away(self, commands: Sequence[Command]) -> str:
        """Put down a thing that the task does not need."""
        kind = kind_of(self._held)
        self.aim = f"put {kind} away"
        for command in commands:
            if command.verb == "put":
                return command.text
        here = {command.thing for command in commands if command.verb == "examine"}
        closed = {command.thing for command in commands if command.verb == "open"}
        self._refused |= {(kind, receptacle) for receptacle in here - closed}
        others = [r for r in self._receptacles if (kind, r) not in self._refused]
        return self._put_in(commands, sorted(others, key=lambda r: _likely(r, kind))[:1])

    def _put_in(self, commands: Sequence[Command], receptacles: Sequence[str]) -> str:
        """Put it into one of the receptacles: one within reach, or the first."""
        for command in commands:
            if command.verb == "put" and command.receptacle in receptacles:
                self.aim = self.aim.replace(kind_of(self._held), self._held)
                return command.text
        here = [command.thing for command in commands if command.verb == "open" and command.thing in receptacles]
        return self._reach(commands, next(iter([*here, *receptacles]), ""))

    def _reach(self, commands: Sequence[Command], receptacle: str) -> str:
        """Go to the receptacle, or open it if the agent is already there."""
        for verb in ("go to", "open"):
            for command in commands:
                if command.verb == verb and command.thing == receptacle:
                    self.aim += " inside" * (verb == "open")
                    return command.text
        raise ValueError(f"no way to {self.aim}" + (f" at {receptacle}" if receptacle else ""))


def _likely(receptacle: str, thing: str) -> tuple[float, str, int]:
    """A sort key: receptacles that hold this kind of thing most often come first."""
    kind, _, number = receptacle.rpartition(" ")
    return -attraction(kind, thing), kind, int(number)


def make_expert(
    task: str, rng: np.random.Generator, hasty: float = 0.0, blind: float = 0.0
) -> Callable[[object, dict[str, Any]], str]:
    """An expert for one episode of `task`, which ends when the environment ends it.

    With probability `blind` it is a blind `Searcher`. With probability `hasty` a reply goes to a random receptacle;
    otherwise it is the command of that searcher. It learns from `info["action"]` what was executed, so it
    can also advise somebody who plays otherwise.
    """
    if not (0 <= hasty <= 1 and 0 <= blind <= 1):
        raise ValueError(f"hasty and blind are probabilities, got {hasty!r} and {blind!r}")
    searcher = Searcher(task, blind=rng.random() < blind)

    def reply(observation: object, info: dict[str, Any]) -> str:
        searcher.record(info.get("action", ""))
        admissible = info["admissible_actions"]
        command, aim = searcher.act(admissible), searcher.aim
        if rng.random() < hasty:
            ways = [text for text in admissible if text.startswith("go to ")]
            command, aim = ways[rng.integers(len(ways))], "look around"
        return tagged(command, aim)

    return reply
