"""Goals with their price caps and their order, drawn as in the original.

The original samples a price from every price range, then a price cap for every instruction. Both come from Python's
global stream before it is seeded, so two processes show different prices. Here the stream is explicit:
`price_seed=n` gives the prices that the original gives after `random.seed(n)`. Source: WebShop, engine/engine.py
and engine/goal.py (MIT).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from crbc_envs import tasks
from crbc_envs.errors import DataError
from crbc_envs.webshop.products.catalogue import MEND, Catalogue, Product

ORDER_SEED = 233
"""The seed of the order of goals in the original."""

PRICE_STEPS = tuple(10.0 * i for i in range(1, 100))
NO_CAP = 1_000_000.0
"""The cap of a product with fewer than two steps above its price."""

MOST_SYNTHETIC = 200_000
"""The largest catalogue with synthetic goals. They are kept in memory, about seven per product."""

MOST_GOALS = 100_000
"""The most synthetic goals of one product. In the small official set one has 558."""

Kind = Literal["synthetic", "human"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Goal:
    """One task.

    `product` is the number of the product that it was made from. `options` has (group, value) pairs in a synthetic
    goal, and values alone in a human one. `weight` is the original's sampling weight.
    """

    product: int
    asin: str
    text: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...] | tuple[str, ...]
    price_cap: float
    weight: float = 1.0

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The options of a synthetic goal; a human one has none with groups."""
        return [option for option in self.options if not isinstance(option, str)]

    def digest(self) -> str:
        """The hash of the task (hex): its product, text, attributes, options and price cap."""
        content = [self.asin, self.text, self.attributes, self.options, self.price_cap]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def draw(catalogue: Catalogue, kind: Kind, price_seed: int) -> tuple[list[float], list[Goal]]:
    """Draw the price of every product in dollars, by number, and the goals in the order of the catalogue."""
    stream = random.Random(price_seed)
    prices = [ends[0] if len(ends) == 1 else stream.uniform(*ends) for ends in catalogue.prices()]
    goals: list[Goal] = []
    for number in catalogue.instructed(human=kind == "human"):
        goals += goals_of(catalogue[number], number, prices[number], kind, stream)
    return prices, goals if kind == "human" else _weighted(goals)


def shuffled(goals: Iterable[T], order_seed: int = ORDER_SEED) -> list[T]:
    """The goals, or their places, shuffled by Python's `random.shuffle` with `order_seed`."""
    ordered = list(goals)
    random.Random(order_seed).shuffle(ordered)
    return ordered


def goals_of(product: Product, number: int, price: float, kind: Kind, stream: random.Random) -> Iterator[Goal]:
    """The goals of a product with that number and price, their price cap drawn from `stream`."""
    return (_human if kind == "human" else _synthetic)(product, number, price, stream)


def _synthetic(product: Product, number: int, price: float, stream: random.Random) -> Iterator[Goal]:
    """One goal per combination of option values.

    Raises `DataError` for an instruction without attributes, and for more than `MOST_GOALS` combinations.
    """
    if not product.instruction_attributes:
        raise DataError(f"items_ins_v2: the instruction of {product.asin} has no instruction_attributes; {MEND}")
    count = math.prod(map(len, product.options.values()))
    if count > MOST_GOALS:
        raise DataError(
            f"customization_options: {product.asin} has {count:,} combinations of option values, each one a goal, and "
            f"at most {MOST_GOALS:,} are read; {MEND}"
        )
    cap, price_text = _price_cap(price, stream)
    names = sorted(product.options)
    for values in itertools.product(*(product.options[name] for name in names)):
        options = tuple(zip(names, values, strict=True))
        listed = ", and ".join(f"{name}: {value}" for name, value in options)
        text = f"{product.instruction}{' with ' + listed if listed else ''}{price_text}"
        yield Goal(number, product.asin, text, product.instruction_attributes, options, cap)


def _human(product: Product, number: int, price: float, stream: random.Random) -> Iterator[Goal]:
    """One goal per instruction that names an attribute."""
    for instruction in product.human:
        if instruction.attributes:
            cap, price_text = _price_cap(price, stream)
            text = instruction.text.strip(".") + price_text
            yield Goal(number, product.asin, text, instruction.attributes, instruction.options, cap)


def _price_cap(price: float, stream: random.Random) -> tuple[float, str]:
    """A cap above the price, in dollars, and its text in the instruction."""
    steps = [step for step in PRICE_STEPS if step > price][:4]
    if len(steps) < 2:
        return NO_CAP, ""
    cap = max(stream.sample(steps, 2))
    return cap, f", and price lower than {cap:.2f} dollars"


def _weighted(goals: list[Goal]) -> list[Goal]:
    """Set the weights: the mean over a goal's attributes of 1 / (number of goals with the attribute)."""
    count = Counter(attribute for goal in goals for attribute in goal.attributes)
    weight = {
        attributes: sum(1.0 / count[attribute] for attribute in attributes) / len(attributes)
        for attributes in {goal.attributes: None for goal in goals}
    }
    return [Goal(g.product, g.asin, g.text, g.attributes, g.options, g.price_cap, weight[g.attributes]) for g in goals]


# ---- drawn one by one, for shops too large for lists ----------------------------------------------


class DrawnPrices(Sequence[float]):
    """The prices of a catalogue, by product number. A price range gives a price of its own stream."""

    def __init__(self, catalogue: Catalogue, price_seed: int) -> None:
        self._catalogue, self._seed = catalogue, price_seed

    def __len__(self) -> int:
        return len(self._catalogue)

    def __getitem__(self, number: Any) -> Any:
        ends = self._catalogue[number].prices
        if len(ends) == 1:
            return ends[0]
        return random.Random(tasks.stream("webshop-price", self._seed, number)).uniform(*ends)


class DrawnGoals(Sequence[Goal]):
    """One goal for each product with an instruction, in the order of the catalogue.

    Synthetic goals name one value of every option, drawn at random. Of several instructions by people, one is drawn.
    `products` has the product of each goal.
    """

    def __init__(self, catalogue: Catalogue, kind: Kind, prices: DrawnPrices, price_seed: int) -> None:
        self.products = np.array([*catalogue.instructed(kind == "human")], dtype=np.int32)
        self._catalogue, self._kind, self._prices, self._seed = catalogue, kind, prices, price_seed

    def __len__(self) -> int:
        return len(self.products)

    def __getitem__(self, place: Any) -> Any:
        number = int(self.products[place])
        product, own = self._catalogue[number], random.Random(tasks.stream("webshop-goal", self._seed, number))
        options = {name: (own.choice(values),) for name, values in product.options.items() if values}
        human = (own.choice(product.human),) if product.human else ()
        goals = goals_of(replace(product, options=options, human=human), number, self._prices[number], self._kind, own)
        return next(iter(goals))
