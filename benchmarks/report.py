"""Measures the pages of `crbc report` and `crbc view`: `python -m benchmarks.report [RUN]`.

Without a run, one is made up of household rollouts in full rooms with the prompts of training: 16 held-out tasks at the
start, the same at the end, and five groups of eight, as a training keeps by default. Half of the play is the expert's,
half of it random to the last of 50 steps. Then five methods are made up with five runs each of 150 updates, whose
figures are random numbers, for the page that compares them. A browser with a new profile opens each page five times.
At last `crbc view` serves the household run with 10,112 recorded rollouts: its groups of training in 79 files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np

import crbc_envs  # noqa: F401  registers the ids
from anchors import Rollout, RolloutGroup, Step
from benchmarks.credit import table
from crbc_envs.demonstrations import random_reply
from crbc_envs.prompts import Conversation, PromptWindow
from crbc_envs.storage.rollouts import RecordedTurn, read_recording, write_groups
from crbc_envs.vector.members import make_member
from crbc_envs.webshop.site.browser import Browser, is_root
from crbc_lab.report import write_report
from crbc_rl.config import TrainConfig
from crbc_rl.names import shipped
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metric_table import METRICS

ENV, KWARGS = "CRBC-ALFWorld-v0", {"rooms": "full", "max_steps": 50}
GROUPS, SIZE, TASKS, TIMES = 5, 8, 16, 5
METHODS, SEEDS, UPDATES = ("crbc", "gigpo", "graphgpo", "g2po", "grpo"), 5, 150
LOADED = """const [one] = performance.getEntriesByType("navigation");
const [paint] = performance.getEntriesByName("first-contentful-paint");
return one && one.loadEventEnd && paint ? [paint.startTime, one.loadEventEnd] : null"""


def play(env: Any, task: int, seed: int) -> tuple[Rollout, list[RecordedTurn]]:
    """One episode: by the expert for an even seed, else random."""
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=task, options={"task": task})
    talk = Conversation(PromptWindow.of(env, "text"), observation, info)
    player, steps, turns, over, truncated = env.expert(rng), list[Step](), list[RecordedTurn](), False, False
    while not over and not truncated:
        reply = random_reply(env, info, rng) if seed % 2 else player(observation, info)
        turns.append(RecordedTurn(talk.prompt().text, reply, -1.0, (), ()))
        anchor, label = info["anchor"], info["label"]
        observation, reward, over, truncated, info = env.step(reply)
        steps.append(Step(anchor, info["action"], float(reward), label))
        talk.observe(observation, info)
    return Rollout(steps, info["success"], truncated and not info["success"]), turns


def make_run(folder: Path) -> Path:
    """A run with the transcripts that a training keeps."""
    model = str(shipped() / "warmstarts/alfworld-tiny")
    run = Run.start(folder, TrainConfig(name="household", model=model, updates=GROUPS), resume=False)
    rows = [{"update": update, "success": 0.5} for update in range(GROUPS + 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "transcripts").mkdir()
    with closing(make_member(gymnasium.registry[ENV], {**KWARGS, "split": "train", "replies": "tags"})) as env:

        def keep(kind: str, update: int, tasks: list[list[tuple[int, int]]]) -> None:
            played = [[play(env, *one) for one in members] for members in tasks]
            groups = [RolloutGroup([rollout for rollout, _ in own], f"task {i}") for i, own in enumerate(played)]
            turns = [turn for own in played for _, some in own for turn in some]
            write_groups(
                run.folder / "transcripts" / f"{kind}-{update:06d}.parquet", groups, update=update, turns=turns
            )

        for update in range(1, GROUPS + 1):
            keep("training", update, [[(update, seed) for seed in range(SIZE)]])
        keep("test", 0, [[(100 + task, task + 1)] for task in range(TASKS)])
        keep("test", GROUPS, [[(100 + task, task)] for task in range(TASKS)])
    return folder


def make_runs(folder: Path) -> Path:
    """Runs of `METHODS` with all curves, 30 validations and two tests."""
    model = str(shipped() / "warmstarts/sokoban-tiny")
    for number, method in enumerate(METHODS):
        for seed in range(SEEDS):
            rng, place = np.random.default_rng([number, seed]), folder / method / f"seed{seed}"
            told = {"name": method, "model": model, "updates": UPDATES, "seed": seed, "credit": {"method": method}}
            Run.start(place, TrainConfig.model_validate(told), resume=False)
            rows, tests = list[dict[str, Any]](), list[dict[str, Any]]()
            for update in range(UPDATES + 1):
                rows.append({"update": update, **{metric.key: rng.random() for metric in METRICS if metric.title}})
                rows[-1] |= {"success": rng.random(), "seconds/update": 60.0}
                for split in ["validation"] * (update % 5 == 0) + ["test"] * (update in (0, UPDATES)):
                    won = (rng.random(128) < 0.5).tolist()
                    tests.append({"update": update, "split": split, "task": list(range(128)), "success": won})
                    ends = {"success": float(np.mean(won)), "low": 0.0, "high": 1.0, "episodes": 128}
                    rows[-1] |= {f"{split}/{name}": value for name, value in ends.items()}
            for name, lines in (("metrics", rows), ("outcomes", tests)):
                (place / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def seconds_to_open(page: Path) -> tuple[float, float]:
    """From the address to the first paint, and to the end of the load event: the page's script has run by then."""
    with closing(Browser(unsafe_root=is_root())) as browser:
        browser.driver.get(page.as_uri())
        while not (loaded := browser.driver.execute_script(LOADED)):
            time.sleep(0.02)
    return loaded[0] / 1000, loaded[1] / 1000


