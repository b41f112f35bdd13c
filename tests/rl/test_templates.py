"""Templates of others run in a sandbox and within bounds; honest ones are Jinja's."""

from __future__ import annotations

import pytest
from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from crbc_rl.config import templates
from crbc_rl.config.templates import Sandbox

FIELDS = {"task": "Open the <door>.", "admissible": ("go", "open door", "wait"), "step": 3, "history": (("a", "b"),)}

HONEST = [
    "{{ task }} & {{ step + 1 }}",
    "{% for action in admissible %}\n  {{ loop.index }}/{{ loop.length }}"
    " {{ action }}{{ ', ' if not loop.last }}\n{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for a in admissible %}{% set ns.n = ns.n + a|length %}{% endfor %}{{ ns.n }}",
    "{% macro line(a, n=2) %}{{ a|upper ~ '-' * n }}{% endmacro %}{{ line(task) }}{{ line('x', n=1) }}",
    "{% set x %}{{ task|replace('door', 'gate') }}{% endset %}{{ x|indent(2) }}",
    "{{ '%03d' % step }} {{ '{:>5}'.format(step) }} {{ 2 ** 10 % 7 }}",
    "{{ admissible|join(', ') }} {{ admissible|map('upper')|list }} {{ task[:4] }} {{ admissible[-1] }}",
    "{% if 'go' in admissible and step > 2 %}{{ admissible|sort|first }}{% endif %}",
    "{% filter title %}abc{% endfilter %}",
    "{% for seen, done in history %}{{ seen }} {{ done }}{% else %}none{% endfor %}{{ admissible|tojson }}",
]


@pytest.mark.parametrize("source", HONEST)
def test_an_honest_template_is_jinja_s(source: str) -> None:
    plain = ImmutableSandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    sandbox = Sandbox(source)
    for _ in range(2):  # the bounds are of one rendering
        assert sandbox.render(FIELDS) == plain.from_string(source).render(FIELDS)


def test_a_chat_template_has_what_the_library_gives_it() -> None:
    source = "{% for m in messages %}{{ m }}{% if m == 'b' %}{% break %}{% endif %}{% endfor %}"
    source += "{% generation %}x{% endgeneration %}"
    assert Sandbox(source + "{{ {'a': '<é>'} | tojson }}", chat=True).render({"messages": "abc"}) == 'abx{"a": "<é>"}'
    with pytest.raises(TemplateError, match="no system"):
        Sandbox("{{ raise_exception('no system') }}", chat=True).render({})
    assert Sandbox("{{ unknown }}{{ strftime_now('%%') }}", chat=True).render({}) == "%"


BOMBS = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "filters": "{% for i in range(99999) %}{{ range(99999)|list|length }}{% endfor %}",
    "calls": "{% macro m(x) %}{{ m(x) }}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "recursive loop": "{% for x in [1] recursive %}{{ loop([1]) }}{{ loop([1]) }}{% endfor %}",
    "repetition": "{{ 'a' * 10 ** 10 }}",
    "list": "{{ [1] * 10 ** 10 }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "joined": "{% set n = namespace(s='aa') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "added": "{% set n = namespace(s='aa') %}{% for i in range(40) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "block": "{% set n = namespace(s='aa') %}{% for i in range(40) %}{% set x %}{{ n.s }}{{ n.s }}{% endset %}"
    "{% set n.s = x %}{% endfor %}",
    "slices": "{% set s = 'a' * 999999 %}{% for i in range(999) %}{{ (s[1:])|length }}{% endfor %}",
    "width": "{{ 'a'|center(10 ** 9) }}",
    "method": "{{ 'a'.center(10 ** 9) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "format filter": "{{ '%1000000000d'|format(1) }}",
    "replace": "{{ ('a' * 9999)|replace('a', 'b' * 9999) }}",
    "replace method": "{{ ('a' * 9999).replace('a', 'b' * 9999) }}",
    "join": "{{ ('b' * 99999).join(['b'] * 9999) }}",
    "json": "{{ [1]|tojson(indent=10 ** 9) }}",
    "words": "{{ lipsum(n=10 ** 6) }}",
    "depth": "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}",
    "length": "a" * (templates.LONGEST_SOURCE + 1),
    "attributes": "{{ task.__class__.__mro__ }}",
    "change": "{{ [].append(1) }}",
}


@pytest.mark.parametrize("chat", [False, True], ids=["prompt", "chat"])
@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS)
def test_what_exhausts_or_escapes_is_refused(source: str, chat: bool) -> None:
    if "lipsum" in source and chat:
        source = source.replace("lipsum(n=10 ** 6)", "lipsum.x.y")  # undefined is empty there
    with pytest.raises(TemplateError):
        Sandbox(source, chat).render(FIELDS)
