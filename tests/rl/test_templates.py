"""Templates of others run in a sandbox; honest ones are Jinja's."""

from __future__ import annotations

import pytest
from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from crbc_rl.config.templates import Sandbox

FIELDS = {"task": "Open the <door>.", "admissible": ("go", "open door", "wait"), "step": 3, "history": (("a", "b"),)}

HONEST = [
    "{{ task }} & {{ step + 1 }}",
    "{% for action in admissible %}\n  {{ loop.index }}/{{ loop.length }}"
    " {{ action }}{{ ', ' if not loop.last }}\n{% endfor %}",
    "{% set x %}{{ task|replace('door', 'gate') }}{% endset %}{{ x|indent(2) }}",
    "{{ '%03d' % step }} {{ '{:>5}'.format(step) }} {{ 2 ** 10 % 7 }}",
    "{{ admissible|join(', ') }} {{ admissible|map('upper')|list }} {{ task[:4] }} {{ admissible[-1] }}",
    "{% if 'go' in admissible and step > 2 %}{{ admissible|sort|first }}{% endif %}",
    "{% for seen, done in history %}{{ seen }} {{ done }}{% else %}none{% endfor %}{{ admissible|tojson }}",
]


@pytest.mark.parametrize("source", HONEST)
def test_an_honest_template_is_jinja_s(source: str) -> None:
    plain = ImmutableSandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    sandbox = Sandbox(source)
    assert sandbox.render(FIELDS) == plain.from_string(source).render(FIELDS)


def test_a_chat_template_has_what_the_library_gives_it() -> None:
    source = "{% for m in messages %}{{ m }}{% if m == 'b' %}{% break %}{% endif %}{% endfor %}"
    source += "{% generation %}x{% endgeneration %}"
    assert Sandbox(source + "{{ {'a': '<é>'} | tojson }}", chat=True).render({"messages": "abc"}) == 'abx{"a": "<é>"}'
    with pytest.raises(TemplateError, match="no system"):
        Sandbox("{{ raise_exception('no system') }}", chat=True).render({})
    assert Sandbox("{{ unknown }}{{ strftime_now('%%') }}", chat=True).render({}) == "%"


ESCAPES = {
    "attributes": "{{ task.__class__.__mro__.x }}",
    "change": "{{ [].append(1) }}",
    "calls itself": "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
}


@pytest.mark.parametrize("chat", [False, True], ids=["prompt", "chat"])
@pytest.mark.parametrize("source", ESCAPES.values(), ids=ESCAPES)
def test_what_escapes_or_never_ends_is_refused(source: str, chat: bool) -> None:
    with pytest.raises(TemplateError):
        Sandbox(source, chat).render(FIELDS)
