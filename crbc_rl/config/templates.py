"""Jinja templates of others: the prompts of a config, and the chat templates of models.

They run in Jinja's sandbox, which gives them nothing but text. What a rendering costs is up to the template.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import StrictUndefined, TemplateError, Undefined, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Sandbox(ImmutableSandboxedEnvironment):
    """One template in Jinja's sandbox.

    Templates make plain text for a model. Nothing is HTML, so nothing is escaped. `chat` provides what the transformers
    library gives to chat templates. Raises `jinja2.TemplateError` for a template that cannot be read.
    """

    def __init__(self, source: str, chat: bool = False) -> None:
        super().__init__(
            undefined=Undefined if chat else StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
            extensions=(_Generation, loopcontrols) if chat else (),
        )
        if chat:
            self.filters |= {"tojson": _to_json}
            self.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        self._template = self.from_string(source)

    def render(self, fields: dict[str, Any]) -> str:
        """The text. Raises `jinja2.TemplateError`, and whatever its expressions raise."""
        try:
            return self._template.render(fields)
        except RecursionError:
            raise TemplateError("it calls itself without end") from None


class _Generation(Extension):
    """`{% generation %}`, which marks replies for training in chat templates, and changes no text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Without the escapes of HTML that Jinja's own has."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)
