"""What `crbc train` says at its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from strategies import group

from crbc_envs.storage.rollouts import write_groups
from crbc_lab.commands.train import first_look


@pytest.mark.parametrize(("ended", "shown"), [("+-", True), ("++", False)])
def test_it_shows_what_was_lost_where_something_was(tmp_path: Path, ended: str, shown: bool) -> None:
    assert first_look(tmp_path) is None
    (tmp_path / "transcripts").mkdir()
    start, last = (tmp_path / f"transcripts/test-{update:06d}.parquet" for update in (0, 60))
    write_groups(start, [group("s:a -")])
    assert first_look(tmp_path) is None, "the last policy is meant"
    write_groups(last, [group(f"s:a {end}") for end in ended], update=60)
    assert first_look(tmp_path) == (last if shown else None)
    last.write_bytes(b"damaged")
    assert first_look(tmp_path) is None
