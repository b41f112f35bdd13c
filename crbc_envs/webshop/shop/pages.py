"""The page model: a page is a list of texts, some of which can be clicked.

All observation modes are made from this list. `text_rich` has one line per text, `text` joins them by " [SEP] ", and
`html.py` makes a document. Wording and order come from WebShop's templates and text environment (MIT). In `text_rich`
and `text` the pages equal the original's to the last byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal, NamedTuple

from anchors import anchor_key
from crbc_envs.webshop.products.catalogue import Product

SEARCH, BACK, PREVIOUS, NEXT, BUY = "Search", "Back to Search", "< Prev", "Next >", "Buy Now"
DETAILS = ("Description", "Features", "Reviews")

QUERY = "<your query>"
ANY_SEARCH = f"search[{QUERY}]"
"""The listed action that stands for any search."""

SEPARATOR = " [SEP] "

NO_RATING = "N.A."
"""The rating of every product: ratings and reviews are never loaded, as in the original."""

Role = Literal["text", "button", "link", "option"]
Kind = Literal["index", "results", "item", "details", "done"]


class Node(NamedTuple):
    """One text of a page.

    A "link" leads to a product. An "option" is a value of the option group `group`. Both may be `clicked`.
    """

    text: str
    role: Role = "text"
    clicked: bool = False
    group: str = ""


def offers(nodes: Sequence[Node]) -> tuple[Sequence[Node], list[list[Node]]]:
    """A results page in two parts: what stands before the products, and for each product its link and its texts."""
    first = next((i for i, node in enumerate(nodes) if node.role == "link"), len(nodes))
    products: list[list[Node]] = []
    for node in nodes[first:]:
        if node.role == "link":
            products.append([])
        products[-1].append(node)
    return nodes[:first], products


@dataclass(frozen=True)
class Page:
    """One page, without the task above it. `nodes` are in document order.

    Sessions share pages, so derived values are computed once per page.
    """

    kind: Kind
    nodes: tuple[Node, ...]

    @cached_property
    def clickables(self) -> dict[str, str | None]:
        """The arguments of `click[...]`, in the original's order: buttons, products, option values.

        An option value maps to its group; if two groups have the same value, to the last one. Others map to None.
        """
        by_role = [[node for node in self.nodes if node.role == role] for role in ("button", "link", "option")]
        groups: dict[str, str | None] = {node.text.lower(): None for nodes in by_role[:2] for node in nodes}
        return groups | {node.text: node.group for node in by_role[2]}

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """The admissible actions, as in the paper's prompt."""
        search = (ANY_SEARCH,) if self.kind == "index" else ()
        return search + tuple(f"click[{what}]" for what in self.clickables)

    @cached_property
    def rich(self) -> tuple[str, str]:
        """The page in `text_rich`, in two parts: the lines above the task, and the lines below it.

        The lines above name the clicked options, the last one first.
        """
        chosen = [node for node in self.nodes if node.role == "option" and node.clicked]
        above = "".join(f"You have clicked {node.text}.\n" for node in reversed(chosen))
        return above, "".join(map(_line, self.nodes))

    @cached_property
    def plain(self) -> str:
        """The page in `text`. It does not show what was clicked."""
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
        """The payload of the paper's anchor: the observation without the task."""
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
    """The texts above a page, with the task. There are none after a purchase."""
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


@cache
def index() -> Page:
    return Page("index", (Node(SEARCH, "button"),))


def results(number: int, total: int, products: Iterable[Product], visited: frozenset[str]) -> Page:
    """Page `number` of the results, of `total` hits. Products whose ASIN is in `visited` are marked."""
    turns = [Node(PREVIOUS, "button")] * (number > 1) + [Node(NEXT, "button")]
    nodes = [Node(BACK, "button"), Node(f"Page {number} (Total results: {total})"), *turns]
    for product in products:
        nodes.append(Node(product.asin, "link", product.asin in visited))
        nodes += texts((product.title, product.price_tag))
    return Page("results", tuple(nodes))


def item(product: Product, clicked: frozenset[str]) -> Page:
    """The page of a product with its options. The values in `clicked` are marked."""
    nodes = [Node(BACK, "button"), Node(PREVIOUS, "button")]
    for name, values in product.options.items():
        nodes += texts((name,))
        for value in texts(values):
            nodes.append(Node(value.text, "option", value.text in clicked, name))
    nodes += texts((product.title, f"Price: {product.price_tag}", f"Rating: {NO_RATING}"))
    return Page("item", (*nodes, *(Node(label, "button") for label in (*DETAILS, BUY))))


def details(product: Product, name: str) -> Page:
    """The page behind one of the buttons in `DETAILS`."""
    shown: tuple[str, ...] = ()
    if name == "Description":
        shown = (product.description,)
    elif name == "Features":
        shown = tuple(f" {bullet}" for bullet in product.bullets)
    return Page("details", (Node(BACK, "button"), Node(PREVIOUS, "button"), *texts(shown)))


def done(asin: str, options: Mapping[str, str], reward: float) -> Page:
    """The page after a purchase, with the chosen options. Its other fields are always empty."""
    nothing = "None"
    empty = [part for name in ("attrs", "category", "query", "product category") for part in (name, nothing)]
    target = ["asin", "options", "attrs", "price upper", "instuction text", "category", "product category", "query"]
    shown = ["Thank you for shopping with us!", "Your code: ", nothing, " (Paste it in your MTurk interface.)"]
    shown += ["Purchased", "asin", asin, "options", _tojson(options), *empty, "Target", *target, "Goal ", nothing]
    shown += ["Reward", "Your score (min 0.0, max 1.0)", str(reward), "Reward Details ", nothing]
    return Page("done", tuple(texts(shown)))


def _tojson(options: Mapping[str, str]) -> str:
    """JSON as in the original's HTML: with sorted keys, and with HTML's special characters escaped."""
    written = json.dumps(options, sort_keys=True)
    for sign in "<>&'":
        written = written.replace(sign, f"\\u{ord(sign):04x}")
    return written


def texts(strings: Iterable[str]) -> Iterator[Node]:
    """Texts as an HTML parser reads them.

    Empty texts, and white space with a line break, are dropped. Other ASCII white space becomes one space.
    """
    for string in strings:
        if string.strip(" \t\n\r\f"):
            yield Node(string)
        elif string and "\n" not in string:
            yield Node(" ")
