"""What an agent of ALFWorld sees: the game's text, and the lines the paper's wrapper adds to it.

Format 1, five parts, one below the other:

    You arrive at fridge 1. The fridge 1 is closed.        the game's own text, which may have several lines
    Location: fridge 1                                     the receptacles here, sorted
    Holding: apple 2 (clean)                               what is in hand, and what was done to it
    Item history: take apple 2 from countertop 1; ...      commands that moved or changed an item, in order
    Admissible commands: close fridge 1, ...               sorted

The paper says what is added and not how ("Environment Details", ALFWorld); the wording is ours. All of it
follows from the commands that were executed, so that it is the same whichever engine plays, and tells
nothing an agent could not know. Several receptacles may share one place: it is named by all of them,
since the state is the same whichever of them was walked to.
"""

from __future__ import annotations

from crbc_envs.alfworld.engine.state import Game

FORMAT = 1

LOCATION, HOLDING, HISTORY, ADMISSIBLE = "\nLocation: ", "\nHolding: ", "\nItem history: ", "\nAdmissible commands: "

STATUS = {"clean": "clean", "heat": "hot", "cool": "cool", "slice": "sliced", "use": "on"}
"""What an item is after a verb was applied to it."""


class Notes:
    """Where the agent is, what it holds and what it has done to items, from the commands it executed."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.location = "middle of the room"
        if game.receptacles_at[game.start.place]:
            self.location = self._place(game.start.place)
        self.held = game.objects[game.start.held] if game.start.held >= 0 else None
        self.status: dict[str, set[str]] = {}
        self.history: list[str] = []

    def note(self, command: str) -> None:
        """Take down an admissible command that was executed."""
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

    def text(self, said: str, admissible: tuple[str, ...]) -> str:
        """The game's text with the lines of the format added."""
        holding = self.held or "nothing"
        status = ", ".join(word for word in STATUS.values() if word in self.status.get(holding, ()))
        return (
            f"{said}{LOCATION}{self.location}"
            f"{HOLDING}{holding}{f' ({status})' if status else ''}"
            f"{HISTORY}{'; '.join(self.history) or 'none'}"
            f"{ADMISSIBLE}{', '.join(admissible)}"
        )


def said(observation: str) -> str:
    """The game's own text in an observation."""
    return observation.partition(LOCATION)[0]


def without_admissible(observation: str) -> str:
    """An observation but for its last line, which a prompt gives in a place of its own."""
    return observation.rpartition(ADMISSIBLE)[0]


def line(observation: str, name: str) -> str:
    """What one of the added lines says."""
    return observation.rpartition(name)[2].partition("\n")[0]
