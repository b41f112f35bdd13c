"""The disk of a run: counted from shapes, and as it is on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from learner_fixtures import small
from paths import ROOT
from rich.console import Console

from crbc_lab.plan.memory import GIB, free
from crbc_lab.plan.plan import make_plan
from crbc_lab.plan.show import print_plan
from crbc_rl.config import load_config
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run

PAPER = sorted((ROOT / "configs" / "paper").glob("*.yaml"))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("changes", [{}, {"policy": {"lora_rank": 4}}, {"credit": {"method": "gae"}}], ids=str)
def test_a_checkpoint_takes_what_the_plan_says(model: Path, tmp_path: Path, changes: dict[str, object]) -> None:
    config = small(model, updates=1, save_every=1, loss={"entropy": 0.1}, **changes)
    Learner(config, Run.start(tmp_path / "run", config, resume=False)).train()
    plan = make_plan(config).disk
    others = size_of(tmp_path / "run/checkpoints/000001") - plan.checkpoint
    text = sum(
        (tmp_path / "run/checkpoints/000001" / name).stat().st_size for name in ("tokenizer.json", "config.json")
    )
    assert 0 < others < text + 100_000 + 0.05 * plan.checkpoint, "tokenizer, configs, headers"
    assert plan.model < size_of(tmp_path / "run/model") < plan.model + text + 100_000
    assert plan.peak > size_of(tmp_path / "run/checkpoints") + size_of(tmp_path / "run/best")


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_a_paper_dry_run_says_its_disk(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    plan = make_plan(config)
    console = Console(record=True, width=400)
    print_plan(plan, console, tmp_path / "not/yet/there")
    told = console.export_text()
    assert f"2 checkpoints of {plan.disk.checkpoint / GIB:.1f} GiB and one being written" in told
    fits = plan.disk.peak <= free(tmp_path)
    assert ("fits on the disk" in told) == fits and ("does not fit on this disk" in told) == (not fits)
    assert "several nodes" not in told
    assert "16 held-out tasks before and after, and a training group at each validation: at most 20 MB" in told
    none = make_plan(config.model_copy(update={"transcripts": 0})).disk
    assert plan.disk.peak - none.peak == 20_000_000
    if "7b" in path.stem:
        assert plan.disk.checkpoint / GIB == pytest.approx(85.1, abs=0.2)
        assert plan.disk.peak / GIB == pytest.approx(312, abs=1)


def test_several_nodes_need_one_disk(tmp_path: Path) -> None:
    console = Console(record=True, width=400)
    print_plan(make_plan(load_config(PAPER[0]), gpus=16), console, tmp_path)
    assert "on a disk that all of them share" in console.export_text()
