"""Files of somebody else that no test of a single part lays out: each command ends in one line, or goes on unharmed."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from alfworld_games import game_json, write_game
from learner_fixtures import small, write_config
from warm import Ended, Warm

from crbc_envs.alfworld.engine.game import GAME_FILE
from crbc_envs.alfworld.env import AlfworldEnv
from crbc_envs.alfworld.games.generate import generate_game
from crbc_envs.errors import DataError
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metric_writers import TensorBoard

HEAD = "name: run\nmodel: model\n"
SHORT = {
    "updates": 2,
    "save_every": 1,
    "env": {"kwargs": {"observation": "text", "max_steps": 2}},
    "rollout": {"num_groups": 2, "group_size": 3, "max_new_tokens": 12},
}
Crbc = Callable[..., Ended]


@pytest.fixture
def crbc(warm: Warm, tmp_path: Path) -> Crbc:
    """Runs a command in the test's folder: within bounds, and with nothing in its output that acts on a terminal."""

    def run(*words: str, status: int = 2) -> Ended:
        ended = warm.run(words, tmp_path, {"HOME": str(tmp_path), "PYTHONPATH": None})
        told = ended.out + ended.err
        assert ended.status == status and "Traceback" not in told and "a bug in crbc" not in told, ended
        assert all(symbol.isprintable() or symbol == "\n" for symbol in told), ended
        assert ended.megabytes < 1_000 and ended.cpu_seconds < 10 and len(told) < 300_000
        assert status == 0 or (ended.err.startswith("error: ") and ended.err.count("\n") == 1), ended
        return ended

    return run


# ---- configs ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("text", ["name: !!python/object/apply:os.system ['true']", r'credit: {method: "\e[2J\u202e"}'])
def test_a_config_runs_no_code_and_is_quoted_without_effect(crbc: Crbc, tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(f"{text}\nmodel: model\n")
    crbc("train", "config.yaml", "--dry-run")


@pytest.mark.slow
@pytest.mark.parametrize("placed", [False, True])
def test_a_module_that_a_config_names_does_not_run(crbc: Crbc, tmp_path: Path, placed: bool) -> None:
    """Neither the packages around it, nor one whose place and digest the config itself tells."""
    file = tmp_path / ("elsewhere/numpy_extras.py" if placed else "evil/inner/deep.py")
    file.parent.mkdir(parents=True)
    for path in (file, tmp_path / "evil/__init__.py", tmp_path / "evil/inner/__init__.py"):
        if path.parent.is_dir():
            path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    told = json.dumps({"file": str(file), "sha256": sha256(file.read_bytes()).hexdigest()})
    text = f"credit: {{method: 'numpy_extras:method'}}\nmodules: {{numpy_extras: {told}}}\n"
    (tmp_path / "config.yaml").write_text(HEAD + (text if placed else "env: {id: 'evil.inner.deep:Foo-v0'}\n"))
    said = crbc("train", "config.yaml", *["--dry-run"] * placed).err
    assert "--allow-import" in said and ".py" in said and not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_template_that_is_a_link_is_not_read(crbc: Crbc, model: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("PRIVATE KEY")
    (tmp_path / "p.j2").symlink_to(tmp_path / "key")
    write_config(tmp_path / "config.yaml", model, env={"kwargs": {"observation": "text"}, "prompt": "p.j2"})
    said = crbc("train", "config.yaml", "--dry-run").err
    assert "p.j2" in said and "link" in said and "PRIVATE" not in said


# ---- games -----------------------------------------------------------------------------------

CALL = "Your task is to: {__import__('pathlib').Path('ran').touch()}"
GAMES = {
    "code in the sentence": ("grammar", "Your task is to: ", CALL),
    "a derived predicate": ("pddl_domain", "(:functions", "(:derived (opened ?r) (openable ?r)) (:functions"),
}
"""What TextWorld would run, and what its planner would read in C."""


@pytest.mark.parametrize(("field", "mark", "new"), GAMES.values(), ids=GAMES)
def test_textworld_gets_no_game_that_it_might_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, mark: str, new: str
) -> None:
    monkeypatch.chdir(tmp_path)
    game = generate_game(np.random.default_rng(0), "clean", size="small")
    place = tmp_path / "train/clean/trial"
    write_game(game, place)
    fields = json.loads(game_json(game))
    (place / GAME_FILE).write_text(json.dumps({**fields, field: fields[field].replace(mark, new, 1)}))
    with pytest.raises(DataError, match="clean/trial"):
        AlfworldEnv(data="official", data_dir=tmp_path, engine="textworld").reset(seed=0, options={"task": 0})
    assert not (tmp_path / "ran").exists()


# ---- runs ------------------------------------------------------------------------------------


@pytest.fixture
def trained(model: Path, tmp_path: Path) -> Path:
    """A run of two updates, which `crbc train config.yaml --run run --resume` continues."""
    write_config(tmp_path / "config.yaml", model, **SHORT)
    config = small(model, **SHORT)
    Learner(config, Run.start(tmp_path / "run", config, resume=False)).train()
    return tmp_path / "run"


RESUME = ("train", "config.yaml", "--run", "run", "--resume", "--set", "updates=3")


@pytest.mark.slow
def test_nothing_is_deleted_through_a_link(crbc: Crbc, trained: Path, tmp_path: Path) -> None:
    shutil.move(trained / "checkpoints", tmp_path / "outside")
    (tmp_path / "outside/2019").mkdir()
    (trained / "checkpoints").symlink_to(tmp_path / "outside")
    before = sorted(tmp_path.rglob("*"))
    assert "checkpoints is a link to" in crbc(*RESUME).err and sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_run_goes_on_over_records_that_are_not_its_own(crbc: Crbc, trained: Path) -> None:
    """The first test is somebody's, with kinds whose names are markup and a command to the terminal."""
    tested = {"test/success": 0.5, "test/low": 0.4, "test/high": 0.6, "test/successes": 5, "test/episodes": 10}
    kinds = {"test/success/[/bold]": 0.5, "test/success/\x1b[2J": 0.5, "test/success/gone": "x", "test/success/": 1}
    lines = (trained / "metrics.jsonl").read_text().splitlines(keepends=True)
    first = json.dumps({"update": 0, **tested, **kinds}) + "\n"
    (trained / "metrics.jsonl").write_text("".join([first, *lines[1:], '{"update": -1}\n', "[" * 99_999 + "\n"]))
    told = crbc(*RESUME, status=0)
    assert "held-out success" in told.out and "50.0%" in told.out and (trained / "checkpoints/000003").is_dir()


@pytest.mark.slow
def test_a_folder_with_the_lock_of_another_program_is_no_run(crbc: Crbc, model: Path, tmp_path: Path) -> None:
    write_config(tmp_path / "config.yaml", model, **SHORT)
    (tmp_path / "run/model").mkdir(parents=True)
    (tmp_path / "run/model/result.txt").write_text("years of work\n")
    (tmp_path / "run/.lock").write_text("4711")
    assert "holds other files" in crbc("train", "config.yaml", "--run", "run").err
    assert (tmp_path / "run/model/result.txt").is_file()


def test_the_name_of_the_machine_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "x/../../outside")
    (tmp_path / "events.out.tfevents.x").mkdir()
    board = TensorBoard(tmp_path, 0)
    board.close()
    assert board.path.parent == tmp_path and board.path.is_file()


