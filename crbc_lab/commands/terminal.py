"""Reads what a person types: on a terminal keys that act at once and lines with completion, elsewhere plain lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.renderer import CPR_Support
from prompt_toolkit.shortcuts import CompleteStyle

ARROWS = ("up", "down", "right", "left")


class Lines:
    """Lines from `read`, which returns one for a prompt. There are neither keys nor completion."""

    has_keys = False

    def __init__(self, read: Callable[[str], str] | None = None) -> None:
        self._read = read or _input

    def ask(self, prompt: str, words: Sequence[str], keys: Mapping[str, str]) -> str:
        """The next line. Raises `EOFError` at the end of input."""
        return self._read(prompt)


class Keyboard:
    """The terminal of this process. On an empty line, the first key either acts at once or begins a typed line."""

    has_keys = True

    def __init__(self) -> None:
        self._session: PromptSession[str] = PromptSession(
            complete_style=CompleteStyle.READLINE_LIKE, complete_while_typing=False, enable_suspend=True
        )
        self._session.app.renderer.cpr_support = CPR_Support.NOT_SUPPORTED  # a terminal without an answer got a warning
        self._pasted: list[str] = []

    def ask(self, prompt: str, words: Sequence[str], keys: Mapping[str, str]) -> str:
        """The line that the pressed key of `keys` stands for, or a typed line, in which Tab completes `words`.

        Raises `EOFError` at the end of input.
        """
        if self._pasted:  # lines behind the first
            return self._pasted.pop(0)
        empty, bound = Condition(lambda: not self._session.default_buffer.text), KeyBindings()
        for key, line in keys.items():
            bound.add(key, filter=empty)(partial(_enter, line))
        completer = WordCompleter(words, ignore_case=True, sentence=True)
        first, *self._pasted = self._session.prompt(prompt, completer=completer, key_bindings=bound).split("\n")
        return first


def keyboard() -> Lines | Keyboard:
    """The keyboard on a terminal, and lines elsewhere."""
    plain = sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb"
    return Lines() if plain else Keyboard()


def _enter(line: str, event: KeyPressEvent) -> None:
    event.current_buffer.text = line
    event.current_buffer.validate_and_handle()


def _input(prompt: str) -> str:
    if sys.stdin is None:  # closed by whoever started this process
        raise EOFError
    return input(prompt)
