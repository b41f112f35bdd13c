"""A scripted expert that knows what an agent is told, so that what it does can be imitated.

It reads the task and, at each step, the admissible commands. These tell an empty hand all that is in
reach. It looks for things kind by kind, where they are most often first, in the order of the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
    """A command's parts. `verb` is "put" for `move ... to ...` as well; `thing` may be a receptacle."""

    text: str
    verb: str
    thing: str
    receptacle: str


def read_command(text: str) -> Command | None:
    """None for look, inventory, help, close and slice, which no task needs."""
    found = _COMMAND.fullmatch(text)
    if found is None:
        return None
    verb = "put" if found["verb"] == "move" else found["verb"]
    return Command(text, verb, found["thing"], found["receptacle"] or "")


class Searcher:
    """`act(admissible)` proposes a command, `tell(command)` says which one was executed: its own or another's."""

    def __init__(self, task: str) -> None:
        self.goal = read_task(task)
        self.aim = ""
        """What the last proposal was for: "find mug"."""
        self._receptacles: list[str] = []
        self._unseen: list[str] = []
        self._dark: list[str] = []
        """Where the lamp may still be."""
        self._lamp_at = ""
        self._spotted: dict[str, str] = {}
        """Where things of the wanted kind are."""
        self._held = ""
        self._treated: set[str] = set()
        self._placed: set[str] = set()
        self._parent = ""
        """The receptacle the things go to."""

    def act(self, admissible: Sequence[str]) -> str:
        """The next command, one of `admissible`. Raises `ValueError` where there is none that helps."""
        can = [command for command in map(read_command, admissible) if command]
        self._look(can)
        if not self._held:
            return self._find(can)
        if kind_of(self._held) != self.goal.target:
            return self._put_away(can)
        if self.goal.family == "look":
            return self._light(can)
        if self.goal.family in APPLIANCES and self._held not in self._treated:
            return self._treat(can)
        self.aim = f"put {self.goal.target}"
        return self._put_in(can, self._parent)

    def tell(self, executed: str) -> None:
        """Take note of the command that was executed; any text that is none is passed over."""
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
            if kind_of(thing) == self.goal.target and receptacle == self._parent:
                self._placed.add(thing)
        elif verb == self.goal.family:
            self._treated.add(thing)
        elif verb in ("heat", "cool") and self.goal.family in ("heat", "cool"):
            self._treated.discard(thing)

    # ---- what is known ----

    def _look(self, can: Sequence[Command]) -> None:
        """Take in what the commands tell of the place one is at."""
        here = [command.thing for command in can if command.verb == "examine" and command.thing != self._held]
        closed = {command.thing for command in can if command.verb == "open"}
        if not self._receptacles:
            self._begin([command.thing for command in can if command.verb == "go to"] + here)
        self._dark = [r for r in self._dark if r not in here]
        if not self._held:
            self._unseen = [r for r in self._unseen if r not in here or r in closed]
            # What was thought to be here and cannot be taken is not here, or behind a door that was shut again.
            gone = [thing for thing, r in self._spotted.items() if r in here and r not in closed]
            for thing in gone:
                del self._spotted[thing]
        for _, verb, thing, receptacle in can:
            if verb == "take" and kind_of(thing) == self.goal.target and thing not in self._placed:
                self._spotted[thing] = receptacle
            if verb == "use" and kind_of(thing) == self.goal.lamp:
                self._lamp_at = here[0]

    def _begin(self, receptacles: Sequence[str]) -> None:
        self._receptacles = sorted(receptacles, key=lambda r: _likely(r, self.goal.target))
        self._unseen = list(self._receptacles)
        self._dark = sorted(receptacles, key=lambda r: _likely(r, self.goal.lamp))
        self._parent = next((r for r in self._receptacles if kind_of(r) == self.goal.parent), "")

    # ---- what to do ----

    def _find(self, can: Sequence[Command]) -> str:
        self.aim = f"find {self.goal.target}"
        for command in can:
            if command.verb == "take" and command.thing in self._spotted:
                return command.text
        if self._spotted:
            return self._reach(can, min(self._spotted.values()))
        for command in can:
            if command.verb == "open" and command.thing in self._unseen:
                return command.text
        if not self._unseen:  # a door was shut again, or a thing carried off
            self._unseen = list(self._receptacles)
        return self._reach(can, self._unseen[0])

    def _light(self, can: Sequence[Command]) -> str:
        self.aim = f"use {self.goal.lamp}"
        for command in can:
            if command.verb == "use" and kind_of(command.thing) == self.goal.lamp:
                return command.text
        return self._reach(can, self._lamp_at or next(iter(self._dark), ""))

    def _treat(self, can: Sequence[Command]) -> str:
        family = self.goal.family
        self.aim = f"{family} {self.goal.target}"
        for command in can:
            if command.verb == family and command.thing == self._held:
                return command.text
        appliance = APPLIANCES[family].lower()
        return self._reach(can, next((r for r in self._receptacles if kind_of(r) == appliance), ""))

    def _put_away(self, can: Sequence[Command]) -> str:
        """Get rid of a thing nobody asked for."""
        kind = kind_of(self._held)
        self.aim = f"put {kind} away"
        for command in can:
            if command.verb == "put":
                return command.text
        return self._put_in(can, min(self._receptacles, key=lambda r: _likely(r, kind)))

    def _put_in(self, can: Sequence[Command], receptacle: str) -> str:
        for command in can:
            if command.verb == "put" and command.receptacle == receptacle:
                return command.text
        return self._reach(can, receptacle)

    def _reach(self, can: Sequence[Command], receptacle: str) -> str:
        """Walk there, or where one is there already, open it."""
        for verb in ("go to", "open"):
            for command in can:
                if command.verb == verb and command.thing == receptacle:
                    return command.text
        raise ValueError(f"no way to {self.aim}" + (f" at {receptacle}" if receptacle else ""))


def _likely(receptacle: str, thing: str) -> tuple[float, str, int]:
    """A sort key: where a kind of thing is most often comes first."""
    kind, _, number = receptacle.rpartition(" ")
    return -attraction(kind, thing), kind, int(number)


def demonstrations(env: Any, rng: np.random.Generator, hasty: float) -> Iterator[tuple[str, dict[str, Any], str]]:
    """One episode after another, for ever: each step's observation, info and the teacher's reply.

    `env` is a `CRBC-ALFWorld-v0`. Hasty, with probability `hasty`, the teacher goes anywhere; else it does
    what a `Searcher` would.
    """
    while True:
        obs, info = env.reset(options={"task": int(rng.integers(len(env.panel)))})
        searcher, over = Searcher(info["task"]), False
        while not over:
            admissible = info["admissible_actions"]
            command, aim = searcher.act(admissible), searcher.aim
            if rng.random() < hasty:
                ways = [text for text in admissible if text.startswith("go to ")]
                command, aim = ways[rng.integers(len(ways))], "look around"
            reply = tagged(command, aim)
            yield obs, info, reply
            obs, _, terminated, truncated, info = env.step(reply)
            searcher.tell(command)
            over = terminated or truncated
