"""Renders the pages of the site as HTML, without scripts and without external resources.

The elements with a `data-role` are for agents. They are in the order of the page model, with the role and text of its
`Node`s, and with `aria-current` on clicked ones. Everything else is for people. All text is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from itertools import groupby

from crbc_envs.webshop.shop.goals import Goal
from crbc_envs.webshop.shop.pages import BUY, Node, Page, offers
from crbc_envs.webshop.shop.reward import Reward, reward_in_words
from crbc_envs.webshop.shop.state import State
from crbc_envs.webshop.site.address import address

STYLE = "/style.css"

_TITLES = {"index": "Search", "results": "Results", "item": "Product", "done": "Thank you"}


def shop_page(number: int, goal: Goal, state: State, page: Page, reward: Reward | None) -> str:
    """The HTML document of a page, with `reward` after a purchase."""
    task = "" if page.kind == "done" else _task(page, goal)
    header = "" if page.kind in ("index", "done") else _search(number, state, "Search again", "")
    body = _BODIES[page.kind](number, state, page.nodes)
    if reward is not None:
        body = _verdict(goal, reward) + body
    title = _TITLES.get(page.kind, state.details)
    return _document(title, header, f'<div class="page" data-kind="{page.kind}">{task}{body}</div>')


def start_page(goals: int, example: str) -> str:
    """The first page, where a person draws or chooses one of `goals` goals. `example` is the text of a goal."""
    return _document(
        "Welcome",
        "",
        '<div class="page"><section class="hero"><h1>Find what is asked for, and buy it</h1>'
        "<p>You are given one instruction. Search the shop, look at products, choose their options, and buy "
        "the one that fits best. Your score says how much of the instruction it fulfils.</p>"
        f"<blockquote>{_text(example)}</blockquote>"
        '<form class="row" action="/draw"><button class="buy">Draw a goal</button></form>'
        '<form class="row" action="/goal"><label for="number">or take goal number</label>'
        f'<input id="number" name="number" type="number" min="0" max="{goals - 1}" value="0" required>'
        f"<button>Go</button><span>of 0 to {goals - 1}</span></form></section></div>",
    )


def not_found_page(reason: str) -> str:
    """The page for an address that is not a page of the shop."""
    return _document("Not found", "", f'<div class="page"><h1>Not found</h1><p>{_text(reason)}</p></div>')


# ---- bodies ---------------------------------------------------------------------------------------


def _index(number: int, state: State, nodes: Sequence[Node]) -> str:
    return f'<section class="hero">{_search(number, state, "Search the shop", _role(nodes[0]))}</section>'


def _results(number: int, state: State, nodes: Sequence[Node]) -> str:
    before, cards = offers(nodes)
    shown = "".join(_card(number, state, card) for card in cards)
    bar = "".join(_node(number, state, node, "h1") for node in before)
    nothing = "" if cards else '<p class="aside">There are no products on this page.</p>'
    return f'<nav class="row" aria-label="Pages">{bar}</nav><ul class="cards">{shown}</ul>{nothing}'


def _card(number: int, state: State, card: Sequence[Node]) -> str:
    """A product on a results page. The text of its link is the ASIN; the title describes the link."""
    link, *others = card
    title = f"t{_text(link.text)}"
    names = (f' class="title" id="{title}"', ' class="price"', *[""] * len(others))
    texts = "".join(f"<p{name}{_role(node)}</p>" for node, name in zip(others, names, strict=False))
    described = f' aria-describedby="{title}"'
    return f"<li>{_node(number, state, link, '', described)}{texts}</li>"


def _item(number: int, state: State, nodes: Sequence[Node]) -> str:
    """Options come first, as in the page model, also in the order of the Tab key."""
    last = max((i for i, node in enumerate(nodes) if node.role == "text"), default=0) + 1
    title = max(last - 3, 2)  # the first of the last three texts: title, price, rating
    bar = "".join(_node(number, state, node, "") for node in nodes[:2])
    tags = zip(nodes[title:last], ("h1", "p", "p"), strict=False)
    about = "".join(_node(number, state, node, tag) for node, tag in tags)
    buttons = "".join(_node(number, state, node, "") for node in nodes[last:])
    options = _options(number, state, nodes[2:title])
    return (
        f'<nav class="row" aria-label="Back">{bar}</nav><div class="product"><section class="options" '
        f'aria-label="Options">{options}</section><section class="about" aria-label="Product">{about}</section></div>'
        f'<nav class="row" aria-label="Product pages">{buttons}</nav>'
    )


def _options(number: int, state: State, nodes: Sequence[Node]) -> str:
    shown = []
    for role, run in groupby(nodes, lambda node: node.role):
        made = "".join(_node(number, state, node, "h2") for node in run)
        shown.append(f'<div class="row values">{made}</div>' if role == "option" else made)
    return "".join(shown) or '<p class="aside">This product has no options.</p>'


def _details(number: int, state: State, nodes: Sequence[Node]) -> str:
    bar = "".join(_node(number, state, node, "") for node in nodes[:2])
    content = "".join(_node(number, state, node, "p") for node in nodes[2:])
    nothing = "" if content else '<p class="aside">Nothing is said here.</p>'
    return (
        f'<nav class="row" aria-label="Back">{bar}</nav><h1>{_text(state.details)}</h1>'
        f'<section class="{state.details.lower()}" aria-label="{_text(state.details)}">{content}{nothing}</section>'
    )


def _done(number: int, state: State, nodes: Sequence[Node]) -> str:
    content = "".join(_node(number, state, node, "p") for node in nodes)
    again = '<p><a class="button" href="/">Another goal</a></p>'
    return f"<details><summary>What an agent is told</summary>{content}</details>{again}"


_BODIES = {"index": _index, "results": _results, "item": _item, "details": _details, "done": _done}


# ---- pieces ---------------------------------------------------------------------------------------


def _document(title: str, header: str, body: str) -> str:
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{_text(title)} - WebShop</title><link rel="stylesheet" href="{STYLE}">'
        '<link rel="icon" href="data:,"></head><body><a class="skip" href="#main">Skip to the page</a>'
        f'<header><a class="brand" href="/">WebShop</a>{header}</header><main id="main">{body}</main></body></html>'
    )


def _task(page: Page, goal: Goal) -> str:
    brand = "<h1>WebShop</h1>" if page.kind == "index" else ""
    return (
        f'{brand}<section class="task" aria-label="Instruction"><h2>Instruction:</h2>'
        f'<p id="instruction">{_text(goal.text)}</p></section>'
    )


def _search(number: int, state: State, label: str, role: str) -> str:
    kept = "".join(f'<input type="hidden" name="seen" value="{_text(asin)}">' for asin in sorted(state.visited))
    button = f'<button class="buy"{role}</button>' if role else "<button>Search</button>"
    return (
        f'<form id="search" class="row" role="search" action="/goal/{number}/results">'
        f'<label for="query">{label}</label>'
        f'<input id="query" name="q" type="text" autocomplete="off" size="24">{kept}{button}</form>'
    )


def _node(number: int, state: State, node: Node, tag: str, more: str = "") -> str:
    """The node as an element `tag` with its text, or as a link to the page after a click on it."""
    if node.role == "text":
        return f"<{tag}{_role(node)}</{tag}>"
    after = replace(state, options=dict(state.options))
    if node.role == "option":
        after.click(node.text, node.group)
    else:
        after.click(node.text.lower())
    name = {"link": "product-link", "option": "value"}.get(node.role, "buy" if node.text == BUY else "button")
    return f'<a class="{name}" href="{_text(address(number, after))}"{more}{_role(node)}</a>'


def _role(node: Node) -> str:
    """The rest of an element's opening tag, with the attributes of the node, and its text."""
    group = f' data-group="{_text(node.group)}"' if node.role == "option" else ""
    clicked = ' aria-current="true"' if node.clicked else ""
    return f' data-role="{node.role}"{group}{clicked}>{_text(node.text)}'


def _verdict(goal: Goal, reward: Reward) -> str:
    words = "".join(f"<dt>{name}</dt><dd>{_text(text)}</dd>" for name, text in reward_in_words(goal, reward))
    exact = {"total": reward.total, **reward.parts()}
    parts = "".join(f'<data id="{name}" value="{_text(json.dumps(part))}"></data>' for name, part in exact.items())
    verdict = "It is all that was asked for." if reward.total == 1 else "It is not all that was asked for."
    return (
        f'<section class="verdict" aria-label="Score"><h1>Your score: {reward.total:.0%}</h1><p>{verdict}</p>'
        f'<meter value="{reward.total}" aria-label="Score"></meter><dl>{words}</dl>'
        f'<h2>The instruction was</h2><p id="instruction">{_text(goal.text)}</p>{parts}</section>'
    )


def _text(text: str) -> str:
    """Escaped text. Carriage returns too, because a parser would read one as a line break."""
    return escape(text).replace("\r", "&#13;")
