"""CRBC-FrozenLake-v0: Gymnasium's FrozenLake on maps of our own, slippery or not, with its exact values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
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
from crbc_envs.frozenlake.maps import FROZEN, GOAL, HOLE, SIZES, START, canonical, distances, draw, own_map
from crbc_envs.frozenlake.prompts import TEMPLATES
from crbc_envs.frozenlake.values import exact_q

WALK = "Walk over the ice (F) to the goal (G), and into no hole (H)."
SLIPPERY = "The ice is slippery: one step in three goes where you want, the others to either side of that."
WANTED = 1 / 3
"""How often a step on slippery ice goes where it is wanted, in Gymnasium's default."""
RARELY = "The ice is slippery: a step goes where you want with probability {:g}, and otherwise to either side of that."
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


def _level(seed: int, size: int, desc: Sequence[str], **options: Any) -> gymnasium.Env[Any, Any]:
    return FrozenLakeEnv(desc=list(desc or draw(seed, size)), **options)


def _layout(env: Any, cell: int) -> str:
    return canonical(board_of(env))


class FrozenLake(AnchorWrapper):
    """Gymnasium's FrozenLake. The agent reads the whole map. `size` is 4 to 8, 4 by default.

    With `slippery`, a step goes the wanted way with probability `success_rate`, one in three by default, and otherwise
    to either side. The copies of a group then have noise of their own, unless `dynamics="shared"` is asked for.
    Reaching the goal is success, whatever `reward_schedule` gives for it. These are the rewards of a step to the goal,
    into a hole and onto ice, by default 1, 0 and 0. A hole ends the episode. An episode takes at most `max_steps`, by
    default 25 times the number of rows.

    Maps are drawn from (split, index). No map is in two splits, also up to rotation and reflection. The map with the
    agent is the exact situation, so all four kinds of anchor are this one. `desc` is a map of one's own, in Gymnasium's
    letters with one S. It is the only task, and the same in every split.

    Raises `ValueError` for arguments that make no sense, alone or together.
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
        size: int | None = None,
        slippery: bool = False,
        tasks: int | None = None,
        max_steps: int | None = None,
        replies: Replies = "thought",
        render_mode: str | None = None,
        anchor: AnchorKind = "paper",
        desc: Sequence[str] | None = None,
        success_rate: float = WANTED,
        reward_schedule: Sequence[float] = (1, 0, 0),
    ) -> None:
        check_anchor_kind(anchor)
        if desc is not None and (size is not None or tasks not in (None, 1)):
            raise ValueError("desc is the one map of all tasks; leave out size and tasks")
        tasks = (10_000 if desc is None else 1) if tasks is None else tasks
        desc, size = own_map(desc) if desc is not None else (), 4 if size is None else size
        if size not in SIZES:
            raise ValueError(f"size must be {SIZES[0]} to {SIZES[-1]}, got {size}")
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode must be 'ansi', got {render_mode!r}")
        if not 0 <= success_rate <= 1 or (success_rate != WANTED and not slippery):
            raise ValueError(f"success_rate is a probability and needs slippery=True; got {success_rate}")
        if len(reward_schedule) != 3 or not np.isfinite(reward_schedule).all():
            raise ValueError(f"reward_schedule must be 3 finite numbers: goal, hole, ice; got {reward_schedule!r}")
        slips = SLIPPERY if success_rate == WANTED else RARELY.format(success_rate)
        options: dict[str, Any] = {"success_rate": success_rate, "reward_schedule": tuple(reward_schedule)}
        super().__init__(
            partial(_level, size=size, desc=desc, render_mode=render_mode, is_slippery=slippery, **options),
            dict.fromkeys(ANCHOR_KINDS, picture),
            anchor=anchor,
            success=self._at_goal,
            actions=WAYS,
            show=picture,
            text=f"{WALK} {slips}" if slippery else WALK,
            tasks=tasks,
            split=split,
            max_steps=25 * (len(desc) or size) if max_steps is None else max_steps,
            replies=replies,
            stochastic=slippery,
            layout=_layout,
            known=known_tasks("frozenlake", split, tasks, size, slippery, desc, success_rate),
        )

    def _at_goal(self, reward: float, terminated: bool, info: dict[str, Any]) -> bool:
        return terminated and bool(board_of(self.env).flat[self.cell] == GOAL)

    @property
    def cell(self) -> int:
        """Where the agent is, row by row from 0."""
        return int(self._seen)

    def exact_q(self, beta: float = 1.0, steps: int | None = None) -> NDArray[np.float64]:
        """Q of the best play on the current map by its rewards, (cells, actions): see `values.exact_q`."""
        return exact_q(transitions_of(self.env), beta, steps)

    def distance(self) -> float:
        return float(distances(board_of(self.env))[self.cell])

    def expert(self, rng: np.random.Generator, **options: Any) -> Expert:
        letters = board_of(self.env)
        goal = int(np.flatnonzero(letters == GOAL)[0])
        return make_expert(transitions_of(self.env), goal, letters.shape[1], self.max_steps, rng, **options)
