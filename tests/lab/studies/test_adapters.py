"""Studies of a model that is an adapter: what a run says of it, and what the study asked for, are one training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crbc_lab.studies.comparison.definition import Study
from crbc_lab.studies.comparison.keep import ran
from crbc_lab.studies.comparison.trainings import Training, trainings
from crbc_rl.config.revisions import model_digest


@pytest.fixture
def training(study: Study, tmp_path: Path) -> Training:
    """Of an adapter, with no limit of replies."""
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    (adapter / "adapter_model.safetensors").write_bytes(b"factors")
    one = next(trainings(study, "lab", "sokoban", 1, {}))
    fields = one.config.rollout.model_fields_set - {"max_new_tokens"}
    rollout = type(one.config.rollout)(**{name: getattr(one.config.rollout, name) for name in fields})
    config = one.config.model_copy(update={"model": str(adapter), "rollout": rollout})
    return Training(one.scale, one.env, one.key, config)


def merged(training: Training, folder: Path, digest: str) -> str:
    """The folder of the adapter and its base, as a run has it."""
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "merged.json").write_text(json.dumps({"adapter_digest": digest}))
    return str(folder)


def test_a_run_with_its_merged_model_and_its_own_limit_is_the_training(training: Training, tmp_path: Path) -> None:
    model = merged(training, tmp_path / "model", model_digest(Path(training.config.model)))
    rollout = training.config.rollout.model_copy(update={"max_new_tokens": 19})
    config = training.config.model_copy(update={"model": model, "rollout": rollout})
    assert ran(training, config).digest == training.digest
    other = merged(training, tmp_path / "other", "another adapter's")
    assert ran(training, config.model_copy(update={"model": other})).digest != training.digest


def test_the_commit_and_the_base_that_a_run_has_found_are_not_other_settings(training: Training) -> None:
    on_hub = training.config.model_copy(update={"base": "somebody/base"})
    asked = Training(training.scale, training.env, training.key, on_hub)
    found = on_hub.model_copy(update={"base": None, "revision": "0123abc"})
    assert ran(asked, found).digest == asked.digest
    pinned = Training(asked.scale, asked.env, asked.key, on_hub.model_copy(update={"revision": "4567def"}))
    assert ran(pinned, found).digest != pinned.digest
    other = found.model_copy(update={"base": "somebody/else"})
    assert ran(asked, other).digest != asked.digest


def test_a_limit_that_the_study_names_is_part_of_it(training: Training) -> None:
    named = training.config.model_copy(update={"rollout": type(training.config.rollout)(max_new_tokens=19)})
    asked = Training(training.scale, training.env, training.key, named)
    assert ran(asked, named).digest == asked.digest != training.digest
    twenty = named.model_copy(update={"rollout": type(named.rollout)(max_new_tokens=20)})
    assert ran(asked, twenty).digest != asked.digest
