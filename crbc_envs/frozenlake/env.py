"""CRBC-FrozenLake-v0: Gymnasium's FrozenLake on maps of our own, slippery or not, with its exact values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from numpy.typing import NDArray

from anchors.key import ANCHOR_KINDS, AnchorKind, check_anchor_kind
from crbc_envs.actions import Replies
from crbc_envs.anchor_wrapper import AnchorWrapper, known_tasks
from crbc_envs.core import Expert
from crbc_envs.frozenlake.expert import WAYS, make_expert
from crbc_envs.frozenlake.maps import FROZEN, GOAL, HOLE, SIZES, START, canonical, distances, draw
from crbc_envs.frozenlake.prompts import TEMPLATES
from crbc_envs.frozenlake.values import exact_q

WALK = "Walk over the ice (F) to the goal (G), and into no hole (H)."
SLIPPERY = "The ice is slippery: one step in three goes where you want, the others to either side of that."
AGENT = {FROZEN: "@", GOAL: "+", HOLE: "X"}
"""The agent on each kind of cell."""


def board_of(env: Any) -> NDArray[np.str_]:
    """The letters of the map that is played, (size, size)."""
    letters: NDArray[np.str_] = env.unwrapped.desc.astype(str)
    return letters


def transitions_of(env: Any) -> Any:
    """Gymnasium's P: by cell and action, (chance, next cell, reward, whether it is over)."""
    return env.unwrapped.P


def picture(env: Any, cell: int) -> str:
    """The map with the agent. The start is ice like any other: nothing depends on it any more."""
    board = env.unwrapped.desc
    return _drawn(board.tobytes(), board.shape[1], int(cell))


@lru_cache(maxsize=4096)
def _drawn(letters: bytes, columns: int, cell: int) -> str:
    ice = letters.decode().replace(START, FROZEN)
    shown = f"{ice[:cell]}{AGENT[ice[cell]]}{ice[cell + 1 :]}"
    return "\n".join(shown[start : start + columns] for start in range(0, len(shown), columns))


class FrozenLake(AnchorWrapper):
    """Gymnasium's FrozenLake. The agent reads the whole map. `size` is 4 to 8.

    With `slippery`, a step goes the wanted way in one case of three and to either side in the others. The copies of a
    group then have noise of their own, unless `dynamics="shared"` is asked for. Reaching the goal is success and has
    reward 1. A hole ends the episode. An episode takes at most `max_steps`, 25 times the size by default.

    Maps are drawn from (split, index). No map is in two splits, also up to rotation and reflection. The map with the
    agent is the exact situation, so all four kinds of anchor are this one.
    """

    domain = "frozenlake"
    templates = TEMPLATES
    legend = {  # noqa: RUF012
        "F": ("ice", "cyan"),
        "H": ("hole", "red"),
        "G": ("goal", "green"),
        "@": ("you", "yellow"),
        "+": ("you at the goal", "green"),
        "X": ("you in a hole", "red"),
    }
    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        split: str = "train",
        size: int = 4,
        slippery: bool = False,
        tasks: int = 10_000,
        max_steps: int | None = None,
        replies: Replies = "thought",
        render_mode: str | None = None,
        anchor: AnchorKind = "paper",
    ) -> None:
        check_anchor_kind(anchor)
        if size not in SIZES:
            raise ValueError(f"size must be {SIZES[0]} to {SIZES[-1]}, got {size}")
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode must be 'ansi', got {render_mode!r}")

        def level(seed: int) -> gymnasium.Env[Any, Any]:
            return FrozenLakeEnv(render_mode=render_mode, desc=list(draw(seed, size)), is_slippery=slippery)

        super().__init__(
            level,
            dict.fromkeys(ANCHOR_KINDS, picture),
            anchor=anchor,
            success=lambda reward, terminated, info: reward > 0,
            actions=WAYS,
            show=picture,
            text=f"{WALK} {SLIPPERY}" if slippery else WALK,
            tasks=tasks,
            split=split,
            max_steps=25 * size if max_steps is None else max_steps,
            replies=replies,
            stochastic=slippery,
            layout=lambda env, cell: canonical(board_of(env)),
            known=known_tasks("frozenlake", split, tasks, size, slippery),
        )

    @property
    def cell(self) -> int:
        """Where the agent is, row by row from 0."""
        return int(self._seen)

    def exact_q(self, beta: float = 1.0, steps: int | None = None) -> NDArray[np.float64]:
        """Q of the best play on the current map, (cells, actions): see `values.exact_q`."""
        return exact_q(transitions_of(self.env), beta, steps)

    def distance(self) -> float:
        return float(distances(board_of(self.env))[self.cell])

    def expert(self, rng: np.random.Generator, **options: Any) -> Expert:
        letters = board_of(self.env)
        goal = int(np.flatnonzero(letters == GOAL)[0])
        return make_expert(transitions_of(self.env), goal, len(letters), self.max_steps, rng, **options)
