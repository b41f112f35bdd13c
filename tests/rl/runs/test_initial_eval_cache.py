"""The evaluation of a start is played once for all runs that begin alike, and never taken from one that does not."""

from __future__ import annotations

import pytest
from learner_fixtures import small, without_times

from crbc_lab.child_runs import ChildRun, run_children
from crbc_rl.config.extensions import Module
from crbc_rl.config.sections import TrainConfig
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run
from crbc_rl.runs.initial_eval_cache import LIKE, _playing, evaluated_start, start_like
from crbc_rl.runs.lines import OUTCOMES, read_lines
from crbc_rl.runs.metrics import read_metrics


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Trains a config in a folder, told of the run `like`, and returns the splits that it played at its start."""
    played = []
    evaluate = Learner._evaluate

    def told(self, split):
        played.append((self.update, split))
        return evaluate(self, split)

    monkeypatch.setattr(Learner, "_evaluate", told)

    def run(name, config, like=""):
        monkeypatch.setenv(LIKE, str(like and tmp_path / like))
        played.clear()
        Learner(config, Run.start(tmp_path / name, config, resume=False)).train()
        return [split for update, split in played if update == 0]

    return run


def test_another_method_takes_the_start_over_and_trains_as_without(model, tmp_path, train):
    grpo = small(model, updates=2, credit={"method": "grpo"}, optim={"lr": 1e-4, "minibatch": 32})
    assert train("first", small(model, updates=1)) == ["validation", "test"]
    assert train("own", grpo) == ["validation", "test"]
    assert train("taken", grpo, like="first") == []
    own, taken = (without_times(read_metrics(tmp_path / name)) for name in ("own", "taken"))
    assert own == taken and "test/success" in taken[0]
    played, taken_over = (list(read_lines(tmp_path / name / OUTCOMES)) for name in ("own", "taken"))
    assert played == taken_over and {line["split"] for line in played} == {"validation", "test"}


def start_of(folder, config):
    """What a run takes over, before it trains."""
    learner = Learner(config, Run.start(folder, config, resume=False))
    learner.worker.close()
    return start_like(learner.run)


def test_a_run_that_begins_otherwise_plays_its_own_start(model, tmp_path, train, monkeypatch):
    train("first", small(model, updates=1))
    monkeypatch.setenv(LIKE, str(tmp_path / "first"))
    monkeypatch.setattr("crbc_rl.runs.folder.commit", lambda: "another")
    assert start_of(tmp_path / "alike", small(model, updates=1)) is not None
    for number, changes in enumerate(
        (
            {"seed": 1},
            {"eval": {"every": 2, "episodes": 4, "test_episodes": 5}},
            {"env": {"kwargs": {"observation": "text", "max_steps": 4}}},
            {"rollout": {"num_groups": 2, "group_size": 3, "max_new_tokens": 5}},
        )
    ):
        assert start_of(tmp_path / f"other {number}", small(model, updates=1, **changes)) is None, changes


def test_a_start_depends_on_the_user_s_own_code_that_plays_it(tmp_path):
    (tmp_path / "versions.json").write_text("{}")

    def playing(digest, module):
        modules = {"mine": Module(file="mine.py", sha256="a"), "learns": Module(file="learns.py", sha256="a")}
        modules[module] = Module(file="elsewhere.py", sha256=digest)
        config = TrainConfig(name="x", model="m", env={"prompt": "mine:prompt"}, modules=modules)
        return _playing(Run(tmp_path, config))

    assert playing("a", "mine") == playing("b", "learns") != playing("b", "mine")


def test_a_run_that_has_not_evaluated_its_start_gives_nothing(model, tmp_path, train):
    assert train("first", small(model, updates=1), like="none") == ["validation", "test"]
    assert evaluated_start(tmp_path / "first") is not None
    (tmp_path / "first" / OUTCOMES).unlink()
    assert train("two", small(model, updates=1), like="first") == ["validation", "test"]
    (tmp_path / "first" / "metrics.jsonl").write_text("")
    assert evaluated_start(tmp_path / "first") is None


@pytest.mark.full
def test_runs_give_their_start_to_those_that_come_after(model, tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    methods = ("crbc", "grpo")
    children = [
        ChildRun(name, small(model, updates=1, credit={"method": name}), folder, alike=folders)
        for name, folder in zip(methods, folders, strict=True)
    ]
    assert run_children(children, jobs=1)
    first, second = (read_metrics(folder)[0] for folder in folders)
    assert first["seconds/eval"] > 0 and second.get("seconds/eval", 0.0) == 0.0
    assert first["test/success"] == second["test/success"]
