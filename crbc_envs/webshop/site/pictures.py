"""Draws the products: a simple picture by kind and colour. Nothing of a product's text gets into a picture.

A picture has a name of three parts, such as "lamp-green-2": a drawing of `drawings.toml`, a colour, and an accent. The
name says everything, so that equal products share a picture, and a browser keeps it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from string import Template
from zlib import crc32

from crbc_envs.webshop.products.catalogue import Product

SIZE = 120
"""The side of the square that the drawings are made on."""

SWATCH = "swatch"
"""The drawing of a colour alone."""

COLOURS = {
    "black": ("#30343c", "jet onyx charcoal graphite ebony midnight"),
    "white": ("#e6e9ee", "ivory snow pearl"),
    "grey": ("#8f97a3", "gray slate ash stone heather concrete pewter"),
    "silver": ("#b9c0ca", "metallic chrome nickel platinum clear transparent steel"),
    "red": ("#c8383d", "crimson cherry scarlet ruby brick rust"),
    "burgundy": ("#7d2740", "wine plum maroon berry fig merlot"),
    "pink": ("#e58aa6", "rose blush fuchsia magenta peony"),
    "coral": ("#ee7f67", "peach salmon apricot"),
    "orange": ("#e5842e", "tangerine pumpkin terracotta copper amber"),
    "yellow": ("#edc43f", "lemon mustard sunflower"),
    "gold": ("#c9a24a", "brass bronze champagne honey"),
    "green": ("#4a8f5b", "emerald olive forest army moss"),
    "mint": ("#8cc7ab", "sage seafoam eucalyptus"),
    "teal": ("#2b8a8a", "turquoise aqua cyan"),
    "blue": ("#3c74b8", "cobalt sky denim ocean royal"),
    "navy": ("#2a3f68", "indigo"),
    "purple": ("#7a5aa6", "violet eggplant"),
    "lilac": ("#b39ad0", "lavender mauve orchid"),
    "brown": ("#80573a", "chocolate walnut espresso coffee mocha chestnut mahogany cocoa auburn camel"),
    "beige": ("#d6bf9e", "tan khaki cream nude sand taupe oatmeal natural linen blonde oak caramel wheat"),
}
"""The colours of the pictures, and the other words for each."""

_UNNAMED = ("red", "coral", "orange", "green", "mint", "teal", "blue", "navy", "purple", "lilac", "grey", "beige")
"""The colours of products that name none."""

ACCENTS = ("#f2b134", "#e4572e", "#2e86ab", "#5b8e4b", "#8e5ba6", "#d1495b")

_USUAL = {"beauty": "bottle", "electronics": "device", "garden": "shelf", "fashion": "shirt", "grocery": "carton"}
"""The drawing for a category's products whose kind has none."""

_PARCEL = "parcel"
_INK, _WHITE, _NEUTRAL = "#3a4150", "#ffffff", "#a9b4c2"

_PLAIN = ("black", "white", "grey", "silver", "beige")
"""The colours whose pictures have the accent's ground."""


def picture_name(product: Product | None, chosen: Iterable[str] = ()) -> str:
    """The name of a product's picture, in the colour that a `chosen` option value names.

    Otherwise it has the colour in its title, else one of those it is offered in, else any, by its ASIN.
    """
    if product is None:
        return f"{_PARCEL}-beige-0"
    number = crc32(product.asin.encode("utf-8", "replace"))
    values = [value for group, values in product.options.items() if is_colour(group) for value in values]
    offered = [colour for value in values if (colour := colour_of(value))] or list(_UNNAMED)
    asked = filter(None, map(colour_of, (*chosen, product.title)))
    colour = next(asked, offered[number % len(offered)])
    drawing = _drawing_of(product.category, product.query, product.product_category, product.title)
    return f"{drawing}-{colour}-{number // 16 % len(ACCENTS)}"


def swatch_name(value: str) -> str | None:
    """The name of the picture of the colour that an option value names, if it names one."""
    colour = colour_of(value)
    return colour and f"{SWATCH}-{colour}-0"


