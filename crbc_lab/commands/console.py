"""The console of the commands, on which data can be seen and cannot act."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from crbc_envs.printable import printable


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
