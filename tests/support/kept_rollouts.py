"""Runs with transcripts, for what shows them: random play in small rooms, with made-up prompts and replies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from paths import ROOT

from anchors import Rollout, RolloutGroup, Step
from crbc_envs import GroupVectorEnv
from crbc_envs.actions import CAUSES
from crbc_envs.sokoban.rules import MOVES
from crbc_envs.storage.rollouts import RecordedTurn, write_groups
from crbc_rl.config import TrainConfig
from crbc_rl.runs.folder import Run

MODEL = str(ROOT / "warmstarts" / "sokoban-tiny")
HOSTILE = "</script><img src=x onerror='window.ran = 1'><script>window.ran = 2</script>{{ 7 * 7 }}"


def random_group(seed: int, size: int = 8) -> RolloutGroup:
    """One group of random play, malformed replies among it."""
    rng = np.random.default_rng(seed)
    envs = GroupVectorEnv("CRBC-Sokoban-v0", num_groups=1, group_size=size, observation="text")
    envs.reset(options={"task": seed})
    while envs.active.any():
        envs.step([str(rng.choice([*MOVES, "dance"])) for _ in range(envs.num_envs)])
    return envs.groups()[0]


def walk(*places: str, won: bool = False, task: str = "", more: str = "") -> RolloutGroup:
    """A group of one rollout, by its anchors; `more` in every text."""
    steps = [Step(place, f"to {place}{more}", 0.0, f"room {place}{more}") for place in places]
    return RolloutGroup([Rollout(steps, won)], task + more)


def turns_of(groups: Sequence[RolloutGroup], more: str = "") -> list[RecordedTurn]:
    """A prompt that repeats all labels so far, and a reply with a thought, for every step; `more` in each."""
    turns = []
    for rollout in (rollout for group in groups for rollout in group.rollouts):
        for t, step in enumerate(rollout.steps):
            history = "\n".join(earlier.label for earlier in rollout.steps[: t + 1])
            reply = f"<think>step {t}{more}</think><action>{step.action}</action>"
            cause = "" if step.valid else CAUSES[1]
            turns.append(RecordedTurn(f"Go.\n{history}\n{more}Your move?", reply, -1.0, (1,), (2,), cause))
    return turns


def keep(folder: Path, name: str, groups: Sequence[RolloutGroup], more: str = "") -> None:
    """Write the file of transcripts of that name, such as "test-000000"."""
    (folder / "transcripts").mkdir(exist_ok=True)
    path, update = folder / "transcripts" / f"{name}.parquet", int(name.rpartition("-")[2])
    write_groups(path, groups, update=update, turns=turns_of(groups, more))


def kept_run(folder: Path, more: str = "") -> Path:
    """A run of two updates with a group of each, and two held-out tasks before and after.

    `more` stands in every text that somebody else writes.
    """
    config = TrainConfig(name="kept", model=MODEL, updates=2)
    run = Run.start(folder, config, resume=False)
    rows = [
        {"update": 0},
        {"update": 1, "success": 0.5, "mixed_groups": 0.25},
        {"update": 2, "success": 1.0, "mixed_groups": 0.5},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for update, seed in ((1, 41), (2, 43)):
        group = random_group(seed)
        if more:
            steps = [
                [Step(s.anchor + more, s.action + more, s.reward, s.label + more) for s in r.steps]
                for r in group.rollouts
            ]
            own = zip(steps, group.rollouts, strict=True)
            group = RolloutGroup([Rollout(some, r.success, r.truncated) for some, r in own], group.task + more)
        keep(run.folder, f"training-{update:06d}", [group], more)
    first = [walk("a", "b", "b", "b", "c", task="one", more=more), walk("a", "d", won=True, task="two", more=more)]
    later = [walk("a", "b", won=True, task="one", more=more), walk("a", "e", task="two", more=more)]
    keep(run.folder, "test-000000", first, more)
    keep(run.folder, "test-000002", later, more)
    return run.folder
