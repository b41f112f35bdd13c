"""ALFWorld's observation: the game's text and the lines that the paper's wrapper adds to it.

It has five parts, one below the other:

    You arrive at fridge 1. The fridge 1 is closed.        the game's text, which may have several lines
    Location: fridge 1                                     the receptacles here, sorted
    Holding: apple 2 (clean)                               the item in hand and its status
    Item history: take apple 2 from countertop 1; ...      executed commands that moved or changed an item
    Admissible commands: close fridge 1, ...               sorted

The paper says what is added, but not the wording ("Environment Details", ALFWorld); the wording is ours. The
added lines depend on the executed commands alone. They are therefore the same for both engines and contain
nothing that an agent could not know. Several receptacles may share one place. The location then names all of
them, because the state is the same whichever one the agent went to.
"""

from __future__ import annotations

from crbc_envs.alfworld.engine.state import Game

CUT_OFF = "..."
"""Stands for the content of an added line that a shortened prompt does not have."""

LOCATION, HOLDING, HISTORY, ADMISSIBLE = "\nLocation: ", "\nHolding: ", "\nItem history: ", "\nAdmissible commands: "

STATUS = {"clean": "clean", "heat": "hot", "cool": "cool", "slice": "sliced", "use": "on"}
"""The status of an item after a verb was applied to it."""


class Tracker:
    """Tracks the agent's location, the item it holds and the status of items, from the executed commands."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.location = "middle of the room"
        if game.receptacles_at[game.start.place]:
            self.location = self._place(game.start.place)
        self.held = game.objects[game.start.held] if game.start.held >= 0 else None
        self.status: dict[str, set[str]] = {}
        self.history: list[str] = []

    def record(self, command: str) -> None:
        """Record an admissible command that was executed."""
        read = self.game.dialect.read(command)
        assert read is not None, f"{command!r} is not a command of this game"
        verb, slots = read
        if verb == "go":
            self.location = self._place(self.game.place_of[self.game.receptacles.index(slots["r"])])
        elif verb in ("take", "put"):
            self.held = slots["o"] if verb == "take" else None
            self.history.append(command)
        elif verb in STATUS:
            status = self.status.setdefault(slots["o"], set())
            status -= {"hot", "cool"} if verb in ("heat", "cool") else set()
            status.add(STATUS[verb])
            self.history.append(command)

    def _place(self, place: int) -> str:
        return ", ".join(sorted(self.game.receptacles[r] for r in self.game.receptacles_at[place]))

    def text(self, feedback: str, admissible: tuple[str, ...]) -> str:
        """The observation: the game's text with the added lines."""
        holding = self.held or "nothing"
        status = ", ".join(word for word in STATUS.values() if word in self.status.get(holding, ()))
        return (
            f"{feedback}{LOCATION}{self.location}"
            f"{HOLDING}{holding}{f' ({status})' if status else ''}"
            f"{HISTORY}{'; '.join(self.history) or 'none'}"
            f"{ADMISSIBLE}{', '.join(admissible)}"
        )


def game_text(observation: str) -> str:
    """The game's text in an observation, without the added lines; the first of them may have been cut off."""
    for name in (LOCATION, HOLDING, HISTORY, ADMISSIBLE):
        observation = observation.partition(name)[0]
    return observation


def without_admissible(observation: str) -> str:
    """An observation without its last line. Prompts list the admissible commands elsewhere."""
    return observation.rpartition(ADMISSIBLE)[0]


def added_line(observation: str, name: str) -> str:
    """The content of one of the added lines, such as `LOCATION`; `CUT_OFF` where it was cut off."""
    _, mark, rest = observation.rpartition(name)
    return rest.partition("\n")[0] if mark else CUT_OFF
