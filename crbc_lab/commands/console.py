"""The console of the commands, on which data can be seen and cannot act; lines and bars that several print."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import Progress
from rich.segment import Segment

from crbc_envs.printable import printable

if TYPE_CHECKING:
    from crbc_envs.local_server import LocalServer


class PlainConsole(Console):
    """A rich console whose texts are all `printable`, wherever they come from.

    What rich itself sends to the terminal, colours and moves of the cursor, is no text. Markup in data must still be
    escaped where it is put into markup.
    """

    def __init__(self) -> None:
        super().__init__(emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or text.isprintable() else Segment(printable(text, len(text)), style)


console = PlainConsole()


def print_line(console: Console, text: str) -> None:
    """Print a text as it is, without markup, colours and breaks of ours."""
    console.print(escape(text), highlight=False, soft_wrap=True)


def print_written(console: Console, *paths: Path) -> None:
    for path in paths:
        print_line(console, f"wrote {path}")


def view_command(path: Path) -> str:
    """What a shell takes to look at a run or at a recording."""
    return shlex.join(["crbc", "view", str(path)])


def serve_pages(console: Console, server: LocalServer, what: str) -> None:
    """Say where `what` is, and serve it until Ctrl-C."""
    console.print(f"{what} at [bold]{escape(server.url)}[/]  (Ctrl-C ends it)", soft_wrap=True, highlight=False)
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()
    console.print("closed")


@contextmanager
def progress_bar(console: Console, title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, which is gone at the end. It is moved by a call with what is done, and of how much."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)
