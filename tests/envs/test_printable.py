"""What a terminal may print of a text from elsewhere."""

import pytest

from crbc_envs.printable import one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, é😀", "plain text, é😀"),
        ("\x1b[31mred\x1b[0m", "\ufffd[31mred\ufffd[0m"),
        ("\x1b]0;title\x07", "\ufffd]0;title\ufffd"),
        ("\x9b2J\x90\x85", "\ufffd2J\ufffd\ufffd"),
        ("a\x00\b\x7f\x0b\x0c", "a" + 5 * "\ufffd"),
        ("one\rtwo", "one\ufffdtwo"),
        ("one\r\ntwo\nthree", "one\ntwo\nthree"),
        ("a\tb\xa0c\u2003d", "a b c d"),
        ("\u202ereversed\u2066\u200f", "\ufffdreversed\ufffd\ufffd"),
        ("zero\u200bwidth\ufeff", "zero\ufffdwidth\ufffd"),
        ("line\u2028and\u2029page", "line\ufffdand\ufffdpage"),
        ("half \ud800 pair", "half \ufffd pair"),
        ("[red]x[/red] [link=https://x]", "[red]x[/red] [link=https://x]"),
    ],
)
def test_what_would_act_is_shown_instead(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown


def test_a_long_text_is_cut():
    assert printable("x" * 10, 10) == "x" * 10
    assert printable("x" * 11, 10) == "x" * 10 + " ..."
    assert len(printable("\x1b" * 10_000_000)) < 30_000


def test_one_line_has_no_other_blanks():
    assert one_line(" a\n\n b\t\x1bc\x1c d ") == "a b \ufffdc d"
