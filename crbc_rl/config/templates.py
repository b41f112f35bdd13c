"""Jinja templates of others: the prompts of a config, and the chat templates of models.

They run in Jinja's sandbox, which gives them nothing but text. They also run within bounds: a rendering has a number of
steps and of characters to spend, so that no loop and no repetition exhausts the machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

from jinja2 import StrictUndefined, TemplateError, Undefined, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.visitor import NodeTransformer

LONGEST_SOURCE = 256 << 10
"""Characters of a template."""
STEPS = 100_000
"""Turns of loops and calls in one rendering."""
CHARACTERS = 8 << 20
"""Characters and items that the expressions of one rendering make, all together."""
LARGEST_NUMBER = 1_000_000
"""The largest number that a filter or a function takes, such as a width."""
BITS = 1_000
"""Of a whole number."""


class Sandbox(ImmutableSandboxedEnvironment):
    """One template in Jinja's sandbox, within bounds.

    Templates make plain text for a model. Nothing is HTML, so nothing is escaped. `chat` provides what the transformers
    library gives to chat templates. Raises `jinja2.TemplateError` for a template that is too long or cannot be read.
    """

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, source: str, chat: bool = False) -> None:
        super().__init__(
            undefined=Undefined if chat else StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
            optimized=False,  # it would compute constants such as 'a' * 10**10 before anything is counted
            finalize=_shown,
            extensions=(_Generation, loopcontrols) if chat else (),
        )
        self._steps = self._characters = 0
        filters = {**self.filters, **({"tojson": _to_json} if chat else {})}
        self.filters = {name: self._bounded(name, function) for name, function in filters.items()}
        self.filters |= {"_turns": self._turns, "_joined": self._joined, "_made": self._made}
        del self.globals["lipsum"]
        if chat:
            self.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        if len(source) > LONGEST_SOURCE:
            raise TemplateError(f"it has {len(source):,} characters, and at most {LONGEST_SOURCE:,} are read")
        try:
            self._template = self.from_string(source)
        except RecursionError:
            raise TemplateError("it is nested too deeply") from None

    def render(self, fields: dict[str, Any]) -> str:
        """The text. Raises `jinja2.TemplateError`, also beyond the bounds, and whatever its expressions raise."""
        self._steps = self._characters = 0
        try:
            return self._template.render(fields)
        except RecursionError:
            raise TemplateError("it calls itself without end") from None

    # ---- counting -----------------------------------------------------------------------------

    def step(self) -> None:
        self._steps += 1
        if self._steps > STEPS:
            raise TemplateError(f"it takes more than {STEPS:,} steps")

    def spend(self, characters: int) -> None:
        self._characters += characters
        if self._characters > CHARACTERS:
            raise TemplateError(f"it makes more than {CHARACTERS:,} characters")

    def _made(self, value: Any) -> Any:
        self.spend(_size(value))
        return value

    def _turns(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.step()
            yield item

    def _joined(self, parts: list[Any]) -> str:
        return self._made("".join(map(str, parts)))

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter whose numbers are small, and whose result is counted."""

        @wraps(function)
        def bounded(*args: Any, **options: Any) -> Any:
            self._check(name, [*args, *options.values()])
            return self._made(function(*args, **options))

        return bounded

    def _check(self, name: str, args: list[Any]) -> None:
        self.step()
        if any(isinstance(number, int) and abs(number) > LARGEST_NUMBER for number in args):
            raise SecurityError(f"{name} takes numbers up to {LARGEST_NUMBER:,}")
        texts = [arg for arg in args if isinstance(arg, str | list | tuple)]
        if name in ("format", "format_map") and texts:
            _check_format(str(texts[0]))
        if name in ("replace", "join") and texts:  # each character may become a whole text
            first, *others = map(_size, texts)
            self.spend((first + 1) * max([1, *others]) // 8)

    # ---- hooks of Jinja -----------------------------------------------------------------------

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Counted().visit(super()._parse(source, name, filename))  # type: ignore[no-any-return]

    def call(self, context: Any, obj: Any, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        method = getattr(obj, "__wrapped__", obj)
        subject = getattr(method, "__self__", None)
        name = getattr(method, "__name__", "")
        self._check(name, [*([subject] if isinstance(subject, str) else []), *args, *options.values()])
        return self._made(super().call(context, obj, *args, **options))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        sizes = [_size(value) for value in (left, right)]
        numbers = [value for value in (left, right) if isinstance(value, int)]
        if operator == "+":
            self.spend(sum(sizes))
        elif operator == "%" and isinstance(left, str):
            _check_format(left)
        elif operator == "*" and len(numbers) == 1:
            self.spend(sum(sizes) * max(0, numbers[0]))
        elif operator in "**" and len(numbers) == 2:
            bits = [number.bit_length() for number in numbers]
            if (bits[0] * abs(right) if operator == "**" else sum(bits)) > BITS:
                raise SecurityError(f"{operator} makes a number of more than {BITS:,} bits")
        return super().call_binop(context, operator, left, right)


class _Counted(NodeTransformer):
    """Counts the turns of loops, joined texts and slices, for which Jinja has no hook."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        if node.recursive:
            raise TemplateError(f"line {node.lineno}: a recursive loop is not allowed")
        self.generic_visit(node)
        node.iter = _filtered("_turns", node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered("_joined", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered("_made", node) if isinstance(node.arg, nodes.Slice) else node


def _filtered(name: str, node: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _Generation(Extension):
    """`{% generation %}`, which marks replies for training in chat templates, and changes no text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@pass_context  # so that nothing is shown, and counted, before the rendering
def _shown(context: Any, value: Any) -> Any:
    context.environment.step()
    context.environment.spend(_size(value))
    return value


def _size(value: Any) -> int:
    """Characters of a text, or of the texts and items of a list."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(len(item) if isinstance(item, str) else 1 for item in value)
    return 1


def _check_format(text: str) -> None:
    if re.search(r"\d{5}|\*", text):
        raise SecurityError("a format has a width of more than four digits")


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Without the escapes of HTML that Jinja's own has."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)
