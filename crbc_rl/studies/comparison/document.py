"""Puts the tables and figures of all comparisons into a document, between its marks:

<!-- results: STUDY/SCALE/SETTING -->
what is between them is made anew
<!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

from crbc_rl.errors import ConfigError
from crbc_rl.studies.comparison.definition import SCALES, Scale, load_study
from crbc_rl.studies.comparison.measured import measured
from crbc_rl.studies.comparison.tables import Row, fine_print, rows, scores, table, tuning_table

MARK = re.compile(r"<!-- results: ([\w-]+)/([\w-]+)/([\w.-]+) -->\n.*?<!-- end -->", re.DOTALL)
UNFINISHED = "Not run yet."


def rebuilt(text: str, results: Path, pictures: Callable[[str, list[Row], str], str]) -> str:
    """The document with every marked part made anew from `results`.

    `pictures(name, rows, title)` draws a figure, and returns what the document shows for it. Raises `ConfigError` for a
    mark of a study or a setting that does not exist.
    """

    def part(found: re.Match[str]) -> str:
        name, scale, env = found.groups()
        if scale not in SCALES:
            raise ConfigError(f"<!-- results: {name}/{scale}/{env} -->: a scale is one of {', '.join(SCALES)}")
        made = _part(name, cast(Scale, scale), env, results, pictures)
        return f"<!-- results: {name}/{scale}/{env} -->\n{made}\n<!-- end -->"

    return MARK.sub(part, text)


def _part(name: str, scale: Scale, env: str, results: Path, pictures: Callable[[str, list[Row], str], str]) -> str:
    study = load_study(name)
    study.setting(scale, env)
    if study.shows != "comparison":
        return measured(study, scale, env, results) or UNFINISHED
    found, tuned = rows(study, scale, env, results), tuning_table(study, scale, env, results)
    if not found:
        return "\n\n".join(filter(None, (UNFINISHED, tuned)))
    parts = [
        table(found),
        fine_print(found),
        scores(found),
        pictures(f"{name}-{scale}-{env}", found, f"{study.title}, {env}"),
        tuned and f"Candidates, one seed each, chosen by the last two validations:\n\n{tuned}",
    ]
    return "\n\n".join(filter(None, parts))
