"""Parses command lines: the types of their options, and one line for each mistake in them."""

from __future__ import annotations

import inspect
import io
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from crbc_rl.errors import ConfigError, nearest


def _number(kind: type[int] | type[float], expected: str, fits: Callable[[float], bool]) -> Any:
    """How tyro reads an optional number. A value that does not fit is a mistake that names what is `expected`."""

    def read(words: list[str]) -> int | float:
        try:
            value = kind(words[0])
        except ValueError as error:
            raise ValueError(f"{words[0]!r} is not {expected}") from error
        if not fits(value):
            raise ValueError(f"{words[0]!r} is not {expected}")
        return value

    def known(value: Any) -> bool:
        return value is None or isinstance(value, kind)

    return PrimitiveConstructorSpec(1, kind.__name__.upper(), read, known, lambda value: [str(value)])


LARGEST = 2**63 - 1


def _path(words: list[str]) -> Path:
    if not words[0]:
        raise ValueError("it is empty; name a file or a folder")
    return Path(words[0])


def _paths(metavar: str) -> PrimitiveConstructorSpec[Any]:
    return PrimitiveConstructorSpec(1, metavar, _path, lambda value: isinstance(value, Path | None), lambda p: [str(p)])


@dataclass(frozen=True, slots=True)
class Group:
    """A command that has commands of its own."""

    about: str
    commands: Mapping[str, Callable[..., None]]
    otherwise: str = ""
    """The one of them whose name may be left out: it takes any other word, such as the name of a study."""


MOST_SEEDS = 1_000


def _seeds(words: list[str]) -> tuple[int, ...]:
    """ "0-2,7" as 0, 1, 2, 7."""
    seeds: dict[int, None] = {}
    for part in words[0].split(","):
        parts = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", part.strip())
        first, last = (int(parts[1]), int(parts[2] or parts[1])) if parts else (0, -1)
        if not first <= last < first + MOST_SEEDS or len(seeds) + last - first >= MOST_SEEDS:
            raise ValueError(f"{words[0]!r} is not such as 0-4 or 0,2,5, with at most {MOST_SEEDS:,} seeds")
        if twice := seeds.keys() & set(range(first, last + 1)):
            raise ValueError(f"{words[0]!r} names the seed {min(twice)} twice")
        seeds |= dict.fromkeys(range(first, last + 1))
    return tuple(seeds)


Seeds = Annotated[
    tuple[int, ...] | None,
    PrimitiveConstructorSpec(
        1, "SEEDS", _seeds, lambda value: isinstance(value, tuple | None), lambda value: [str(value)]
    ),
]
ConfigPath = Annotated[Path, tyro.conf.Positional, _paths("CONFIG")]
ModelPath = Annotated[Path, tyro.conf.Positional, _paths("DIR")]
StudyPath = Annotated[Path, tyro.conf.Positional, _paths("STUDY")]
RunPath = Annotated[Path, tyro.conf.Positional, _paths("RUN")]
SomePath = Annotated[Path, _paths("PATH")]
MaybePath = Annotated[Path | None, _paths("PATH")]
Count = Annotated[int | None, _number(int, "a whole number of at least 1", lambda n: 1 <= n <= LARGEST)]
Index = Annotated[int | None, _number(int, "a whole number of at least 0", lambda n: 0 <= n <= LARGEST)]
Port = Annotated[int, _number(int, "a port, a whole number from 0 to 65535", lambda n: 0 <= n <= 65_535)]
Size = Annotated[float | None, _number(float, "a positive number", lambda x: math.isfinite(x) and x > 0)]


Repeated = tyro.conf.UseAppendAction
"""A repeated option appends its values: --set a=1 --set b=2 is --set a=1 b=2."""
Settings = Annotated[tuple[tuple[str, ...], ...], Repeated]


def permit(allow_import: bool) -> None:
    """Permit the import of the modules that a config names, where `--allow-import` asks for it."""
    if allow_import:
        from crbc_rl.config import extensions

        extensions.allow()


