"""Puts the tables and figures of all comparisons into a document, between its marks:

<!-- results: STUDY/SCALE/SETTING -->
what is between them is made anew
<!-- end -->

With "all" for SETTING it is one picture of all settings that are finished.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import cast

from crbc_lab.studies.comparison.definition import SCALES, Scale, Study, load_study
from crbc_lab.studies.comparison.markdown import (
    UNFINISHED,
    coverage,
    fine_print,
    finished,
    kept_of,
    leads,
    missing,
    rows,
    runtime,
    scores,
    table,
    tuning_table,
)
from crbc_lab.studies.comparison.plan import check_plan
from crbc_rl.errors import ConfigError

MARK = re.compile(r"<!-- results: ([\w-]+)/([\w-]+)/([\w.-]+) -->\n.*?<!-- end -->", re.DOTALL)
ALL = "all"
NEEDS = "A table needs two seeds of two methods, the reference among them."
SETTINGS = {"sokoban": "Sokoban, three boxes", "alfworld": "Households in ten commands", "webshop": "The shop"}
"""Their titles at the lab's scale."""

Picture = Callable[[str, str, Callable[[Path], None]], str]
"""`picture(name, title, draw)` has `draw` write a figure, and returns what a document shows for it."""


def rebuilt(text: str, results: Path, picture: Picture) -> str:
    """The document with every marked part made anew from `results`. Raises `ConfigError` for a mark of a study or a
    setting that does not exist."""

    def part(mark: re.Match[str]) -> str:
        name, scale, env = mark.groups()
        if scale not in SCALES:
            raise ConfigError(f"<!-- results: {name}/{scale}/{env} -->: a scale is one of {', '.join(SCALES)}")
        study = load_study(name)
        make = overview if env == ALL else section
        made = make(study, cast(Scale, scale), env, results, picture)
        return f"<!-- results: {name}/{scale}/{env} -->\n{made}\n<!-- end -->"

    return MARK.sub(part, text)


def section(study: Study, scale: Scale, env: str, results: Path, picture: Picture) -> str:
    """What `results` show of one setting: its tables, with the figure between them."""
    study.setting(scale, env)
    check_plan(study, scale, results)
    parts = _compared if study.shows == "comparison" else _measured
    return "\n\n".join(filter(None, parts(study, scale, env, results, picture)))


def overview(study: Study, scale: Scale, env: str, results: Path, picture: Picture) -> str:
    """One picture of all settings of a study that are finished."""
    envs = study.settings.get(scale, {})
    settings = {SETTINGS.get(one, one): rows(study, finished(study, scale, one, results)) for one in envs}
    settings = {title: some for title, some in settings.items() if some}
    if not settings:
        return UNFINISHED

    return picture(
        f"{study.name}-{scale}",
        f"{study.title}: {', '.join(settings)}",
        lambda path: _figures().draw_settings(settings, path),
    )


def _compared(study: Study, scale: Scale, env: str, results: Path, picture: Picture) -> list[str]:
    found, tuned = finished(study, scale, env, results), tuning_table(study, scale, env, results)
    if tuned:
        tuned = f"Candidates, one seed each, chosen by the last two validations, or the only one:\n\n{tuned}"
    early, title = missing(study, scale, env, results, found), f"{study.title}, {env}"
    if not (compared := rows(study, found)):
        return [early or NEEDS, tuned]
    shown = picture(f"{study.name}-{scale}-{env}", title, lambda path: _figures().draw(compared, title, path))
    less = "" if early else leads(study, scale, env, results, found)
    return [early, table(compared, not early), fine_print(compared, not early), less, scores(compared), shown, tuned]


def _measured(study: Study, scale: Scale, env: str, results: Path, picture: Picture) -> list[str]:
    kept = kept_of(study, scale, env, results)
    if not kept:
        return [UNFINISHED]
    if study.shows == "runtime":
        return [runtime(kept)]
    counted = [one for one in kept if one.coverage]
    if not counted:
        return [coverage(kept)]
    title = f"{study.title}, {env}"
    shown = picture(f"{study.name}-{scale}-{env}", title, lambda path: _figures().draw_coverage(counted, title, path))
    return [coverage(kept), shown]


def _figures() -> ModuleType:
    """The module that draws, which takes a while to import."""
    return import_module("crbc_lab.studies.comparison.figures")
