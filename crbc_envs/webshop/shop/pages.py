"""What a page is, apart from how it is shown: a row of texts, some of which can be clicked.

Every observation mode reads the same row. `text_rich` has one line per text, `text` joins them by
" [SEP] ", and `html.py` makes a document of them. Source of the wording and order: WebShop's templates
and text environment (MIT), whose pages these are to the last byte in `text_rich` and `text`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from anchors import anchor_key
from crbc_envs.webshop.products.catalogue import Product

SEARCH, BACK, PREVIOUS, NEXT, BUY = "Search", "Back to Search", "< Prev", "Next >", "Buy Now"
DETAILS = ("Description", "Features", "Reviews")
ATTRIBUTES = "Attributes"

ANY_SEARCH = "search[<your query>]"
"""How prompts say that one may search."""

SEPARATOR = " [SEP] "

NO_RATING = "N.A."
"""Ratings and reviews are never loaded, here as in the original."""

Role = Literal["text", "button", "link", "option"]
Kind = Literal["index", "results", "item", "details", "done"]


class Node(NamedTuple):
    """One text of a page. A "button" is pressed, a "link" leads to a product, an "option" is a value of
    the option group `group`; `clicked` is for the latter two."""

    text: str
    role: Role = "text"
    clicked: bool = False
    group: str = ""


@dataclass(frozen=True)
class Page:
    """One page without the task that stands above it; `nodes` are in document order. Sessions share pages,
    so what is derived from one is worked out once."""

    kind: Kind
    nodes: tuple[Node, ...]

    @cached_property
    def clickables(self) -> dict[str, str | None]:
        """What `click[...]` takes, in the original's order: buttons, products, option values. Values have
        their option group, the last one where two groups share a value."""
        by_role = [[node for node in self.nodes if node.role == role] for role in ("button", "link", "option")]
        found: dict[str, str | None] = {node.text.lower(): None for nodes in by_role[:2] for node in nodes}
        return found | {node.text: node.group for node in by_role[2]}

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """The admissible actions as the paper's prompt lists them."""
        search = (ANY_SEARCH,) if self.kind == "index" else ()
        return search + tuple(f"click[{what}]" for what in self.clickables)

    @cached_property
    def rich(self) -> tuple[str, str]:
        """The page in `text_rich`: what stands above the task, and below it. Above, every clicked option
        says so, the last one first."""
        chosen = [node for node in self.nodes if node.role == "option" and node.clicked]
        above = "".join(f"You have clicked {node.text}.\n" for node in reversed(chosen))
        return above, "".join(map(_line, self.nodes))

    @cached_property
    def plain(self) -> str:
        """The page in `text`; it does not tell what was clicked."""
        return SEPARATOR.join(node.text.strip() for node in self.nodes)

    def observation(self, mode: str, instruction: str) -> str:
        """The page with the task above it, in `text_rich` or `text`."""
        above_task = head(self.kind, instruction)
        if mode == "text":
            plain = [self.plain] if self.nodes else []
            return SEPARATOR.join([*(node.text.strip() for node in above_task), *plain])
        above, below = self.rich
        return f"{above}{''.join(map(_line, above_task))}{below}"

    def payload(self, mode: str) -> str:
        """What the paper's anchor is the key of: the observation without the task."""
        return self.plain if mode == "text" else "".join(self.rich)

    def anchor(self, mode: str) -> str:
        """The key of the payload."""
        return self._plain_anchor if mode == "text" else self._rich_anchor

    @cached_property
    def _plain_anchor(self) -> str:
        return anchor_key(self.plain)

    @cached_property
    def _rich_anchor(self) -> str:
        return anchor_key("".join(self.rich))


def head(kind: Kind, instruction: str) -> tuple[Node, ...]:
    """What stands above a page: the task. After a purchase it is gone."""
    if kind == "done":
        return ()
    above = ("WebShop", "Instruction: ") if kind == "index" else ("Instruction:",)
    return tuple(texts((*above, instruction)))


