"""Each file and server of the hostile corpus ends in one line or is harmless, within 1 GB and ten seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile.case import Case
from hostile.corpus import CASES
from hostile.lab import run_case
from warm import Warm


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.slow
def test_it_does_no_harm(case: Case, warm: Warm, tmp_path: Path) -> None:
    run_case(case, tmp_path, warm)
