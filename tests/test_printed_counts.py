"""Counts that the pages print, recomputed: a page, its words with {} for the numbers, and what these are today."""

from __future__ import annotations

import json
from functools import cache, partial

import numpy as np
import pytest
import recorded_groups
from paths import ROOT

from anchors import EmpiricalProcess, RolloutGroup
from benchmarks import shops
from crbc_envs.sokoban.layouts import all_layouts
from crbc_envs.sokoban.panels import SokobanPanel, split_of
from crbc_envs.webshop.products.tables import kinds
from crbc_lab.plan.plan import make_plan
from crbc_rl import credit
from crbc_rl.config import load_config

BETA, OMEGA = (credit.METHODS[name].options[key] for name, key in (("crbc", "beta"), ("graphgpo", "omega")))
WARM = ROOT / "warmstarts"
PAPER = sorted(path.stem for path in (ROOT / "configs/paper").glob("*.yaml"))


@cache
def rooms(split):
    """The first 2,000 tasks, and how many layouts and boards they have up to symmetry."""
    panel = SokobanPanel(split)
    tasks = [panel[index] for index in range(2_000)]
    return tasks, len(set(map(panel.cluster, tasks))), len({task.digest for task in tasks})


def free(*splits):
    """The mean number of free squares of rooms of one to four moves."""
    return float(np.mean([len(t.content.floor) for s in splits for i, t in enumerate(rooms(s)[0]) if i % 8 < 4]))


def warm(name):
    """Success of a shipped warm start, the ends of its interval, and the tasks."""
    made = json.loads((WARM / f"{name}-tiny/warmstart.json").read_text())["success"]
    return [100 * made["success"], 100 * made["low"], 100 * made["high"], made["episodes"]]


def better():
    """The worlds in which CRBC+ is above CRBC, the interval clear of zero, in each column of the first table."""
    table = (ROOT / "docs/credit/accuracy.md").read_text().partition("figures: plus")[2].partition("<!-- end")[0]
    rows = [row.split("|")[2:] for row in table.splitlines() if "±" in row]
    return [sum(cell.startswith(" **+") for cell in column) for column in zip(*rows, strict=True)]


def memory(config, *overrides):
    """GiB while loading, training and generating, and of the machine."""
    plan = make_plan(load_config(f"paper/{config.replace('_', '-')}", overrides), 8).memory
    return [size / 2**30 for size in (*(sum(phase.values()) for phase in plan.phases.values()), plan.main)]


def critic():
    return [memory(one, "credit.method=gae")[1] - memory(one)[1] for one in (PAPER[0], PAPER[2], PAPER[1])]


def diagnosis():
    group = RolloutGroup([row.rollout() for row in recorded_groups.read()[0].rollouts])
    told = str(credit.diagnose(EmpiricalProcess.from_group(group), beta=0.98, depths=(0, 1, 2, 5, 10)))
    return " ".join(told.split())


COUNTS = [
    (
        "sokoban",
        "| in training, which draws from them with every start and orientation | {:,} |",
        lambda: [sum(split_of(d) == "train" for d in all_layouts().digests)],
    ),
    ("sokoban", "2,000 training tasks | {:,} layouts, {:,} boards up to symmetry |", lambda: rooms("train")[1:]),
    ("sokoban", "{:.1f} free squares, training rooms {:.1f}", lambda: [free("validation", "test"), free("train")]),
    ("webshop", "It has {} kinds of products", lambda: [len(kinds())]),
    ("alfworld", "The warm start wins {:.1f} % ({:.1f} to {:.1f}) of {} tasks", lambda: warm("alfworld")),
    ("webshop", "The warm start wins {:.1f} % ({:.1f} to {:.1f}) of {} test tasks", lambda: warm("webshop")),
    ("tiny_agents", "three quarters at its own states (shipped) | {:.1f} % |", lambda: warm("sokoban")),
    (
        "tiny_agents",
        "Together the three take {:.1f} MB",
        lambda: [sum(f.stat().st_size for f in WARM.glob("*-tiny/*.*")) / 1e6],
    ),
    ("credit/accuracy", "rank in {} of 14 worlds, in sign in {} and in the cosine of single groups in {}", better),
    ("credit/accuracy", "less biased than CRBC in {3} worlds", better),
    ("credit/closure", "discount | beta = .{:.0f} |", lambda: [100 * BETA]),
    ("credit/diagnose", "{}", lambda: [diagnosis()]),
    ("credit/index", "GraphGPO's omega | {} (ALFWorld)", lambda: [OMEGA]),
]

shop = cache(lambda: list(shops.figures(shops.generated(0), 2_000).values()))
LONG = [
    *(("runtime", f"| `{one}`" + 4 * " | {:.0f} GiB" + " |", partial(memory, one)) for one in PAPER),
    ("runtime", "adds {:.0f} GiB with 1.5B, {:.0f} GiB with 3B and {:.0f} GiB with 7B", critic),
    ("webshop", "| kinds | {:.0f} |", shop),
    ("webshop", "| different words; without digits | {1:,.0f}; {2:,.0f} |", shop),
    ("webshop", "with the options it has | {12:.1f} % |", shop),
    ("webshop", "own product is the first hit | {14:.1f} % |", shop),
]
LONG = [pytest.param(*row, marks=pytest.mark.full) for row in LONG]


@pytest.mark.parametrize(("page", "words", "count"), [*COUNTS, *LONG])
def test_a_printed_count_is_what_is_there(page, words, count):
    said = " ".join((ROOT / f"docs/{page}.md").read_text(encoding="utf-8").split())
    assert words.format(*count()) in said, page
