"""Tools around the learner: the `crbc` command, plans, reports, prompting agents, studies and statistics.

from crbc_lab import write_report
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crbc_lab.report import write_report as write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    """`write_report` is imported when first used, with the templates and charts behind it."""
    if name == "write_report":
        return import_module("crbc_lab.report").write_report
    raise AttributeError(f"module 'crbc_lab' has no attribute {name!r}")
