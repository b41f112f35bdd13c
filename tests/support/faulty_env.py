"""The corridor of `toy_env.py` with faults at hand: a file in the folder `faults` is one fault.

"raise", "hang", "hold" and "exit" are used up by the first step that finds them; "hold" hangs in C and keeps the GIL.
"drift" stays, and anchors are others while it is there. A member that is given the action `poison` always raises.
"made by PID" and "closed by PID" are left there by the processes that did.
"""

import ctypes
import os
import time
from pathlib import Path

import gymnasium
from toy_env import CorridorEnv

from anchors import INVALID, anchor_key


class FaultyCorridorEnv(CorridorEnv):
    def __init__(self, faults="/nonexistent", poison=None, **kwargs):
        super().__init__(**kwargs)
        self.faults, self.poison = Path(faults), poison
        self._mark("made")

    def _execute(self, action):
        if self._uses_up("raise"):
            raise RuntimeError("a fault that was asked for")
        if self._uses_up("hang"):
            time.sleep(3600)
        if self._uses_up("hold"):
            ctypes.PyDLL(None).sleep(3600)  # a PyDLL keeps the GIL
        if self._uses_up("exit"):
            os._exit(3)
        if action != INVALID and action == self.poison:
            raise KeyError("poison")
        return super()._execute(action)

    def _anchor(self):
        return anchor_key("elsewhere") if (self.faults / "drift").exists() else super()._anchor()

    def _uses_up(self, fault):
        try:
            (self.faults / fault).unlink()
        except FileNotFoundError:
            return False
        return True

    def _mark(self, what):
        """Tells a test which process did that."""
        if self.faults.is_dir():
            (self.faults / f"{what} by {os.getpid()}").touch()

    def close(self):
        self._mark("closed")


gymnasium.register("FaultyCorridor-v0", entry_point=f"{__name__}:FaultyCorridorEnv")
