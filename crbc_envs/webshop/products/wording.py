"""The texts of the generated shop: titles, bullets, descriptions and instructions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crbc_envs.webshop.products.draws import Draws
from crbc_envs.webshop.products.tables import Kind

_TITLES = (
    "{brand} {theme} {name} with {part}, {quality}",
    "{brand} {name}, {theme}, {quality}, {quality2}, for {use}",
    "{theme} {name} by {brand} - {quality} {alias} for {use}",
    "{brand} {quality} {theme} {name} for {use}",
    "{brand} {theme} {name} | {quality}, {part} | {alias} for {use}, {use2}",
    "{brand} {theme} {name}",
)
_FIELDS = {form: set(re.findall(r"{(\w+)}", form)) for form in _TITLES}
_ACRONYMS = {"bpa": "BPA", "gmo": "GMO", "hd": "HD", "led": "LED", "tv": "TV", "usb": "USB"}
_BULLETS = ("{says}", "{loud}", "✔ {says}", "【{head}】 {says}")
_OPENINGS = (
    "The {theme} {name} from {brand}: {a}, {b}, and nothing you did not ask for.",
    "{brand} keeps it short: {a}, and {b}.",
    "{name} by {brand}, from the {theme} line.",
    "Our {theme} line goes back to basics, and {a} is where it begins.",
)
_CLOSINGS = (
    "Thirty days to try it, and we pay for the way back.",
    "Questions? Write to us and a person answers.",
    "Colours may look a little different on your screen.",
    "Ships in a plain box without plastic filling.",
)
_ASKS = ("Find me", "I need", "Show me", "I am looking for", "Get me")
_HUMAN_ASKS = ("i am looking for", "i need", "i want to buy", "can you find me", "please show me", "i would like")
_OPTION_PHRASES = {
    "Color": "in {}",
    "Size": "in size {}",
    "Scent": "with {} scent",
    "Flavor Name": "in {} flavor",
    "Style": "in the {} style",
    "Fit Type": "with {} fit",
    "Item Package Quantity": "sold as {}",
}


@dataclass(frozen=True, slots=True)
class Product:
    """The data of a generated product, from which its texts are made."""

    kind: Kind
    brand: str
    theme: str
    name: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]


def title(draws: Draws, product: Product) -> str:
    """The title: brand, theme, name and some attributes; sometimes a size or colour if there is no such option."""
    kind = product.kind
    words = {"brand": product.brand, "theme": product.theme, "name": product.name, "alias": draws.pick(kind.names)}
    for field, found in zip(("quality", "part", "use"), _by_role(kind, product.attributes), strict=True):
        words.update(zip((field, f"{field}2"), map(_capitals, found), strict=False))
    text = draws.pick([form for form in _TITLES if _FIELDS[form] <= words.keys()]).format_map(words)
    offered = {name for name, _ in product.options}
    fixed = [draws.pick(values) for name, values in kind.groups if name not in offered and draws.chance(0.5)]
    return f"{text} ({', '.join(fixed)})" if fixed else text


def texts(draws: Draws, product: Product) -> tuple[list[str], str]:
    """The bullets and the description. Together they name every attribute.

    The description is empty for about three products in ten, as for many of the original's.
    """
    order = draws.shuffled(product.attributes)
    described = order[5:] if draws.chance(0.5) else order[draws.between(1, 5) :]  # in the description, not a bullet
    says, form = product.kind.says, draws.pick(_BULLETS)
    lines = [
        form.format(says=says[a], head=a.capitalize(), loud=_loud(a, says[a])) for a in order if a not in described
    ]
    facts = draws.shuffled(product.kind.facts)
    lines += [facts.pop() for _ in range(draws.between(0, 2))]
    if not described and draws.chance(0.5):
        return draws.shuffled(lines), ""
    return draws.shuffled(lines), _description(draws, product, [product.kind.says[a] for a in described] or facts)


def _description(draws: Draws, product: Product, sentences: Sequence[str]) -> str:
    a, b = map(_spoken, draws.some(product.attributes, 2))
    words = {"theme": product.theme, "name": product.name, "brand": product.brand, "a": a, "b": b}
    return " ".join([draws.pick(_OPENINGS).format_map(words), *sentences, draws.pick(_CLOSINGS)])


def instruction(draws: Draws, kind: Kind, wanted: Sequence[str]) -> str:
    """An instruction in the original's form: qualities, query, "with" parts, "for" uses."""
    qualities, parts, uses = _by_role(kind, wanted)
    words = [draws.pick(_ASKS), *([", ".join(qualities)] if qualities else []), kind.query]
    words += [f"with {', '.join(parts)}"] if parts else []
    words += [f"for {', '.join(uses)}"] if uses else []
    return " ".join(words)


def human_instruction(draws: Draws, product: Product, wanted: Sequence[str], chosen: Sequence[tuple[str, str]]) -> str:
    """An instruction as people type it: in lower case, with the product's name and options in the sentence."""
    qualities, parts, uses = _by_role(product.kind, wanted)
    name = draws.pick((product.name, f"{product.theme} {product.name}"))
    words = [draws.pick(_HUMAN_ASKS), *_article(name), name]
    words += [f"by {product.brand}"] if draws.chance(0.1) else []
    words += [_OPTION_PHRASES[group].format(value) for group, value in chosen]
    words += [f"with {' and '.join(parts)}"] if parts else []
    words += [f"for {' and '.join(uses)}"] if uses else []
    asks = [" ".join(words)]
    asks += ["it should be " + " and ".join(map(_spoken, qualities))] if qualities else []
    return f"{draws.pick((', ', '. ')).join(asks)}.".lower()


def _by_role(kind: Kind, attributes: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Splits attributes into qualities, parts and uses."""
    qualities, parts, uses = ([a for a in attributes if a in role] for role in (kind.qualities, kind.parts, kind.uses))
    return qualities, parts, uses


def _capitals(phrase: str) -> str:
    return " ".join(_ACRONYMS.get(word, word.capitalize()) for word in phrase.split())


def _loud(attribute: str, says: str) -> str:
    """The sentence with its attribute in capitals. The attribute is put in front unless the sentence begins with it."""
    rest = says[len(attribute) :] if says.lower().startswith(attribute) else f" - {says}"
    return attribute.upper() + rest


def _article(name: str) -> list[str]:
    if name.endswith("s") and not name.endswith("ss"):
        return []
    return ["an" if name[0].lower() in "aeiou" else "a"]


def _spoken(attribute: str) -> str:
    """ "easy clean" becomes "easy to clean"."""
    return re.sub(r"^(easy|ready) ", r"\1 to ", attribute)
