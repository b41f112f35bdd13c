"""Measures a generated shop on disk: `python -m benchmarks.large_shop FOLDER` (two minutes).

`crbc data generate webshop --products 1000000 --to FOLDER` makes the shop. Times of searches are CPU milliseconds of
queries that were never made before; opening is wall-clock time. Members of a group play at random, and a fifth of their
steps is a search for the text of another goal. Memory is resident, of the one process that has all members.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.credit import table
from crbc_envs import GroupVectorEnv
from crbc_envs.tasks import SPLITS
from crbc_envs.webshop.env import WebShopEnv
from crbc_envs.webshop.shop.shop import Shop

SEARCHES = 0.2
"""The share of steps that are searches."""


def opened(folder: str, split: str) -> tuple[WebShopEnv, float]:
    """An environment with its first page, and the seconds until that page."""
    start = time.perf_counter()
    env = WebShopEnv(data_dir=folder, split=split)
    env.reset(seed=0)
    return env, time.perf_counter() - start


def searched(shop: Shop, queries: Iterable[str]) -> str:
    """The median and the 99th percentile of the CPU milliseconds of searches."""
    spent = []
    for query in queries:
        start = time.process_time()
        shop.hits(query)
        spent.append(1e3 * (time.process_time() - start))
    return f"{np.median(spent):.1f} and {np.percentile(spent, 99):.1f} ms"


def played(folder: str, members: int, steps: int) -> float:
    """Steps per CPU second of a group whose members all go their own ways, and never buy."""
    rng = np.random.default_rng(0)
    options: dict[str, Any] = {"data_dir": folder, "max_steps": steps}
    with closing(GroupVectorEnv("CRBC-WebShop-v0", group_size=members, **options)) as group:
        _, infos = group.reset(seed=0)
        panel = WebShopEnv(data_dir=folder).panel
        goals = iter(rng.permutation(len(panel)).tolist())
        start = time.process_time()
        for _ in range(steps // members):
            actions = []
            for listed in infos["admissible_actions"]:
                clicks = [action for action in listed if action.startswith("click[") and action != "click[buy now]"]
                if not clicks or rng.random() < SEARCHES:
                    actions.append(f"search[{panel[next(goals)].content.text}]")
                else:
                    actions.append(clicks[int(rng.integers(len(clicks)))])
            *_, infos = group.step(actions)
        return steps / (time.process_time() - start)


def resident() -> float:
    """The resident memory of this process, in megabytes. Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--members", type=int, default=128)
    parser.add_argument("--steps", type=int, default=12_000)
    args = parser.parse_args()
    env, first = opened(args.folder, SPLITS[0])
    _, second = opened(args.folder, SPLITS[1])
    shop, rng = env.shop, np.random.default_rng(1)
    goals = (shop.goals[int(place)].text for place in rng.permutation(len(shop.goals)))
    titles = (shop.catalogue[int(number)].title for number in rng.permutation(len(shop.catalogue)))
    rows = [
        ("products", f"{len(shop.catalogue):,}"),
        ("goals", f"{len(shop.goals):,}"),
        ("opened, with the first page", f"{first:.1f} s"),
        ("a second split opened", f"{second:.1f} s"),
        ("a search for the text of a goal, median and 99 %", searched(shop, islice(goals, 1_000))),
        ("a search for a title, median and 99 %", searched(shop, islice(titles, 1_000))),
    ]
    rate = played(args.folder, args.members, args.steps)
    rows.append((f"{args.members} members, steps per CPU second", f"{rate:,.0f}"))
    rows.append((f"resident after {args.steps:,} steps", f"{resident():,.0f} MB"))
    table("A generated shop on disk", rows)


if __name__ == "__main__":
    main()
