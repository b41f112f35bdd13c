"""CRBC-BabyAI-v0: the missions of MiniGrid's BabyAI, read and answered in words."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np

from anchors.key import ANCHOR_KINDS, AnchorKind, check_anchor_kind
from crbc_envs.actions import Replies
from crbc_envs.anchor_wrapper import AnchorWrapper, known_tasks, rewarded
from crbc_envs.babyai import words
from crbc_envs.babyai.expert import ACTIONS, make_expert
from crbc_envs.core import Expert
from crbc_envs.errors import RequirementError, install_extra
from crbc_envs.prompts import Template, View


def babyai_compact(view: View) -> str:
    """The mission and what the agent sees. About 50 tokens."""
    return f"{view.task}\n{view.observation}\nYour action?"


TEMPLATES: Mapping[str, Template] = {"compact": babyai_compact}


def levels() -> dict[str, str]:
    """MiniGrid's ids of the BabyAI levels by their names, such as "GoToLocal".

    Raises `RequirementError` where MiniGrid is not installed.
    """
    if find_spec("minigrid") is None:
        raise RequirementError(f"CRBC-BabyAI-v0 needs minigrid: {install_extra('babyai')}")
    import minigrid  # noqa: F401  registers its environments
    from minigrid.envs.babyai.core import roomgrid_level

    # It prints a line for each draft of a level that it throws away.
    vars(roomgrid_level)["print"] = lambda *words: None
    ids = (env_id for env_id in gymnasium.registry if env_id.startswith("BabyAI-"))
    return {env_id.removeprefix("BabyAI-").rpartition("-v")[0]: env_id for env_id in ids}


class BabyAI(AnchorWrapper):
    """A level of BabyAI. The mission is the task; the agent reads its partial view in words.

    `level` is the name of one of MiniGrid's, such as "GoToObj", "GoToLocal", "GoToDoor" or "PutNextLocal". The view,
    7 x 7 cells ahead, hides what is behind walls and closed doors. All six actions are always admissible; one that is
    not possible changes nothing. An episode takes at most `max_steps`.

    Tasks are told apart by their start. The walls, things and mission at the start decide the split, whatever the
    place of the agent.

    Anchors are of four kinds. "state", the default, is the key of the whole level and of what MiniGrid remembers of the
    mission. "situation" is the key of the view and of where the agent stands, and "paper" is the same, since nothing in
    the view answers an invalid reply. "observation" is the key of the view alone.

    Rewards are MiniGrid's: 0, and with success 1 less 0.9 times the share of `max_steps` that was used,
    without refused replies.

    Raises `RequirementError` where MiniGrid is not installed, and `ValueError` for a level that it does not have.
    """

    domain = "babyai"
    anchor_versions = dict.fromkeys(ANCHOR_KINDS, 2)  # the first had what nobody sees or asks for
    templates = TEMPLATES
    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        split: str = "train",
        level: str = "GoToLocal",
        tasks: int = 10_000,
        max_steps: int = 64,
        replies: Replies = "thought",
        render_mode: str | None = None,
        anchor: AnchorKind = "state",
    ) -> None:
        known = levels()
        check_anchor_kind(anchor)
        if level not in known:
            near = ", ".join(get_close_matches(level, known) or ("GoToObj", "GoToLocal", "PutNextLocal"))
            raise ValueError(f"level {level!r} is none of MiniGrid's {len(known)} levels of BabyAI; for example {near}")
        options: dict[str, Any] = {"max_steps": max_steps, "render_mode": render_mode}
        super().__init__(
            gymnasium.make(known[level], disable_env_checker=True, **options),
            {
                "paper": words.situation,
                "situation": words.situation,
                "observation": words.view,
                "state": words.state,
            },
            anchor=anchor,
            success=rewarded,
            actions=ACTIONS,
            show=words.view,
            text=_mission,
            tasks=tasks,
            split=split,
            max_steps=max_steps,
            replies=replies,
            layout=words.layout,
            known=known_tasks("babyai", split, tasks, level),
        )

    def expert(self, rng: np.random.Generator, **options: Any) -> Expert:
        return make_expert(self.env, rng, **options)


def _mission(env: Any, observation: Any) -> str:
    return str(observation["mission"])
