"""Reads what a person types: on a terminal keys that act at once and lines with completion, elsewhere plain lines."""

from __future__ import annotations

import codecs
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
"""Names of the arrow keys by the last letter of what they send."""
_END_OF_INPUT = "\x04"
_ESCAPE = "\x1b"
_WAIT = 0.5
"""Seconds. The rest of a key arrives sooner after its escape character, also over a slow line."""


class Lines:
    """Lines from `read`, which returns one for a prompt. There are neither keys nor completion."""

    has_keys = False

    def __init__(self, read: Callable[[str], str] | None = None) -> None:
        self._read = read or _input

    def ask(self, prompt: str, words: Sequence[str], keys: Mapping[str, str]) -> str:
        """The next line. Raises `EOFError` at the end of input."""
        return self._read(prompt)


def _input(prompt: str) -> str:
    if sys.stdin is None:  # closed by whoever started this process
        raise EOFError
    return input(prompt)


@contextmanager
def opened() -> Iterator[Lines | Keyboard]:
    """The keyboard on a terminal, and lines elsewhere. The terminal's settings are restored at the end."""
    keyboard = _keyboard()
    if keyboard is None:
        yield Lines()
        return
    try:
        yield keyboard
    finally:
        keyboard.restore()


def _keyboard() -> Keyboard | None:
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        return None
    try:
        import readline  # here, because its import alone may write to the terminal
        import termios
        import tty
    except ModuleNotFoundError:  # not on Windows
        return None
    return Keyboard(readline, termios, tty)


class Keyboard:
    """The terminal of this process. On an empty line, the first key either acts at once or begins a typed line."""

    has_keys = True

    def __init__(self, readline: Any, termios: Any, tty: Any) -> None:
        self._readline, self._termios, self._tty = readline, termios, tty
        self._fd = sys.stdin.fileno()
        self._mode = termios.tcgetattr(self._fd)
        self._completer, self._delimiters = readline.get_completer(), readline.get_completer_delims()
        self._words: Sequence[str] = ()
        readline.set_completer(self._complete)
        readline.set_completer_delims("")  # an action is completed as a whole, spaces included
        readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")

    def restore(self) -> None:
        self._typed()
        self._readline.set_completer(self._completer)
        self._readline.set_completer_delims(self._delimiters)

    def ask(self, prompt: str, words: Sequence[str], keys: Mapping[str, str]) -> str:
        """The line that the pressed key of `keys` stands for, or a typed line, in which Tab completes `words`.

        Raises `EOFError` at the end of input.
        """
        self._words = words
        key = self._first_key(prompt, keys) if keys else ""
        if key in keys or key == "\n":
            print(keys.get(key, ""))
            return keys.get(key, "")
        self._typed()
        self._readline.set_startup_hook(lambda: self._readline.insert_text(key))
        print(end="\r" if key else "", flush=True)  # the prompt stands there already
        try:
            return input(prompt)
        finally:
            self._readline.set_startup_hook(None)

    def _first_key(self, prompt: str, keys: Mapping[str, str]) -> str:
        """The first key that means something: one of `keys`, Enter, or a printable character."""
        self._unbuffered()  # before anybody can answer
        print(end=prompt, flush=True)
        while True:
            key = self._key()
            if key == _END_OF_INPUT:
                raise EOFError
            if key in keys or key == "\n" or (len(key) == 1 and key.isprintable()):
                return key

    def _key(self) -> str:
        """One key: a character, or the name of an arrow key; empty for any other key."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        symbol = ""
        while not symbol:
            symbol = decode(self._byte())
        if symbol != _ESCAPE:
            return "\n" if symbol == "\r" else symbol
        sequence = ""
        while self._ready():
            sequence += self._byte().decode("ascii", "replace")
            if sequence not in ("[", "O") and not sequence[-1].isdigit() and sequence[-1] != ";":
                break
        return ARROWS.get(sequence[1:], "")

    def _byte(self) -> bytes:
        while not self._ready():
            self._unbuffered()  # again, because a shell sets its own mode after Ctrl-Z
        byte = os.read(self._fd, 1)
        if not byte:
            raise EOFError
        return byte

    def _ready(self) -> bool:
        return bool(select.select([self._fd], [], [], _WAIT)[0])

    def _unbuffered(self) -> None:
        """Get each key at once, without its echo. Keys pressed before are kept."""
        self._tty.setcbreak(self._fd, self._termios.TCSADRAIN)

    def _typed(self) -> None:
        """Let the terminal edit lines and show what is typed, as it was found."""
        with suppress(self._termios.error):  # it may be gone
            self._termios.tcsetattr(self._fd, self._termios.TCSADRAIN, self._mode)

    def _complete(self, text: str, number: int) -> str | None:
        matches = [word for word in self._words if word.startswith(text.lower())]
        return matches[number] if number < len(matches) else None
