"""A scripted shopper whose play can be imitated: it sees the pages an agent sees, and nothing else.

It types the telling words of its instruction, opens one offer after another that it can pay for, looks whether
the wanted options are there and what the pages say, and buys the best it has seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from crbc_envs.actions import tagged
from crbc_envs.webshop.expert.reading import Page, read_page
from crbc_envs.webshop.expert.request import Request, read_request

if TYPE_CHECKING:
    from crbc_envs.webshop.env import WebShopEnv

ENOUGH = 0.99
"""A product is bought without looking further when its pages have this share of the words."""

_LOOK = 4
"""Steps to look at one more product: open it, read its features, and back twice."""
_BACK = "click[< prev]"
_NEXT = "click[next >]"
_BUY = "click[buy now]"


@dataclass(slots=True)
class Note:
    """What the shopper remembers of a product it has opened: on which results page it is, what it read, the
    values to choose and those it has clicked, and how many options asked for by name it lacks."""

    asin: str
    number: int
    text: str
    choices: list[str] | None = None
    clicked: list[str] = field(default_factory=list)
    lacks: int = 0
    unread: list[str] = field(default_factory=lambda: ["features", "description"])

    @property
    def buying(self) -> int:
        """Steps from the results page to having bought it."""
        return 2 + len(self.choices or ())


@dataclass(slots=True)
class Shopper:
    """One episode of at most `steps` actions. A `hasty` shopper buys the first product it opens; a `careless` one
    opens the first offer, whatever it costs, and buys it as it is, without choosing options."""

    steps: int = 15
    hasty: bool = False
    careless: bool = False
    request: Request | None = None
    notes: dict[str, Note] = field(default_factory=dict)
    open: Note | None = None

    def act(self, observation: str) -> tuple[str, str]:
        """A short thought, and the action on this page."""
        page = read_page(observation)
        if self.request is None:
            self.request = read_request(page.instruction)
        thought, action = self._on(page, self.request)
        self.steps -= 1
        return thought, action

    def _on(self, page: Page, request: Request) -> tuple[str, str]:
        if page.kind == "results":
            return self._browse(page, request)
        if page.kind == "item" and self.open is not None:
            return self._examine(page, request, self.open)
        if page.kind == "details" and self.open is not None:
            self.open.text += f"\n{page.text}"
            return "read it", _BACK
        return "look for it", f"search[{request.query}]"

    def _browse(self, page: Page, request: Request) -> tuple[str, str]:
        """Open the first offer that can be paid for, or go back to the best product when steps run short."""
        fresh = [o for o in page.offers if o.asin not in self.notes and (self.careless or request.affords(o.prices))]
        best = self._best(request)
        settled = best is not None and (_value(request, best) >= ENOUGH or self.steps < _LOOK + best.buying)
        if best is not None and (settled or not fresh):
            if best.number != page.number:
                return "the best was elsewhere", _BACK if best.number < page.number else _NEXT
            self.open = best
            return "the best so far", f"click[{best.asin.lower()}]"
        if not fresh:
            return "nothing here", _NEXT
        offer = fresh[0]
        self.open = self.notes[offer.asin] = Note(offer.asin, page.number, offer.title)
        return "promising", f"click[{offer.asin.lower()}]"

    def _examine(self, page: Page, request: Request, note: Note) -> tuple[str, str]:
        """Read about the product while there are steps for it, then go on looking, or choose and buy."""
        if self.careless:
            return "buy", _BUY
        if note.choices is None:
            found = [request.choose(group, values) for group, values in page.options.items()]
            note.choices = [value for value in found if value is not None]
            note.lacks = len(request.options) - len(note.choices) if request.options else 0
            note.text += "\n" + " ".join(itertools.chain(*page.options.values()))
        left = [value for value in note.choices if value not in note.clicked]
        if not (self.hasty or note.clicked or _value(request, note) >= ENOUGH):
            if note.lacks and self._may_leave(request, note):
                return "an option is missing", _BACK
            others = [1 + other.buying for other in self.notes.values() if other is not note]
            if note.unread and self.steps >= 2 + max([len(left) + 1, *others]):
                subject = note.unread.pop(0)
                return f"what {subject}?", f"click[{subject}]"
            if self._may_leave(request, note):
                return "not sure", _BACK
        if not left:
            return "buy", _BUY
        note.clicked.append(left[0])  # a value with a quote in it is never shown as clicked
        return "choose", f"click[{left[0]}]"

    def _may_leave(self, request: Request, note: Note) -> bool:
        """Whether there are steps to leave and buy: what was better, or, after a look at another, any."""
        best = self._best(request)
        return best is not None and self.steps >= 1 + best.buying + (_LOOK if best is note else 0)

    def _best(self, request: Request) -> Note | None:
        """The product that answers most of the request; of equals the one the shop ranks first."""
        return max(self.notes.values(), key=lambda note: _value(request, note), default=None)


def _value(request: Request, note: Note) -> float:
    """How much of the request a product answers, as far as is known; a lacking option costs a third."""
    return request.coverage(note.text) - note.lacks / 3


def demonstrations(
    env: WebShopEnv, rng: np.random.Generator, hasty: float, careless: float = 0.0
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """One episode after another, for ever: each step's observation, info and the shopper's reply. An episode's
    shopper is hasty with probability `hasty` and careless with probability `careless`. `env` shows `text_rich`
    pages."""
    while True:
        obs, info = env.reset(options={"task": int(rng.integers(len(env.panel)))})
        is_hasty, is_careless = (rng.random(2) < (hasty, careless)).tolist()
        shopper = Shopper(env.max_steps, is_hasty, is_careless)
        over = False
        while not over:
            thought, action = shopper.act(obs)
            reply = tagged(action, thought)
            yield obs, info, reply
            obs, _, terminated, truncated, info = env.step(reply)
            over = terminated or truncated
