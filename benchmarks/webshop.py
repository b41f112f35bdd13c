"""Measures WebShop: `python -m benchmarks.envs --env webshop`. `--data DIR` adds the official products.

With `--original DIR`, a checkout of princeton-nlp/WebShop, the original runs the same walks in the same process. Every
observation is compared, and a difference is an error. Its search engine and its tagger are replaced by ours, so that
neither Java nor spaCy is needed. Only its pages, sessions and reward are measured, so the ratio is a lower bound. It
needs flask, beautifulsoup4, rich, tqdm and thefuzz.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.children import memory_of
from benchmarks.credit import table
from crbc_envs.webshop.products.catalogue import (
    HUMAN,
    Catalogue,
    MemoryCatalogue,
    official_files,
    products_of,
    read_catalogue,
)
from crbc_envs.webshop.products.generate import generate_catalogue
from crbc_envs.webshop.products.store import StoredCatalogue, build_store
from crbc_envs.webshop.search.engine import Index, SearchEngine, build
from crbc_envs.webshop.shop.goals import Goal, shuffled
from crbc_envs.webshop.shop.nouns import fallback_nouns
from crbc_envs.webshop.shop.pages import DETAILS
from crbc_envs.webshop.shop.session import Session
from crbc_envs.webshop.shop.shop import Shop

MAX_STEPS = 15

Step = tuple[str, str, tuple[str, ...], float]


def walk(session: Session, rng: np.random.Generator, spent: dict[str, list[float]] | None = None) -> list[Step]:
    """A random walk that searches for words of its goal: (action, observation, clickables, reward) of each step.

    The CPU seconds of each step are added to `spent`, by kind of action.
    """
    words = session.goal.text.split()
    steps: list[Step] = []
    while len(steps) < MAX_STEPS and session.reward is None:
        kind = session.page.kind
        if kind == "index" or rng.random() < 0.05:
            action = f"search[{' '.join(words[: rng.integers(2, len(words) + 1)])}]"
        else:
            action = session.page.actions[rng.integers(len(session.page.actions))]
        start = time.process_time()
        session.act(action)
        worth = session.reward.total if session.reward else 0.0
        steps.append((action, session.observation("text_rich"), tuple(session.page.clickables), worth))
        if spent is not None:
            spent.setdefault(_kind(action, kind), []).append(time.process_time() - start)
    return steps


def _kind(action: str, page: str) -> str:
    """The kind of an action on a page of that kind."""
    if action.startswith("search["):
        return "search"
    target = action.removeprefix("click[").removesuffix("]")
    turns = {"next >": "turn a page", "< prev": "turn a page", "back to search": "back to search", "buy now": "buy"}
    if target in turns:
        return turns[target]
    if page == "results":
        return "open a product"
    return "open a sub page" if target in {name.lower() for name in DETAILS} else "choose an option"


def their_environment(checkout: Path, data: Path, engine: SearchEngine, asins: Sequence[str]) -> Any:
    """The original's text environment with the same products and our search `engine`. Prices have seed 0.

    Raises `ModuleNotFoundError` with the name of a missing package.
    """

    class Searcher:
        def __init__(self, _: str) -> None: ...

        def search(self, query: str, k: int) -> list[SimpleNamespace]:
            return [SimpleNamespace(docid=asins[number]) for number, _ in engine.search(query, k)]

        def doc(self, asin: str) -> SimpleNamespace:
            return SimpleNamespace(raw=lambda: json.dumps({"id": asin}))

    def nouns(title: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(text=noun, pos_="NOUN") for noun in fallback_nouns(title)]

    _stand_in("gym", Env=object, envs=_stand_in("gym.envs"))
    _stand_in("gym.envs.registration", register=lambda **_: None)
    _stand_in("spacy", load=lambda _: nouns)
    _stand_in("pyserini", search=_stand_in("pyserini.search"))
    _stand_in("pyserini.search.lucene", LuceneSearcher=Searcher)
    _stand_in("rank_bm25", BM25Okapi=None)
    _stand_in("web_agent_site.envs.web_agent_site_env", WebAgentSiteEnv=None)
    for name in ("torch", "cleantext"):
        _stand_in(name)
    sys.path.insert(0, str(checkout))
    paths: Any = importlib.import_module("web_agent_site.utils")
    paths.DEFAULT_FILE_PATH, paths.DEFAULT_ATTR_PATH = map(str, official_files(data))
    paths.HUMAN_ATTR_PATH = str(data / HUMAN)
    with patch("rich.print", _silent):  # its first call may draw from the global stream, which gives the prices
        made: Any = importlib.import_module("web_agent_site.envs.web_agent_text_env").WebAgentTextEnv
    made(observation_mode="text_rich")  # the first one imports modules that draw from the global stream
    random.seed(0)
    return made(observation_mode="text_rich")


def _silent(*_: object) -> None: ...


def _stand_in(name: str, **contents: Any) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(contents)
    sys.modules[name] = module
    return module


def their_walk(theirs: Any, goal: int, name: str, steps: list[Step]) -> None:
    """Run the same walk in the original. Raises `AssertionError` at the first difference."""
    theirs.session_prefix = name
    theirs.reset(session=goal)
    for action, observation, clickables, worth in steps:
        seen, reward, _, _ = theirs.step(action)
        found = (seen, tuple(theirs.get_available_actions()["clickables"]), reward)
        assert found == (observation, clickables, worth), (goal, action, found)


def compare(data: Path, original: Path, walks: int) -> None:
    """Run random walks in the small official shop in both, and print the speed of each."""
    shop = _shop(read_catalogue(data))
    theirs = their_environment(original, data, shop.engine, shop.catalogue.asins())
    goals, rng = shuffled(shop.goals), np.random.default_rng(0)
    count, ours, others = 0, 0.0, 0.0
    for i, goal in enumerate(rng.integers(len(goals), size=walks).tolist()):
        start = time.process_time()
        steps = walk(Session(shop, goals[goal], str(goal)), rng)
        between = time.process_time()
        their_walk(theirs, goal, f"{i}_", steps)
        ours, others, count = ours + between - start, others + time.process_time() - between, count + len(steps)
    rows = [
        ("steps", f"{count / ours:,.0f} per CPU-second"),
        ("the original's steps", f"{count / others:,.1f} per CPU-second, none of them different"),
        ("ratio", f"{others / ours:.0f} times"),
        ("pages of lists", f"{_compare_lists(shop, goals, theirs):,}, none of them different"),
    ]
    table(f"WebShop beside the original, {walks:,} random walks of {count:,} steps", rows)


def _compare_lists(shop: Shop, goals: Sequence[Goal], theirs: Any) -> int:
    """List every category and every query in both, with six pages of each. Returns the number of pages."""
    products = [shop.catalogue[number] for number in range(len(shop.catalogue))]
    searches = sorted({f"<c> {one.category}" for one in products} | {f"<q> {one.query}" for one in products})
    for i, words in enumerate(searches):
        session, steps = Session(shop, goals[i], f"list{i}"), []
        for action in (f"search[{words}]", *["click[next >]"] * 5):
            session.act(action)
            steps.append((action, session.observation("text_rich"), tuple(session.page.clickables), 0.0))
        their_walk(theirs, i, f"list{i}_", steps)
    return 6 * len(searches)


def cost(name: str, open_it: Callable[[], Shop], walks: int) -> None:
    """Print the cost of a shop: opening it, its steps by kind of action, and its memory."""
    one, many = (memory_of(partial(_sessions, open_it, count)) for count in (1, 128))
    start = time.process_time()
    shop = open_it()
    opened = time.process_time() - start
    goals, rng = shuffled(shop.goals), np.random.default_rng(0)
    spent: dict[str, list[float]] = {}
    for goal in rng.integers(len(goals), size=walks).tolist():
        walk(Session(shop, goals[goal], str(goal)), rng, spent)
    total, count = sum(map(sum, spent.values())), sum(map(len, spent.values()))
    rows = [
        ("opening the shop", f"{opened:.2f} CPU-seconds"),
        ("memory with 1 session", f"{one / 1e6:,.0f} MB"),
        ("memory with 128 sessions", f"{many / 1e6:,.0f} MB"),
        ("steps", f"{count / total:,.0f} per CPU-second"),
    ]
    rows += [(kind, f"{1e3 * fmean(took):.3f} ms, {len(took):,} times") for kind, took in sorted(spent.items())]
    table(f"WebShop, {name}, {walks:,} random walks", rows)


def _sessions(open_it: Callable[[], Shop], count: int) -> object:
    """A shop with `count` sessions after one walk each."""
    shop = open_it()
    rng = np.random.default_rng(0)
    sessions = [Session(shop, shop.goals[i % len(shop.goals)], str(i)) for i in range(count)]
    for session in sessions:
        walk(session, rng)
    return shop, sessions


def _shop(catalogue: Catalogue) -> Shop:
    return Shop(catalogue, SearchEngine(build(catalogue)), tagger="fallback")


def _generated(count: int) -> Shop:
    return _shop(MemoryCatalogue(products_of(*generate_catalogue(0, count))))


def _stored(folder: Path) -> Shop:
    """A shop on disk with human goals. Synthetic goals would be kept in memory, about seven per product."""
    return Shop(StoredCatalogue(folder), SearchEngine(Index.open(folder / "index")), "human", tagger="fallback")


def _build_on_disk(folder: Path, count: int) -> None:
    build_store(folder, products_of(*generate_catalogue(0, count)))
    (folder / "index").mkdir()
    build(StoredCatalogue(folder)).save(folder / "index")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envs --env webshop", description="Measures WebShop.")
    parser.add_argument("--data", type=Path, help="a folder of the small official files")
    parser.add_argument("--original", type=Path, help="a checkout of princeton-nlp/WebShop, to measure it too")
    parser.add_argument("--walks", type=int, default=300)
    parser.add_argument(
        "--large", type=int, default=100_000, help="products of the generated catalogue on disk; 0: none"
    )
    given = parser.parse_args(arguments)
    if given.walks < 1:
        parser.error(f"--walks must be at least 1, got {given.walks}")
    if given.original and not given.data:
        parser.error("--original uses the official products: give --data as well")
    cost("1,000 generated products", partial(_generated, 1_000), given.walks)
    if given.data:
        cost("official products", lambda: _shop(read_catalogue(given.data)), given.walks)
    if given.large:
        with tempfile.TemporaryDirectory() as folder:
            _build_on_disk(Path(folder) / "shop", given.large)
            cost(f"{given.large:,} generated products on disk", partial(_stored, Path(folder) / "shop"), given.walks)
    if given.original:
        compare(given.data, given.original, given.walks)
    else:
        print("\nThe original is left out; --data DIR --original DIR, princeton-nlp/WebShop's checkout, compares it.")


if __name__ == "__main__":
    main()