def add_recordings(run: Path) -> Path:
    """16 groups of the run's training in each of 79 files, as 79 updates with `record_every: 1` leave them."""
    kept = [read_recording(path) for path in sorted((run / "transcripts").glob("training*"))]
    chosen = [kept[number % GROUPS] for number in range(16)]
    groups = [RolloutGroup(one.groups[0].rollouts, f"task {number}") for number, one in enumerate(chosen)]
    turns = [turn for one in chosen for turn in one.turns or ()]
    for update in range(1, 80):
        path = run / "rollouts" / f"{update:06d}.parquet"
        if update == 1:
            write_groups(path, groups, update=update, turns=turns)
        else:
            shutil.copy(run / "rollouts/000001.parquet", path)
    return run


def serve(run: Path) -> None:
    """`crbc view` in a process of its own: until it answers, until a new browser has opened a recorded group, until one
    that runs has opened the page at another, and until a third group is shown."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "crbc_lab.cli", "view", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[2]
        ready, opened, again, groups = time.perf_counter() - began, list[float](), list[float](), list[float]()
        for number in range(TIMES):
            with closing(Browser(unsafe_root=is_root())) as browser:
                opened.append(_until(browser, f"{url}/#{20 + number:06d}-3/1/0", "Rollout 1"))
                browser.driver.get("about:blank")
                again.append(_until(browser, f"{url}/#{30 + number:06d}-3/1/0", "Rollout 1"))
                groups.append(_until(browser, f"{url}/#{40 + number:06d}-2/2/0", "Rollout 2"))
        status = Path(f"/proc/{process.pid}/status")
        memory = status.read_text().partition("VmHWM:")[2].split()[0] if status.is_file() else "nan"
        process.terminate()
    rows = [
        ("seconds until it serves", f"{ready:.2f}"),
        (f"seconds to open it at a recorded group in a browser that runs, median of {TIMES}", f"{median(again):.2f}"),
        (f"the same in a browser with a new profile, median of {TIMES}", f"{median(opened):.2f}"),
        (f"seconds to another group, median of {TIMES}", f"{median(groups):.2f}"),
        ("most memory of the server", f"{float(memory) / 1000:.0f} MB"),
    ]
    table(f"crbc view of {run.name} with 10,112 recorded rollouts", rows)


def _until(browser: Browser, url: str, shown: str) -> float:
    """Seconds until the viewer has the rollout of the address."""
    began = time.perf_counter()
    browser.driver.get(url)
    while not any(shown in found.text for found in browser.driver.find_elements("id", "where")):
        time.sleep(0.01)
    return time.perf_counter() - began


def main(run: Path) -> None:
    began = time.perf_counter()
    page = write_report(run, out=run / "benchmark.html")
    written = time.perf_counter() - began
    painted, opened = (sorted(some) for some in zip(*(seconds_to_open(page) for _ in range(TIMES)), strict=True))
    rows = [
        ("size", f"{page.stat().st_size / 1e6:.2f} MB"),
        ("seconds to write it", f"{written:.2f}"),
        (f"seconds to its first paint, median of {TIMES}", f"{median(painted):.2f}"),
        (f"seconds to open it, median of {TIMES}", f"{median(opened):.2f} ({opened[0]:.2f} to {opened[-1]:.2f})"),
    ]
    table(f"the page of {run.name}", rows)
    page.unlink()


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as made:
            main(make_run(Path(made) / "household"))
            main(make_runs(Path(made) / "compared"))
            serve(add_recordings(Path(made) / "household"))
