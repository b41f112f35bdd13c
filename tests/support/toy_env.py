"""A corridor with a key and a door: an anchor-aware environment in about thirty lines."""

import gymnasium

from anchors import INVALID, anchor_key
from crbc_envs import AnchorEnv
from crbc_envs.spaces import UnicodeText
from crbc_envs.tasks import SPLITS, Task, TaskPanel

TEXT = "Find the key and open the door at the right end of the corridor."


class Corridors(TaskPanel[tuple[int, int]]):
    """Where the agent starts and where the key lies, of cells 0 to 8; no key's cell is in two splits."""

    def _task(self, index: int) -> Task[tuple[int, int]]:
        start, third = divmod(index, 3)
        key = 3 * third + SPLITS.index(self.split)
        return Task(f"corridor/{self.split}/{index}", TEXT, (start, key), f"{start}{key}")


class CorridorEnv(AnchorEnv[str, tuple[int, int]]):
    domain = "corridor"
    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, split="train", max_steps=30, replies="thought", render_mode=None):
        super().__init__(Corridors(split, size=27), max_steps, replies)
        self.render_mode = render_mode
        self.action_space = UnicodeText(examples=("left", "right", "take key", "open door"))
        self.observation_space = UnicodeText(max_length=100)

    def _begin(self, task):
        (self.cell, self.key), self.held, self.open = task, False, False

    def _execute(self, action):
        if action != INVALID:
            self.cell += {"left": -1, "right": 1}.get(action, 0)
            self.held |= action == "take key"
            self.open = action == "open door"
        return float(self.open)

    def _admissible(self):
        here = {"left": self.cell > 0, "right": self.cell < 8}
        here["take key"] = self.cell == self.key and not self.held
        here["open door"] = self.cell == 8 and self.held
        return tuple(action for action, possible in here.items() if possible)

    def _observation(self):
        where = "here" if self.cell == self.key else "to the left" if self.key < self.cell else "to the right"
        key = "You hold the key." if self.held else f"The key lies {where}."
        return "The door is open." if self.open else f"You are in cell {self.cell} of 0 to 8. {key}"

    def _label(self):
        return f"cell {self.cell}, key {'held' if self.held else f'in cell {self.key}'}, open {self.open}"

    def _anchor(self):
        return anchor_key(self._label())

    def _success(self):
        return self.open

    def render(self):
        return self._label()


gymnasium.register("Corridor-v0", entry_point=f"{__name__}:CorridorEnv")