def picture_in_words(name: str) -> str:
    """What a picture shows: "Drawing: lamp, green"."""
    drawing, colour, _ = name.split("-")
    return f"Drawing: {drawing}, {colour}"


@lru_cache(4096)
def picture(name: str) -> str | None:
    """The SVG document of a picture. None if there is no picture of that name."""
    parts = name.split("-")
    if len(parts) != 3 or parts[1] not in COLOURS or parts[2] not in map(str, range(len(ACCENTS))):
        return None
    colour, accent = COLOURS[parts[1]][0], ACCENTS[int(parts[2])]
    if parts[0] == SWATCH:
        return _document(f'<rect width="{SIZE}" height="{SIZE}" fill="{colour}"/>')
    if parts[0] not in _drawings():
        return None
    ink = {"m": colour, "d": _mixed(colour, "#101420", 0.28), "l": _mixed(colour, _WHITE, 0.45)}
    label = _mixed(_NEUTRAL, _WHITE, 0.1) if parts[1] == "white" else _WHITE
    drawn = Template(_drawings()[parts[0]]).substitute(ink, a=accent, i=_INK, w=label)
    around = _mixed(accent, _NEUTRAL, 0.6) if parts[1] in _PLAIN else _mixed(colour, _NEUTRAL, 0.45)
    ground = _mixed(around, _WHITE, 0.7)
    return _document(
        f'<rect width="{SIZE}" height="{SIZE}" fill="{ground}"/>'
        f'<ellipse cx="60" cy="103" rx="42" ry="5" fill="{_INK}" fill-opacity=".14"/>'
        f'<g fill="{colour}" stroke-linecap="round" stroke-linejoin="round">{drawn}</g>'
    )


def is_colour(group: str) -> bool:
    """Whether an option group is about colours, by its name."""
    return "color" in group or "colour" in group


def colour_of(text: str) -> str | None:
    """The one of `COLOURS` that a text names first: "navy blue" is navy."""
    words = re.findall("[a-z]+", text.lower())
    return next((_colour_words()[word] for word in words if word in _colour_words()), None)


# ---- internals ------------------------------------------------------------------------------------


def _document(drawn: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}">{drawn}</svg>'


def _mixed(colour: str, other: str, share: float) -> str:
    """A colour with that share of another."""
    pairs = [(int(colour[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(own + share * (to - own)):02x}" for own, to in pairs)


@lru_cache(4096)
def _drawing_of(category: str, query: str, product_category: str, title: str) -> str:
    """The drawing for a product: by the last word of its query that has one, its categories, then its title."""
    _, _, kinds = product_category.partition("›")  # the first is a department, such as "Clothing, Shoes & Jewelry"
    words = [*_last_first(query), *_last_first(kinds), *_words(title)]
    for word in words:
        for table in (_kind_words().get(category, {}), *_kind_words().values()):
            if word in table:
                return table[word]
    return _USUAL.get(category, _PARCEL)


def _last_first(text: str) -> Iterator[str]:
    return reversed(list(_words(text)))


def _words(text: str) -> Iterator[str]:
    """The words of a text, each followed by what it may be the plural of."""
    for word in re.findall("[a-z]+", text.lower()):
        if word.endswith("ies"):
            yield f"{word[:-3]}y"
        if word.endswith("es"):
            yield word[:-2]
        if word.endswith("s"):
            yield word[:-1]
        yield word


@cache
def _table() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    return tomllib.loads(files(__package__).joinpath("drawings.toml").read_text(encoding="utf-8"))


@cache
def _drawings() -> dict[str, str]:
    return {name: drawing["draw"] for drawings in _table().values() for name, drawing in drawings.items()}


@cache
def _kind_words() -> dict[str, dict[str, str]]:
    """The drawing of each word, by category."""
    return {
        category: {word: name for name, drawing in drawings.items() for word in drawing["words"].split()}
        for category, drawings in _table().items()
    }


@cache
def _colour_words() -> dict[str, str]:
    return {word: name for name, (_, others) in COLOURS.items() for word in (name, *others.split())}
