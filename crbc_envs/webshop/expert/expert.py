"""A scripted expert that sees only the pages that an agent sees. Its actions are demonstrations for imitation.

It searches for the keywords of its instruction and opens the offers within the price cap one by one. It checks their
options and reads their pages. Then it buys the best product it has seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crbc_envs.actions import normalise, tagged
from crbc_envs.webshop.expert.reading import Page, read_page
from crbc_envs.webshop.expert.request import Request, read_request

ENOUGH = 0.99
"""A reader buys a product at once if its pages have at least this fraction of the keywords."""

_BACK = "click[< prev]"
_NEXT = "click[next >]"
_BUY = "click[buy now]"
_NO_BRACKETS = str.maketrans("[]", "  ")  # they would end the query


@dataclass(slots=True)
class ProductNotes:
    """What the shopper knows of an opened product.

    `number` is its results page, `text` what was read, `choices` the option values to choose, `clicked` those already
    chosen, `lacks` the number of requested options that it does not have, `unread` the pages not read yet.
    """

    asin: str
    number: int
    text: str
    choices: list[str] | None = None
    clicked: list[str] = field(default_factory=list)
    lacks: int = 0
    unread: list[str] = field(default_factory=lambda: ["features", "description"])

    @property
    def buying(self) -> int:
        """The number of steps from the results page to the purchase."""
        return 2 + len(self.choices or ())


@dataclass(slots=True)
class Shopper:
    """The expert for one episode of at most `steps` actions.

    A `hasty` shopper buys the first product it opens. A `careless` one opens the first offer at any price and buys it
    without choosing options. One that does not `read` leaves a product only for an option that it lacks. One that
    `quotes` searches for the instruction's own sentence, not its keywords: a small model copies that more easily.
    """

    steps: int = 15
    hasty: bool = False
    careless: bool = False
    reads: bool = True
    quotes: bool = False
    request: Request | None = None
    notes: dict[str, ProductNotes] = field(default_factory=dict)
    open: ProductNotes | None = None
    offered: dict[str, ProductNotes] = field(default_factory=dict)
    """The products of the last results page, by the argument of the click that opens them."""
    proposed: str = ""
    undo: Callable[[], object] = field(default=lambda: None, repr=False)
    """The last proposal, and what takes back the note of it, if something else is done."""
    strayed: bool = False
    """Whether the results are those of a search that it did not ask for."""

    def act(self, observation: str, done: str = "") -> tuple[str, str]:
        """A short thought and the action for this page. `done` is what was done last, perhaps on another's advice."""
        page = read_page(observation)
        if self.request is None:
            self.request = read_request(page.instruction)
        self._notice(page, done, self.request)
        thought, action = self._decide(page, self.request)
        self.proposed = normalise(action) or ""
        self.steps -= 1
        return thought, action

    def _notice(self, page: Page, done: str, request: Request) -> None:
        verb, _, what = done.removesuffix("]").partition("[")
        if done and normalise(done) != self.proposed:
            self.undo()
        self.undo = lambda: None
        if verb == "search":
            self.strayed = what.split() != self._query(request).split()
        elif what in self.offered and page.kind == "item":
            self.open = self.notes.setdefault(self.offered[what].asin, self.offered[what])
        if page.kind == "results":
            self.offered = {o.asin.lower(): ProductNotes(o.asin, page.number, o.title) for o in page.offers}

    def _decide(self, page: Page, request: Request) -> tuple[str, str]:
        if self.strayed:
            return "look for it", f"search[{self._query(request)}]"
        if page.kind == "results":
            return self._browse(page, request)
        if page.kind == "item" and self.open is not None:
            return self._examine(page, request, self.open)
        if page.kind == "details" and self.open is not None:
            self.open.text += f"\n{page.text}"
            return "read it", _BACK
        return "look for it", f"search[{self._query(request)}]"

    def _browse(self, page: Page, request: Request) -> tuple[str, str]:
        """Open the first new offer within the price cap. If few steps remain, return to the best product."""
        new = [o for o in page.offers if o.asin not in self.notes and (self.careless or request.affords(o.prices))]
        best = self._best(request)
        settled = best is not None and (self._suits(request, best) or self.steps < self._look + best.buying)
        if best is not None and (settled or not new):
            if best.number != page.number:
                return "the best was elsewhere", _BACK if best.number < page.number else _NEXT
            self.open = best
            return "the best so far", f"click[{best.asin.lower()}]"
        if not new:
            return "nothing here", _NEXT
        offer = new[0]
        self.open = self.notes[offer.asin] = ProductNotes(offer.asin, page.number, offer.title)
        self.undo = lambda: self.notes.pop(offer.asin)
        return "promising", f"click[{offer.asin.lower()}]"

    def _examine(self, page: Page, request: Request, note: ProductNotes) -> tuple[str, str]:
        """Read the product's pages while steps allow it. Then continue the search, or choose options and buy."""
        if self.careless:
            return "buy", _BUY
        if note.choices is None:
            picked = {group: request.choose(group, values) for group, values in page.options.items()}
            names = [*request.options, *(group for group in picked if group not in request.options)]
            note.choices = [value for name in names if (value := picked.get(name)) is not None]
            note.lacks = len(request.options) - len(note.choices) if request.options else 0
            note.text += "\n" + " ".join(itertools.chain(*page.options.values()))
        left = [value for value in note.choices if value not in note.clicked]
        if not (self.hasty or note.clicked or self._suits(request, note)):
            if note.lacks and not self.quotes and self._may_leave(request, note):
                return "not this one", _BACK
            others = [1 + other.buying for other in self.notes.values() if other is not note]
            if self.reads and note.unread and self.steps >= 2 + max([len(left) + 1, *others]):
                subject = note.unread.pop(0)
                self.undo = lambda: note.unread.insert(0, subject)
                return f"what {subject}?", f"click[{subject}]"
            if self.reads and self._may_leave(request, note):
                return "not sure", _BACK
        may_leave = self.quotes and not self.hasty and self._may_leave(request, note)
        thought, lacking = self._check(request, note, may_leave)
        if lacking:
            return thought, _BACK
        if not left:
            return thought or "buy", _BUY
        value = left[0]
        self.undo = lambda: note.clicked.remove(value)
        note.clicked.append(value)  # noted here, because the page never marks a value that has a quote
        return thought or "choose", f"click[{value}]"

    def _check(self, request: Request, note: ProductNotes, may_leave: bool) -> tuple[str, bool]:
        """A thought about the next requested option, and whether to leave the product because it lacks that one.

        It goes on in the task's own words behind the value that was chosen last: "mauve, and style: letter h". So a
        small model copies it from the task, and the value to click stands last. "no" follows a value that is lacking,
        and "price", which follows the options in the task, tells that all are chosen.
        """
        parts: list[str] = []
        for name, value in request.options.items():
            if value in note.clicked:
                parts = [value]
            elif value in (note.choices or ()):
                return ", and ".join([*parts, f"{name}: {value}"]).lower(), False
            else:
                parts.append(f"{name}: {value} no")
                if may_leave:
                    return ", and ".join(parts).lower(), True
        return ", and ".join([*parts, "price"] if parts else ()).lower(), False

    def _query(self, request: Request) -> str:
        query = request.sentence if self.quotes else request.query.lower()
        return query.translate(_NO_BRACKETS)

    @property
    def _look(self) -> int:
        """Steps to examine one more product: to open it and go back, twice if its features are read."""
        return 4 if self.reads else 2

    def _suits(self, request: Request, note: ProductNotes) -> bool:
        """Whether a product is bought without looking at another."""
        return _value(request, note) >= ENOUGH if self.reads else not note.lacks

    def _may_leave(self, request: Request, note: ProductNotes) -> bool:
        """Whether enough steps remain to leave this product and buy the best one, also after examining another."""
        best = self._best(request)
        return best is not None and self.steps >= 1 + best.buying + (self._look if best is note else 0)

    def _best(self, request: Request) -> ProductNotes | None:
        """The product that matches the request best; among equals, the one that the shop ranks first."""
        return max(self.notes.values(), key=lambda note: _value(request, note), default=None)


def _value(request: Request, note: ProductNotes) -> float:
    """How well a product matches the request, as far as known. Each missing option costs a third."""
    return request.coverage(note.text) - note.lacks / 3


def make_expert(
    max_steps: int,
    rng: np.random.Generator,
    hasty: float = 0.0,
    careless: float = 0.0,
    reads: float = 1.0,
    quotes: bool = False,
) -> Callable[[str, dict[str, Any]], str]:
    """A shopper for one episode of at most `max_steps` steps, which is hasty, careless or reads with these
    probabilities, and `quotes` or not.

    The observations must be "text_rich". It learns from `info["action"]` what was executed.
    """
    chances = (hasty, careless, reads)
    if not all(0 <= chance <= 1 for chance in chances):
        raise ValueError(f"hasty, careless and reads are probabilities, got {hasty!r}, {careless!r} and {reads!r}")
    is_hasty, is_careless, does_read = (rng.random(3) < chances).tolist()
    shopper = Shopper(max_steps, is_hasty, is_careless, does_read, quotes)

    def reply(observation: str, info: dict[str, Any]) -> str:
        thought, action = shopper.act(observation, info.get("action", ""))
        return tagged(action, thought)

    return reply
