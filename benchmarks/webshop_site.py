"""The web site beside the text environment: `python -m benchmarks.webshop_site --walks 200`.

The same walks are played in both, through a real browser in one, and compared step by step: observation, reward,
ends, and all of `info`, the anchor among it. Then the browser is killed in mid-episode, again and again, and the
time to the same page is taken.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from crbc_envs.webshop.env import WebShopEnv
from crbc_envs.webshop.expert.expert import Shopper
from crbc_envs.webshop.site.env import WebShopSiteEnv

VIEWS = (("text_rich", "page"), ("text", "page"), ("text_rich", "state"), ("html", "page"), ("url", "page"))
"""Observation and anchor of the walks, a share of them each, the first one the largest."""

KILLS = 10

Choose = Callable[[str, dict[str, Any]], str]


def random_choice(rng: np.random.Generator) -> Choose:
    """Clicks at random, searches for words of the task, and now and then something that is no action."""

    def choose(_: str, info: dict[str, Any]) -> str:
        actions, words = info["admissible_actions"], info["task"].split()
        if info["step"] == 0 or rng.random() < 0.08:
            start = int(rng.integers(len(words)))
            return f"search[{' '.join(words[start : start + int(rng.integers(1, 9))])}]"
        if rng.random() < 0.05:
            return ("click[no such thing]", 'search[<b>"&\u00e9\U0001f600]', "buy", "search[ ]")[int(rng.integers(4))]
        return actions[int(rng.integers(len(actions)))]

    return choose


def expert_choice(rng: np.random.Generator) -> Choose:
    """The scripted shopper, half the time a hasty one."""
    shopper = Shopper(15, hasty=bool(rng.random() < 0.5))
    return lambda observation, _: shopper.act(observation)[1]


def walk_both(text: WebShopEnv, site: WebShopSiteEnv, task: int, choose: Choose) -> tuple[int, float, list[float]]:
    """Play one walk in both: its number of steps, its score, and the seconds of each step in the browser.

    Raises `AssertionError` at the first difference, with both answers.
    """
    said, shown = (env.reset(seed=0, options={"task": task}) for env in (text, site))
    assert said == shown, f"task {task}, reset:\n{said}\n{shown}"
    observation, info = said
    steps, over, seconds = 0, False, []
    while not over:
        action = choose(observation, info)
        told = text.step(action)
        start = time.perf_counter()
        found = site.step(action)
        seconds.append(time.perf_counter() - start)
        assert told == found, f"task {task}, {action}:\n{told}\n{found}"
        observation, _, terminated, truncated, info = told
        steps, over = steps + 1, terminated or truncated
    return steps, info["score"], seconds


def kill_browser(site: WebShopSiteEnv) -> None:
    """SIGKILL for Chromium, for its driver or for both is one: Chromium ends when the pipe to its driver does."""
    process = site.browser.driver.service.process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)


def recovery_seconds(kills: int) -> list[float]:
    """Seconds of a step whose browser was killed before it, and which led where it does without."""
    text, site = WebShopEnv(), WebShopSiteEnv()
    taken = []
    for kill in range(kills):
        for env in (text, site):
            env.reset(seed=0, options={"task": kill})
            env.step("search[shoes]")
            env.step("click[next >]")
        kill_browser(site)
        start = time.perf_counter()
        found = site.step("click[< prev]")
        taken.append(time.perf_counter() - start)
        assert found == text.step("click[< prev]"), found
    site.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--walks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    shares = np.array_split(np.arange(arguments.walks), 2 * len(VIEWS))
    shares = [np.concatenate(shares[: len(VIEWS) + 1]), *shares[len(VIEWS) + 1 :]]
    seconds: list[float] = []
    scores: list[float] = []
    for (observation, anchor), tasks in zip(VIEWS, shares, strict=True):
        options: dict[str, Any] = {"observation": observation, "anchor": anchor}
        text, site = WebShopEnv(**options), WebShopSiteEnv(**options)
        for task in tasks:
            expert = observation == "text_rich" and task % 2
            _, score, taken = walk_both(text, site, int(task), (expert_choice if expert else random_choice)(rng))
            seconds += taken
            scores.append(score)
        site.close()
        print(f"{observation:9} {anchor:5} {len(tasks):4} walks, equal", flush=True)
    low, middle, high = np.percentile(seconds, (5, 50, 95)) * 1e3
    bought, full = sum(score > 0 for score in scores), scores.count(1.0)
    print(f"{len(scores)} walks, {len(seconds)} steps, {bought} with a score, {full} with score 1: no difference")
    print(f"a step in the browser takes {middle:.0f} ms (5 % {low:.0f}, 95 % {high:.0f})")
    again = recovery_seconds(KILLS)
    print(f"a step whose browser was killed before it: {np.median(again):.2f} s, at most {max(again):.2f} s")


if __name__ == "__main__":
    sys.exit(main())
