"""What a common scale does to a comparison of methods: `python -m benchmarks.fair_scale` (a minute and a half).

The README's loop, a table of logits by anchor, on 16 rooms of Sokoban. Each cell is the mean success of the last five
of 20 updates, and the half width of its 95 % interval over seeds. The table stands in docs/trainers.md.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from crbc_envs import GroupVectorEnv
from crbc_rl import credit

METHODS = ("crbc", "gigpo", "grpo")
SCALES = (0.01, 0.1, 1.0, None)
"""The factor of every advantage; None is a mean of 0 and a deviation of 1 over the update's rows."""
SEEDS, UPDATES = 10, 20
ACTIONS = np.array(["up", "down", "left", "right"])


def train(envs: GroupVectorEnv, method: str, scale: float | None, seed: int) -> float:
    """The mean success of the last five updates of one training."""
    rng = np.random.default_rng(seed)
    logits: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(4))
    success = []
    for _ in range(UPDATES):
        _, info = envs.reset(seed=0)
        visits = []
        while (active := envs.active.copy()).any():
            anchors = info["anchor"]
            p = np.exp(np.stack([logits[anchor] for anchor in anchors]))
            p /= p.sum(1, keepdims=True)
            actions = (p.cumsum(1) > rng.random((len(p), 1))).argmax(1)
            visits.append((active, anchors, np.eye(4)[actions] - p))
            _, _, _, _, info = envs.step(list(ACTIONS[actions]))
        groups = envs.groups()
        success.append(np.mean([rollout.success for group in groups for rollout in group.rollouts]))
        rows = [row for group in credit.advantages_batch(groups, method=method) for row in group]
        flat = np.concatenate(rows)
        mean, factor = (0.0, scale) if scale is not None else (flat.mean(), 1 / (flat.std() + 1e-6))
        for step, (active, anchors, score) in enumerate(visits):
            for i in np.flatnonzero(active):
                logits[anchors[i]] += factor * (rows[i][step] - mean) * score[i]
    return float(np.mean(success[-5:]))


def main() -> None:
    envs = GroupVectorEnv("CRBC-Sokoban-v0", num_groups=16, group_size=8)
    print(f"| | {' | '.join(METHODS)} |\n|{'---|' * (len(METHODS) + 1)}")
    for scale in SCALES:
        cells = []
        for method in METHODS:
            values = [train(envs, method, scale, seed) for seed in range(SEEDS)]
            half = 2.262 * np.std(values, ddof=1) / SEEDS**0.5  # Student's t, 9 degrees of freedom
            cells.append(f"{np.mean(values):.2f} ± {half:.2f}")
        name = "all advantages of an update normalised alike" if scale is None else f"`scale={scale:g}`"
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
