"""Both engines side by side: everything the exact engine says, held against TextWorld's own answer.

A game is walked once. Its published walkthrough comes first, where there is one, with commands in
between that change nothing or are no commands; then random play, whose steps first draw a verb and
then one of its commands, so that the many ways to go somewhere do not crowd out the rest. At every
step the text, the admissible commands in their order, `won` and `done` must be equal.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import numpy as np

from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.game import GAME_FILE, GameFile, parse, read_game_file
from crbc_envs.alfworld.engine.textworld import TextWorldGame
from crbc_envs.errors import DataError

INVALID_SHARE = 0.05

INVALID_COMMANDS = (
    "",
    "fly",
    "go to",
    "Look",
    "GO TO BED 1",
    "take all",
    "open the door",
    "look ",
    " inventory",
    "é\n",
)
"""Commands that no game knows, some of which only blanks keep from being one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one game; `difference` is empty where there was none, `verbs` counts the commands."""

    game: str
    family: str
    seed: int
    steps: int
    won: bool
    difference: str
    verbs: dict[str, int]


def conform(file: GameFile, steps: int, seed: int) -> Outcome:
    """Walk one game for `steps` steps (its walkthrough at least) in both engines, up to the first difference."""
    game, real = parse(file), TextWorldGame(file)
    state, node = game.start, real.root
    rng = np.random.default_rng(seed)
    verbs: Counter[str] = Counter()
    won, said, difference = False, engine.intro(game), ""
    script = _script(file, rng)
    for taken in count():
        ours = (said, engine.admissible(game, state), engine.won(game, state))
        difference = _difference(ours, (node.said, node.admissible, node.won))
        won = won or node.won
        command = next(script, None)
        if difference or (taken >= steps and command is None):
            break
        command = _random_command(node.admissible, rng) if command is None else command
        verbs[_verb(command, node.admissible)] += 1
        state, said = engine.step(game, state, command)
        node = real.step(node, command)
    if difference:
        difference = f"step {taken}: {difference}"
    return Outcome(file.name, file.family, seed, taken, won, difference, dict(sorted(verbs.items())))


def _difference(ours: tuple[str, tuple[str, ...], bool], theirs: tuple[str, tuple[str, ...], bool]) -> str:
    for what, here, there in zip(("text", "admissible commands", "won"), ours, theirs, strict=True):
        if here != there:
            return f"{what}: {here!r}, TextWorld has {there!r}"
    return ""


def _script(file: GameFile, rng: np.random.Generator) -> Iterator[str]:
    """The walkthrough, each command after one that changes nothing."""
    idle = ("look", "inventory", *INVALID_COMMANDS)
    for command in file.walkthrough or ():
        yield idle[rng.integers(len(idle))]
        yield command


def _random_command(admissible: Sequence[str], rng: np.random.Generator) -> str:
    if rng.random() < INVALID_SHARE:
        return INVALID_COMMANDS[rng.integers(len(INVALID_COMMANDS))]
    verbs = sorted({command.split()[0] for command in admissible})
    verb = verbs[rng.integers(len(verbs))]
    commands = [command for command in admissible if command.split()[0] == verb]
    return commands[rng.integers(len(commands))]


def _verb(command: str, admissible: Sequence[str]) -> str:
    return command.split()[0] if command.strip() in admissible else "invalid"


# ---- many games ------------------------------------------------------------------------------------


def game_folders(directory: Path) -> list[Path]:
    """Every folder below `directory` with a game in it, sorted. Raises `DataError` where there is none."""
    found = sorted(path.parent for path in directory.rglob(GAME_FILE))
    if not found:
        raise DataError(f"{directory}: no {GAME_FILE} in it; unpack the published games there")
    return found


def conform_all(folders: Sequence[Path], steps: int, seed: int, out: Path) -> Iterator[Outcome]:
    """Walk one game after the other, each with a seed of its own; `out` (JSON lines) remembers which are done.

    Yields the outcomes, the remembered ones first. A game that differed, or was walked for fewer steps or
    with another seed, is walked again.
    """
    known = read_outcomes(out) if out.exists() else []
    done = {(outcome.game, outcome.seed): outcome for outcome in known if not outcome.difference}
    todo = []
    for n, folder in enumerate(folders):
        outcome = done.get((f"{folder.parent.name}/{folder.name}", seed + n))
        if outcome is not None and outcome.steps >= steps:
            yield outcome
        else:
            todo.append((folder, seed + n))
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="utf-8") as lines:
        lines.writelines(map(_line, known))  # again, without a last line that was cut short
        lines.flush()
        for folder, own_seed in todo:
            outcome = conform(read_game_file(folder), steps, own_seed)
            lines.write(_line(outcome))
            lines.flush()
            yield outcome


def _line(outcome: Outcome) -> str:
    return json.dumps(asdict(outcome)) + "\n"


def read_outcomes(path: Path) -> list[Outcome]:
    """The outcomes in a file of `conform_all`; a last line that was cut short is left out."""
    outcomes = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for n, line in enumerate(lines[:-1]):  # what follows the last line feed was not finished
        try:
            outcomes.append(Outcome(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: line {n + 1} is no outcome of a conformance run; delete the file") from error
    return outcomes
