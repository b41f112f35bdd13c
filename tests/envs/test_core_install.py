"""What the core dependencies alone are good for: `pip install crbc`, without any extra."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from paths import ROOT, SUPPORT


@pytest.fixture(scope="module")
def core_python(tmp_path_factory):
    """The interpreter of an environment that holds this project and its core dependencies."""
    folder = tmp_path_factory.mktemp("core")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--editable", ROOT]
    subprocess.run(install, check=True, stdin=subprocess.DEVNULL)
    return python


@pytest.mark.slow
def test_every_id_is_played_to_a_reward_or_refuses_in_make(core_python, tmp_path):
    # No Chromium on the PATH either: the site refuses before it is played.
    env = {**os.environ, "PATH": str(core_python.parent)}
    env.pop("PYTHONPATH", None)
    script = SUPPORT / "core_play.py"
    done = subprocess.run([core_python, script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert all(found[name]["reward"] > 0 for name in ("CRBC-ALFWorld-v0", "CRBC-Sokoban-v0", "CRBC-WebShop-v0"))
    assert re.search(r"selenium is missing: .* -m pip install .*\[site\]", found["CRBC-WebShopSite-v0"]["refused"])
    assert re.search(r" -m pip install .*\[alfworld\]", found["textworld"]["refused"])
    assert all("reward" in came or "refused" in came for came in found.values())
