"""Each file and server of the hostile corpus ends in one line or is harmless, within 1 GB and ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile.case import Case
from hostile.corpus import CASES
from hostile.lab import Lab


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as running:
        yield running


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_does_no_harm(case: Case, lab: Lab, tmp_path: Path) -> None:
    lab.judge(case, tmp_path)
