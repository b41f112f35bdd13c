"""The texts of the generated shop: titles, bullets, descriptions and instructions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crbc_envs.webshop.products.draws import Draws
from crbc_envs.webshop.products.sentences import lexicon, patterns, plural, sentence
from crbc_envs.webshop.products.tables import Kind

TITLE_LENGTHS = ((0.0, 22), (0.05, 40), (0.25, 71), (0.5, 117), (0.75, 161), (0.95, 192), (1.0, 200))
"""Quantiles of the length of a title, in characters, as in the small official catalogue."""

_BULLETS = ((0.0, 2), (0.2, 4), (0.7, 5), (0.9, 6), (1.0, 8))
_SENTENCES = ((0.0, 2), (0.5, 8), (0.75, 13), (0.95, 22), (1.0, 40))
_DESCRIBED = 0.7
_KEPT = 0.55
"""The probability that an attribute of the family is in the title; its own attributes follow while there is room."""

_ACRONYMS = {"bpa": "BPA", "gmo": "GMO", "hd": "HD", "hdmi": "HDMI", "led": "LED", "tv": "TV", "usb": "USB"}
_BEGINNINGS = (
    "{brand} {theme} {name}",
    "{brand} {name} {series}",
    "{theme} {name} by {brand}",
    "{brand} {series} {theme} {name}",
    "{name} - {brand} {theme}",
)
_FORMS = ("{says}", "{loud}", "✔ {says}", "【{head}】 {says}")
_ASKS = ("Find me", "I need", "Show me", "I am looking for", "Get me", "I want", "Please find", "Search for")
_HUMAN_ASKS = (
    "i am looking for",
    "i need",
    "i want to buy",
    "can you find me",
    "please show me",
    "i would like",
    "could you get me",
    "i'd like to purchase",
)
_OPTION_PHRASES = {
    "Color": "in {}",
    "Size": "in size {}",
    "Scent": "with {} scent",
    "Flavor Name": "in {} flavor",
    "Style": "in the {} style",
    "Fit Type": "with {} fit",
    "Pattern Name": "with a {} pattern",
    "Item Package Quantity": "sold as {}",
}


@dataclass(frozen=True, slots=True)
class Product:
    """The data of a generated product, from which its texts are made. The last attribute is its own."""

    kind: Kind
    brand: str
    series: str
    theme: str
    name: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def words(self) -> dict[str, str | Sequence[str]]:
        """What its sentences may name."""
        named = {"brand": self.brand, "series": self.series, "theme": self.theme, "name": self.name}
        return {**named, "thing": self.kind.things}


# ---- titles ----------------------------------------------------------------------------------------


def title(draws: Draws, product: Product) -> str:
    """The title: brand, theme or series, and name; then parts until it has the length that is drawn for it."""
    length = draws.quantile(TITLE_LENGTHS)
    text = draws.pick(_BEGINNINGS).format_map(product.words)
    separator = draws.pick((", ", ", ", " - ", " | "))
    for part in _title_parts(draws, product):
        if len(text) + len(part) > length:
            break
        text += separator + part
    return text


def _title_parts(draws: Draws, product: Product) -> list[str]:
    kind, offered = product.kind, {name for name, _ in product.options}
    *family, own = product.attributes
    said = [_in_title(kind, a) for a in draws.shuffled([a for a in family if draws.chance(_KEPT)])]
    fixed = [draws.pick(values) for name, values in kind.groups if name not in offered and draws.chance(0.5)]
    more = [
        _in_title(kind, own),
        draws.pick(kind.names),
        _model(draws),
        f"{draws.between(2, 24)} {_capitals(plural(draws.pick(kind.things)))}",
    ]
    for thing in draws.shuffled(kind.things, 5):
        more.append(_capitals(f"{draws.pick(lexicon()['adjective'])} {thing}"))
    return said + fixed + draws.shuffled(more)


def _in_title(kind: Kind, attribute: str) -> str:
    word = "for " if attribute in kind.uses else "with " if attribute in kind.parts else ""
    return word + _capitals(attribute)


def _model(draws: Draws) -> str:
    """A model number, such as "QX410"."""
    letters = draws.pick("ABCDEFGHJKLMNPQRSTUVWXYZ") + draws.pick("ABCDEFGHJKLMNPQRSTUVWXYZ")
    return f"{letters}{10 * draws.between(1, 99)}"


# ---- bullets and descriptions ----------------------------------------------------------------------


def texts(draws: Draws, product: Product) -> tuple[list[str], str]:
    """The bullets and the description. Together they name every attribute.

    The description is empty for about three products in ten, as for many of the original's.
    """
    kind, words, form = product.kind, product.words, draws.pick(_FORMS)
    order = draws.shuffled(product.attributes)
    described = [a for a in order[1:] if draws.chance(0.2)] if draws.chance(_DESCRIBED) else []
    lines = []
    for attribute in order:
        if attribute not in described:
            says = _says(draws, kind, attribute, words)
            lines.append(form.format(says=says, head=attribute.capitalize(), loud=_loud(attribute, says)))
    others = draws.shuffled(kind.facts)
    for _ in range(int(draws.quantile(_BULLETS)) - len(lines)):
        lines.append(others.pop() if others else sentence(draws, draws.pick(patterns("bullet", "any")), words))
    if not described and draws.chance(_DESCRIBED):
        return draws.shuffled(lines), ""
    spoken = [_says(draws, kind, attribute, words) for attribute in described]
    middle = patterns("description", "middle")
    spoken += [sentence(draws, draws.pick(middle), words) for _ in range(int(draws.quantile(_SENTENCES)))]
    first, last = (draws.pick(patterns("description", part)) for part in ("opening", "closing"))
    return draws.shuffled(lines), " ".join([sentence(draws, first, words), *spoken, sentence(draws, last, words)])


def _says(draws: Draws, kind: Kind, attribute: str, words: Mapping[str, str | Sequence[str]]) -> str:
    """A sentence that names the attribute."""
    if attribute in kind.says and draws.chance(0.5):
        return kind.says[attribute]
    part = "is" if attribute in kind.qualities else "with" if attribute in kind.parts else "for"
    return sentence(draws, draws.pick(patterns("attribute", part)), {**words, "attribute": attribute})


# ---- instructions ----------------------------------------------------------------------------------


def instruction(draws: Draws, kind: Kind, attributes: Sequence[str]) -> str:
    """An instruction in one of four forms; the first is the original's: qualities, query, "with" parts, "for" uses."""
    qualities, parts, uses = (", ".join(names) for names in _by_role(kind, attributes))
    ask, style = draws.pick(_ASKS), draws.between(0, 3)
    has, serves = (f"with {parts}" if parts else ""), (f"for {uses}" if uses else "")
    if style == 0:
        return _joined(ask, qualities, kind.query, has, serves)
    if style == 1:
        return _joined(ask, f"{kind.query}:", ", ".join(filter(None, [qualities, has, serves])))
    if style == 2:
        return _joined(ask, kind.query, serves, has, f"that should be {qualities}" if qualities else "")
    return _joined(
        f"{serves[:1].upper()}{serves[1:]}, {ask[0].lower() + ask[1:]}" if serves else ask, qualities, kind.query, has
    )


