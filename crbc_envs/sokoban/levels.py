"""The levels of Sokoban: sizes of rooms, how many moves they take, and how many steps an episode has."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Level:
    """Rooms of one size that take `shortest` to `longest` moves, in episodes of at most `max_steps` steps."""

    name: str
    height: int
    width: int
    num_boxes: int
    shortest: int
    longest: int
    max_steps: int

    @classmethod
    def of_size(cls, height: int = 6, width: int = 6, num_boxes: int = 1) -> Level:
        """Rooms of any size, eight different lengths, in episodes of fifteen steps. At 6x6 it is the level "6x6"."""
        name = f"{height}x{width}" + (f"x{num_boxes}" if num_boxes != 1 else "")
        level = cls(name, height, width, num_boxes, num_boxes, num_boxes + 7, 15)
        return LEVELS["6x6"] if level == LEVELS["6x6"] else level

    def length(self, index: int) -> int:
        """The moves that task `index` takes. Each length comes equally often, in every split."""
        return self.shortest + index % (self.longest - self.shortest + 1)


LEVELS = MappingProxyType(
    {
        level.name: level
        for level in (
            Level("6x6", 6, 6, 1, 1, 8, 15),
            Level("8x8-1box", 8, 8, 1, 5, 16, 30),
            Level("8x8-2box", 8, 8, 2, 9, 24, 50),
            Level("10x10-long", 10, 10, 2, 21, 50, 100),
        )
    }
)
"""The named levels. "6x6" is the paper's size. In each an episode has about twice the steps of the longest room."""


def find_level(
    name: str | None, height: int | None = None, width: int | None = None, num_boxes: int | None = None
) -> Level:
    """The level of that name, or of that size; "6x6" without either.

    Raises `ValueError` for an unknown name, and for a name together with another size.
    """
    sizes = {"height": height, "width": width, "num_boxes": num_boxes}
    given = {key: size for key, size in sizes.items() if size is not None}
    if name is None:
        return Level.of_size(**given)
    if name not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}; got {name!r}")
    level = LEVELS[name]
    for key, size in given.items():
        if size != getattr(level, key):
            raise ValueError(f"level {name!r} has {key} {getattr(level, key)}, got {size}: leave out one of the two")
    return level