# ---- the report ------------------------------------------------------------------------------

WRONG = ("NaN", "1e400", '"text"', "[1, 2]", '{"a": {}}', "true", "null")
FIGURES = ("reward", "kl", "test/success", "test/high", "seconds/train", "steps")
TEXT = "</script><script>alert(1)</script>\u2028<!--<script>'\"><img src=http://127.0.0.1:9/x onerror=alert(2)>"


@pytest.mark.slow
def test_a_report_draws_what_is_sound_and_runs_no_text(crbc: Crbc, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(f"{HEAD}env: {{id: CRBC-Sokoban-v0}}\n")
    tested = {"test/success": 0.5, "test/low": 0.4, "test/high": 0.6, "test/successes": 5, "test/episodes": 10}
    records = [json.dumps({"update": 0, **tested}), json.dumps({"update": 1, "success": 0.5, "reward": 1.0})]
    for update, value in enumerate(WRONG, 2):
        records.append(f'{{"update": {update}' + "".join(f', "{name}": {value}' for name in FIGURES) + "}")
    (run / "metrics.jsonl").write_text("".join(f"{record}\n" for record in records))

    def group(first: str, anchor: str) -> dict[str, Any]:
        """The rollouts begin at two anchors where `anchor` is not "a"."""
        steps = [[["a", first, 0.0, first], ["b", "\ud800", 0.0, "\ud800"]], [[anchor, first, 0.0, first]]]
        ends = {"truncated": False, "final_anchor": None, "score": 0.0}
        return {"task": first, "rollouts": [{"success": i == 1, "steps": own, **ends} for i, own in enumerate(steps)]}

    kept = [{"update": 1, "group": group(TEXT, "a")}, {"update": 2, "group": group("up", "\x1b[2J\n\x07")}]
    (run / "groups.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))
    (run / "versions.json").write_text(json.dumps({TEXT: TEXT}))
    assert "left out" in crbc("report", "run", status=0).err
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "50.0" in page and "40.0 to 60.0" in page and "Content-Security-Policy" in page and "unsafe" not in page
    assert "\u2028" not in "".join(re.findall(r"<script[^>]*>(.*?)</script>", page, re.S))
    assert "<img" not in page and "alert(1)</script>" not in page
    drawing = re.findall(r'(?:d|x|y|x1|x2|width|height|cx)="([^"]*)"', page)
    assert drawing and not [place for place in drawing if "nan" in place or "inf" in place]