def parse(
    commands: Mapping[str, Callable[..., None] | Group], args: Sequence[str], about: str, prog: str = "crbc"
) -> Callable[[], None]:
    """The command that `args` call, with its arguments.

    Prints the help and exits with 0 where it is asked for. Raises `ConfigError` with what is wrong with `args`.
    """
    args = _set_ends(list(args) or ["--help"])
    if args[0] == "help":
        args = [*args[1:], "--help"]
    if not args[0].startswith("-") and args[0] not in commands:
        raise ConfigError(
            f"there is no command {args[0]!r}{nearest(args[0], commands)}; for all of them: {prog} --help"
        )
    if isinstance(group := commands.get(args[0]), Group):
        inner = f"{prog} {args[0]}"
        if args[1:] == ["--list"] and "list" in group.commands:
            args = [args[0], "list"]
        if not args[1:]:
            raise ConfigError(f"{inner}: say which, {' or '.join(group.commands)}; for more: {inner} --help")
        named = args[1] in group.commands or args[1] == "help" or args[1].startswith("-") or not group.otherwise
        return parse(group.commands, args[1:] if named else [group.otherwise, *args[1:]], group.about, inner)
    later = {name: _deferred(command) for name, command in commands.items()}
    where = f"{prog} {args[0]}" if args[0] in commands else prog
    if args[0] in commands:  # alone, since a hint would name the options of others
        read = partial(tyro.cli, later[args[0]], prog=where, args=args[1:])
    else:
        read = partial(tyro.extras.subcommand_cli_from_dict, later, prog=prog, args=args, description=about)
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            return read()
    except SystemExit as ended:
        if not ended.code:
            raise
    # The parser draws its message for the terminal that it finds: ask again on a wide one that knows Unicode.
    complaint, utf8 = io.StringIO(), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    wide = patch.dict(os.environ, COLUMNS="5000")
    with suppress(SystemExit), redirect_stderr(complaint), redirect_stdout(utf8), wide:
        read()
    settable = args[0] in commands and "set" in inspect.signature(later[args[0]]).parameters
    raise ConfigError(f"{_one_line(complaint.getvalue(), settable)}; for its options: {where} --help")


def _set_ends(args: list[str]) -> list[str]:
    """`train --set a=1 CONFIG` as `train CONFIG --set a=1`: the option would take the config for a value."""
    if "--set" not in args[1:2]:
        return args
    values = args[2 : next((i for i, word in enumerate(args) if i > 1 and word.startswith("-")), len(args))]
    if len(values) < 2 or "=" in values[-1]:
        return args
    rest = args[2 + len(values) :]
    return [args[0], values[-1], "--set", *values[:-1], *rest]


def _deferred(command: Callable[..., None] | Group) -> Callable[..., Callable[[], None]]:
    """A function that reads the same arguments, and returns the call instead of making it. A group is only listed."""
    if isinstance(command, Group):

        def listed() -> Callable[[], None]:
            raise NotImplementedError

        listed.__doc__ = command.about
        return listed

    @wraps(command)
    def later(*args: Any, **kwargs: Any) -> Callable[[], None]:
        return partial(command, *args, **kwargs)

    later.__annotations__ = {name: kind for name, kind in command.__annotations__.items() if name != "return"}
    return later


def _one_line(box: str, settable: bool) -> str:
    """What the parser's box says: its first paragraph, and of its suggestions the first. `settable`: there is --set."""
    lines = [
        re.sub(r"\x1b\[[0-9;]*m", "", line).strip("│ ") for line in box.splitlines() if not line.startswith(("╭", "╰"))
    ]
    rule = next((i for i, line in enumerate(lines) if line.startswith("─")), len(lines))
    said, rest = " ".join(filter(None, lines[:rule])), lines[rule + 1 :]
    said = re.sub(r"^Error parsing ([^:]+):", r"\1:", said)
    if said.startswith("Missing from"):
        said = re.sub(r"\s*\(required\)", "", said)
    if settable and (wanted := re.match(r"Unrecognized options: ([\w.]+=\S*)", said)):
        said += f"; to set a value: --set {wanted[1]}"
    elif rest and rest[0].startswith("Perhaps you meant"):
        said += f"; did you mean {rest[1].split()[0]}?"
    return said
