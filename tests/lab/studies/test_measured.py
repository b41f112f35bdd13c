"""What is kept of trainings: coverage by recorded rollouts, seconds by phase, and the commit."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import pytest
from paths import ROOT

from anchors import InternedRollouts, Rollout, RolloutGroup, Step
from crbc_envs.storage.rollouts import write_groups
from crbc_lab.studies.comparison import keep as keep_module
from crbc_lab.studies.comparison.figures import draw_coverage
from crbc_lab.studies.comparison.kept import read
from crbc_lab.studies.comparison.markdown import coverage, runtime
from crbc_lab.studies.comparison.trainings import Training, trainings
from crbc_rl.credit.metrics import DEPTHS
from crbc_rl.errors import ConfigError
from crbc_rl.runs.folder import Run
from crbc_rl.training.folders import publish

NAMES = ("coverage", "full_access")


def test_coverage_is_counted_on_recorded_rollouts_and_drawn(tmp_path):
    """Two rollouts part at the first anchor with two actions, and meet again at the last."""

    def rollout(actions, anchors, success):
        steps = [Step(anchor, action) for anchor, action in zip(anchors, actions, strict=True)]
        return Rollout(steps, success=success, truncated=not success)

    group = RolloutGroup([rollout("ax", "sm", True), rollout("bcy", "snm", False)], "task")
    write_groups(tmp_path / "made.parquet", InternedRollouts.from_groups([group]), update=5, env_id="made")
    found = keep_module._coverage(tmp_path / "made.parquet")
    assert found["eligible"] == 4 and found["visits"] == 5  # both at s, both at m; n has one action
    assert found["share"] == [[0.0, 0.0, 1.0]] * 4 and found["expanded"] == 0.0
    assert keep_module._coverage(tmp_path / "none.parquet") == {}

    kept = SimpleNamespace(coverage=found, curve={f"{name}/{depth}": [0.5] for name in NAMES for depth in DEPTHS})
    draw_coverage([kept, kept], "coverage", tmp_path / "made.png")
    assert (tmp_path / "made.png").stat().st_size > 5_000
    assert "0.0 (0.0 to 0.0) % of the visits of update 5" in coverage([kept])


def test_coverage_is_of_the_first_five_updates():
    def kept(share, expanded):
        curve = {f"{name}/{depth}": [share, None, share, share, share, 0.99] for name in NAMES for depth in DEPTHS}
        curve["full_access/1"] = [share / 2] * 5
        return SimpleNamespace(coverage={"expanded": expanded} if expanded else {}, curve=curve)

    told = coverage([kept(0.1, 0.2), kept(0.2, 0.5), kept(0.6, None)])
    assert "| K = 0 | 30.0 (10.0 to 60.0) | 30.0 (10.0 to 60.0) |" in told
    assert "| K = 1 | 30.0 (10.0 to 60.0) | 15.0 (5.0 to 30.0) |" in told
    assert "The first 5 updates of 3 seeds" in told and "35.0 (20.0 to 50.0) % of the visits of update 5" in told


def test_the_seconds_of_a_phase_are_medians_over_updates_and_means_over_seeds():
    updates = [{"seconds/train": spent, "update": 1} for spent in (1.0, 2.0, 30.0)] + [{"seconds/save": 4.0}] * 2
    assert keep_module._phases(updates) == {"train": 1.0, "save": 0.0}
    seeds = [{"generate": 6.0, "group_advantage": 0.25, "step_credit": 0.25}, {"generate": 12.0, "train": 1.5}]
    told = runtime([SimpleNamespace(manifest={"seconds": seconds}) for seconds in seeds])
    assert "| generate | 9.0000 | 90.00 |" in told and "| train | 0.7500 | 7.50 |" in told
    assert "Credit of both kinds takes 0.2500 s of 10.0 s, 2.500 %." in told


@pytest.mark.parametrize(("told", "expected"), [({"commit": "first"}, "first"), ({}, "")])
def test_a_result_has_the_commit_that_its_training_began_with(study, tmp_path, told, expected):
    (tmp_path / "versions.json").write_text(json.dumps(told))
    training = next(trainings(study, "lab", "sokoban", 1, {}))
    assert keep_module._manifest(training, tmp_path, [{}])["commit"] == expected


def test_the_tests_before_and_after_are_kept_by_task(tmp_path):
    """Of a run in `results/agents`, which has no weights."""
    run = tmp_path / "run"
    shutil.copytree(ROOT / "results/agents/smollm2-sokoban-short-grpo-seed0", run)
    publish(run / "checkpoints", 8, lambda folder: (folder / "weights").touch(), keep=1)
    training = Training("lab", "sokoban", "grpo", Run.open(run).config)
    path = keep_module.keep(training, run, tmp_path)
    kept = json.loads(path.read_text())
    for name, test in (("success_before", "start"), ("success", "end")):
        assert kept[name].count("1") / 128 == pytest.approx(kept[test]["success"], abs=1e-5)
    assert len(read(path).success) == 128

    lines = (run / "outcomes.jsonl").read_text().splitlines(keepends=True)
    (run / "outcomes.jsonl").write_text("".join(line for line in lines if '"update": 0' not in line))
    with pytest.raises(ConfigError, match="no outcomes of both its tests"):
        keep_module.keep(training, run, tmp_path)
