"""The outcomes of one method: a value for every seed and task, and the cluster of every task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anchors.columns import Floats, Ints
from crbc_rl.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Outcomes:
    """One method's `values` (S, T): a row for each of S seeds, a column for each of T tasks.

    `seeds` (S,) and `tasks` (T,) are sorted labels, `clusters` (C,) those of clusters. `cluster` (T,) has the number of
    each task's cluster, 0 to C - 1. Tasks of one cluster count as drawn together. Values are 0 and 1 for success, or
    scores. `Outcomes.of` builds this from one row per episode.
    """

    seeds: NDArray[np.generic]
    tasks: NDArray[np.generic]
    clusters: NDArray[np.generic]
    cluster: Ints
    values: Floats

    @classmethod
    def of(cls, seed: ArrayLike, task: ArrayLike, cluster: ArrayLike, value: ArrayLike) -> Outcomes:
        """The outcomes of evaluated episodes, each column (S * T,) in any order.

        `cluster` is a label, such as the digest of a room or product. Raises `ConfigError` for columns of unequal
        length or without rows, for a value that is no finite number, for a task in two clusters, and where a seed did
        not play every task exactly once.
        """
        columns = {"seed": np.asarray(seed), "task": np.asarray(task), "cluster": np.asarray(cluster)}
        values = np.asarray(value, dtype=np.float64)
        _check_columns({**columns, "value": values})
        seeds, row = np.unique(columns["seed"], return_inverse=True)
        tasks, first, column = np.unique(columns["task"], return_index=True, return_inverse=True)
        played = np.zeros((len(seeds), len(tasks)), dtype=np.int64)
        np.add.at(played, (row, column), 1)
        _check_played(played, seeds, tasks)
        clusters, of_row = np.unique(columns["cluster"], return_inverse=True)
        of_task = of_row[first]
        if (moved := np.flatnonzero(of_task[column] != of_row)).size:
            raise ConfigError(
                f"task {tasks[column[moved[0]]]} is in two clusters; give every row of a task the same cluster"
            )
        table = np.empty(played.shape)
        table[row, column] = values
        return cls(seeds, tasks, clusters, of_task, table)

    @cached_property
    def sizes(self) -> Ints:
        """The number of tasks in each cluster, (C,)."""
        return np.bincount(self.cluster, minlength=len(self.clusters))

    @cached_property
    def sums(self) -> Floats:
        """The sum of the values of each seed and cluster, (S, C)."""
        member = np.zeros((len(self.tasks), len(self.clusters)))
        member[np.arange(len(self.tasks)), self.cluster] = 1.0
        sums: Floats = self.values @ member
        return sums

    @cached_property
    def per_seed(self) -> Floats:
        """The mean value of each seed, (S,)."""
        means: Floats = self.values.mean(axis=1)
        return means

    @property
    def binary(self) -> bool:
        """Whether all values are 0 or 1."""
        return bool(np.isin(self.values, (0.0, 1.0)).all())

    @property
    def mean(self) -> float:
        """The mean over seeds and tasks."""
        return float(self.values.mean())


def paired(methods: Mapping[str, Outcomes]) -> None:
    """Check that all methods have the same seeds, tasks and clusters. Raises `ConfigError` where they differ."""
    (first, reference), *others = methods.items()
    for name, other in others:
        for what in ("seeds", "tasks", "clusters", "cluster"):
            if not np.array_equal(getattr(reference, what), getattr(other, what)):
                raise ConfigError(
                    f"{name} and {first} differ in their {what}: evaluate both with the same seeds on the same panel, "
                    "or leave out what only one of them has"
                )


def _check_columns(columns: Mapping[str, NDArray[np.generic]]) -> None:
    lengths = {name: column.shape for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or any(column.ndim != 1 for column in columns.values()):
        shown = ", ".join(f"{name} {shape}" for name, shape in lengths.items())
        raise ConfigError(f"the columns of outcomes have unequal lengths ({shown}); give one row per episode in each")
    if not len(columns["value"]):
        raise ConfigError("there are no outcomes: evaluate each seed on the panel first, such as with crbc eval RUN")
    unfit = np.flatnonzero(~np.isfinite(columns["value"].astype(np.float64)))
    if unfit.size:
        raise ConfigError(
            f"row {unfit[0]} of the outcomes has the value {columns['value'][unfit[0]]}, which is no finite number; "
            "count a failed episode as 0"
        )


def _check_played(played: Ints, seeds: NDArray[np.generic], tasks: NDArray[np.generic]) -> None:
    odd = np.argwhere(played != 1)
    if len(odd):
        row, column = odd[0]
        often = "twice or more" if played[row, column] else "never"
        raise ConfigError(
            f"seed {seeds[row]} played task {tasks[column]} {often}; every seed plays every task of the panel once"
        )
