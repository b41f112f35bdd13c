"""Task panels: which goals are for training and which for validation.

`official`: the goals in the original's order. Goals 0 to 499 are for validation, 500 and up for training, as in the
paper. "test" is "validation", because the original calls the same 500 its test goals. One goal of the small catalogue
is in both, and 127 of the 146 validation products are also training products, with other options.

`by_product`: no product is in two splits. The split of a product follows from its ASIN alone; 80 % are for training.
A product of the same kind, in another split, may be as good.

`by_kind`: no product of a split wins a goal of another split (`kinds`). Products of a kind are in one split. About 80 %
of the goals are for training, and 10 % each for validation and test. It is the default of the generated shop.

The task ids of a generated shop name its edition: "webshop-by_kind-v2/test/0".

`verl`: the behaviour of the public code of the paper's family, for comparison only. There, every worker orders the
goals by its own seed and then cuts at 500. The validation goals of one worker are therefore training goals of
another: with 16 training workers, all of them. There, the worker of group i has the seed s + i. Here, a shop with
`price_seed` s + i has the same order and prices, and the validation shop is that of s + i + 1000.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from crbc_envs.tasks import SPLITS, Task, TaskPanel
from crbc_envs.webshop.shop.goals import ORDER_SEED, Goal, shuffled
from crbc_envs.webshop.shop.kinds import split_of_goals
from crbc_envs.webshop.shop.shop import Shop

PANELS = ("by_kind", "official", "by_product", "verl")

Panel = Literal["by_kind", "official", "by_product", "verl"]

NUM_VALIDATION = 500

VERL_VALIDATION = 1_000
"""The difference between the validation seed and the training seed of `verl`."""


class WebShopPanel(TaskPanel[Goal]):
    """One split of a shop's goals: those at the places `order`, or all in order."""

    has_kinds: ClassVar[bool] = False
    drawn_in_paper: ClassVar[Mapping[str, int]] = {"": 128}

    def __init__(self, name: str, split: str, goals: Sequence[Goal], order: Sequence[int] | None = None) -> None:
        super().__init__(split, len(goals if order is None else order))
        self.name = name
        self._goals = goals
        self._order = np.arange(len(goals)) if order is None else np.asarray(order, dtype=np.int64)

    def _task(self, index: int) -> Task[Goal]:
        goal = self._goals[int(self._order[index])]
        return Task(f"webshop-{self.name}/{self.split}/{index}", goal.text, goal, goal.digest())

    def cluster(self, task: Task[Goal]) -> str:
        """The product: its goals differ in options and price only."""
        return task.content.asin


def shop_seed(panel: str, split: str, price_seed: int) -> int:
    """The price seed of a split's shop: `price_seed`, except for `verl`."""
    return price_seed + (VERL_VALIDATION if panel == "verl" and split != "train" else 0)


@lru_cache(maxsize=16)
def make_panel(shop: Shop, panel: str, split: str) -> WebShopPanel:
    """One split of a shop's goals. Raises `ValueError` for an unknown panel, or a split without goals."""
    if panel not in PANELS:
        raise ValueError(f"panel must be one of {', '.join(PANELS)}; got {panel!r}")
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}")
    order_seed = shop.price_seed if panel == "verl" else ORDER_SEED
    order = np.array(shuffled(range(len(shop.goals)), order_seed), dtype=np.intp)
    if panel == "by_kind":
        chosen = order[split_of_goals(shop)[order] == SPLITS.index(split)]
    elif panel == "by_product":
        asins = shop.catalogue.asins()
        chosen = order[[split_of(asins[number]) == split for number in shop.goal_products[order].tolist()]]
    else:
        chosen = order[NUM_VALIDATION:] if split == "train" else order[:NUM_VALIDATION]
    name = panel if shop.edition is None else f"{panel}-v{shop.edition}"
    made = WebShopPanel(name, split, shop.goals, chosen)
    if not len(order):
        raise ValueError("no product has an instruction of these `goals`; goals='human' needs items_human_ins.json")
    if not len(chosen):
        raise ValueError(
            f"no goals in split {split!r} of panel {panel!r}: the shop has {len(order)}"
            + (f", and {NUM_VALIDATION} of them are for validation" if panel in ("official", "verl") else "")
            + "; use panel='by_product', which splits any number"
        )
    return made


def split_of(asin: str) -> str:
    """The split of a product in `by_product`."""
    place = int.from_bytes(hashlib.sha256(asin.encode()).digest()[:8], "big") / 2**64
    return "train" if place < 0.8 else "validation" if place < 0.9 else "test"
