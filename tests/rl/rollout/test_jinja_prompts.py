"""A Jinja template of a config runs in a sandbox; an honest one is Jinja's."""

from __future__ import annotations

import pytest
from jinja2 import Environment

from crbc_envs.prompts import View
from crbc_rl.config import EnvConfig
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.prompts import jinja_template

VIEW = View("Open the <door>.", "A room.", ("go", "open door", "wait"), 3, (("a", "b"),))
SETTINGS = EnvConfig(prompt="p.j2")

HONEST = [
    "{{ task }} & {{ step + 1 }}",
    "{% for action in admissible %}\n  {{ loop.index }}/{{ loop.length }}"
    " {{ action }}{{ ', ' if not loop.last }}\n{% endfor %}",
    "{% set x %}{{ task|replace('door', 'gate') }}{% endset %}{{ x|indent(2) }}",
    "{% if 'go' in admissible and step > 2 %}{{ admissible|sort|first }}{% endif %}",
    "{% for seen, done in history %}{{ seen }} {{ done }}{% else %}none{% endfor %}{{ admissible|tojson }}",
]


@pytest.mark.parametrize("source", HONEST)
def test_an_honest_template_is_jinja_s(source: str) -> None:
    plain = Environment(trim_blocks=True, lstrip_blocks=True).from_string(source)
    fields = {name: getattr(VIEW, name) for name in View.__dataclass_fields__}
    assert jinja_template(source, SETTINGS)(VIEW) == plain.render(fields)


REFUSED = {
    "attributes": "{{ task.__class__.__mro__.x }}",
    "change": "{{ [].append(1) }}",
    "calls itself": "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "unknown": "{{ tasks }}",
    "unreadable": "{% for %}",
}


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_what_escapes_or_fails_is_refused(source: str) -> None:
    with pytest.raises(ConfigError, match=r"env\.prompt: p\.j2"):
        jinja_template(source, SETTINGS)(VIEW)
