"""`crbc play` on a real terminal, a pseudo terminal of this machine."""

from __future__ import annotations

import io
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from paths import ROOT
from warm import Warm

from crbc_lab.commands import terminal

pty = pytest.importorskip("pty")
fcntl = pytest.importorskip("fcntl")
termios = pytest.importorskip("termios")

UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
CTRL_C, CTRL_D = "\x03", "\x04"
PROMPT = "action>"
PATIENCE = 120
"""Seconds until a program that does not answer fails the test."""

PLAY = """
import os, sys
terminal = os.open(sys.argv[1], os.O_RDWR)  # the first that it opens is its own, so that Ctrl-C is sent to us
for stream in range(3):
    os.dup2(terminal, stream)
sys.stdin, sys.stdout, sys.stderr = (open(n, "r" if n == 0 else "w", 1, closefd=False) for n in range(3))
from crbc_lab import cli
cli.main(["play", *sys.argv[2:]])
"""


class Screen:
    """A program on a terminal of 24 lines of 80 columns."""

    def __init__(self, warm: Warm, *args: str, **variables: str | None) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(24, 80)
        self.modes = termios.tcgetattr(self.theirs)
        env = {"TERM": "xterm", **variables, **dict.fromkeys(("COLUMNS", "LINES", "NO_COLOR"))}
        self.program = warm.start(["-c", PLAY, os.ttyname(self.theirs), *args], ROOT, env)
        self.ended = False
        self.text = ""

    def resize(self, lines: int, columns: int) -> None:
        size = lines.to_bytes(2, sys.byteorder) + columns.to_bytes(2, sys.byteorder) + bytes(4)
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, size)

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def until(self, wanted: str) -> str:
        """What is written up to `wanted`, without colours."""
        limit = time.monotonic() + PATIENCE
        while wanted not in self._plain():
            assert time.monotonic() < limit, f"no {wanted!r} in {self.text!r}"
            if select.select([self.ours], [], [], 0.1)[0]:
                self.text += os.read(self.ours, 1 << 16).decode()
        assert "\x1b[6n" not in self.text  # a question that not every terminal answers
        seen, found, self.text = self._plain().partition(wanted)
        return seen + found

    def _plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.text).replace("\r\n", "\n")

    def asked(self) -> str:
        """What is written up to the next prompt. The one before is drawn again as a key is pressed."""
        return self.until("Q quit") + self.until(PROMPT)

    def end(self, key: str) -> str:
        """Press the key that ends the program; what it still writes. It must end well and restore the terminal."""
        self.press(key)
        ended, self.ended = self.program.wait(PATIENCE), True
        assert ended.status == 0, ended
        assert termios.tcgetattr(self.theirs) == self.modes
        while select.select([self.ours], [], [], 0.1)[0]:
            self.text += os.read(self.ours, 1 << 16).decode()
        return self._plain()

    def close(self) -> None:
        if not self.ended:
            self.program.wait(0.0)
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def started(warm: Warm) -> Iterator[Callable[..., Screen]]:
    """Starts a program on a screen of its own."""
    with ExitStack() as stack:

        def start(*args: str, **variables: str) -> Screen:
            screen = Screen(warm, *args, **variables)
            stack.callback(screen.close)
            return screen

        yield start


def test_arrow_keys_move_at_once_and_win(started):
    screen = started("CRBC-Sokoban-v0", "--task", "12")
    first = screen.asked()
    assert "arrow keys move   ? help   A again   N next   Q quit" in first
    assert "  # . # @ # #\n  # _ $ _ _ #\n" in first
    screen.press(DOWN)
    moved = screen.asked()
    assert "step 1 of 15" in moved and "  # _ $ @ _ #\n" in moved
    screen.press("\x1bOD")  # as keypads send it
    assert "step 2 of 15" in screen.asked()
    screen.press("?")
    assert "$ box" in screen.until("$ box")
    screen.press(f"dw{LEFT}o{RIGHT}\t\r")  # edited and completed
    assert f"{PROMPT} down\n" in screen.until("step 3 of 15").replace("\r", "")
    assert "down  reward -0.1" in screen.until("reward -0.1")
    screen.press(LEFT)
    screen.until("step 4 of 15")
    screen.press("\x1b[1;5H\x1b[15~\t\x7f")  # keys that mean nothing
    screen.press(UP)
    assert "up  reward +10.9  score 1.00  solved" in screen.until("solved")
    screen.press("N")
    assert "train/12 " not in screen.until("step 0 of 15").rpartition("solved")[2]
    assert screen.end("Q").rstrip().endswith("quit")


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D, "u" + CTRL_C, "q\r"])
def test_the_terminal_is_restored(started, key):
    screen = started("CRBC-Sokoban-v0", "--task", "12")
    screen.asked()
    screen.resize(10, 40)
    os.kill(screen.program.pid, signal.SIGWINCH)
    assert "Traceback" not in screen.end(key)


def test_pasted_lines_are_lines(started):
    screen = started("CRBC-Sokoban-v0", "--task", "12")
    screen.asked()
    screen.press("\x1b[200~right\ndown\x1b[201~\r")
    assert "step 2 of 15" in screen.until("down  reward")
    screen.end("Q")


def test_a_terminal_that_can_do_nothing_reads_lines(started):
    screen = started("CRBC-Sokoban-v0", "--task", "12", TERM="dumb")
    assert "arrow keys" not in screen.until(PROMPT)
    screen.press("r\r")
    assert "right  reward" in screen.until("right  reward")
    assert "\x1b" not in screen.text
    screen.end(CTRL_D)


@pytest.mark.parametrize("stdin", [None, io.StringIO()])
def test_lines_are_read_where_there_is_no_terminal(monkeypatch, stdin):
    monkeypatch.setattr("sys.stdin", stdin)
    assert isinstance(terminal.keyboard(), terminal.Lines)
