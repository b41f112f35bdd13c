"""Conformance: runs the exact engine and TextWorld side by side and compares every result.

Each game is played once. Its published walkthrough, if any, comes first. Before each of its commands comes one
that changes nothing or is invalid. Random commands follow: a verb is drawn first and then one of its commands,
because otherwise most draws would be "go to". At every step the text, the admissible commands in their order,
`won` and `done` must be equal.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crbc_envs.alfworld.engine import exact as engine
from crbc_envs.alfworld.engine.game import GAME_FILE, GameFile, parse, read_game_file
from crbc_envs.alfworld.engine.textworld import TextWorldGame
from crbc_envs.errors import DataError
from crbc_envs.storage.files import replacing
from crbc_envs.storage.outcomes import Outcome, line_of, read_outcomes

COMPARED = ("text", "admissible commands", "won")

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
"""Commands that no game accepts, or accepts only after removing blanks."""


def conform(file: GameFile, steps: int, seed: int) -> Outcome:
    """Play one game for `steps` steps, or longer for its walkthrough, in both engines, until the first difference."""
    game, real = parse(file), TextWorldGame(file)
    state, node = game.start, real.root
    rng = np.random.default_rng(seed)
    verbs: Counter[str] = Counter()
    won, feedback, difference = False, engine.intro(game), ""
    script = _script(file, rng)
    for taken in count():
        ours = (feedback, engine.admissible(game, state), engine.won(game, state))
        difference = _difference(ours, (node.feedback, node.admissible, node.won))
        won = won or node.won
        command = next(script, None)
        if difference or (taken >= steps and command is None):
            break
        command = _random_command(node.admissible, rng) if command is None else command
        verbs[command.split()[0] if command.strip() in node.admissible else "invalid"] += 1
        state, feedback = engine.step(game, state, command)
        node = real.step(node, command)
    if difference:
        difference = f"step {taken}: {difference}"
    return Outcome(file.name, file.family, seed, taken, won, difference, dict(sorted(verbs.items())))


def _difference(ours: tuple[str, tuple[str, ...], bool], theirs: tuple[str, tuple[str, ...], bool]) -> str:
    for what, here, there in zip(COMPARED, ours, theirs, strict=True):
        if here != there:
            return f"{what}: {here!r}, TextWorld has {there!r}"
    return ""


def _script(file: GameFile, rng: np.random.Generator) -> Iterator[str]:
    """The walkthrough, with a command that changes nothing before each of its commands."""
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


# ---- many games ------------------------------------------------------------------------------------


def game_folders(directory: Path) -> list[Path]:
    """All folders below `directory` that hold a game, sorted. Raises `DataError` if there is none."""
    folders = sorted(path.parent for path in directory.rglob(GAME_FILE))
    if not folders:
        raise DataError(f"{directory}: holds no {GAME_FILE}; unpack the published games there")
    return folders


class Listed(NamedTuple):
    """A game to be played: its name, and how to read it."""

    name: str
    read: Callable[[], GameFile]


def published(directory: Path) -> list[Listed]:
    """The games below a folder, in the order of their paths. Raises `DataError` if there is none."""
    return [Listed(f"{f.parent.name}/{f.name}", partial(read_game_file, f)) for f in game_folders(directory)]


def engine_digest() -> str:
    """A hash of the sources of this package."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"\n".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def conform_all(games: Sequence[Listed], steps: int, seed: int, out: Path) -> Iterator[Outcome]:
    """Play one game after the other, each with its own seed. `out` (JSON lines) records the finished ones.

    Yields the outcomes, recorded ones first. A game is played again if it differed, had fewer steps, another seed or
    another engine: the sources of this package have changed since.
    """
    sources = engine_digest()
    known = read_outcomes(out) if out.exists() else []
    agreed = (outcome for outcome in known if not outcome.difference and outcome.engine == sources)
    done = {(outcome.game, outcome.seed): outcome for outcome in agreed}
    todo = []
    for n, game in enumerate(games):
        outcome = done.get((game.name, seed + n))
        if outcome is not None and outcome.steps >= steps:
            yield outcome
        else:
            todo.append((game, seed + n))
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as lines:  # without a last line that was cut short
        lines.writelines(line_of(outcome).encode() for outcome in known)
    with out.open("a", encoding="utf-8") as lines:
        for game, own_seed in todo:
            outcome = replace(conform(game.read(), steps, own_seed), game=game.name, engine=sources)
            lines.write(line_of(outcome))
            lines.flush()
            yield outcome
