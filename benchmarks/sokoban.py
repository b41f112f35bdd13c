"""Measures Sokoban: `python -m benchmarks.envs --env sokoban`.

Without flags, it measures the steps of every engine, updates of groups of every shape, then board generation. Times
are CPU time on this machine, including worker processes. The engines take turns, so that a busy machine affects all of
them alike.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from numpy.typing import NDArray

from benchmarks import peers
from benchmarks.credit import table
from crbc_envs import GroupVectorEnv
from crbc_envs.core import Members, Outcome, ShowingMembers
from crbc_envs.sokoban import batch as sokoban_batch
from crbc_envs.sokoban.batch import SokobanBatch
from crbc_envs.sokoban.gym_engine import arrays
from crbc_envs.sokoban.panels import LEVELS, Level, SokobanPanel
from crbc_envs.sokoban.published import paper_room
from crbc_envs.sokoban.rules import MOVES, Room
from crbc_envs.vector.members import LocalMembers, make_member, make_members

SIZE = (6, 6, 1)
MEMBERS = 1_024
FEW = 8
"""The number of members of the engines that step them one by one."""

SHAPES = ((1, FEW), (8, FEW), (1, 64), (128, FEW), (1, MEMBERS))
"""Groups and members of each, in the updates."""

BASE = "gym-sokoban"
NO_FRAMES = ", without drawing"


# ---- steps ----------------------------------------------------------------------------------------


@dataclass
class Engine:
    """`step` takes one action (0 to 3) per member. `cpu` returns the CPU time spent so far."""

    name: str
    members: int
    step: Callable[[NDArray[np.int64]], object]
    cpu: Callable[[], float] = time.process_time
    close: Callable[[], None] = lambda: None


def rates(engines: Sequence[Engine], seconds: float, rounds: int = 5) -> dict[str, float]:
    """Steps per CPU-second by engine: the median of `rounds` turns of about `seconds` each."""
    found: dict[str, list[float]] = {engine.name: [] for engine in engines}
    rng = np.random.default_rng(0)
    drawn = {engine.name: rng.integers(4, size=(64, engine.members)) for engine in engines}
    for _ in range(rounds):
        for engine in engines:
            actions, steps = drawn[engine.name], 0
            engine.step(actions[-1])
            start, until = engine.cpu(), time.perf_counter() + seconds
            while time.perf_counter() < until:
                engine.step(actions[steps % 64])
                steps += 1
            found[engine.name].append(steps * engine.members / (engine.cpu() - start))
    return {name: median(turns) for name, turns in found.items()}


def loaded(members: int) -> SokobanBatch:
    """A batch with the first rooms of the suite's panel."""
    panel = SokobanPanel("train", Level.of_size(*SIZE))
    starts = np.stack([panel[i].content.tiles(panel[i].content.start) for i in range(256)])
    batch = SokobanBatch(members, *SIZE[:2])
    batch.load(starts[np.arange(members) % len(starts)])
    return batch


def our_engines(members: int) -> Iterator[Engine]:
    """This suite's engine with its two kinds of frames, and without frames."""

    def fresh(batch: SokobanBatch, actions: NDArray[np.int64]) -> object:
        return batch.step(actions), batch.frames()

    def drawn_into(batch: SokobanBatch, out: NDArray[np.uint8], actions: NDArray[np.int64]) -> object:
        return batch.step(actions), batch.frames(out)

    name = f"SokobanBatch of {members:,}"
    yield Engine(f"{name}, a new array", members, partial(fresh, loaded(members)))
    batch = loaded(members)
    yield Engine(f"{name}, one array reused", members, partial(drawn_into, batch, batch.frames()))
    yield Engine(f"{name}{NO_FRAMES}", members, loaded(members).step)


