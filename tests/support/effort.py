"""How often the tests that repeat a random draw do so: with CRBC_TEST_FULL=1 in full, as scripts/full.sh has it."""

from __future__ import annotations

import os

FULL = os.environ.get("CRBC_TEST_FULL", "0") != "0"


def effort(usual: int, full: int) -> int:
    """`usual` before anything lands; `full` where there is time."""
    return full if FULL else usual
