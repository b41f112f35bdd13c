"""Task panels and random streams: a task depends only on (split, index), a stream on its name and numbers.

Neither depends on the worker, the machine or the hash seed.
"""

from __future__ import annotations

import hashlib
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Generic, TypeVar

import numpy as np

T = TypeVar("T")

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Task(Generic[T]):
    """One task.

    `id` is its name ("sokoban-v3/train/12"), `text` the instruction for the agent, `content` the data that the
    environment needs, `digest` a hash of the content (hex). `kind` is the task family ("heat"), for benchmarks
    that report results by family.
    """

    id: str
    text: str
    content: T
    digest: str
    kind: str = ""


class TaskPanel(ABC, Generic[T]):
    """A fixed, ordered list of `size` tasks for one `split`. Raises `ValueError` for a name that is not in `splits`.

    Two splits never share a content digest. Some published splits do; their panels say so.
    """

    splits: ClassVar[Mapping[str, str]] = {name: name for name in SPLITS}
    """Accepted split names, and the split that each one means. Every panel accepts those of `SPLITS`."""
    has_kinds: ClassVar[bool] = True
    """Whether tasks may have kinds. False spares an evaluation to ask each task for its own."""
    listed: ClassVar[bool] = False
    """Whether the tasks stand in an order that has to do with what they are, such as that of their names. The first
    ones are then no fair sample of the split."""
    drawn_in_paper: ClassVar[Mapping[str, int]] = MappingProxyType({})
    """How many tasks of each kind an evaluation of the paper has, under "" where tasks have no kinds. Empty: the paper
    has no evaluation on such tasks."""
    repeats_in_paper: ClassVar[bool] = False
    """Whether such an evaluation may draw a task more than once."""

    def __init__(self, split: str, size: int) -> None:
        if split not in self.splits:
            raise ValueError(f"split must be one of {', '.join(self.splits)}; got {split!r}")
        self.split = self.splits[split]
        self.size = size

    @abstractmethod
    def _task(self, index: int) -> Task[T]: ...

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task[T]:
        return self._task(self.index(index))

    def index(self, index: int) -> int:
        """The same `index` as an int. Raises `IndexError` unless it is from 0 to `size` - 1, and `TypeError` for what
        is no whole number."""
        number = operator.index(index)
        if not 0 <= number < self.size:
            raise IndexError(f"task {index} is not in the {self.split} panel of {self.size} tasks")
        return number

    def find(self, name: str) -> int | None:
        """The index of the task that the benchmark's own files call `name`; None where it has none."""
        return None

    def kind(self, index: int) -> str:
        """The kind of task `index`, its `Task.kind`. Override it where making the task costs more than its kind."""
        return self[index].kind

    def cluster(self, task: Task[T]) -> str:
        """A text for what `task` shares with those whose outcomes depend on its own, such as a room or a product.

        It is equal for such tasks. Evaluations count it behind their intervals. By default every content is alone.
        """
        return task.digest

    def digest(self, count: int) -> str:
        """One hash over the contents of the first `count` tasks, to compare panels."""
        joined = "\n".join(self[index].digest for index in range(count))
        return hashlib.sha256(joined.encode()).hexdigest()


# ---- random streams -------------------------------------------------------------------------------


def stream(name: str, *path: int) -> int:
    """The seed of one random stream, below 2**31, computed from its name and numbers."""
    return int(np.random.SeedSequence([*name.encode(), *path]).generate_state(1)[0] >> 1)


def rng(name: str, *path: int) -> np.random.Generator:
    """A generator for one random stream; see `stream`."""
    return np.random.default_rng(stream(name, *path))