def gym_sokoban_engines(frames: bool) -> Iterator[Engine]:
    """A single gym-sokoban, and several in each of Gymnasium's vector environments."""
    tail = "" if frames else NO_FRAMES
    make = [partial(peers.GymSokoban, *SIZE, frames, seed) for seed in range(FEW)]
    one = make[0]()
    yield Engine(f"{BASE}{tail}", 1, lambda actions: one.step(actions[0] + 1))
    sync = SyncVectorEnv(make)
    yield Engine(f"SyncVectorEnv of {FEW}{tail}", FEW, peers.vector_stepper(sync), close=sync.close)
    workers = AsyncVectorEnv(make)
    cpu = partial(peers.workers_cpu_seconds, workers)
    yield Engine(f"AsyncVectorEnv of {FEW}{tail}", FEW, peers.vector_stepper(workers), cpu, workers.close)


def engines(seconds: float) -> None:
    """Steps per CPU-second of all installed Sokobans, on 6x6 boards with one box if they have them."""
    missing: list[str] = []
    found: list[Engine] = []
    with collecting(missing):
        for frames in (True, False):
            found += gym_sokoban_engines(frames)
    for members in (FEW, 64, MEMBERS):
        found += our_engines(members)
    for name, stepper in (("envpool", peers.envpool_stepper), ("jumanji", peers.jumanji_stepper)):
        with collecting(missing):
            found.append(Engine(f"{name} of {MEMBERS:,}{NO_FRAMES}", MEMBERS, stepper(MEMBERS)))
    speed = rates(found, seconds)
    for title, chosen, base in (
        ("with 96x96 RGB frames", [name for name in speed if NO_FRAMES not in name], BASE),
        ("without frames", [name for name in speed if NO_FRAMES in name], BASE + NO_FRAMES),
    ):
        rows = [(name.removesuffix(NO_FRAMES), shown(speed[name], speed.get(base))) for name in chosen]
        table(f"Sokoban, 6x6 with one box, {title}: steps per CPU-second", rows)
    for engine in found:
        engine.close()
    print_missing(missing, "envpool" in " ".join(speed) or "jumanji" in " ".join(speed))


def single(seconds: float) -> None:
    """Steps per CPU-second of one environment of the suite by its engine, with its texts, anchors and infos."""
    kinds = [(engine, seen) for seen in ("rgb", "text") for engine in ("exact", "gym")]
    speed = rates([Engine(f"{engine}, {seen}", 1, played(engine, seen)) for engine, seen in kinds], seconds)
    table("Sokoban, one environment: steps per CPU-second", [(name, f"{rate:,.0f}") for name, rate in speed.items()])


def played(engine: str, observation: str) -> Callable[[NDArray[np.int64]], object]:
    """Steps of one environment, which begins the next of 64 tasks where an episode is over."""
    env = make_member("CRBC-Sokoban-v0", {"engine": engine, "observation": observation})
    tasks = cycle(range(64))
    env.reset(seed=0, options={"task": next(tasks)})

    def step(actions: NDArray[np.int64]) -> None:
        _, _, terminated, truncated, _ = env.step(MOVES[int(actions[0])])
        if terminated or truncated:
            env.reset(seed=0, options={"task": next(tasks)})

    return step


def shown(rate: float, base: float | None) -> str:
    ratio = f"{rate / base:>10,.1f} times {BASE}" if base else ""
    return f"{rate:>12,.0f}{ratio}"


@contextmanager
def collecting(missing: list[str]) -> Iterator[None]:
    """Context manager: adds a package that is not installed to `missing`, and goes on."""
    try:
        yield
    except ModuleNotFoundError as reason:
        if str(reason) not in missing:
            missing.append(str(reason))


def print_missing(missing: Sequence[str], other_boards: bool = False) -> None:
    if other_boards:
        print("  envpool and jumanji play 10x10 boards with four boxes and have no frames.")
    for line in missing:
        print(f"  {line}")


# ---- boards ---------------------------------------------------------------------------------------


