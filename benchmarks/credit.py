"""The cost of credit: `python -m benchmarks.credit` (add --quick for the smallest size, a few seconds).

Times are CPU times of this process, medians over synthetic updates. Every group is a random walk on its own random
graph, whose edges mostly lead to nearby anchors. Rollouts are interned beforehand, as they are during rollout, unless a
line states otherwise.

`--public DIR ...` runs the public GiGPO, HGPO, GraphGPO and G2PO beside ours on the paper-sized update and checks that
the numbers are equal. DIR are checkouts of github.com/langfengQ/verl-agent, in a version with `recipe/hgpo` and
`recipe/GraphGPO`, and of github.com/Nala-YN/G2PO.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from anchors import EmpiricalProcess, InternedRollouts, Rollout, RolloutGroup, Step, anchor_key
from benchmarks import public_credit, systems
from crbc_rl import credit
from crbc_rl.credit.solve import solve

BETA = 0.98
ACTIONS = 8
OBSERVATION = 900
"""Approximate length in characters of an ALFWorld observation with its admissible commands."""
PAPER = "The paper reports 57 ms for the closure and 330 ms for its whole advantage block, on its own machine."


@dataclass(frozen=True, slots=True)
class Size:
    """An update: `groups` x `members` rollouts of up to `horizon` steps, each ending with probability
    `stop` per step, over `places` possible anchors per group."""

    name: str
    groups: int
    members: int
    horizon: int
    places: int
    stop: float


SIZES = (
    Size("paper: 16 x 8 x <=50", 16, 8, 50, 100, 0.014),
    Size("16 x 64 x <=50", 16, 64, 50, 400, 0.014),
    Size("16 x 64 x <=500", 16, 64, 500, 600, 0.001),
)


def update(size: Size, seed: int = 0) -> dict[str, Any]:
    """The columns of `InternedRollouts` for one synthetic update."""
    rng = np.random.default_rng(seed)
    rollouts = size.groups * size.members
    group = np.repeat(np.arange(size.groups), size.members)
    near = np.arange(size.places)[:, None] + rng.integers(-2, 6, size=(size.groups, size.places, ACTIONS))
    far = rng.integers(size.places, size=near.shape)
    leads_to = np.where(rng.random(near.shape) < 0.2, far, near % size.places)
    length = np.minimum(rng.geometric(size.stop, size=rollouts), size.horizon)
    action = rng.integers(ACTIONS, size=(rollouts, size.horizon))
    anchor = np.zeros((rollouts, size.horizon), dtype=np.int64)
    for t in range(1, size.horizon):
        anchor[:, t] = leads_to[group, anchor[:, t - 1], action[:, t - 1]]
    played = np.arange(size.horizon) < length[:, None]
    rollout, step = np.nonzero(played)
    return {
        "rollout": rollout,
        "step": step,
        "anchor": (anchor + group[:, None] * size.places)[played],
        "action": action[played],
        "group": group,
        "length": length,
        "success": (length < size.horizon) & (rng.random(rollouts) < 0.7),
    }


def as_groups(columns: dict[str, Any], keys: Sequence[str]) -> list[RolloutGroup]:
    """The same update as strings, one key per step."""
    steps = [Step(key, f"action {a}") for key, a in zip(keys, columns["action"].tolist(), strict=True)]
    ends = np.cumsum(columns["length"])
    rollouts = [
        Rollout(steps[end - n : end], bool(won))
        for end, n, won in zip(ends.tolist(), columns["length"].tolist(), columns["success"], strict=True)
    ]
    starts = np.flatnonzero(np.diff(columns["group"], prepend=-1)).tolist()
    return [RolloutGroup(rollouts[a:b]) for a, b in zip(starts, [*starts[1:], None], strict=True)]


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    """The median CPU time of a call in milliseconds, after one warm-up call."""
    call()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return 1e3 * median(times)


def peak_bytes(call: Callable[[], object]) -> int:
    """The peak memory of Python and numpy during a call, in bytes; SuperLU's factors are not included."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    print(f"\n{title}")
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"  {name:<{width}}  {value:>12}")


def phases(size: Size, repeats: int) -> None:
    """Where the time of CRBC's advantage block goes."""
    columns = update(size)
    interned = InternedRollouts(**columns)
    process = EmpiricalProcess.from_interned(interned)
    solved = credit.closure(process, BETA)
    residual = np.abs(process.b(BETA) + BETA * (process.M @ solved.V) - solved.V).max()

    def ms(call: Callable[[], object]) -> str:
        return f"{milliseconds(call, repeats):.2f} ms"

    table(
        f"{size.name}: {len(interned.anchor):,} steps, {process.num_anchors:,} anchors, {process.num_pairs:,} pairs",
        [
            ("checking the arrays", ms(lambda: InternedRollouts(**columns))),
            ("counting transitions", ms(lambda: EmpiricalProcess.from_interned(interned))),
            ("counting and closure", ms(lambda: credit.closure(EmpiricalProcess.from_interned(interned), BETA))),
            ("CRBC advantages, all of it", ms(lambda: credit.advantages_batch(interned, "crbc"))),
            ("Bellman residual", f"{residual:.1e}"),
        ],
    )


def estimators(size: Size, repeats: int) -> None:
    interned = InternedRollouts(**update(size))

    def ms(method: str) -> str:
        return f"{milliseconds(lambda: credit.advantages_batch(interned, method), repeats):.2f} ms"

    table(f"{size.name}: every estimator", [(method, ms(method)) for method in credit.METHODS])