_BEFORE = {"button": "", "option": "  ", "link": "\n"}


def _line(node: Node) -> str:
    text, role, clicked, _ = node
    if role == "text":
        return f"{text}\n"
    mark = "clicked button" if clicked else "button"
    return f"{_BEFORE[role]}[{mark}] {text} [{mark}_]\n"


# ---- the pages ------------------------------------------------------------------------------------


def index() -> Page:
    return Page("index", (Node(SEARCH, "button"),))


def results(number: int, total: int, products: Iterable[Product], visited: frozenset[str]) -> Page:
    """Page `number` of `total` hits; products in `visited`, by ASIN, are marked."""
    turns = [Node(PREVIOUS, "button")] * (number > 1) + [Node(NEXT, "button")]
    nodes = [Node(BACK, "button"), Node(f"Page {number} (Total results: {total})"), *turns]
    for product in products:
        nodes.append(Node(product.asin, "link", product.asin in visited))
        nodes += texts((product.title, product.price_tag))
    return Page("results", tuple(nodes))


def item(product: Product, clicked: frozenset[str], show_attributes: bool = False) -> Page:
    """A product with its options; the values in `clicked` are marked."""
    nodes = [Node(BACK, "button"), Node(PREVIOUS, "button")]
    for name, values in product.options.items():
        nodes += texts((name,))
        for value in texts(values):
            nodes.append(Node(value.text, "option", value.text in clicked, name))
    nodes += texts((product.title, f"Price: {product.price_tag}", f"Rating: {NO_RATING}"))
    buttons = (*DETAILS, ATTRIBUTES, BUY) if show_attributes else (*DETAILS, BUY)
    return Page("item", (*nodes, *(Node(label, "button") for label in buttons)))


def details(product: Product, name: str) -> Page:
    """What stands behind one of the buttons of `DETAILS`, or behind `ATTRIBUTES`."""
    shown: tuple[str, ...] = ()
    if name == "Description":
        shown = (product.description,)
    elif name == "Features":
        shown = tuple(f" {bullet}" for bullet in product.bullets)
    elif name == ATTRIBUTES:
        attributes = (f" {attribute}" for attribute in product.attributes)
        shown = (*attributes, product.category, product.query, product.product_category)
    return Page("details", (Node(BACK, "button"), Node(PREVIOUS, "button"), *texts(shown)))


def done(asin: str, options: Mapping[str, str], reward: float) -> Page:
    """The page after a purchase, with the options that were chosen. Its other fields are always empty."""
    nothing = "None"
    empty = [part for name in ("attrs", "category", "query", "product category") for part in (name, nothing)]
    target = ["asin", "options", "attrs", "price upper", "instuction text", "category", "product category", "query"]
    shown = ["Thank you for shopping with us!", "Your code: ", nothing, " (Paste it in your MTurk interface.)"]
    shown += ["Purchased", "asin", asin, "options", _tojson(options), *empty, "Target", *target, "Goal ", nothing]
    shown += ["Reward", "Your score (min 0.0, max 1.0)", str(reward), "Reward Details ", nothing]
    return Page("done", tuple(texts(shown)))


def _tojson(options: Mapping[str, str]) -> str:
    """As a page has it that writes JSON into HTML: sorted, and signs that HTML reads are escaped."""
    written = json.dumps(options, sort_keys=True)
    for sign in "<>&'":
        written = written.replace(sign, f"\\u{ord(sign):04x}")
    return written


def texts(strings: Iterable[str]) -> Iterator[Node]:
    """Texts as an HTML parser leaves them: nothing for an empty one or for white space with a line break
    in it, one space for other ASCII white space."""
    for string in strings:
        if string.strip(" \t\n\r\f"):
            yield Node(string)
        elif string and "\n" not in string:
            yield Node(" ")