def milliseconds(draw: dict[str, Callable[[int], object]], seeds: Sequence[int]) -> dict[str, list[float]]:
    """The CPU time of each board of each generator, in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in draw}
    for seed in seeds:
        for name, board in draw.items():
            start = time.process_time()
            board(seed)
            times[name].append(1e3 * (time.process_time() - start))
    return times


UNSEEN = 50_000
"""The first of the rooms that no other part of this benchmark draws: a process keeps those that it has drawn."""


def levels(count: int) -> None:
    """Print the cost of `count` new rooms of each level, after one room, with which a process reads its layouts."""
    rows = []
    for name, level in LEVELS.items():
        panel = SokobanPanel("train", level)
        panel[UNSEEN - 1]
        spent = milliseconds({name: panel.__getitem__}, range(2 * UNSEEN - count, 2 * UNSEEN))[name]
        rows.append((name, f"{fmean(spent):.2f} ms, 95th percentile {np.quantile(spent, 0.95):.2f} ms"))
    table(f"Sokoban: CPU time of a new room, mean of {count:,}", rows)


def rooms(seeds: Sequence[int], paper: Path | None = None) -> None:
    """Print the cost of a 6x6 board with one box. `paper` is the room_utils.py of verl-agent or RAGEN."""
    panel = SokobanPanel("train", Level.of_size(*SIZE))
    panel[UNSEEN - 1]  # reads the layouts
    draw: dict[str, Callable[[int], object]] = {
        "the suite's panel": lambda seed: panel[UNSEEN + seed],
        "paper_room": paper_room,
    }
    pairs: dict[str, tuple[str, Callable[[int], peers.Board], Callable[[int], Room]]] = {}
    missing: list[str] = []
    if paper is None:
        missing.append("no original of paper_room; to compare with it: --room-utils <verl-agent's room_utils.py>")
    else:
        variant = partial(peers.their_board, peers.room_utils(paper), search_depth=30)
        pairs["the paper family's own"] = ("paper_room", variant, paper_room)
    each = milliseconds({**draw, **{name: pair[1] for name, pair in pairs.items()}}, seeds)
    spent = {name: fmean(times) for name, times in each.items()}
    rows = [(name, f"{ms:.3f} ms") for name, ms in spent.items()]
    for name, (ours, their_room, our_room) in pairs.items():
        rows.append((f"{name} / {ours}", f"{spent[name] / spent[ours]:.1f} times"))
        equal = sum(np.array_equal(their_room(seed), arrays(our_room(seed))) for seed in seeds)
        rows.append(("  equal boards", f"{equal:,} of {len(seeds):,}"))
    table(f"Sokoban, 6x6 with one box: CPU time a board, mean of {len(seeds):,} seeds", rows)
    print_missing(missing)


# ---- a group update -------------------------------------------------------------------------------


class Clock:
    """CPU seconds spent in wrapped functions, by name."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[name] = self.spent.get(name, 0.0) + time.process_time() - start

        return timed


@dataclass
class TimedMembers:
    """Members whose calls are timed."""

    members: Members
    clock: Clock

    def reset(self, *args: Any) -> Outcome:
        return self.clock.wrap("environment", self.members.reset)(*args)

    def step(self, members: Sequence[int], actions: Sequence[str], **shown: bool) -> Outcome:
        return self.clock.wrap("environment", self.members.step)(members, actions, **shown)

    def show(self, out: NDArray[Any]) -> None:
        assert isinstance(self.members, ShowingMembers)
        self.clock.wrap("environment", self.members.show)(out)

    def render(self) -> tuple[Any, ...]:
        return self.members.render()

    def close(self) -> None:
        self.members.close()


