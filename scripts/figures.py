"""Puts measured figures and pictures into the documents: the parts of `scripts/figures.sh` that are not commands.

    python scripts/figures.py main RUN            # README.md and docs/report.png, from a finished run of the main job
    python scripts/figures.py credit STUDY.json   # the tables of docs/credit/accuracy.md, from `crbc study`

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

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 1300, 1250
"""Of a failed rollout beside its group's graph, in pixels."""
ABOVE = r'<h2 id="failures">.*?(?=<h2 id="rollouts">)'

PAIRED = ("rank", "sign", "cosine", "mean_cosine", "leakage")
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
    parts: dict[str, Callable[..., None]] = {"main": main_job, "credit": credit_tables}
    parts[what](*map(Path, given))
