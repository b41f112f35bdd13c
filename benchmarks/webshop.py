"""The cost of WebShop: `python -m benchmarks.webshop --data DIR`, DIR holding the small official files.

With `--original DIR`, a checkout of princeton-nlp/WebShop, the original plays the same walks in the same
process, observation by observation, and any difference is an error. Its search engine and its tagger are
replaced by ours, so that neither Java nor spaCy is needed: what is left is its pages, sessions and
reward, and the ratio is the least it can be. It needs flask, beautifulsoup4, rich, tqdm and thefuzz.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.credit import table
from crbc_envs.webshop.catalogue import official_file, read_catalogue
from crbc_envs.webshop.goals import shuffled
from crbc_envs.webshop.nouns import fallback_nouns
from crbc_envs.webshop.search import SearchEngine, build
from crbc_envs.webshop.session import Session
from crbc_envs.webshop.shop import Shop

MAX_STEPS = 15


def walk(session: Session, rng: np.random.Generator) -> list[tuple[str, str, tuple[str, ...], float]]:
    """A random walk that types words of its goal: (action, observation, clickables, reward) of each step."""
    words = session.goal.text.split()
    steps = []
    while len(steps) < MAX_STEPS and session.reward is None:
        if session.page.kind == "index" or rng.random() < 0.05:
            action = f"search[{' '.join(words[: rng.integers(2, len(words) + 1)])}]"
        else:
            action = session.page.actions[rng.integers(len(session.page.actions))]
        session.act(action)
        worth = session.reward.total if session.reward else 0.0
        steps.append((action, session.observation("text_rich"), tuple(session.page.clickables), worth))
    return steps


def their_environment(checkout: Path, data: Path, engine: SearchEngine, asins: Sequence[str]) -> Any:
    """The original's text environment over the same products, searched by `engine`. Prices are those of seed 0.

    Raises `ModuleNotFoundError` where a package of its is missing, with the name of it.
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
    paths.DEFAULT_FILE_PATH = str(official_file(data, "items"))
    paths.DEFAULT_ATTR_PATH = str(official_file(data, "instructions"))
    paths.HUMAN_ATTR_PATH = str(official_file(data, "human"))
    made: Any = importlib.import_module("web_agent_site.envs.web_agent_text_env").WebAgentTextEnv
    made(observation_mode="text_rich")  # the first one imports what draws from the global stream
    random.seed(0)
    return made(observation_mode="text_rich")


def _stand_in(name: str, **contents: Any) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(contents)
    sys.modules[name] = module
    return module


def their_walk(theirs: Any, goal: int, name: str, steps: list[tuple[str, str, tuple[str, ...], float]]) -> None:
    """The same walk in the original. Raises `AssertionError` at the first difference."""
    theirs.session_prefix = name
    theirs.reset(session=goal)
    for action, observation, clickables, worth in steps:
        seen, reward, _, _ = theirs.step(action)
        found = (seen, tuple(theirs.get_available_actions()["clickables"]), reward)
        assert found == (observation, clickables, worth), (goal, action, found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.webshop", description="What WebShop costs.")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the small official files")
    parser.add_argument("--original", type=Path, help="a checkout of princeton-nlp/WebShop, to time it too")
    parser.add_argument("--walks", type=int, default=300)
    given = parser.parse_args(arguments)
    if given.walks < 1:
        parser.error(f"--walks must be at least 1, got {given.walks}")
    begun = time.process_time()
    catalogue = read_catalogue(given.data)
    engine = SearchEngine(build(catalogue))
    shop = Shop(catalogue, engine, tagger="fallback")
    opened = time.process_time() - begun
    goals = shuffled(shop.goals)
    theirs = their_environment(given.original, given.data, engine, catalogue.asins()) if given.original else None
    rng = np.random.default_rng(0)
    count, spent = 0, {"ours": 0.0, "theirs": 0.0}
    for i, goal in enumerate(rng.integers(len(goals), size=given.walks).tolist()):
        begun = time.process_time()
        steps = walk(Session(shop, goals[goal], str(goal)), rng)
        spent["ours"] += time.process_time() - begun
        count += len(steps)
        if theirs is not None:
            begun = time.process_time()
            their_walk(theirs, goal, f"{i}_", steps)
            spent["theirs"] += time.process_time() - begun
    rows = [("opening the shop", f"{opened:.2f} s"), ("steps", f"{count / spent['ours']:,.0f} per CPU-second")]
    if theirs is not None:
        rows.append(("the original's steps", f"{count / spent['theirs']:,.1f} per CPU-second, none of them different"))
        rows.append(("ratio", f"{spent['theirs'] / spent['ours']:.0f} times"))
    table(f"WebShop, {len(catalogue):,} products, {given.walks:,} random walks of {count:,} steps", rows)


if __name__ == "__main__":
    main()
