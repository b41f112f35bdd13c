"""The learner's benchmark runs and compares with TRL; how fast is never asserted."""

from __future__ import annotations

from pathlib import Path

import pytest
from learner_fixtures import write_config
from paths import ROOT

from benchmarks import learner

MODEL = ROOT / "warmstarts" / "sokoban-tiny"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Warm-started, so that members differ and there is something to learn; the rounding of zero has no direction."""
    folder = tmp_path_factory.mktemp("benchmark")
    rollout = {"num_groups": 4, "group_size": 4, "max_new_tokens": 16}
    env = {"kwargs": {"observation": "text", "max_steps": 15}}  # in three steps hardly a room is solved
    return write_config(folder / "small.yaml", MODEL, env=env, rollout=rollout, optim={"lr": 1e-4, "minibatch": 64})


@pytest.mark.full
def test_an_update_is_told_in_parts_and_beside_trl(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("trl", reason="the extra [dev] brings TRL")
    learner.main(["--config", str(config), "--updates", "1"])
    printed = capsys.readouterr().out
    for part in (*learner.PARTS, "rollout", "credit", "train", "validation, 4 tasks, every 2", "all at once"):
        assert f"  {part}" in printed, part
    for name in ("TRL's trainer", "model.generate"):
        assert printed.count(f"  {name} / ours") == 2
    norms = [line.split()[-2:] for line in printed.splitlines() if "mean gradient norm" in line]
    assert len(norms) == 2
    for ours, theirs in norms:
        assert float(ours) > 0.01
        assert float(ours) == pytest.approx(float(theirs), rel=1e-2), "both train on the same"


def test_the_parts_of_a_phase_make_up_the_whole(config: Path, tmp_path: Path) -> None:
    settings = learner.load_config(config)
    found = learner.measure(settings, tmp_path / "run", updates=1)
    update = found.updates[0]
    for phase in ("rollout", "train"):
        inside = sum(update[name] for name, (where, _) in learner.PARTS.items() if where == phase)
        assert 0 < inside <= update[phase] < update["update"]
    asked = sum(len(prompts) for prompts, *_ in found.asked)
    assert asked == len(found.batch), "one prompt a row"
