"""CRBC-Sokoban-v0: push every box onto a target (paper, "Environment Details")."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from anchors import INVALID, anchor_key
from anchors.key import AnchorKind, check_anchor_kind
from crbc_envs.actions import Replies
from crbc_envs.core import AnchorEnv
from crbc_envs.sokoban.gym_engine import ENGINES, GymGame, require_engine
from crbc_envs.sokoban.panels import find_level, make_panel
from crbc_envs.sokoban.prompts import TEMPLATES
from crbc_envs.sokoban.render import frame_shape, render, resize
from crbc_envs.sokoban.rules import LEGEND, MOVES, Room, State, board_digest, layout_digest, near_layouts
from crbc_envs.spaces import UnicodeText

if TYPE_CHECKING:
    from crbc_envs.core import Expert, Members
    from crbc_envs.sokoban.solver import Distances

OBSERVATIONS = ("rgb", "text")
BOARD, LAYOUT = "board up to symmetry", "layout up to symmetry"


class SokobanEnv(AnchorEnv[Any, Room]):
    """Sokoban on generated rooms, with the rules, rewards and frames of gym-sokoban.

    `observation` is "rgb", frames (16 height, 16 width, 3) uint8, or "text", the board in XSB notation. `pixels`
    resizes the frames, also the rendered ones, to an area of `pixels` squared and keeps the proportions. The paper's
    code family uses 256 for its vision model.

    The anchor is the key of the board's tile codes, (height, width) uint8. The paper matches RGB frames. The seven
    tiles have seven different pictures, so the same situations match, at a twentieth of the cost and equally for
    every observation. The board is the exact state too, and an invalid reply leaves it. So all four kinds of anchor
    are this one, and `anchor` only names it.

    Actions are "up", "down", "left" and "right". Each walks or pushes. Rewards are those of gym-sokoban: -0.1 per
    step, +1 for a box pushed onto a target, -1 for a box pushed off a target, +10 when all boxes are on targets. An
    invalid reply is gym-sokoban's action 0, which stays.

    `level` names a size of rooms, the moves that they take, and the steps of an episode (`levels.LEVELS`): "6x6", the
    paper's size and the default, "8x8-1box", "8x8-2box", or "10x10-long" with 21 to 50 moves. `height`, `width` and
    `num_boxes` make rooms of any other size; `max_steps` replaces the level's.

    `panel` is "v3", rooms of this suite whose splits share no layout (`panels.SokobanPanel`), or "paper", the boards
    of verl-agent, from which we infer that its runs came. In the latter, about 38 % of the validation boards occur in
    training within 150 updates (see `panels.PaperPanel`). `info["data"]` is "generated" for both.

    `engine` is "exact", or "gym" for gym-sokoban itself: it moves, pays, ends and draws. Both give the same bytes;
    "gym" is a hundred times slower with frames. Raises `RequirementError` for it if its packages are missing.
    """

    domain = "sokoban"
    templates = TEMPLATES
    legend = LEGEND
    conformance = "crbc_envs.sokoban.conformance:CONFORMANCE"
    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        split: str = "train",
        observation: Literal["rgb", "text"] = "rgb",
        height: int | None = None,
        width: int | None = None,
        num_boxes: int | None = None,
        max_steps: int | None = None,
        replies: Replies = "thought",
        render_mode: str | None = None,
        panel: Literal["v3", "paper"] = "v3",
        pixels: int | None = None,
        level: str | None = None,
        engine: Literal["exact", "gym"] = "exact",
        anchor: AnchorKind = "paper",
    ) -> None:
        check_anchor_kind(anchor)
        for name, chosen, known in (("observation", observation, OBSERVATIONS), ("engine", engine, ENGINES)):
            if chosen not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; got {chosen!r}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be one of {self.metadata['render_modes']}; got {render_mode!r}")
        if pixels is not None and pixels < 1:
            raise ValueError(f"pixels must be at least 1, got {pixels}")
        require_engine(engine)
        rooms = find_level(level, height, width, num_boxes)
        steps = rooms.max_steps if max_steps is None else max_steps
        super().__init__(make_panel(panel, split, rooms), steps, replies)
        self.observation, self.engine, self.anchor = observation, engine, anchor
        self.render_mode = render_mode
        self.board_shape = height, width = rooms.height, rooms.width
        self.pixels = pixels
        self.frame_shape = frame_shape(height, width, pixels)
        self.action_space = UnicodeText(examples=MOVES)
        self.observation_space = (
            Box(0, 255, self.frame_shape, np.uint8)
            if observation == "rgb"
            else UnicodeText(max_length=2 * height * width)
        )
        self.room: Room
        self.state: State
        self.game: GymGame | None = None
        self._placed = 0
        self._distances: Distances | None = None
        self._keys: dict[State, str] = {}
        self._frames: dict[State, NDArray[np.uint8]] = {}

    def _begin(self, task: Room) -> None:
        self.room, self.state = task, task.start
        if self.engine == "gym":
            self.game = GymGame(task, self.max_steps, frames=self.observation == "rgb")
        self._placed = 0  # gym-sokoban starts from 0, even if a box is already on a target
        self._distances = None
        self._keys.clear()
        self._frames.clear()

    def _execute(self, action: str) -> float:
        if self.game is not None:
            reward = self.game.step(action)
            self.state = self.game.state
            return reward
        if action != INVALID:
            self.state = self.room.move(self.state, action)
        before, self._placed = self._placed, len(self.state.boxes & self.room.targets)
        gained = (self._placed > before) - (self._placed < before)
        return -0.1 + gained + (10.0 if self._success() else 0.0)

    def _observation(self) -> NDArray[np.uint8] | str:
        return self._frame() if self.observation == "rgb" else self._label()

    def _anchor(self) -> str:
        if self.state not in self._keys:
            self._keys[self.state] = anchor_key(self.room.tiles(self.state))
        return self._keys[self.state]

    def anchor_as(self, kind: str) -> str:
        check_anchor_kind(kind)
        return self._anchor()

    def distance(self) -> float | None:
        """The moves of a shortest solution. None in a room with too many states to list."""
        from crbc_envs.sokoban.solver import distances

        if self._distances is None:
            self._distances = distances(self.room)
        missing = math.inf if self._distances.complete else None
        return self._distances.get(self.state, missing)

    def _label(self) -> str:
        return self.room.text(self.state)

    def _admissible(self) -> tuple[str, ...]:
        return MOVES

    def _success(self) -> bool:
        return self.room.solved(self.state) if self.game is None else self.game.won

    def _frame(self) -> NDArray[np.uint8]:
        """A copy of the current frame. Each state of an episode is resized once."""
        if self.game is not None:
            return resize(self.game.frame(), self.frame_shape)
        if self.state not in self._frames:
            self._frames[self.state] = resize(render(self.room.tiles(self.state)), self.frame_shape)
        return self._frames[self.state].copy()

    def expert(self, rng: np.random.Generator, **options: Any) -> Expert:
        from crbc_envs.sokoban.expert import make_expert

        return make_expert(self, rng, **options)

    def canonical_forms(self) -> dict[str, str]:
        """The board up to rotation, reflection and shift."""
        return {BOARD: board_digest(self.room, self.state)}

    def traits(self) -> dict[str, str]:
        """The layout (walls and targets) up to rotation, reflection and shift."""
        return {LAYOUT: layout_digest(self.room)}

    def near_traits(self) -> dict[str, set[str]]:
        """The layouts one wall apart."""
        return {LAYOUT: set(near_layouts(self.room))}

    def batch(self, num_envs: int) -> Members | None:
        """All members as one array of boards. None for other rules: a subclass's, or the original's."""
        if type(self) is not SokobanEnv or self.engine != "exact":
            return None
        from crbc_envs.sokoban.batch import SokobanMembers

        return SokobanMembers(self, num_envs)

    def render(self) -> Any:
        if self.render_mode == "ansi":
            return self._label()
        return self._frame() if self.render_mode == "rgb_array" else None
