"""The reward of a purchase: WebShop's full reward, with its parts.

r = r_type * (matched attributes + matched options + (price within the cap)) / (attributes + options + 1).
It is exactly 1 for a product that matches everything. Source: WebShop, engine/goal.py and engine/normalize.py (MIT).

The original's normalisation of colours is kept, with its consequences: "rectangular" counts as "tan", any "blue"
matches any other, and goals whose option pairs then match nothing cannot be reached (458 of the 6,910 of the small
official catalogue).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbc_envs.webshop.products.catalogue import Product
from crbc_envs.webshop.shop.goals import NO_CAP, Goal
from crbc_envs.webshop.shop.nouns import Nouns

_COLOURS = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel "
    "camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry "
    "cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey "
    "heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight "
    "mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow "
    "red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal "
    "tiger turquoise violet walnut wheat white wine yellow"
)
COLOURS = tuple(_COLOURS.split())
"""In order of priority: the first match is used."""

CATEGORY_MARK = "\u203a"
"""The separator between the parts of a product category."""

ALIKE = 85
"""Two texts match if rapidfuzz's token_set_ratio is above this."""

LEAST_TITLE, FULL_TITLE = 0.1, 0.2
"""A product whose title score is below the first never counts in full; above the second, its type always does."""

_NOT_ASCII = dict.fromkeys(range(128, 256))


@dataclass(frozen=True, slots=True)
class Reward:
    """The reward of a purchase: `total` in [0, 1], and its parts, named as in the original.

    `r_option` and `w_option` are None for a goal without options.
    """

    total: float
    r_type: float
    r_att: float
    w_att: float
    query_match: bool
    category_match: bool
    title_score: float
    r_option: float | None
    w_option: float | None
    r_price: bool
    w_price: float

    def parts(self) -> dict[str, Any]:
        """All parts that are not None, without the total."""
        return {name: value for name, value in asdict(self).items() if name != "total" and value is not None}


def reward(
    goal: Goal,
    target: Product,
    bought: Product,
    price: float,
    options: Sequence[str],
    nouns: tuple[Nouns, Nouns],
) -> Reward:
    """The reward for buying `bought` for `price` dollars with the option values `options`.

    `goal` was made from the product `target`. `nouns` are the nouns of the titles of `target` and `bought`.
    """
    query_match = bought.query == target.query
    category_match = len(category_parts(bought.product_category) & category_parts(target.product_category)) >= 2
    # The denominator counts a repeated noun each time.
    title_score = len({*nouns[0]} & {*nouns[1]}) / len(nouns[0]) if nouns[0] else FULL_TITLE
    r_type = _type_reward(query_match or category_match, title_score)
    attributes = sum(_has_attribute(bought, attribute) for attribute in goal.attributes)
    matched = _matched_options(options, goal.options)
    r_price = price <= goal.price_cap
    parts = len(goal.attributes) + len(goal.options) + 1
    return Reward(
        total=(attributes + matched + r_price) / parts * r_type,
        r_type=r_type,
        r_att=attributes / len(goal.attributes),
        w_att=len(goal.attributes) / parts,
        query_match=query_match,
        category_match=category_match,
        title_score=title_score,
        r_option=matched / len(goal.options) if goal.options else None,
        w_option=len(goal.options) / parts if goal.options else None,
        r_price=r_price,
        w_price=1 / parts,
    )


def reward_in_words(goal: Goal, reward: Reward) -> list[tuple[str, str]]:
    """The parts of the reward in words, as (name, explanation)."""
    attributes = round(reward.r_att * len(goal.attributes))
    options = round((reward.r_option or 0.0) * len(goal.options))
    cap = "no price was named" if goal.price_cap == NO_CAP else f"at most ${goal.price_cap:.2f}"
    kind = {1.0: "the kind that was asked for", 0.5: "a similar kind", 0.1: "hardly the kind asked for"}
    parts = len(goal.attributes) + len(goal.options) + 1
    counted = attributes + options + int(reward.r_price)
    return [
        ("Attributes", f"{attributes} of the {len(goal.attributes)} that were asked for"),
        ("Options", f"{options} of the {len(goal.options)} that were asked for" if goal.options else "none asked for"),
        ("Price", f"{'within' if reward.r_price else 'above'} the limit: {cap}"),
        ("Product", f"{kind.get(reward.r_type, 'another kind')}, which counts {reward.r_type:g}"),
        ("Score", f"{counted} of {parts} points times {reward.r_type:g} is {reward.total:.3f}"),
    ]


def normalise_colour(text: str) -> str:
    """The first of `COLOURS` that occurs in the text, even inside a word; otherwise the text."""
    return next((colour for colour in COLOURS if colour in text), text)


def _type_reward(match: bool, title_score: float) -> float:
    if title_score == 0.0:
        return 0.0
    if title_score < LEAST_TITLE:
        return 0.1
    return 1.0 if match or title_score > FULL_TITLE else 0.5


def category_parts(category: str) -> set[str]:
    """The parts of a `product_category`."""
    return {part.strip() for part in category.split(CATEGORY_MARK)}


def _has_attribute(product: Product, attribute: str) -> bool:
    return any(_alike(own, attribute) for own in product.attributes) or any(attribute in t for t in texts_of(product))


def texts_of(product: Product) -> tuple[str, str, str]:
    """The texts, in lower case, in which an attribute counts where it is contained."""
    return product.title.lower(), " ".join(product.bullets).lower(), product.description.lower()


def _matched_options(chosen: Sequence[str], targets: tuple[tuple[str, str], ...] | tuple[str, ...]) -> int:
    """The number of wanted options that match some chosen value."""
    values = [normalise_colour(value) for value in chosen]
    return sum(any(_alike(value, target) for value in values) for target in map(wanted_text, targets))


def wanted_text(option: tuple[str, str] | str) -> str:
    """The text that chosen values, each with its colour normalised, are compared with.

    The original searches for a colour in the pair (group, value), so it finds a colour only if it equals the group or
    the value. Otherwise it compares with the pair as text.
    """
    if isinstance(option, str):
        return normalise_colour(option)
    return next((colour for colour in COLOURS if colour in option), str(option))


@lru_cache(maxsize=1 << 16)
def _alike(one: str, other: str) -> bool:
    """The comparison of thefuzz (MIT): words in any order, without the non-ASCII letters of Latin-1."""
    from rapidfuzz.fuzz import token_set_ratio
    from rapidfuzz.utils import default_process

    texts = (default_process(text.translate(_NOT_ASCII)) for text in (one, other))
    return round(token_set_ratio(*texts)) > ALIKE


def alike(ones: Sequence[str], other: str) -> NDArray[np.bool_]:
    """Which texts of `ones` match `other`, by the comparison of the reward."""
    from rapidfuzz.fuzz import token_set_ratio
    from rapidfuzz.process import cdist
    from rapidfuzz.utils import default_process

    texts, target = ([default_process(text.translate(_NOT_ASCII)) for text in part] for part in (ones, [other]))
    return np.rint(cdist(target, texts, scorer=token_set_ratio, dtype=np.float64)[0]) > ALIKE
