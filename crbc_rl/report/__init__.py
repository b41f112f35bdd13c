"""The report of a run: one self-contained HTML file. The same run folder gives the same bytes."""

from __future__ import annotations

from pathlib import Path

from crbc_rl.errors import ConfigError

__all__ = ["write_report"]


def write_report(run: Path) -> Path:
    """Write RUN/report.html from the run's config, metrics and recorded groups, and return its path.

    Raises `ConfigError` where `run` is no run folder, or has no metrics yet.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from crbc_rl.report.content import content
    from crbc_rl.runs.folder import Run
    from crbc_rl.runs.lines import replace_file
    from crbc_rl.runs.metrics import read_metrics

    opened, records = Run.open(run), read_metrics(run)
    if not records:
        raise ConfigError(
            f"{run} has no metrics yet: {run / 'metrics.jsonl'} holds no record; continue the run with "
            f"`crbc train CONFIG --run {run} --resume`, then `crbc report {run}`"
        )
    templates = Environment(
        loader=PackageLoader("crbc_rl", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = templates.get_template("report.html.j2").render(content(opened, records))
    path = run / "report.html"
    replace_file(path, html.encode())
    return path
