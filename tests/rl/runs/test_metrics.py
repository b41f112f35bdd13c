"""Metrics: every figure has an entry in the one table, and what is made from the table agrees with it."""

from __future__ import annotations

import pytest
from learner_fixtures import small

from crbc_rl.learner import Learner
from crbc_rl.rollout.evaluate import Evaluation
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metric_table import metric_of
from crbc_rl.runs.metrics import is_metric, read_metrics

CONFIGS = {
    "critic": {"credit": {"method": "gae"}},
    "mixed precision": {"policy": {"precision": "bfloat16"}, "loss": {"correction": "truncate"}},
}


@pytest.mark.parametrize("which", CONFIGS)
@pytest.mark.slow
def test_every_figure_of_a_run_has_an_entry(model, tmp_path, which):
    env = {"id": "CRBC-ALFWorld-v0", "kwargs": {"rooms": "small", "max_steps": 2}}
    config = small(model, updates=1, env=env, **CONFIGS[which])
    Learner(config, Run.start(tmp_path / "run", config, resume=False)).train()
    records = read_metrics(tmp_path / "run")
    assert len(records) == 2
    for key in {key for record in records for key in record}:
        assert metric_of(key).meaning, key


def test_the_docs_page_is_made_from_the_table(project, run_python):
    page = (project / "docs" / "metrics.md").read_text(encoding="utf-8")
    made = run_python("import sys; sys.path.insert(0, 'scripts'); import metrics_page; print(metrics_page.page())")
    assert page.rstrip("\n") == made, "python scripts/metrics_page.py > docs/metrics.md"


def test_every_figure_of_an_evaluation_can_be_drawn():
    """Of repeated tasks, the number of independent ones is no whole number."""
    found = Evaluation("test", 8, 3, 0.4, 1.0, 2.5, 4.5, 0.1, {"heat": (1, 2)}, 5, 0.2, 0.1, independent=5.4)
    figures = {name: value for name, value in found.to_dict().items() if name != "split"}
    assert [name for name, value in figures.items() if not is_metric(f"test/{name}", value)] == []
