"""Parses a `text_rich` observation into a page, for experts that see only what an agent sees."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_BUTTON = re.compile(r"( *)\[(clicked )?button\] (.*) \[(?:clicked )?button_\]")
_RESULTS = re.compile(r"^Page (\d+) \(Total results: (\d+)\)$", re.MULTILINE)
_CLICKED = "You have clicked "


@dataclass(frozen=True, slots=True)
class Offer:
    """A product on a results page. `prices` has one amount in dollars, or two for a range."""

    asin: str
    title: str
    prices: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A parsed page.

    `kind` is "index", "results", "item", "details" (a description, features or reviews page) or "done". A results
    page has `number` and `offers`. An item page has `options` (group -> values). `text` is the text of a details page.
    """

    kind: str
    instruction: str
    number: int = 0
    offers: tuple[Offer, ...] = ()
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    text: str = ""


def read_page(observation: str) -> Page:
    """Parse a `text_rich` observation. Raises `ValueError` for any other text."""
    lines = observation.split("\n")
    while lines and lines[0].startswith(_CLICKED):
        lines.pop(0)
    if lines[0] == "WebShop":
        return Page("index", lines[2])
    if not lines[0].startswith("Instruction:"):
        if "Your score (min 0.0, max 1.0)" in observation:
            return Page("done", "")
        raise ValueError(f"not a text_rich observation: {observation[:80]!r}")
    instruction, body = lines[1], lines[2:]
    if "[button] Buy Now [button_]" in body:
        return _item(instruction, body)
    if results := _RESULTS.search(observation):
        # Each offer is a blank line, the ASIN as a button, the title and the price.
        buttons = ((i, _BUTTON.fullmatch(body[i + 1])) for i, line in enumerate(body[:-3]) if line == "")
        offers = [Offer(button[3], body[i + 2], read_prices(body[i + 3])) for i, button in buttons if button]
        return Page("results", instruction, number=int(results[1]), offers=tuple(offers))
    if "[button] < Prev [button_]" in body:
        return Page("details", instruction, text="\n".join(body[body.index("[button] < Prev [button_]") + 1 :]).strip())
    return Page("done", instruction)


def read_prices(text: str) -> tuple[float, ...]:
    """The amounts of "$12.99" or "$10.0 to $25.0"."""
    return tuple(float(amount) for amount in re.findall(r"\$(\d+(?:\.\d+)?)", text))


def _item(instruction: str, body: list[str]) -> Page:
    options: dict[str, list[str]] = {}
    price = next(i for i, line in enumerate(body) if line.startswith("Price: "))
    name = ""
    for line in body[2 : price - 1]:  # after the two buttons above, before the title
        button = _BUTTON.fullmatch(line)
        if button is None:
            name = line
            options[name] = []
        else:
            options[name].append(button[3])
    return Page("item", instruction, options={name: tuple(values) for name, values in options.items()})
