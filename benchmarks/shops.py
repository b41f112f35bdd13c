"""What the generated shop is like, beside the official one: `python -m benchmarks.shops [--official DIR]`.

Without official files only the generated columns are shown: the embedded shop, and the range over `--seeds` others. A
scripted shopper types its whole instruction, looks at the first ten hits, chooses the options it wants where a product
has them, and buys. Its figures are the share of goals that it wins. A minute.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from crbc_envs.webshop.products.catalogue import MemoryCatalogue, products_of
from crbc_envs.webshop.products.generate import generate_catalogue
from crbc_envs.webshop.search.engine import SearchEngine, build
from crbc_envs.webshop.shop.goals import Goal, shuffled
from crbc_envs.webshop.shop.open import NUM_GENERATED, open_shop
from crbc_envs.webshop.shop.shop import WINDOW, Shop

WORD = re.compile("[a-z0-9]+")


def figures(shop: Shop, goals: int) -> dict[str, float]:
    """The figures of a shop; those of shoppers over its first `goals` goals in the original's order."""
    return {**_texts(shop), **_shoppers(shop, shuffled(shop.goals)[:goals])}


def _texts(shop: Shop) -> dict[str, float]:
    products = [shop.catalogue[number] for number in range(len(shop.catalogue))]
    texts = (" ".join([p.title, *p.bullets, p.description]).lower() for p in products)
    words = [word for text in texts for word in WORD.findall(text)]
    values = [sum(map(len, p.options.values())) for p in products if p.options]
    lengths = [len(p.title) for p in products]
    return {
        "kinds": len({p.query for p in products}),
        "different words": len(set(words)),
        "different words without digits": len({word for word in words if word.isalpha()}),
        "words a product": len(words) / len(products),
        **{f"title, characters, {name}": value for name, value in _quantiles(lengths)},
        "products with options, %": 100 * len(values) / len(products),
        **{f"option values of those, {name}": value for name, value in _quantiles(values)},
        "goals": len(shop.goals),
    }


def _quantiles(numbers: Sequence[int]) -> Iterable[tuple[str, float]]:
    return zip(("5 %", "median", "95 %"), np.percentile(numbers, [5, 50, 95]).tolist(), strict=True)


def _shoppers(shop: Shop, goals: Sequence[Goal]) -> dict[str, float]:
    won = np.array([_shopped(shop, goal) for goal in goals])
    names = ("first hit", f"first of {WINDOW} with the options and a fitting price", "own product ranked first")
    return {f"{name}, %": 100 * share for name, share in zip(names, won.mean(axis=0), strict=True)}


def _shopped(shop: Shop, goal: Goal) -> tuple[bool, bool, bool]:
    """Whether the first hit wins, whether the first that fits does, and whether the goal's own product is first."""
    wanted, hits = [value for _, value in goal.pairs], shop.hits(goal.text)[:WINDOW]

    def stocked(number: int) -> list[str]:
        offered = {value for values in shop.catalogue[number].options.values() for value in values}
        return [value for value in wanted if value in offered]

    def wins(number: int) -> bool:
        return shop.reward(goal, shop.catalogue[number].asin, stocked(number)).total == 1.0

    fitting = [n for n in hits if len(stocked(n)) == len(wanted) and shop.prices[n] <= goal.price_cap]
    best = (fitting or list(hits))[:1]
    return any(map(wins, hits[:1])), any(map(wins, best)), hits[:1] == (goal.product,)


def generated(seed: int) -> Shop:
    catalogue = MemoryCatalogue(products_of(*generate_catalogue(seed, NUM_GENERATED)))
    return Shop(catalogue, SearchEngine(build(catalogue)), tagger="fallback")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--official", metavar="DIR", help="a folder with the three official files of the small set")
    parser.add_argument("--goals", type=int, default=2_000, help="the most goals of a shop that are tried")
    parser.add_argument("--seeds", type=int, default=8, help="other generated shops")
    args = parser.parse_args()
    console = Console()
    embedded = figures(generated(0), args.goals)
    seeds = track(range(1, 1 + args.seeds), "other seeds", console=console, transient=True)
    others = [figures(generated(seed), args.goals) for seed in seeds]
    official = figures(open_shop("official", args.official, tagger="fallback"), args.goals) if args.official else {}
    table = Table(title=f"Shops of {NUM_GENERATED:,} products")
    columns = ("", "generated (seed 0)", f"{args.seeds} other seeds: least, median, most", "official")
    for name in columns if official else columns[:-1]:
        table.add_column(name, justify="right" if name else "left")
    for name, value in embedded.items():
        found = sorted(other[name] for other in others)
        spread = ", ".join(f"{number:.1f}" for number in (found[0], median(found), found[-1])) if found else "-"
        table.add_row(name, f"{value:.1f}", spread, *([f"{official[name]:.1f}"] if official else []))
    console.print(table)


if __name__ == "__main__":
    main()
