"""A session's page in rows for people (`AnchorEnv.page`): "[x]" can be clicked, "[x]*" was clicked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crbc_envs.webshop.shop.pages import ANY_SEARCH, Node, offers
from crbc_envs.webshop.shop.reward import reward_in_words
from crbc_envs.webshop.shop.session import Session

Row = tuple[str, ...]

_BLANK: Row = ("",)


def rows(session: Session) -> list[Row]:
    """The instruction, the page, and what can be typed; after the purchase, what it was and what it is worth."""
    kind, nodes = session.page.kind, session.page.nodes
    asked = ("Instruction:", session.goal.text)
    if kind == "done":
        return [asked, _BLANK, *_done(session)]
    body = {"results": _results, "item": _item}.get(kind, _plain)(nodes)
    return [("WebShop",), asked, _BLANK, *body, _BLANK, ("Type:", f"{ANY_SEARCH} or click[...]")]


def _results(nodes: Sequence[Node]) -> list[Row]:
    """The buttons in one row, then one row per product: its code, price and title."""
    before, products = offers(nodes)
    table: list[Row] = [
        (_shown(link), about[-1].text, " ".join(text.text for text in about[:-1])) for link, *about in products
    ]
    return [(_line(before),), _BLANK, *(table or [("There are no products on this page.",)])]


def _item(nodes: Sequence[Node]) -> list[Row]:
    """Title and price above the options, unlike in the observation, and one row per group of options."""
    buttons = [node for node in nodes if node.role == "button"]
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        if node.role == "option":
            groups.setdefault(node.group, []).append(node)
    about = [node for node in nodes if node.role == "text" and node.text not in groups]
    options = [(f"{name}:", _line(values)) for name, values in groups.items()]
    title, facts = [(node.text,) for node in about[:-2]], (_line(about[-2:]),)
    return [(_line(buttons[:2]),), _BLANK, *title, facts, *options, _BLANK, (_line(buttons[2:]),)]


def _plain(nodes: Sequence[Node]) -> list[Row]:
    """The buttons in one row, then one row per text."""
    said = [(node.text.strip(),) for node in nodes if node.role == "text"]
    return [(_line(node for node in nodes if node.role == "button"),), *said]


def _done(session: Session) -> list[Row]:
    assert session.reward is not None
    bought = [("Purchased:", session.state.asin), *((f"{k}:", v) for k, v in session.state.options.items())]
    return [*bought, _BLANK, *((f"{name}:", text) for name, text in reward_in_words(session.goal, session.reward))]


def _line(nodes: Iterable[Node]) -> str:
    return "  ".join(map(_shown, nodes))


def _shown(node: Node) -> str:
    if node.role == "text":
        return node.text
    text = node.text if node.role == "option" else node.text.lower()  # as `Page.clickables` has it
    return f"[{text}]{'*' if node.clicked else ''}"
