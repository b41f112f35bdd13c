"""Where things are: the project, what tests share, and the data beside the project, which may be absent."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
ROOT = SUPPORT.parents[1]
SHARED = ROOT.parent / "shared"
