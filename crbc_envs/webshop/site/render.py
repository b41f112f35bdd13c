"""Renders the pages of the site as HTML, without scripts and without external resources.

The elements with a `data-role` are for agents. They are in the order of the page model, with the role and text of its
`Node`s, and with `aria-current` on clicked ones. Everything else is for people. All text is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby

from crbc_envs.webshop.shop.goals import Goal
from crbc_envs.webshop.shop.pages import BUY, Node, Page, offers
from crbc_envs.webshop.shop.reward import Reward, reward_in_words
from crbc_envs.webshop.shop.state import State
from crbc_envs.webshop.site.address import address, shown_query

STYLE = "/style.css"

_TITLES = {"index": "Search", "results": "Results", "item": "Product", "done": "Thank you"}


@dataclass(frozen=True, slots=True)
class View:
    """What a page is rendered from: the goal with its number, the state, the page, and `reward` after a purchase."""

    number: int
    goal: Goal
    state: State
    page: Page
    reward: Reward | None = None


def shop_page(view: View) -> str:
    """The HTML document of a page."""
    kind = view.page.kind
    task = "" if kind == "done" else _task(view.goal, kind == "index")
    header = "" if kind in ("index", "done") else _search(view, "Search again", "")
    body = f'<div class="page {kind}" data-kind="{kind}">{task}{_BODIES[kind](view, view.page.nodes)}</div>'
    return _document(_TITLES.get(kind, view.state.details), header, body)


def start_page(goals: int, example: str) -> str:
    """The first page, where a person draws or chooses one of `goals` goals. `example` is the text of a goal."""
    return _document(
        "Welcome",
        "",
        f'<div class="page"><section class="hero">'
        "<h1>Find what is asked for, and buy it</h1>"
        "<p>You are given one instruction. Search the shop, look at products, choose their options, and buy "
        "the one that fits best. Your score says how much of the instruction it fulfils.</p>"
        f"<blockquote>{_text(example)}</blockquote>{_begin(goals)}</section></div>",
    )


def not_found_page(reason: str, goals: int, number: int | None = None, goal: Goal | None = None) -> str:
    """The page for an address that is not a page of the shop. It leads back to the goal of the address, if it has one,
    and to the beginning."""
    task, back = "", ""
    if number is not None and goal is not None:
        task = _task(goal, False)
        back = (
            f'<p><a class="buy" href="{_text(address(number, State("")))}">Back to the search of goal {number}</a></p>'
        )
    return _document(
        "Not found",
        "",
        f'<div class="page">{task}<section class="hero"><h1>Not found</h1><p class="reason">{_text(reason)}</p>{back}'
        f"<h2>Begin with a goal</h2>{_begin(goals)}</section></div>",
    )


# ---- bodies ---------------------------------------------------------------------------------------


def _index(view: View, nodes: Sequence[Node]) -> str:
    return f'<section class="hero">{_search(view, "Search the shop", _role(nodes[0]))}</section>'


def _results(view: View, nodes: Sequence[Node]) -> str:
    before, cards = offers(nodes)
    shown = "".join(_card(view, card) for card in cards)
    bar = "".join(_node(view, node, "h1") for node in before)
    nothing = "" if cards else '<p class="aside">There are no products on this page.</p>'
    return f'<nav class="row" aria-label="Pages">{bar}</nav><ul class="cards">{shown}</ul>{nothing}'


def _card(view: View, card: Sequence[Node]) -> str:
    """A product on a results page: one link with its ASIN, title and price. An agent's link is the ASIN."""
    link, *others = card
    names = (' class="title"', ' class="price"', *[""] * len(others))
    texts = "".join(f"<span{name}{_role(node)}</span>" for node, name in zip(others, names, strict=False))
    code = f'<span class="product-link"{_role(link)}</span>'
    return f'<li><a class="card" href="{_after(view, link)}">{code}{texts}</a></li>'


def _item(view: View, nodes: Sequence[Node]) -> str:
    """Options come first, as in the page model, also in the order of the Tab key."""
    last = max((i for i, node in enumerate(nodes) if node.role == "text"), default=0) + 1
    title = max(last - 3, 2)  # the first of the last three texts: title, price, rating
    bar = "".join(_node(view, node, "") for node in nodes[:2])
    tags = zip(nodes[title:last], ("h1", "p", "p"), strict=False)
    about = "".join(_node(view, node, tag) for node, tag in tags)
    buttons = "".join(_node(view, node, "") for node in nodes[last:])
    return (
        f'<nav class="row" aria-label="Back">{bar}</nav><div class="product">'
        f'<section class="options" aria-label="Options">{_options(view, nodes[2:title])}</section>'
        f'<section class="about" aria-label="Product">{about}</section>'
        f'<nav class="row" aria-label="Product pages">{buttons}</nav></div>'
    )


def _options(view: View, nodes: Sequence[Node]) -> str:
    shown = []
    for role, run in groupby(nodes, lambda node: node.role):
        made = "".join(_node(view, node, "h2") for node in run)
        shown.append(f'<div class="row values">{made}</div>' if role == "option" else made)
    return "".join(shown) or '<p class="aside">This product has no options.</p>'


