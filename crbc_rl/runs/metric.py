"""Description of one metric."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its key in metrics.jsonl, its group, title, unit and meaning, and the values that indicate a problem
    (`worry`). With `panel` the report draws its curve."""

    key: str
    group: str
    title: str
    unit: str
    meaning: str
    worry: str = ""
    panel: bool = False
