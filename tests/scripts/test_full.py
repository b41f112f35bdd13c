"""The stamps of what .ci/run leaves out (scripts/full.py)."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from paths import ROOT

TREE = {
    "scripts/full.toml": """
        [parts.engine]
        command = "test -f passes"
        python = "python"
        guards = ["engine", "plan.py::ready", "plan.py::MOST", "pyproject.toml::gpu"]
        [parts.all]
        command = "true"
        python = "python"
        wide = true
    """,
    "engine/run.py": "run = 1\n",
    "plan.py": "MOST = 3\nleft: int = 4\ndef ready():\n    return True\ndef other(): ...\n",
    "pyproject.toml": '[project.optional-dependencies]\ngpu = ["torch>=2"]\ncpu = ["numpy"]\n',
    "passes": "",
}


@pytest.fixture(scope="module")
def full() -> ModuleType:
    spec = importlib.util.spec_from_file_location("full", ROOT / "scripts" / "full.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["full"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small clone with two parts."""
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "python").symlink_to(sys.executable)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(tree: Path, *words: str) -> None:
    subprocess.run(("git", "-c", "user.name=t", "-c", "user.email=t@t", *words), cwd=tree, check=True)


def commit(tree: Path, times: int = 1) -> None:
    git(tree, "add", ".")
    for _ in range(times):
        git(tree, "commit", "-q", "--allow-empty", "-m", "Change")


def test_a_part_that_passed_is_good_until_what_it_guards_changes(full, tree, capsys) -> None:
    listed = full.read_parts(tree)
    assert full.check(tree, listed) == 1
    assert "engine  never passed; run: bash scripts/full.sh engine" in capsys.readouterr().out
    assert full.run(tree, list(listed.parts.values())) == 0
    assert full.check(tree, listed) == 0
    stamp = json.loads((tree / "scripts/stamps/engine.json").read_text())
    assert set(stamp) == {"digest", "date", "commits", "minutes", "versions"} and stamp["commits"] == 1
    assert list(stamp["versions"]) == ["python"]


@pytest.mark.parametrize(
    ("name", "old", "new", "good"),
    [
        ("engine/run.py", "1", "2", False),
        ("engine/more.py", "", "more = 1", False),
        ("plan.py", "True", "False", False),
        ("plan.py", "= 3", "= 5", False),
        ("plan.py", "= 4", "= 5", True),
        ("plan.py", "other", "another", True),
        ("pyproject.toml", "torch>=2", "torch>=3", False),
        ("pyproject.toml", "numpy", "scipy", True),
    ],
)
def test_what_is_guarded(full, tree, capsys, name: str, old: str, new: str, good: bool) -> None:
    listed = full.read_parts(tree)
    full.run(tree, list(listed.parts.values()))
    path = tree / name
    path.write_text(path.read_text().replace(old, new) if path.exists() else new)
    assert full.check(tree, listed) == (not good)
    said = "and what it guards has changed since; run: bash scripts/full.sh engine"
    assert (said in capsys.readouterr().out) == (not good)
    assert full.run(tree, [listed.parts["engine"]]) == 0
    assert full.check(tree, listed) == 0


def test_a_part_that_fails_gets_no_stamp(full, tree, capsys) -> None:
    (tree / "passes").unlink()
    listed = full.read_parts(tree)
    assert full.run(tree, list(listed.parts.values())) == 1
    assert sorted(path.name for path in (tree / "scripts/stamps").iterdir()) == ["all.json"]
    assert re.findall(r"(engine|all) +0\.0 min  (\w+)", capsys.readouterr().out) == [
        ("engine", "FAILED"),
        ("all", "passed"),
    ]


def test_a_wide_part_grows_stale_with_a_warning(full, tree, capsys) -> None:
    listed = full.read_parts(tree)
    full.run(tree, list(listed.parts.values()))
    commit(tree, full.STALE)
    assert full.check(tree, listed) == 0 and "WARNING" not in capsys.readouterr().out
    commit(tree)
    assert full.check(tree, listed) == 0
    assert f"WARNING: passed on {stamp_date(tree)} in 0.0 minutes, 51 commits ago" in capsys.readouterr().out


def stamp_date(tree: Path) -> str:
    return str(json.loads((tree / "scripts/stamps/all.json").read_text())["date"])


def test_a_part_that_is_known_to_be_red_is_printed_and_lets_the_check_pass(full, tree, capsys) -> None:
    with (tree / "scripts/full.toml").open("a") as file:
        file.write('\n[red.engine]\nwhy = "the engine leaks"\nsince = "2026-11-20"\n')
    assert full.check(tree, full.read_parts(tree)) == 0
    assert "engine  RED since 2026-11-20: the engine leaks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[parts.odd]\ncommand = "true"\nguard = ["plan.py"]', "guard"),
        ('[parts.odd]\ncommand = "true"', "needs either guards or wide"),
        ('[red.nobody]\nwhy = "x"\nsince = "y"', "needs the name of a part"),
        ('[red.engine]\nwhy = "x"', "why and since"),
        ('[parts.odd]\ncommand = "true"\nguards = ["nothing.py"]', "no such file"),
        ('[parts.odd]\ncommand = "true"\nguards = ["plan.py::nothing"]', "does not define it"),
        ('[parts.odd]\ncommand = "true"\nguards = ["pyproject.toml::tpu"]', "no such extra"),
    ],
)
def test_a_wrong_list_is_refused(full, tree, more: str, message: str) -> None:
    with (tree / "scripts/full.toml").open("a") as file:
        file.write(f"\n{more}\n")
    with pytest.raises(full.PartsError, match=message):
        full.digest(tree, full.read_parts(tree).parts["odd"])


# ---- the list of this tree ---------------------------------------------------------------------------


def test_the_guards_of_this_tree_are_there(full) -> None:
    for part in full.read_parts(ROOT).parts.values():
        full.digest(ROOT, part)


def absent_packages() -> set[str]:
    """The modules of packages that some extra brings and `dev`, so .venv, does not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {**project["optional-dependencies"], "": project["dependencies"]}
    names = {extra: {re.split(r"[^\w.-]", line)[0] for line in lines} for extra, lines in extras.items()}
    inside = {"", "dev", *re.findall(r"\w+", re.search(r"\[(.*)\]", next(x for x in extras["dev"] if "crbc" in x))[1])}
    have = set().union(*(names[extra] for extra in inside))
    return {name.replace("-", "_") for extra in names for name in names[extra] - have} - {"crbc"}


def test_a_file_that_the_check_cannot_import_is_guarded(full) -> None:
    absent = absent_packages()
    assert {"vllm", "openenv", "wandb"} <= absent
    parts = full.read_parts(ROOT).parts.values()
    guards = {guard for part in parts for guard in part.guards}
    for path in [path for name in ("crbc_envs", "crbc_rl", "crbc_lab") for path in (ROOT / name).rglob("*.py")]:
        imports = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in imports if isinstance(node, ast.ImportFrom)}
        if {name.split(".")[0] for name in names} & absent:
            assert path.relative_to(ROOT).as_posix() in guards, path


def test_every_test_outside_the_check_belongs_to_a_part(full) -> None:
    guards = {guard for part in full.read_parts(ROOT).parts.values() for guard in part.guards}
    outside = [path.name for path in ROOT.glob("tests_*") if path.is_dir()]
    outside += [f"scripts/{path.name}" for path in (ROOT / "scripts").glob("test_*.sh")]
    assert outside and not set(outside) - guards


def test_the_check_looks_at_the_stamps() -> None:
    assert "scripts/full.py --check" in (ROOT / ".ci" / "run").read_text()
