"""Where a shopper is, as the path and query of an address.

An address holds the whole state, so the server remembers nothing: the back button, a second tab, and a browser
that was started anew after a crash all come to the page that was left.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit

from crbc_envs.webshop.shop.pages import ATTRIBUTES, DETAILS
from crbc_envs.webshop.shop.shop import Shop
from crbc_envs.webshop.shop.state import State

SHOPPER = "shopper"
"""The name of every session, as in the text environment."""

KINDS = ("results", "item", "details", "done")
"""The last part of a path; the first page of a goal has none."""

OPTION = "option."
"""Before the name of an option group."""

MOST_DIGITS = 9
"""Of a number in an address."""


class NoPage(ValueError):
    """An address leads nowhere in this shop; the message says why."""


def address(goal: int, state: State) -> str:
    """The address of a state of the goal with that number: "/goal/3/results?q=red+shoes&page=1"."""
    path = f"/goal/{goal}"
    return path if state.kind == "index" else f"{path}/{state.kind}?{urlencode(fields(state))}"


def fields(state: State) -> list[tuple[str, str]]:
    """What the query of an address says. Halves of surrogate pairs, which no address can hold, are replaced."""
    query = " ".join(state.keywords).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    said = [("q", query), ("page", str(state.page))]
    said += [("seen", asin) for asin in sorted(state.visited)]
    if state.asin:
        said += [("asin", state.asin), *((OPTION + group, value) for group, value in state.options.items())]
    return [*said, ("about", state.details)] if state.kind == "details" else said


def read_address(url: str, shop: Shop) -> tuple[int, State]:
    """The number of the goal and the state of an address. Queries are read in lower case, as the shop reads
    what is typed; an empty one is none, so its state is that of the first page.

    Raises `NoPage` for an address of anything but a page of this shop.
    """
    parts = urlsplit(url)
    root, *rest = parts.path.split("/")[1:]
    if root != "goal" or not 1 <= len(rest) <= 2 or rest[1:] not in ([], *([kind] for kind in KINDS)):
        raise NoPage("there is no such page")
    goal, kind = number(rest[0]), rest[1] if rest[1:] else "index"
    said = parse_qsl(parts.query, keep_blank_values=True, errors="replace")
    named = dict(said)
    query = named.get("q", "").lower()
    if kind == "index" or (kind == "results" and not query):
        return goal, State(SHOPPER)
    state = State(SHOPPER, kind, query.split(" "), number(named.get("page", "1")))  # type: ignore[arg-type]
    state.visited = frozenset(value for name, value in said if name == "seen")
    for asin in state.visited:
        _find(shop, asin)
    if kind != "results":
        _read_product(state, shop, said, named)
    return goal, state


def number(text: str) -> int:
    """A number in an address; pages have one below zero where a query misled the way back."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS):
        raise NoPage(f"{text[:40]!r} is no number")
    return int(text)


def _read_product(state: State, shop: Shop, said: list[tuple[str, str]], named: dict[str, str]) -> None:
    state.asin = named.get("asin", "")
    groups = shop.catalogue[_find(shop, state.asin)].options
    for name, value in said:
        group = name.removeprefix(OPTION)
        if group != name:
            if value not in groups.get(group, ()):
                raise NoPage(f"{state.asin} has no option {group[:40]!r} of {value[:40]!r}")
            state.options[group] = value
    if state.kind == "details":
        state.details = named.get("about", "")
        if state.details not in (*DETAILS, *([ATTRIBUTES] if shop.show_attributes else [])):
            raise NoPage(f"products have no page {state.details[:40]!r}")


def _find(shop: Shop, asin: str) -> int:
    found = shop.catalogue.find(asin)
    if found is None:
        raise NoPage(f"there is no product {asin[:40]!r}")
    return found