def group_update(members: Members, groups: int, size: int, options: dict[str, Any]) -> tuple[dict[str, float], int]:
    """One update with random actions, from reset to merged counts. Returns CPU seconds by part, and member-steps."""
    clock = Clock()
    envs = GroupVectorEnv("CRBC-Sokoban-v0", groups, size, **options)
    envs.members = TimedMembers(members, clock)
    if not isinstance(members, ShowingMembers):
        envs._frames = None  # the frames of these are collected
    envs._recorder.add = clock.wrap("counting", envs._recorder.add)  # type: ignore[method-assign]  # to time it
    rng = np.random.default_rng(0)
    replies = [[MOVES[i] for i in rng.integers(4, size=groups * size)] for _ in range(64)]
    start, steps = time.process_time(), 0
    envs.reset(seed=0)
    while envs.active.any():
        active = int(envs.active.sum())
        envs.step(replies[steps % 64])
        steps += active
    clock.wrap("counting", lambda: (envs.transition_counts(), envs.interned()))()
    clock.spent["in all"] = time.process_time() - start
    return clock.spent, steps


def group(groups: int, size: int) -> None:
    """Print the parts of the time of a group update, for text and RGB, as a batch and one by one."""
    for observation in ("text", "rgb"):
        options = {"observation": observation}
        count = groups * size
        group_update(make_members("CRBC-Sokoban-v0", options, count), groups, size, options)  # draws the rooms
        clock = Clock()
        original = sokoban_batch.anchor_key
        sokoban_batch.anchor_key = clock.wrap("anchors", original)
        try:
            batch = make_members("CRBC-Sokoban-v0", options, count)
            spent, steps = group_update(batch, groups, size, options)
        finally:
            sokoban_batch.anchor_key = original
        alone = LocalMembers([make_member("CRBC-Sokoban-v0", options) for _ in range(count)])
        one_by_one, _ = group_update(alone, groups, size, options)
        total, anchors = spent["in all"], clock.spent["anchors"]
        parts = {
            "environment, without anchors": spent["environment"] - anchors,
            "anchors": anchors,
            "counting": spent["counting"],
            "batching observations and infos": total - spent["environment"] - spent["counting"],
        }
        rows = [(name, f"{1e3 * s:>8.1f} ms {s / total:>6.0%}") for name, s in parts.items()]
        rows.append(("in all", f"{1e3 * total:>8.1f} ms  {steps / total:>10,.0f} member-steps per CPU-second"))
        rows.append(("with one environment per member", f"{1e3 * one_by_one['in all']:>8.1f} ms"))
        table(f"Sokoban, one update of {groups} groups of {size}, {observation}: {steps:,} member-steps", rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envs --env sokoban", description=__doc__)
    parser.add_argument("--engines", action="store_true", help="measure steps, also of other installed Sokobans")
    parser.add_argument("--shapes", action="store_true", help="measure updates of groups, beside the bare batch")
    parser.add_argument("--rooms", action="store_true", help="measure the board generators")
    parser.add_argument(
        "--group", action="store_true", help="measure an update of 128 groups of 8, from reset to counts"
    )
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a turn; each engine has five")
    parser.add_argument("--seeds", type=int, default=500, help="boards per generator")
    parser.add_argument("--groups", type=int, default=128, help="groups in the update")
    parser.add_argument("--room-utils", type=Path, help="verl-agent's or RAGEN's room_utils.py, to measure it too")
    given = parser.parse_args(arguments)
    for name in ("seeds", "seconds", "groups"):
        if getattr(given, name) <= 0:
            parser.error(f"--{name} must be positive, got {getattr(given, name)}")
    every = not (given.engines or given.shapes or given.rooms or given.group)
    if given.engines or every:
        engines(given.seconds)
        single(given.seconds)
    if given.shapes or every:
        from benchmarks.sokoban_groups import measure  # here, because it imports this module

        measure(given.seconds, SHAPES)
    if given.rooms or every:
        rooms(range(given.seeds), given.room_utils)
        levels(given.seeds)
    if given.group:
        group(given.groups, 8)


if __name__ == "__main__":
    main()
