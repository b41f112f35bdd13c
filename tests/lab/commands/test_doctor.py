import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from rich.console import Console

from crbc_envs.errors import packages
from crbc_lab.commands import doctor
from crbc_lab.commands.doctor import examine, print_sections


def _shown() -> tuple[bool, str]:
    out = io.StringIO()
    return print_sections(examine(), Console(file=out, width=80)), out.getvalue()


def test_nothing_that_training_needs_is_missing_here() -> None:
    good, text = _shown()
    assert good and "nothing is missing that training needs" in text
    assert "sokoban-tiny" in text and "torch" in text


def test_what_is_missing_comes_with_a_command_on_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "packages", lambda extra: ["no-such-package"] if extra == "train" else packages(extra))
    good, text = _shown()
    assert not good and "missing: no-such-package" in text
    commands = [line.strip() for line in text.splitlines() if "pip install" in line]
    assert any(command.endswith("[train]'") for command in commands)  # whole, however narrow the terminal
    assert "1 missing that are needed: no-such-package" in text


def test_an_unrelated_anchors_is_warned_of_with_the_command_that_removes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "anchors" not in _shown()[1]
    (tmp_path / "anchors-0.5.dist-info").mkdir()
    (tmp_path / "anchors-0.5.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: anchors\nVersion: 0.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    lines = [line.strip() for line in _shown()[1].splitlines()]
    told = lines.index("to change: anchors 0.5 of another project, in the place of crbc's own")
    assert lines[told + 1] == f"{sys.executable} -m pip uninstall -y anchors"


def test_where_it_hides_ours_every_command_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "anchors").mkdir()
    (tmp_path / "anchors" / "__init__.py").write_text("")
    (tmp_path / "anchors-0.5.dist-info").mkdir()
    (tmp_path / "anchors-0.5.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: anchors\nVersion: 0.5\n")
    paths = os.pathsep.join([str(tmp_path), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "crbc_lab.cli", "doctor"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: the installed package `anchors` of another project hides crbc's own: ")
    assert done.stderr.endswith(" -m pip uninstall -y anchors\n")
