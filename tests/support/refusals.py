"""Commands that are refused."""

from __future__ import annotations

import pytest

from crbc_lab import cli


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which a command is refused, and the status is 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(list(words))
    line = capsys.readouterr().err
    assert ended.value.code == 2 and line.count("\n") == 1, line
    return line
