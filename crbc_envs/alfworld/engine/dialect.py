"""Reads a game's domain and grammar: checks its rules and takes the words of commands and feedback.

A game file contains both. The engine implements one set of rules, so every action's definition is compared with
the definitions it implements. The words come from the grammar. Both `put ... in/on ...` (ALFWorld before 0.4) and
`move ... to ...` (since 0.4) therefore work.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from crbc_envs.alfworld.engine.pddl import Formula, parse_lists
from crbc_envs.errors import DataError
from crbc_envs.storage.files import parse_json, shown

ACTIONS: dict[str, tuple[str, ...]] = {
    "gotolocation": ("go", "eb6180ef35841a3b"),
    "openobject": ("open", "3acec14fa9f23b54"),
    "closeobject": ("close", "2fb31813491d26b4"),
    "pickupobject": ("take", "1f1279c6e8c9e375"),
    "putobject": ("put", "d15a88b55cb47e5b"),
    "cleanobject": ("clean", "53f2c4539e3ed62f", "651af4e9120ed82a"),
    "heatobject": ("heat", "0fd8d5783eb61ec2"),
    "coolobject": ("cool", "b3add2410c398315"),
    "toggleobject": ("use", "a3950c3cc958cdd6"),
    "sliceobject": ("slice", "099ad0b5389c54c0"),
    "examinereceptacle": ("examine receptacle", "a0631b439aa7ca8f"),
    "examineobject": ("examine object", "d8ca3f5fba2a25cb"),
    "inventory": ("inventory", "ec4138a9b7d27fac"),
    "look": ("look", "c5001e4dd3ee0792"),
    "help": ("help", "ec4138a9b7d27fac"),
}
"""Each action of the domain: the engine's verb, and digests of the definitions that the engine implements.

CleanObject has two, because some published games also use a SinkType, which no receptacle has.
"""

OPTIONAL = {"help"}
"""Actions that games before ALFWorld 0.4 do not have."""

SECTIONS = {
    "domain": "4b96db8f67fca5d0",
    ":types": "ab6bfd756e743151",
    ":predicates": "6d363754dec98c58",
    ":requirements": None,
    ":functions": None,
}
"""The other sections of a domain, and their digests. The last two concern the planner alone."""

TEXTS = "c886e7067aa84dae"
"""Digest of the grammar's symbols in `FIXED`. The engine produces their texts itself."""

FIXED = (
    "intro",
    "look.feedback",
    "look-variations",
    "list_objects_on_the_floor",
    "list_appliances",
    "list_empty",
    "list_separator",
    "list_last_separator",
    "overview(o)",
    "overview(r)",
    "inventory.feedback",
    "examineReceptacle.feedback",
    "examineObject.feedback",
    "toggleObject.feedback",
)

ENGINE_TEXTS = {"look", "inventory", "examine receptacle", "examine object"}
"""Verbs whose text depends on more than the action. The engine produces it by the rules in `FIXED`."""

SLOTS = {
    **dict.fromkeys(("go", "open", "close", "examine receptacle"), "r"),
    **dict.fromkeys(("take", "put", "clean", "heat", "cool"), "or"),
    **dict.fromkeys(("use", "examine object"), "o"),
    "slice": "ko",
}
"""The slots of each verb's command, sorted; the others have none."""

_TASK = '"Your task is to: '
_SENTENCE = re.compile(r'((?:[^"\\]|\\.)*)"')
_ACTION = re.compile(r'action\s+(\w+)\s*\{\s*template\s*::\s*"([^"]*)";\s*feedback\s*::\s*"([^"]*)";')
_BLOCK = re.compile(r'grammar\s*::\s*"""(.*?)"""', re.DOTALL)
_SYMBOL = re.compile(r"#([\w.]+)#")
_SLOT = re.compile(r"\{(\w+)(?:\.name)?\}")
_OURS = re.compile(r"\{(?:o|r|k|l|view)\}")
_GO = re.compile(r"\[\{(\w+)\.name \|[^\]]*\}\]")


@dataclass(frozen=True)
class Dialect:
    """Format strings of commands and feedback, by verb.

    The slots are {o} object, {r} receptacle, {k} knife and, in feedback only, {l} location and {view} for the
    description of a receptacle. `help` is the text of the `help` command, if the game has one.
    """

    command: dict[str, str]
    feedback: dict[str, str]
    help: str | None

    @cached_property
    def _commands(self) -> list[tuple[str, re.Pattern[str]]]:
        slot = re.compile(r"\\\{(\w)\\\}")
        return [(verb, re.compile(slot.sub(r"(?P<\1>.+)", re.escape(text)))) for verb, text in self.command.items()]

    def read(self, command: str) -> tuple[str, dict[str, str]] | None:
        """The verb of a command and the values of its slots. None if it is not a command."""
        for verb, pattern in self._commands:
            match = pattern.fullmatch(command)
            if match:
                return verb, match.groupdict()
        return None


