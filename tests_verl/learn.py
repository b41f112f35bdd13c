"""The tiny agent learns three boxes inside verl, on a CPU: `bash scripts/adapter.sh verl`. About an hour on two cores.

verl's stock launcher trains 20 updates of 4 groups of 8, with reference KL and validation, by CRBC and, with one key
changed, by GRPO; the bundled learner does from the same start. `crbc eval` plays the same 512 held-out tasks each time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from command import ROOT, train

from crbc_rl.adapters.verl_folder import convert

CRBC = ROOT / ".venv/bin/crbc"
CONFIG = ROOT / "configs/sokoban_boxes.yaml"
LEARNER = ["protocol=verl-agent", "rollout.num_groups=4", "loss.kl=0.01", "optim.schedule=constant", "threads=1"]
"""What the bundled learner's config says otherwise, to do what `configs/verl/sokoban_boxes.yaml` does."""

Successes = np.ndarray[Any, Any]
"""Of each task, in order, 0.0 or 1.0."""


def evaluated(folder: Path, episodes: int, *what: str) -> Successes:
    """Success of `crbc eval` on each task, in order."""
    out = folder / "eval.json"
    if not out.exists():
        command = [CRBC, "eval", *what, "--episodes", str(episodes), "--transcripts", "0", "--out", out]
        subprocess.run(command, check=True, stdout=sys.stderr)
    rows = sorted(json.loads(out.read_text("utf-8"))["rows"], key=lambda row: row["task"])
    return np.array([row["success"] for row in rows], dtype=float)


def half(values: Successes) -> float:
    """Half the 95 % interval of a mean."""
    return float(1.96 * values.std(ddof=1) / len(values) ** 0.5)


def with_interval(values: Successes) -> str:
    return f"{100 * values.mean():5.1f} +- {100 * half(values):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--methods", nargs="*", default=["crbc", "grpo"])
    parser.add_argument("--out", type=Path, default=ROOT / "runs/verl", help="what is there already is not run again")
    args = parser.parse_args()
    args.out = args.out.resolve()  # verl's processes have folders of their own
    (args.out / "start").mkdir(parents=True, exist_ok=True)
    start = ["--model", str(ROOT / "warmstarts/sokoban-tiny")]
    before = evaluated(args.out / "start", args.episodes, str(CONFIG), *start)
    print(f"before training                {with_interval(before)} % of {args.episodes} test tasks", flush=True)
    learned = {}
    for method in args.methods:
        folder = args.out / method
        if not (folder / "model").exists():
            shutil.rmtree(folder, ignore_errors=True)
            steps = [f"trainer.total_training_steps={args.updates}", f"trainer.save_freq={args.updates}"]
            train(folder, f"algorithm.credit.method={method}", *steps)
            convert(folder / f"global_step_{args.updates}", folder / "model")
        after = evaluated(folder, args.episodes, str(folder / "model"))
        tell(f"{method} in verl", after, before)
        learned[method] = (after - before).mean() > half(after - before)
    for method in args.methods:
        folder = args.out / f"learner-{method}"
        if not (folder / "eval.json").exists():
            settings = [*LEARNER, f"updates={args.updates}", f"credit.method={method}"]
            command = [CRBC, "train", CONFIG, "--run", folder, "--start-or-resume", "--set", *settings]
            subprocess.run(command, check=True, stdout=sys.stderr)
        tell(f"{method} in the bundled learner", evaluated(folder, args.episodes, str(folder)), before)
    if not learned.get("crbc", True):
        sys.exit("crbc in verl: the interval of its gain is not above 0")


def tell(name: str, after: Successes, before: Successes) -> None:
    print(f"{name:30} {with_interval(after)} %, gain {with_interval(after - before)} points, paired", flush=True)


if __name__ == "__main__":
    main()