def _details(view: View, nodes: Sequence[Node]) -> str:
    name = _text(view.state.details)
    bar = "".join(_node(view, node, "") for node in nodes[:2])
    content = "".join(_node(view, node, "p") for node in nodes[2:])
    nothing = "" if content else '<p class="aside">Nothing is said here.</p>'
    return (
        f'<nav class="row" aria-label="Back">{bar}</nav><section class="product {name.lower()}" '
        f'aria-label="{name}"><h1>{name}</h1>{content}{nothing}</section>'
    )


def _done(view: View, nodes: Sequence[Node]) -> str:
    content = "".join(_node(view, node, "p") for node in nodes)
    again = '<p><a class="buy" href="/">Another goal</a></p>'
    verdict = "" if view.reward is None else _verdict(view, view.reward)
    return f"{verdict}{again}<details><summary>What an agent is told</summary>{content}</details>"


_BODIES = {"index": _index, "results": _results, "item": _item, "details": _details, "done": _done}


# ---- pieces ---------------------------------------------------------------------------------------


def _document(title: str, header: str, body: str) -> str:
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{_text(title)} - WebShop</title><link rel="stylesheet" href="{STYLE}">'
        '</head><body><a class="skip" href="#main">Skip to the page</a>'
        f'<header><a class="brand" href="/">WebShop</a>{header}</header>'
        f'<main id="main">{body}</main></body></html>'
    )


def _begin(goals: int) -> str:
    """How to begin: draw a goal, or enter its number."""
    return (
        '<form class="row" action="/draw"><button class="buy">Draw a goal</button></form>'
        '<form class="row" action="/goal"><label for="number">or take goal number</label>'
        f'<input id="number" name="number" type="number" min="0" max="{goals - 1}" value="0" required>'
        f"<button>Go</button><span>of 0 to {goals - 1}</span></form>"
    )


def _task(goal: Goal, first: bool) -> str:
    brand = "<h1>WebShop</h1>" if first else ""
    return (
        f'{brand}<section class="task" aria-label="Instruction"><h2>Instruction:</h2>'
        f'<p id="instruction">{_text(goal.text)}</p></section>'
    )


def _search(view: View, label: str, role: str) -> str:
    """The search form, with the last query in it."""
    kept = "".join(f'<input type="hidden" name="seen" value="{_text(asin)}">' for asin in sorted(view.state.visited))
    button = f'<button class="buy"{role}</button>' if role else "<button>Search</button>"
    query = _text(shown_query(view.state))
    return (
        f'<form id="search" class="row" role="search" action="/goal/{view.number}/results">'
        f'<label for="query">{label}</label>'
        f'<input id="query" name="q" type="text" autocomplete="off" size="24" value="{query}">{kept}{button}</form>'
    )


def _after(view: View, node: Node) -> str:
    """The escaped address of the page after a click on a node."""
    after = replace(view.state, options=dict(view.state.options))
    if node.role == "option":
        after.click(node.text, node.group)
    else:
        after.click(node.text.lower())
    return _text(address(view.number, after))


def _node(view: View, node: Node, tag: str) -> str:
    """The node as an element `tag` with its text, or as a link to the page after a click on it."""
    if node.role == "text":
        return f"<{tag}{_role(node)}</{tag}>"
    name = "buy" if node.text == BUY else "button"
    if node.role == "option":
        # What was chosen, for people: `clicked` is the original's mark, which is wrong for some values.
        name = "value chosen" if view.state.options.get(node.group) == node.text else "value"
    return f'<a class="{name}" href="{_after(view, node)}"{_role(node)}</a>'


def _role(node: Node) -> str:
    """The rest of an element's opening tag, with the attributes of the node, and its text."""
    group = f' data-group="{_text(node.group)}"' if node.role == "option" else ""
    clicked = ' aria-current="true"' if node.clicked else ""
    return f' data-role="{node.role}"{group}{clicked}>{_text(node.text)}'


def _verdict(view: View, reward: Reward) -> str:
    words = "".join(f"<dt>{name}</dt><dd>{_text(text)}</dd>" for name, text in reward_in_words(view.goal, reward))
    exact = {"total": reward.total, **reward.parts()}
    parts = "".join(f'<data id="{name}" value="{_text(json.dumps(part))}"></data>' for name, part in exact.items())
    verdict = "It is all that was asked for." if reward.total == 1 else "It is not all that was asked for."
    return (
        f'<section class="verdict" aria-label="Score">'
        f"<h1>Your score: {reward.total:.0%}</h1><p>{verdict}</p>"
        f'<meter value="{reward.total}" aria-label="Score"></meter><dl>{words}</dl>'
        f'<h2>The instruction was</h2><p id="instruction">{_text(view.goal.text)}</p>{parts}</section>'
    )


def _text(text: str) -> str:
    """Escaped text. Carriage returns too, because a parser would read one as a line break."""
    return escape(text).replace("\r", "&#13;")