def strings(size: Size, repeats: int) -> None:
    """The cost of anchors as text: hashing observations, interning keys, and then the same advantages."""
    columns = update(size)
    texts = [f"{number} ".ljust(OBSERVATION, "x") for number in columns["anchor"].tolist()]
    groups = as_groups(columns, [anchor_key(text) for text in texts])
    interned = InternedRollouts.from_groups(groups)
    hashing = milliseconds(lambda: [anchor_key(text) for text in texts], repeats)
    numbering = milliseconds(lambda: InternedRollouts.from_groups(groups), repeats)
    rest = milliseconds(lambda: credit.advantages_batch(interned), repeats)
    total = hashing + numbering + rest
    table(
        f"{size.name}: from observations of {OBSERVATION} characters",
        [
            (name, f"{ms:.2f} ms {ms / total:4.0%}")
            for name, ms in (("hashing", hashing), ("interning the keys", numbering), ("CRBC advantages", rest))
        ],
    )


def memory(size: Size, factors: Sequence[int]) -> None:
    """Peak memory for longer rollouts; it is linear in steps if the last column is constant."""
    rows = []
    for factor in factors:
        interned = InternedRollouts(**update(replace(size, horizon=size.horizon * factor, stop=1e-9)))
        peak, steps = peak_bytes(partial(credit.advantages_batch, interned)), len(interned.anchor)
        rows.append((f"{steps:,} steps", f"{peak / 2**20:.1f} MiB, {peak / steps:.0f} bytes a step"))
    table(f"{size.groups} x {size.members} rollouts: peak memory of CRBC advantages", rows)


WORST: dict[str, Callable[[], systems.System]] = {
    "random graph, 1,000": partial(systems.random_graph, 1_000),
    "random graph, 5,000": partial(systems.random_graph, 5_000),
    "random graph, 20,000": partial(systems.random_graph, 20_000),
    "random graph, 100,000": partial(systems.random_graph, 100_000),
    "grid, 200 x 200": partial(systems.grid, 200),
    "grid, 316 x 316": partial(systems.grid, 316),
    "grid with drift, 316 x 316": partial(systems.grid, 316, drift=3),
    "strip, 10 x 10,000": partial(systems.grid, 10, 10_000),
    "chain, 100,000": partial(systems.chain, 100_000),
    "star, 100,000": partial(systems.star, 100_000),
    "100 clusters of 1,000": partial(systems.clusters, 100, 1_000),
    "64 random graphs of 1,500": lambda: systems.together([systems.random_graph(1_500, seed=i) for i in range(64)]),
    "250 random graphs of 400": lambda: systems.together([systems.random_graph(400, seed=i) for i in range(250)]),
}


def worst(cases: Sequence[str], betas: Sequence[float] = (0.5, BETA, 0.999, 1.0)) -> None:
    """CPU seconds of the solver on systems that are hard to solve, the best of two, at several discounts."""
    rows, slowest = [], (0.0, "")
    for name in cases:
        M, reached = WORST[name]()
        seconds = []
        for beta in betas:
            b, by_anchor = beta * reached, np.full(len(reached), beta)
            seconds.append(min(cpu_seconds(partial(solve, M, b, by_anchor)) for _ in range(2)))
            slowest = max(slowest, (seconds[-1], f"{name}, beta = {beta}"))
        rows.append((name, "  ".join(f"{each:.2f} s" for each in seconds)))
    table(f"the solver, CPU seconds at beta = {', '.join(map(str, betas))}", rows)
    print(f"  the slowest: {slowest[1]}, {slowest[0]:.2f} s")


def cpu_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def beside_public(folders: Sequence[Path]) -> None:
    """CPU time of the public code and of ours on the same rollouts, one reply in eight malformed. Theirs begins with
    texts in columns, ours with numbers: `strings` says what numbering costs. Torch has one thread."""
    import torch

    torch.set_num_threads(1)
    columns = update(SIZES[0])
    rollouts = InternedRollouts(**columns, valid=columns["action"] != 0)
    rows = []
    for method in public_credit.FILES:
        call = public_credit.public(method, public_credit.load(method, folders), rollouts)
        apart = public_credit.difference(method, call(), rollouts)
        theirs = 1e3 * median(cpu_seconds(call) for _ in range(5))
        options = public_credit.OPTIONS[method]
        ours = partial(credit.advantages_interned, rollouts, method, **options)
        mine = 1e3 * median(cpu_seconds(ours) for _ in range(5))
        rows.append((method, f"public {theirs:.0f} ms, ours {mine:.2f} ms, largest difference {apart:.0e}"))
    table(f"{SIZES[0].name}: the public code, in double precision, beside ours", rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.credit", description="What credit costs.")
    parser.add_argument("--quick", action="store_true", help="the paper's size alone, few repeats")
    parser.add_argument("--public", nargs="+", type=Path, metavar="DIR", help="checkouts of the public code")
    options = parser.parse_args(arguments)
    quick = options.quick
    for size in SIZES[:1] if quick else SIZES:
        repeats = 3 if quick else 51 if size.members == 8 else 7
        phases(size, repeats)
        estimators(size, repeats)
    strings(SIZES[0], 3 if quick else 21)
    memory(SIZES[0] if quick else SIZES[1], (1, 2) if quick else (1, 2, 4, 8))
    worst(list(WORST)[:1] if quick else list(WORST))
    if options.public:
        beside_public(options.public)
    else:
        print("\nThe public GiGPO, HGPO, GraphGPO and G2PO are left out; --public DIR ... takes their checkouts.")
    print(f"\n{PAPER}")


if __name__ == "__main__":
    main()
