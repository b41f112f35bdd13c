"""A page as HTML: one document with one script and one style of ours."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from crbc_envs.actions import CLOSE_THINK
from crbc_lab.report.content import first_of, ramps


def written(content: dict[str, Any], live: str = "") -> str:
    """The page of these variables. `live` is what a served page knows its files by; its groups are asked for. A browser
    runs and loads nothing of it but its script and its style, which its policy names by their digests."""
    style = _templates().get_template("style.html.j2").render(ramps=ramps())
    script = _templates().get_template("script.html.j2").render(close_think=CLOSE_THINK, live=bool(live))
    parts = {"style": Markup(style), "script": Markup(script), "policy": policy(style, script, bool(live))}
    told = {"groups": [], "pieces": [], "frames": [], "first": first_of(content["index"]), "live": live}
    return _templates().get_template("report.html.j2").render(told | content | parts)


def panel(part: dict[str, Any]) -> str:
    """The panel of the only group of `part`, which `drawn` made, with its own texts and frames."""
    group, own = part["groups"][0], {name: part[name] for name in ("pieces", "frames")}
    group["data"] |= own
    return _templates().get_template("panel.html.j2").render(g=group, first=group["key"])


def policy(style: str, script: str, live: bool = False) -> str:
    """The Content-Security-Policy of a page with one style and one script of ours, and nothing from anywhere, but for
    what a served page asks its own server for."""
    digests = [b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; img-src data:; "
        + ("connect-src 'self'; " if live else "")
        + "base-uri 'none'; form-action 'none'"
    )


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("crbc_lab", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
