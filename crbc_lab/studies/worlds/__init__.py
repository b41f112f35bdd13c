"""Worlds in which the true credit is known: families of small decision processes, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from anchors.key import ANCHOR_KINDS
from crbc_lab.studies.mdp import TabularMDP
from crbc_lab.studies.worlds import alfworld, diagnostics, house, lucky, shop, sokoban
from crbc_lab.studies.worlds.behaviours import behaviour

__all__ = ["WORLDS", "World", "behaviour"]

MIXTURES = ("mix0", "mix0.15", "mix0.3", "mix0.5", "soft0", "soft0.3", "soft0.7", "soft1.5")
"""From random to skilled play, at a distance of up to about ten steps."""

SKILLED = ("mix0.15", "mix0.2", "mix0.3", "mix0.4", "soft1", "soft1.5")
"""Where random play hardly ever succeeds."""

UNSKILLED = ("mix0", "mix0.05", "mix0.1", "mix0.2", "soft0.3", "soft0.7")
"""Where a little skill succeeds nearly always."""

FREE = ("mix0", "soft0")
"""Random play, and random preferences: where an action may not be the best and yet matter."""


@dataclass(frozen=True, slots=True)
class World:
    """A family of processes. `make(seed, index)` gives one; the same two numbers always give the same.

    `behaviours` are the names of the policies under which it is studied, for `behaviour`.
    """

    name: str
    description: str
    make: Callable[[int, int], TabularMDP]
    behaviours: tuple[str, ...]


WORLDS = {
    world.name: world
    for world in (
        World("sokoban", "one-box Sokoban rooms of the train panel, 15 steps", sokoban.room, MIXTURES),
        World("sokoban-h20", "the same rooms, 20 steps", partial(sokoban.room, horizon=20), MIXTURES),
        World("sokoban-h50", "the same rooms, 50 steps", partial(sokoban.room, horizon=50), MIXTURES),
        World("slip", "the same rooms, 15 steps; a random move replaces one in five", sokoban.slippery, MIXTURES),
        World("lucky", "chains with rare lucky shortcuts and a dead end, 20 steps", lucky.chain, MIXTURES),
        World("house", "15 rooms, a thing to fetch, wash and put away, 50 steps", house.house, SKILLED),
        World("needle", "the first of 16 steps decides, the others change nothing", diagnostics.needle, FREE),
        World("repair", "a bad step that the next one may repair", diagnostics.repair, FREE),
        World("shop", "search, browse, choose options and buy, 15 steps; written after crbc_plus", shop.shop, MIXTURES),
        World("stop", "stop now or go on; a good choice may lose", diagnostics.stop, FREE),
        *(
            World(
                "alfworld" if kind == "situation" else f"alfworld-{kind}",
                f"small ALFWorld rooms, 50 steps; anchors of the kind {kind!r}",
                partial(alfworld.room, kind=kind),
                UNSKILLED,
            )
            for kind in ANCHOR_KINDS
        ),
    )
}
"""The worlds of `crbc study credit-accuracy --world`, by name."""
