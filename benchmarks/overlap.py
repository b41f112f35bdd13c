"""The gain of stepping environments while the policy samples: `python -m benchmarks.overlap` (two minutes).

All members that step wait `--wait` milliseconds in parallel, as those of WebShop's site wait for their browser. The
same groups are played with all members in one batch, and in two and three waves (`rollout.waves`), where the
environments of one wave step while the policy samples for another. With `--engine vllm`, where it is installed, they
are played with all members in one batch, and with each prompt sent as soon as it is ready. Times are wall-clock
seconds, since waiting is what is measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.credit import table
from crbc_envs import GroupVectorEnv
from crbc_envs.core import Outcome
from crbc_rl.batches import Turn
from crbc_rl.policies.api import Policy
from crbc_rl.policies.load import load_policy
from crbc_rl.rollout.collect import collect
from crbc_rl.training.clock import Clock

MODEL = Path(__file__).parents[1] / "warmstarts" / "sokoban-tiny"
SIZE = 8


class WaitingGroups(GroupVectorEnv):
    """A `GroupVectorEnv` whose steps take `wait` seconds longer."""

    wait = 0.0

    def step_members(self, members: Sequence[int], actions: Sequence[str | None]) -> Outcome:
        time.sleep(self.wait)
        return super().step_members(members, actions)


@dataclass(slots=True)
class Together:
    """A policy without its queue: it gets all prompts in one batch."""

    policy: Policy

    def generate(self, *asked: Any) -> list[Turn]:
        return self.policy.generate(*asked)


def ways_to_play(engine: str) -> dict[str, tuple[Policy, int]]:
    """Policies and numbers of waves by name; the others are compared with the first."""
    policy = load_policy(MODEL)
    if engine == "transformers":
        return {f"rollout.waves={waves}": (policy, waves) for waves in (1, 2, 3)}
    from crbc_rl.policies.vllm import VllmPolicy

    vllm = VllmPolicy(MODEL, policy, max_model_len=512, gpu_memory_utilization=0.2)
    return {"members together": (Together(vllm), 1), "members as they are ready": (vllm, 1)}


def play(envs: WaitingGroups, policy: Policy, waves: int) -> tuple[float, float]:
    """Seconds of a rollout of all groups, and those among them in which only environments ran."""
    groups = range(envs.num_groups)
    clock = Clock()
    collect(
        envs, policy, groups, groups, prompt="compact", temperature=1.0, max_new_tokens=16, waves=waves, clock=clock
    )
    seconds = clock.take()
    return seconds["update"], seconds["environments"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overlap", description="What overlap gains.")
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers")
    parser.add_argument("--wait", type=float, default=100.0, help="milliseconds that a step takes")
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3, help="medians are printed")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    ways = ways_to_play(given.engine)
    first = next(iter(ways))
    with closing(WaitingGroups("CRBC-Sokoban-v0", given.groups, SIZE, observation="text", replies="tags")) as envs:
        play(envs, *ways[first])  # prompts are now encoded
        for wait in (0.0, given.wait):
            envs.wait = wait / 1000
            rounds = [{name: play(envs, *how) for name, how in ways.items()} for _ in range(given.repeats)]
            whole = {name: median(played[name][0] for played in rounds) for name in ways}
            waited = {name: median(played[name][1] for played in rounds) for name in ways}
            rows = [
                (
                    name,
                    f"{whole[name]:6.2f} s {whole[name] / whole[first]:5.2f} times, "
                    f"environments waited for {waited[name]:5.2f} s",
                )
                for name in ways
            ]
            table(f"Playing {given.groups} groups of {SIZE}, {wait:g} ms of waiting in a step", rows)


if __name__ == "__main__":
    main()
