"""CRBC-ALFWorld-v0: a household task in at most fifty commands (paper, "Environment Details")."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from anchors import INVALID, anchor_key
from anchors.key import AnchorKind, check_anchor_kind
from crbc_envs.actions import Replies
from crbc_envs.alfworld.engine.backends import ENGINES, EngineBackend, make_engine_backend, require_engine, shared_parse
from crbc_envs.alfworld.engine.describe import describe
from crbc_envs.alfworld.engine.exact import NOTHING_HAPPENS
from crbc_envs.alfworld.engine.game import GameFile
from crbc_envs.alfworld.games.generate import Verb
from crbc_envs.alfworld.games.household import Size
from crbc_envs.alfworld.games.panels import make_panel
from crbc_envs.alfworld.observation import Tracker
from crbc_envs.alfworld.prompts import TEMPLATES
from crbc_envs.core import AnchorEnv
from crbc_envs.spaces import UnicodeText

if TYPE_CHECKING:
    from crbc_envs.core import Expert

REWARD = 10.0


class AlfworldEnv(AnchorEnv[str, GameFile]):
    """ALFWorld on generated or published games. The anchor is the key of the augmented observation.

    An observation is the game's text followed by the location, the item in hand, the item history and the
    admissible commands (`observation`). Success has reward 10, every other step 0.

    `engine` is "exact", or "textworld" for the original packages. Both give the same bytes; "textworld" is a
    thousand times slower. `data` is "generated", or "official" for the published games in `data_dir` (default:
    where `crbc data alfworld` installed them). Splits are "train", "valid_seen" and "valid_unseen". For
    generated games, `rooms` is "full" (as large as the published ones) or "small", and `verb` is "move" or
    "put", for the wording of the newer or the older games.

    `help`, `inventory`, `look` and `examine` are admissible. They cost a step and do not change the state; their
    text gives a different anchor. A command that is not admissible gives "Nothing happens.".

    `anchor` is the kind of anchor. "situation", the default, is the key of the observation; an invalid reply keeps
    the key of before. "paper" is the key of the observation at every step, so "Nothing happens." makes an anchor of
    its own for each situation. "observation" is GiGPO's anchor: the key of the game's text without the added lines.
    With it, every "Nothing happens." of a group is one anchor. "state" is the key of the exact engine's state: the
    places of all things, what was done to them and which doors are open; not the order in which it was done.

    Raises `RequirementError` for `engine="textworld"` if its packages are missing. That engine runs code in a game's
    grammar, so `reset` raises `DataError` for a game whose rules are none of the known ones; "exact" plays it.

    `info` also holds `family` (pick, look, clean, heat, cool or pick2) and `effect`: whether the last command
    gave anything but "Nothing happens.".

    With `hints`, it holds two more keys, after `reset` and after every step. They show what the agent cannot see, and
    are in no observation, anchor or prompt. `expert_command` is the next command of the expert that sees the whole
    state. It is admissible, or "" where the expert has none: the goal is reached, or no plan reaches it any more.
    `dead_end` tells whether the item in hand can be put nowhere and no plan reaches the goal with it.
    """

    domain = "alfworld"
    templates = TEMPLATES
    dataset = "crbc_envs.alfworld.games.official:DATASET"
    anchor_versions = MappingProxyType({"paper": 2})  # version 1 was what is "situation" now
    conformance = "crbc_envs.alfworld.conformance:CONFORMANCE"
    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        split: str = "train",
        engine: Literal["exact", "textworld"] = "exact",
        data: Literal["generated", "official"] = "generated",
        data_dir: str | Path | None = None,
        max_steps: int = 50,
        replies: Replies = "thought",
        anchor: AnchorKind = "situation",
        rooms: Size = "full",
        verb: Verb = "move",
        render_mode: str | None = None,
        hints: bool = False,
    ) -> None:
        if engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}; got {engine!r}")
        check_anchor_kind(anchor)
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be one of {self.metadata['render_modes']}; got {render_mode!r}")
        require_engine(engine)
        super().__init__(make_panel(data, split, rooms, verb, data_dir), max_steps, replies)
        self.data = data
        self.engine = engine
        self.anchor = anchor
        self.render_mode = render_mode
        self.hints = hints
        self.action_space = UnicodeText(examples=("look", "inventory"))
        self.observation_space = UnicodeText()
        self.backend: EngineBackend
        self.tracker: Tracker

    def _begin(self, task: GameFile) -> None:
        self.family = task.family
        self.tracker = Tracker(shared_parse(task))  # first, because parsing refuses a damaged game
        self.backend = make_engine_backend(self.engine, task)
        self._set_feedback(self.backend.feedback, effect=False)
        self._situation = self._text

    def _execute(self, action: str) -> float:
        if action == INVALID:
            self._set_feedback(NOTHING_HAPPENS, effect=False)  # the situation stays the same
            return 0.0
        self.backend.step(action)
        effect = self.backend.feedback != NOTHING_HAPPENS
        if effect:
            self.tracker.record(action)
        self._set_feedback(self.backend.feedback, effect)
        self._situation = self._text
        return REWARD if self.backend.won else 0.0

    def _set_feedback(self, feedback: str, effect: bool) -> None:
        self._feedback, self._effect = feedback, effect
        self._text = self.tracker.text(feedback, self.backend.admissible)

    def _observation(self) -> str:
        return self._text

    def _anchor(self) -> str:
        return anchor_key(self._payload(self.anchor))

    def _label(self) -> str:
        return self._payload(self.anchor)

    def _payload(self, kind: str) -> str:
        """What the anchor of a kind is the key of."""
        if kind == "state":
            return describe(self.tracker.game, self.backend.state)
        return {"paper": self._text, "situation": self._situation, "observation": self._feedback}[kind]

    @property
    def echoes(self) -> bool:
        return self.anchor in ("paper", "observation")

    def anchor_as(self, kind: str) -> str:
        check_anchor_kind(kind)
        return anchor_key(self._payload(kind))

    def distance(self) -> float | None:
        """The length of the plan of the expert that sees the whole state. None for a game of one's own whose sentence
        does not tell its goal."""
        from crbc_envs.alfworld.experts.expert import distance

        return distance(self.tracker.game, self.backend.state)

    def _admissible(self) -> tuple[str, ...]:
        return self.backend.admissible

    def _success(self) -> bool:
        return self.backend.won

    def expert(self, rng: np.random.Generator, **options: Any) -> Expert:
        from crbc_envs.alfworld.experts.searcher import make_expert

        assert self._task is not None
        return make_expert(self._task.text, rng, **options)

    def traits(self) -> dict[str, str]:
        """The furniture of the room: the names of its receptacles."""
        return {"furniture": " ".join(sorted(self.tracker.game.receptacles))}

    def _info(self) -> dict[str, Any]:
        info = {**super()._info(), "family": self.family, "effect": self._effect}
        return {**info, **self._hints()} if self.hints else info

    def _hints(self) -> dict[str, Any]:
        from crbc_envs.alfworld.experts.expert import hint

        advice = hint(self.tracker.game, self.backend.state)
        return {"expert_command": advice.command, "dead_end": advice.dead_end}

    def render(self) -> str | None:
        return self._text if self.render_mode == "ansi" else None
