"""A scripted reader plays in the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from crbc_rl.commands.play import play


def session(
    *lines: str, env_id: str = "CRBC-Sokoban-v0", task: int | None = 12, width: int = 100, split: str = "train"
) -> list[str]:
    """What is shown first, and after each line."""
    out = io.StringIO()
    answers = iter(lines)

    def read(prompt: str) -> str:
        out.write(prompt)
        try:
            return next(answers)
        except StopIteration:
            raise EOFError from None

    play(env_id, split, task, 0, Console(file=out, width=width), read)
    return out.getvalue().split("action> ")
