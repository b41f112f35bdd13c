"""`crbc study learning --all`: all methods in all settings, CRBC's options, one scale for all, other group sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crbc_lab.studies.estimators import CRBC
from crbc_lab.studies.learning.settings import FEW, SECONDS, SETTINGS, STARTS, setting
from crbc_lab.studies.learning.study import BOUNDS, Grid, left, named
from crbc_lab.studies.learning.training import Budget
from crbc_rl import credit

SEEDS = range(3000, 3020)
"""Of a thousand that no choice was made with."""
OPTIONS = (
    *("depth=0", "depth=1", "depth=2", "depth=3", "w_step=0", "w_step=1", "w_group=0", "beta=0.9", "beta=auto"),
    *("normalise=group", "normalise=null", "truncation=successor", "trust=slope"),
)
"""Of CRBC, each alone."""
SIZES = (4, 16)
"""Group sizes beside the default, with as many rollouts in all."""


def grids() -> dict[str, Grid]:
    """The studies by the name of their folder. Each is compared, and corrected for, by itself."""
    methods = tuple(map(named, (*credit.METHODS, *BOUNDS)))
    options = tuple(map(named, (CRBC, *(f"{CRBC},{option}" for option in OPTIONS))))
    few = tuple(map(named, (CRBC, "gigpo", "graphgpo", "grpo")))
    every, ten = tuple(SETTINGS), tuple(SEEDS)[:10]
    rollouts = Budget().updates * Budget().group_size
    return {
        "methods": Grid(methods, every, tuple(SEEDS), instances=64),
        "options": Grid(options, FEW, ten),
        "alike": Grid(methods, FEW, ten, budget=Budget(alike=True)),
        **{f"group-{size}": Grid(few, FEW, ten, budget=Budget(rollouts // size, size)) for size in SIZES},
    }


def cpu_seconds(studies: Mapping[Path, Grid]) -> float:
    """What the parts of these grids that are not in their folders take, about, from what CRBC's took.

    A table's cost goes with its instances; a network is tested in the same rooms in any case."""
    total = 0.0
    for folder, grid in studies.items():
        trainings = (len(grid.seeds) + grid.choosing) / 15
        rollouts = grid.budget.updates * grid.budget.group_size / 320
        for one in left(grid, folder):
            (name,) = one.settings
            instances = 1.0 if name in STARTS else grid.instances / 16
            once = SECONDS.get(name, SECONDS["house"])
            total += once * trainings * rollouts * instances * len(grid.rates(setting(name))) / 3
    return total
