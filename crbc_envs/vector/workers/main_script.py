"""The user's script, as far as a worker must know it: it is imported if the environment is defined in it."""

from __future__ import annotations

import os
import runpy
import sys
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any

_NAME = "__mp_main__"
"""The name under which the script is imported. `multiprocessing` taught scripts and pickles to expect it."""

_loading: str | None = None
"""The path of the script that this process, a worker, is importing."""


@dataclass(frozen=True, slots=True)
class MainScript:
    """The script that runs, by its path or by the name of its module (`python -m name`)."""

    path: str
    module: str | None

    def load(self) -> None:
        """Import the script in a worker, as `__main__`."""
        global _loading
        main, _loading = ModuleType(_NAME), self.path
        if self.module is None:
            main.__dict__.update(runpy.run_path(self.path, run_name=_NAME))
        else:
            main.__dict__.update(runpy.run_module(self.module, run_name=_NAME, alter_sys=True))
        sys.modules["__main__"] = sys.modules[_NAME] = main
        _loading = None


def main_script(*needed: Any) -> MainScript | None:
    """The script, if what a worker needs to make its members is defined in it; otherwise None.

    Raises `ValueError` if a worker could not import it, and says what to write: it is a notebook or no file at all,
    or it makes its environments where an import would make them again.
    """
    if b"_main__" not in bytes(ForkingPickler.dumps(needed)):  # as a connection will send it
        return None
    if _loading is not None:
        raise ValueError(
            f"{_loading}: worker processes import this script, because the environment is defined in it, and would "
            'make environments again. Write `if __name__ == "__main__":` above the lines that run, and indent them; or '
            "define the environment in a file of its own"
        )
    main = sys.modules["__main__"]
    path = os.path.abspath(getattr(main, "__file__", None) or "")
    if not os.path.isfile(path):
        raise ValueError(
            "a worker process cannot import what is defined in a notebook or an interactive session. Write the "
            "environment to a file my_env.py (in a notebook: begin its cell with %%writefile my_env.py), "
            "`import my_env`, and make its environments again; or use backend='sync'"
        )
    spec = getattr(main, "__spec__", None)
    return MainScript(path, None if spec is None else spec.name)
