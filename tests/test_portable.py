"""Importing works where Linux is not: modules of Python that Windows or macOS lack are not needed for it."""

from __future__ import annotations

import pytest
from paths import ROOT
from warm import Warm

LINUX = ("fcntl", "termios", "tty", "pty", "resource", "readline", "pwd", "grp", "syslog", "curses", "posix_ipc")
"""Missing on Windows, most of them."""
OPTIONAL = {
    "crbc_envs.vector.workers.ray",
    *(f"crbc_rl.adapters.openenv{part}" for part in ("", "_env", "_gate", "_server")),
    *(f"crbc_rl.adapters.verl{part}" for part in ("", "_rollouts")),
    "crbc_rl.adapters.trinity",
}
"""Modules that are imported only where their package is installed."""

CODE = """
import importlib, os, signal, sys, types
for name in {modules}:  # what others need on this system is loaded before it is taken away
    importlib.import_module(name)
for name in [name for name in sys.modules if name.split(".")[0] in ("anchors", "crbc_envs", "crbc_rl", "crbc_lab")]:
    del sys.modules[name]
sys.platform, sys.modules["msvcrt"] = "win32", types.ModuleType("msvcrt")
for name in {absent}:
    sys.modules[name] = None
for name in ("SIGKILL", "SIGHUP", "SIGALRM", "SIGSTOP", "SIGCONT"):
    delattr(signal, name)
for name in ("fork", "geteuid", "getuid", "setsid", "killpg", "sched_getaffinity"):
    delattr(os, name)
for name in {modules}:
    importlib.import_module(name)
"""


@pytest.mark.slow
def test_every_module_imports_without_what_is_linux_only(warm: Warm) -> None:
    files = [
        path.relative_to(ROOT)
        for name in ("anchors", "crbc_envs", "crbc_rl", "crbc_lab")
        for path in (ROOT / name).rglob("*.py")
    ]
    modules = sorted(".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files)
    assert len(modules) > 150
    code = CODE.format(absent=LINUX, modules=[name for name in modules if name not in OPTIONAL])
    done = warm.run(["-c", code], ROOT)
    assert done.status == 0, done.err[-1500:]