def human_instruction(
    draws: Draws, product: Product, attributes: Sequence[str], chosen: Sequence[tuple[str, str]]
) -> str:
    """An instruction as people type it: in lower case, with the product's name and options in the sentence."""
    qualities, parts, uses = _by_role(product.kind, attributes)
    name, ask = draws.pick((product.name, f"{product.theme} {product.name}")), draws.pick(_HUMAN_ASKS)
    options = [_OPTION_PHRASES[group].format(value) for group, value in chosen]
    has = f"with {' and '.join(parts)}" if parts else ""
    serves = f"for {' and '.join(uses)}" if uses else ""
    should = " and ".join(re.sub(r"^(easy|ready) ", r"\1 to ", quality) for quality in qualities)  # "easy to clean"
    maker = f"by {product.brand}" if draws.chance(0.1) else ""
    style = draws.between(0, 3)
    if style == 0:
        said = _joined(ask, *_article(name), name, maker, *options, has, serves)
        said += draws.pick((", ", ". ")) + f"it should be {should}" if should else ""
    elif style == 1:
        said = _joined(ask, *_article(name), name, maker, has, serves, f"that is {should}" if should else "", *options)
    elif style == 2:
        said = _joined(f"{serves}," if serves else "", ask, *_article(name), name, maker, *options, has)
        said += f". please make it {should}" if should else ""
    else:
        said = _joined(
            ask, "something", f"{should}:" if should else "like this:", *_article(name), name, maker, *options, has
        )
        said += f", to be used {serves}" if serves else ""
    return f"{said}.".lower()


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))


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
