"""All cases, from the files beside this one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from hostile.case import Case

FILES = sorted(path.stem for path in Path(__file__).parent.glob("cases_*.py"))
CASES: dict[str, Case] = {}
for _file in FILES:
    for _case in import_module(f"hostile.{_file}").CASES:
        assert _case.name not in CASES, f"two cases are named {_case.name}"
        CASES[_case.name] = _case
