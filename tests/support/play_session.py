"""A scripted reader plays in the terminal."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable

from rich.console import Console

from crbc_lab.commands.play import play


def typed(out: io.StringIO, lines: Iterable[str]) -> Callable[[str], str]:
    """Stands for `input`: copies each prompt to `out` and answers with the next line, then with the end of input."""
    answers = iter(lines)

    def read(prompt: str) -> str:
        out.write(prompt)
        try:
            return next(answers)
        except StopIteration:
            raise EOFError from None

    return read


def session(
    *lines: str, env_id: str = "CRBC-Sokoban-v0", task: int | None = 12, width: int = 100, split: str = "train"
) -> list[str]:
    """What is shown first, and after each line."""
    out = io.StringIO()
    play(env_id, split, task, 0, Console(file=out, width=width), typed(out, lines))
    return out.getvalue().split("action> ")
