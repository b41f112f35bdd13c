"""Encodes a session's state as an address, and decodes it.

An address holds the whole state, so the server is stateless. The back button, a second tab, and a new browser after a
crash all return to the same page.
"""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from crbc_envs.webshop.shop.pages import DETAILS
from crbc_envs.webshop.shop.shop import Shop
from crbc_envs.webshop.shop.state import State

SHOPPER = "shopper"
"""The name of every session, as in the text environment."""

KINDS = ("results", "item", "details", "done")
"""The last part of a path. The first page of a goal has none."""

OPTION = "option."
"""The prefix of an option group in the query of an address."""

MOST_DIGITS = 9
"""The maximum number of digits of a number in an address."""


class PageNotFound(ValueError):
    """An address is not a page of this shop. The message says why."""


def address(goal: int, state: State) -> str:
    """The address of a state, for the goal with that number: "/goal/3/results?q=red+shoes&page=1"."""
    path = f"/goal/{goal}"
    return path if state.kind == "index" else f"{path}/{state.kind}?{urlencode(fields(state))}"


def shown_query(state: State) -> str:
    """The words that were searched for. Lone surrogates are replaced, because an address cannot hold them."""
    return " ".join(state.keywords).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def fields(state: State) -> list[tuple[str, str]]:
    """The query fields of an address."""
    pairs = [("q", shown_query(state)), ("page", str(state.page))]
    pairs += [("seen", asin) for asin in sorted(state.visited)]
    if state.asin:
        pairs += [("asin", state.asin), *((OPTION + group, value) for group, value in state.options.items())]
    return [*pairs, ("about", state.details)] if state.kind == "details" else pairs


def read_address(url: str, shop: Shop) -> tuple[int, State]:
    """The goal number and the state of an address.

    Search queries are read in lower case, as the shop reads typed text. An empty query gives the first page. Raises
    `PageNotFound` for an address that is not a page of this shop.
    """
    parts = split(url)
    names = parts.path.split("/")[1:]
    if names[:1] != ["goal"] or not 2 <= len(names) <= 3 or names[2:] not in ([], *([kind] for kind in KINDS)):
        raise PageNotFound("there is no such page")
    goal, kind = number(names[1]), names[2] if names[2:] else "index"
    pairs = parse_qsl(parts.query, keep_blank_values=True, errors="replace")
    named = dict(pairs)
    query = named.get("q", "").lower()
    if kind == "index" or (kind == "results" and not query):
        return goal, State(SHOPPER)
    state = State(SHOPPER, kind, query.split(" "), number(named.get("page", "1")))  # type: ignore[arg-type]  # `kind` is of `KINDS`
    state.visited = frozenset(value for name, value in pairs if name == "seen")
    for asin in state.visited:
        _find(shop, asin)
    if kind != "results":
        _read_product(state, shop, pairs, named)
    return goal, state


def goal_number(url: str) -> int | None:
    """The number of the goal at the beginning of an address, also of one that is not a page of the shop."""
    try:
        names = split(url).path.split("/")
        return number(names[2]) if names[1:2] == ["goal"] and len(names) > 2 else None
    except PageNotFound:
        return None


def split(url: str) -> SplitResult:
    """The parts of an address. Raises `PageNotFound` for what is none, such as "//[x"."""
    try:
        return urlsplit(url)
    except ValueError as error:
        raise PageNotFound("there is no such page") from error


def number(text: str) -> int:
    """A number in an address. A page number may be negative if a query misled "< Prev" (see `State`)."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS):
        raise PageNotFound(f"{text[:40]!r} is not a number")
    return int(text)


def _read_product(state: State, shop: Shop, pairs: list[tuple[str, str]], named: dict[str, str]) -> None:
    state.asin = named.get("asin", "")
    groups = shop.catalogue[_find(shop, state.asin)].options
    for name, value in pairs:
        group = name.removeprefix(OPTION)
        if group != name:
            if value not in groups.get(group, ()):
                raise PageNotFound(f"{state.asin} has no option {group[:40]!r} of {value[:40]!r}")
            state.options[group] = value
    if state.kind == "details":
        state.details = named.get("about", "")
        if state.details not in DETAILS:
            raise PageNotFound(f"products have no page {state.details[:40]!r}")


def _find(shop: Shop, asin: str) -> int:
    number = shop.catalogue.find(asin)
    if number is None:
        raise PageNotFound(f"there is no product {asin[:40]!r}")
    return number
