"""CRBC-ALFWorld-v0: do a household task in at most fifty commands (paper, "Environment Details")."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from anchors import INVALID, anchor_key
from crbc_envs.alfworld.engine.backends import ENGINES, Player, make_player, require_engine, shared_parse
from crbc_envs.alfworld.engine.exact import NOTHING_HAPPENS
from crbc_envs.alfworld.engine.game import GameFile
from crbc_envs.alfworld.games.generate import Verb
from crbc_envs.alfworld.games.household import Size
from crbc_envs.alfworld.games.panels import make_panel
from crbc_envs.alfworld.observation import Notes
from crbc_envs.alfworld.prompts import TEMPLATES
from crbc_envs.core import AnchorEnv
from crbc_envs.spaces import UnicodeText

ANCHORS = ("paper", "observation")
REWARD = 10.0


class AlfworldEnv(AnchorEnv[str, GameFile]):
    """ALFWorld on generated or published games; the anchor is the key of the augmented observation.

    An observation is the game's text with the location, the item in hand, the history of items and the
    admissible commands added (`observation`). A success earns 10, everything else 0.

    `engine` is "exact", or "textworld" for the original packages: equal to the last byte, and a thousand
    times slower. `data` is "generated", or "official" for the published games in `data_dir` (or where
    `crbc data alfworld` has put them). Splits are "train", "valid_seen" and "valid_unseen". Generated games
    are set in `rooms` as large as the published ones ("full") or "small", and in either generation of the
    game's words: "move" or "put", their `verb`.

    `help`, `inventory`, `look` and `examine` are admissible: they cost a step, change no state, and what
    they say is an anchor of its own. What is not admissible is answered "Nothing happens." and leaves
    the anchor as it was. `anchor="observation"` is GiGPO's: the key of the game's bare text, so that
    every "Nothing happens." of a group is one anchor.

    Raises `RequirementError` for `engine="textworld"` where its packages are missing.

    `info` also holds `family` (pick, look, clean, heat, cool or pick2) and `effect`, whether the last
    command was answered with anything but "Nothing happens.".
    """

    domain = "alfworld"
    templates = TEMPLATES
    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        split: str = "train",
        engine: Literal["exact", "textworld"] = "exact",
        data: Literal["generated", "official"] = "generated",
        data_dir: str | Path | None = None,
        max_steps: int = 50,
        require_tags: bool = False,
        anchor: Literal["paper", "observation"] = "paper",
        rooms: Size = "full",
        verb: Verb = "move",
        render_mode: str | None = None,
    ) -> None:
        for name, value, known in (("engine", engine, ENGINES), ("anchor", anchor, ANCHORS)):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be one of {self.metadata['render_modes']}; got {render_mode!r}")
        require_engine(engine)
        super().__init__(make_panel(data, split, rooms, verb, data_dir), max_steps, require_tags)
        self.data = data
        self.engine = engine
        self.anchor = anchor
        self.render_mode = render_mode
        self.action_space = UnicodeText(examples=("look", "inventory"))
        self.observation_space = UnicodeText()
        self.player: Player
        self.notes: Notes

    def _begin(self, task: GameFile) -> None:
        self.family = task.family
        self.notes = Notes(shared_parse(task))  # first: it refuses a game that is damaged
        self.player = make_player(self.engine, task)
        self._heard(self.player.said, effect=False)
        self._situation = self._seen

    def _execute(self, action: str) -> float:
        if action == INVALID:
            self._heard(NOTHING_HAPPENS, effect=False)
            return 0.0
        self.player.do(action)
        self.notes.note(action)
        self._heard(self.player.said, effect=self.player.said != NOTHING_HAPPENS)
        self._situation = self._seen
        return REWARD if self.player.won else 0.0

    def _heard(self, said: str, effect: bool) -> None:
        self._said, self._effect = said, effect
        self._seen = self.notes.text(said, self.player.admissible)

    def _observation(self) -> str:
        return self._seen

    def _anchor(self) -> str:
        return anchor_key(self._label())

    def _label(self) -> str:
        return self._situation if self.anchor == "paper" else self._said

    def _admissible(self) -> tuple[str, ...]:
        return self.player.admissible

    def _success(self) -> bool:
        return self.player.won

    def _info(self) -> dict[str, Any]:
        return {**super()._info(), "family": self.family, "effect": self._effect}

    def render(self) -> str | None:
        return self._seen if self.render_mode == "ansi" else None
