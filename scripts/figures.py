"""Puts measured figures and pictures into the documents: the parts of `scripts/figures.sh` that are not commands.

    python scripts/figures.py main RUN            # README.md and docs/report.png, from a finished run of the main job
    python scripts/figures.py credit STUDY.json   # the tables of docs/credit/accuracy.md, from `crbc study`
    python scripts/figures.py learning            # those of docs/credit/learning.md and docs/results.md, and a picture

A document marks a place as `<!-- figures: NAME -->`, the text, `<!-- end -->`.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from rich.console import Console

from crbc_envs.webshop.site.browser import find_program
from crbc_lab.commands.train import show_outcome
from crbc_lab.studies.learning import study as learning_study
from crbc_lab.studies.learning import tables as learning
from crbc_lab.studies.learning.settings import SETTINGS

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 1300, 1250
"""Of a failed rollout beside its group's graph, in pixels."""
ABOVE = r'<h2 id="failures">.*?(?=<h2 id="rollouts">)'

PAIRED = ("rank", "sign", "cosine", "mean_cosine", "leakage", "gain_small")
"""The metrics of the credit study that the document shows."""


def put(document: Path, name: str, text: str) -> None:
    """Replace a marked place of a document. Raises `SystemExit` unless it has exactly one of that name."""
    place = re.compile(rf"(<!-- figures: {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    content, count = place.subn(lambda found: found[1] + text + found[2], document.read_text())
    if count != 1:
        raise SystemExit(f"{document} has {count} places marked <!-- figures: {name} -->; it needs one")
    document.write_text(content)


def main_job(run: Path) -> None:
    told = io.StringIO()
    show_outcome(run, 0, Console(file=told, width=200))
    shown = told.getvalue().strip().replace(str(run), "runs/sokoban-boxes-seed0")
    put(ROOT / "README.md", "main job", f"```\n{shown}\n```")
    with tempfile.TemporaryDirectory() as folder:
        picture, page = Path(folder) / "report.png", Path(folder) / "report.html"
        page.write_text(re.sub(ABOVE, "", (run / "report.html").read_text(), flags=re.DOTALL))
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}"]
        program = find_program("chromium") or sys.exit("the picture needs Chromium: apt-get install -y chromium")
        subprocess.run([program, *options, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)
        Image.open(picture).convert("P", palette=Image.Palette.ADAPTIVE).save(ROOT / "docs/report.png", optimize=True)


AXES = ("sokoban", "slip", "lucky", "house", "shop", "alfworld")
"""The worlds in which CRBC's options are told one after the other."""


def credit_tables(study: Path) -> None:
    """What `crbc_plus` gains over `crbc` in every world, and each metric of every method, by world."""
    worlds = {name: world["by_group_size"]["8"] for name, world in json.loads(study.read_text())["worlds"].items()}
    page = ROOT / "docs/credit/accuracy.md"
    gained = [[name, *(_signed(w["minus_crbc"]["crbc_plus"][m]) for m in PAIRED)] for name, w in worlds.items()]
    put(page, "plus", _markdown(["", *(m.replace("_", " ") for m in PAIRED)], gained))
    names = next(iter(worlds.values()))["scores"]
    options = [name for name in names if name.startswith("crbc ") and not name.endswith(" step")]
    rows = [[name, *(_signed(worlds[w]["minus_crbc"][name]["cosine"]) for w in AXES)] for name in options]
    put(page, "options", _markdown(["", *AXES], rows))
    methods = [name for name in names if not name.endswith(" step") and not name.startswith("crbc ")]
    for metric in PAIRED:
        rows = [[method, *(_plain(w["scores"][method][metric][0]) for w in worlds.values())] for method in methods]
        put(page, metric, _markdown(["", *worlds], rows))


KEPT = ("learning", "learning_hidden", "learning_board")
"""The kept studies of what is learned, each stated beforehand: folders of `results/`."""
BESIDE = ("grpo", "gigpo", "graphgpo", "g2po", "crbc_plus")
"""The methods of the short table."""


def learned(name: str) -> learning.Table:
    """The rows of a kept study, of all that its plan states."""
    results = ROOT / "results" / name
    stated = learning_study.planned(results)
    assert stated is not None, results
    kept = [learning_study.place(results, setting, estimator.name) for setting, estimator in stated.parts()]
    return learning.table(list(map(learning_study.read, kept)))


def learning_tables() -> None:
    """A table for each setting, one of all differences, and the effect sizes of the first study."""
    page, short = ROOT / "docs/credit/learning.md", []
    for study in KEPT:
        put(page, study, _by_setting(found := learned(study)))
        if study == KEPT[0]:
            learning.draw(found, ROOT / "docs/credit/learning.png")
        for setting, rows in found.items():
            cells = {line[0]: f"{line[4]}{'*' * line[5].endswith('*')}" for line in learning.lines(rows)}
            area = next(line[2] for line in learning.lines(rows) if line[0] == "crbc")
            short.append([setting, area, *(cells.get(method, "") for method in BESIDE)])
    for study in ("learning_options", "learning_fresh"):
        put(page, study, _options(learned(study)))
    put(ROOT / "docs/results.md", "learning", _markdown(["", "crbc", *(f"{m} minus crbc" for m in BESIDE)], short))


def _options(found: learning.Table) -> str:
    """CRBC's area in each setting, and what each option has less or more."""
    rows: dict[str, list[str]] = {}
    for setting in found.values():
        for name, _, area, _, difference, p in sorted(learning.lines(setting)):
            rows.setdefault(name, []).append(f"{difference or area}{'*' * p.endswith('*')}")
    return _markdown(["", *found], [[name, *cells] for name, cells in rows.items()])


def _by_setting(found: learning.Table) -> str:
    parts = []
    for setting, rows in found.items():
        heads = [f"area at {rate:g}" for rate in rows[0].result.rates]
        areas = {name: cells for name, *cells in learning.by_rate(rows)}
        table = [[*line, *areas[line[0]]] for line in learning.lines(rows)]
        start = f"{100 * rows[0].result.curve[0].mean():.1f} % at the start"
        told = f"**{setting}**: {SETTINGS[setting].description}; {start}."
        parts.append(f"{told}\n{_markdown([*learning.HEADS, *heads, 'works'], table)}")
    return "\n".join(parts)


def _markdown(heads: list[str], rows: list[list[str]]) -> str:
    return "\n" + "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)) + "\n"


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _signed(figure: tuple[float | None, float | None]) -> str:
    """A difference and its 95 % interval; bold where that does not include zero."""
    middle, width = figure
    if middle is None or width is None:
        return ""
    text = f"{middle:+.3f} ± {width:.3f}"
    return f"**{text}**" if abs(middle) > width else text


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    parts: dict[str, Callable[..., None]] = {"main": main_job, "credit": credit_tables, "learning": learning_tables}
    parts[what](*map(Path, given))