def split_task(grammar: str) -> tuple[str, str]:
    """The task's sentence, and the grammar without it.

    Raises `DataError` if there is none, a second one, or one that cannot be shown as a line of text.
    """
    head, mark, tail = grammar.partition(_TASK)
    sentence = _SENTENCE.match(tail)
    if not mark or not sentence:
        raise DataError('the grammar has no sentence "Your task is to: ..."')
    if _TASK in tail:
        raise DataError('the grammar has more than one sentence "Your task is to: ..."')
    try:
        task = str(parse_json(f'"{sentence[1]}"'))
    except ValueError as error:
        raise DataError(f"the grammar's task is damaged: {error}") from error
    if not task.isprintable():
        raise DataError(f"the grammar's task has control characters: {shown(task)}")
    return task, f'{head}""{tail[sentence.end() :]}'


@lru_cache(maxsize=16)
def read_dialect(domain: str, grammar: str) -> Dialect:
    """Read a domain and a grammar without its task. Raises `DataError` for an unknown version. Results are cached."""
    actions, symbols = _check_rules(domain), _symbols(grammar)
    texts = digest([[name, symbols.get(name)] for name in FIXED])
    if texts != TEXTS:
        raise DataError(f"the grammar is of an unknown version: its texts have digest {texts}, not {TEXTS}")
    words = {name.lower(): (template, feedback) for name, template, feedback in _ACTION.findall(grammar)}
    missing = sorted(set(actions) - set(words))
    if missing:
        raise DataError(f"the grammar has no action {missing[0]}")
    command, feedback = {}, {}
    for name, slots in actions.items():
        verb, (template, text) = ACTIONS[name][0], words[name]
        command[verb] = _command(verb, template, slots)
        if verb in ENGINE_TEXTS:
            continue
        symbol = _SYMBOL.fullmatch(text)
        if symbol:
            text = _first_rule(symbols.get(symbol[1]))
        feedback[verb] = _format(text.replace("#examineReceptacle.feedback#", "{view}"), slots)
    # TextWorld's grammar parser skips blanks at the start of a text.
    return Dialect(command, feedback, feedback["help"].lstrip() if "help" in feedback else None)


def _first_rule(rules: Any) -> str:
    """The text of a symbol. Only "toggleObject" has several rules, and the first always applies."""
    match rules:
        case [{"rhs": str(text)}, *_]:
            return text
    return ""


def _command(verb: str, template: str, slots: dict[str, str]) -> str:
    """A command as a format string. Each of its slots occurs once, or reading it back would be ambiguous."""
    text = _format(_GO.sub(r"{\1}", template), slots)
    if "".join(sorted(_SLOT.findall(text))) != SLOTS.get(verb, ""):
        raise DataError(f"the grammar is of an unknown version: its command for {verb} is {shown(template)}")
    return text


def _symbols(grammar: str) -> dict[str, Any]:
    """The grammar's rules by symbol."""
    symbols: dict[str, Any] = {}
    for block in _BLOCK.findall(grammar):
        lines = [line for line in block.splitlines() if not line.lstrip().startswith("#")]
        try:
            symbols.update(parse_json("\n".join(lines)))
        except (ValueError, TypeError) as error:
            raise DataError(f"the grammar is damaged: {error}") from error
    return symbols


def _check_rules(domain: str) -> dict[str, dict[str, str]]:
    """Check all sections and the definitions of all actions. Returns the slot of each parameter, by action."""
    actions: dict[str, dict[str, str]] = {}
    sections = set()
    for form in parse_lists(domain)[1:]:  # the first is "define"
        if form[:1] != [":action"]:
            sections.add(_section(form))
            continue
        name = form[1] if len(form) > 1 and isinstance(form[1], str) else ""
        own = digest(_without_costs(form[2:]))
        if own not in ACTIONS.get(name, ())[1:]:
            raise DataError(f"the domain is of an unknown version: its action {shown(name)} has digest {own}")
        actions[name] = _slots(form[form.index(":parameters") + 1])
    missing = sorted(set(ACTIONS) - set(actions) - OPTIONAL)
    if missing:
        raise DataError(f"the domain has no action {missing[0]}")
    lacking = [name for name, known in SECTIONS.items() if known and name not in sections]
    if lacking:
        raise DataError(f"the domain has no part {lacking[0]}")
    return actions


def _section(form: Any) -> str:
    """The name of a section that is no action. Raises `DataError` if it is none of the known ones."""
    name = form[0] if isinstance(form, list) and form and isinstance(form[0], str) else ""
    if SECTIONS.get(name, "") not in (None, digest(form)):
        raise DataError(f"the domain is of an unknown version: its part {shown(name)} has digest {digest(form)}")
    return name


def _slots(parameters: list[str]) -> dict[str, str]:
    slots = {"o": "o", "co": "o", "ko": "k", "r": "r", "lend": "l"}
    return {name[1:]: slots[name[1:]] for name in parameters if name[1:] in slots}


def _format(text: str, slots: dict[str, str]) -> str:
    """A text of the grammar as a Python format string."""
    text = _SLOT.sub(lambda match: "{" + slots.get(match[1], match[1]) + "}", text)
    if re.search(r"[{}]", _OURS.sub("", text)):
        raise DataError(f"the grammar is of an unknown version: {shown(text)} has an unknown slot")
    return text


def _without_costs(form: Formula) -> Formula:
    """An action's definition without its costs, which only the planner uses."""
    kept = [part for part in form if not (isinstance(part, list) and part[:1] == ["increase"])]
    return [_without_costs(part) if isinstance(part, list) else part for part in kept]


def digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]
