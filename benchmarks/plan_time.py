"""The plan's seconds of an update beside measured ones, on this machine's processor.

    python -m benchmarks.plan_time sokoban-short alfworld-short webshop-short

Each config makes a few updates. The plan is computed twice: as a dry run has it, before anything is known of episodes,
and with the prompts, replies, successes and turns of the updates that were measured. The second says how good the time
model is. Run it with nothing beside it.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from crbc_lab.plan.plan import make_plan
from crbc_lab.plan.runtime import Job, estimate, total
from crbc_lab.plan.workload import Workload
from crbc_rl.config import load_config
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics

OTHER = ("update", "eval", "save", "figures", "other")
"""Phases that the plan leaves out, and the sum of all."""


def measured(name: str, updates: int) -> list[dict[str, Any]]:
    """The records of a training without the first update, which warms up."""
    config = load_config(name, [f"updates={updates + 1}", "eval.episodes=1", "eval.test_episodes=1", "eval.every=999"])
    with TemporaryDirectory() as place:
        Learner(config, Run.start(Path(place, "run"), config, resume=False)).train()
        return list(read_metrics(Path(place, "run")))[2:]


def as_played(work: Workload, records: list[dict[str, Any]], rollouts: int, most: int) -> Workload:
    """The workload with the lengths and successes of these updates."""
    mean = {name: fmean(record[name] for record in records) for name in ("prompt_length", "response_length", "success")}
    won = max(1e-9, mean["success"])
    steps = fmean(record["steps"] for record in records) / rollouts
    solved = min(float(most), max(1.0, (steps - (1 - won) * most) / won))
    return replace(work, prompt=mean["prompt_length"], reply=mean["response_length"], solved=solved, success=won)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+")
    parser.add_argument("--updates", type=int, default=3)
    given = parser.parse_args()
    for name in given.configs:
        plan = make_plan(load_config(name), hardware="cpu")
        records = measured(name, given.updates)
        spent = [{k: v for k, v in record.items() if k.startswith("seconds/")} for record in records]
        real = median(one["seconds/update"] - sum(one.get(f"seconds/{key}", 0.0) for key in OTHER[1:]) for one in spent)
        assert plan.work is not None and plan.phases is not None and plan.checked.model is not None
        config, most = plan.checked.config, plan.checked.env.max_steps
        work = as_played(plan.work, records, config.rollout.num_groups * config.rollout.group_size, most)
        phases = estimate(Job(config, plan.checked.model, plan.hardware, work, most, 1, 1))
        before, after = (f"{total(found):.1f} s, {total(found) / real:.2f} times" for found in (plan.phases, phases))
        print(f"{name}: {real:.1f} s measured; the plan {before}; with the lengths that were played {after}")
        by_key: dict[str, float] = {}
        for phase in phases:
            by_key[phase.key] = by_key.get(phase.key, 0.0) + phase.seconds
        for key, planned in by_key.items():
            found = median(one.get(f"seconds/{key}", 0.0) for one in spent)
            print(f"  {key:<14} {found:8.2f} s, plan {planned:8.2f}")


if __name__ == "__main__":
    main()
