"""The report of a run: one self-contained HTML file, with its rollouts. The same folder gives the same bytes."""

from __future__ import annotations

import errno
from pathlib import Path

from crbc_rl.errors import ConfigError

__all__ = ["write_report"]


def write_report(run: Path, *others: Path, out: Path | None = None) -> Path:
    """Write RUN/report.html, or the file `out`, of a run's config, metrics and kept rollouts; return its path.

    `run` may also be an evaluation's F.json, whose page is F.html, the folder of a prompting agent, or the folder of
    several runs, which are compared. With `others`, runs or folders of them, it is compared in compared.html. A browser
    runs and loads nothing of the page but the script and the style of the template, which its policy names by their
    digests. Raises `ConfigError` where `run` is none of these, has no metrics yet, or cannot be written.
    """
    from crbc_envs.storage.files import replace_file
    from crbc_lab.report.content import drawn
    from crbc_lab.report.others import page_of
    from crbc_lab.report.page import written

    content, place = page_of([run, *others])
    html = written(content | drawn(content["scenes"])).encode(errors="replace")
    try:
        replace_file(out or place, html)
    except OSError as error:
        if out is None and error.errno in (errno.EROFS, errno.EACCES):
            raise ConfigError(f"{place.parent} cannot be written ({error.strerror}): add --out FILE") from error
        raise
    return out or place
