"""Compares the web site with the text environment: `python -m benchmarks.webshop_site --walks 200`.

The same walks run in both, in one of them through a real browser. Every step is compared: observation, reward, ends,
and all of `info`, including the anchor. Then the browser is killed during an episode several times, and the time until
the same page is measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from crbc_envs.webshop.env import WebShopEnv
from crbc_envs.webshop.expert.expert import Shopper
from crbc_envs.webshop.site.env import WebShopSiteEnv

VIEWS = (
    ("text_rich", "paper"),
    ("text", "paper"),
    ("text_rich", "state"),
    ("html", "paper"),
    ("url", "paper"),
    ("url", "observation"),
)
"""Observation and anchor of the walks. The walks are divided among them; the first one gets most."""

KILLS = 10

Choose = Callable[[str, dict[str, Any]], str]


def random_choice(rng: np.random.Generator) -> Choose:
    """Random clicks, searches for words of the task, and some texts that are not actions."""

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
    """The scripted shopper, hasty half of the time."""
    shopper = Shopper(15, hasty=bool(rng.random() < 0.5))
    return lambda observation, _: shopper.act(observation)[1]


def walk_both(text: WebShopEnv, site: WebShopSiteEnv, task: int, choose: Choose) -> tuple[int, float, list[float]]:
    """Run one walk in both. Returns its number of steps, its score, and the seconds of each step in the browser.

    Raises `AssertionError` at the first difference, with both results.
    """
    expected, found = (env.reset(seed=0, options={"task": task}) for env in (text, site))
    assert expected == found, f"task {task}, reset:\n{expected}\n{found}"
    observation, info = expected
    steps, over, seconds = 0, False, []
    while not over:
        action = choose(observation, info)
        expected_step = text.step(action)
        start = time.perf_counter()
        found_step = site.step(action)
        seconds.append(time.perf_counter() - start)
        assert expected_step == found_step, f"task {task}, {action}:\n{expected_step}\n{found_step}"
        observation, _, terminated, truncated, info = expected_step
        steps, over = steps + 1, terminated or truncated
    return steps, info["score"], seconds


def kill_browser(site: WebShopSiteEnv) -> None:
    """Kill the driver. Chromium then ends too, because its pipe to the driver closes."""
    process = site.browser.driver.service.process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)


def recovery_seconds(kills: int) -> list[float]:
    """The seconds of steps before which the browser was killed. Each must give the same result as without a kill."""
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
    parts = np.array_split(np.arange(arguments.walks), 2 * len(VIEWS))
    parts = [np.concatenate(parts[: len(VIEWS) + 1]), *parts[len(VIEWS) + 1 :]]
    seconds: list[float] = []
    scores: list[float] = []
    for (observation, anchor), tasks in zip(VIEWS, parts, strict=True):
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
    main()
