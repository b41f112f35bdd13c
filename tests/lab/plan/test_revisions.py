"""Revisions: a config that says which model and which data it means gets those or starts nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from learner_fixtures import fresh_policy, small, small_config
from paths import ROOT
from rich.console import Console

from crbc_envs.storage.datasets import install
from crbc_envs.webshop.products.generate import generate_catalogue
from crbc_envs.webshop.shop.official import DATASET, HUMAN, SETS
from crbc_envs.webshop.shop.open import _kept
from crbc_lab.commands.data import install_or_verify
from crbc_lab.commands.warmstart_config import WarmstartConfig
from crbc_lab.commands.warmstart_model import save_adapter
from crbc_lab.plan.check import check_run
from crbc_rl.config import TrainConfig, parse_config
from crbc_rl.config.revisions import data_digest, model_digest
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.policies import files
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.lora import adapt
from crbc_rl.runs import model as run_model
from crbc_rl.runs.folder import Run, own_model
from crbc_rl.runs.versions import read_versions

OTHER = "0" * 64
WEBSHOP = {"id": "CRBC-WebShop-v0", "kwargs": {"data": "official", "panel": "by_product", "max_steps": 2}}
HUB = "someone/tiny"
FIRST, SECOND = "a" * 40, "b" * 40


def test_a_model_folder_with_another_digest_starts_nothing(model: Path, tmp_path: Path) -> None:
    digest = model_digest(model)
    config = small(model, revision=digest, updates=1)
    check_run(config).require()
    run = Run.start(tmp_path / "run", config, resume=False)
    assert read_versions(run.folder)["revision"] == digest  # of the run's own copy
    shutil.copytree(model, tmp_path / "changed")
    with (tmp_path / "changed/model.safetensors").open("r+b") as file:
        file.seek(-5, 2)
        file.write(b"x")
    with pytest.raises(ConfigError, match=rf"revision: {digest}, and the files of .*changed have [0-9a-f]{{64}}"):
        check_run(small(tmp_path / "changed", revision=digest))


def test_a_run_that_pins_its_adapter_goes_on(tmp_path: Path) -> None:
    """RUN/model is base and adapter in one. Its digest, which versions.json has, is as good a pin."""
    base, adapter = ROOT / "warmstarts/sokoban-tiny", tmp_path / "adapter"
    adapter.mkdir()
    policy = load_policy(base)
    adapt(policy.model, 2, 0)
    policy.adapted = True
    save_adapter(policy, adapter, WarmstartConfig(model=str(base), lora_rank=2, out=str(adapter)))

    def config(revision: str | None) -> TrainConfig:
        data = small_config(base, revision=revision) | {"model": {"base": str(base), "adapter": str(adapter)}}
        return parse_config(data, "test")

    pinned = config(model_digest(adapter))
    check_run(pinned).require()
    run = Run.start(tmp_path / "run", pinned, resume=False).folder
    (run / "metrics.jsonl").write_text('{"update": 0}\n')
    merged = read_versions(run)["revision"]
    assert merged != pinned.revision
    for given in (pinned, config(None), config(merged)):
        check_run(own_model(run, given)).require()
    check_run(config(merged)).require()
    with pytest.raises(ConfigError, match=f"revision: {OTHER}, and the files of"):
        check_run(config(OTHER))


def test_notes_beside_a_model_do_not_count(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "copy")
    (tmp_path / "copy/README.md").write_text("where it is from")
    assert model_digest(tmp_path / "copy") == model_digest(model)


@pytest.fixture
def webshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs the official small set, made of generated products."""
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "home"))

    def put(seed: int) -> None:
        folder = tmp_path / f"files{seed}"
        folder.mkdir()
        for name, content in zip((*SETS["small"], HUMAN), generate_catalogue(seed, 60), strict=True):
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
        install(DATASET, [folder])
        _kept.cache_clear()

    yield put
    _kept.cache_clear()


def test_other_data_than_the_config_says_start_nothing(
    model: Path, webshop: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {"every": 1, "episodes": 1, "test_episodes": 1}
    webshop(2)
    digest = data_digest(small(model, env=WEBSHOP))
    install_or_verify("webshop", [], Console())
    assert digest is not None and f"env.revision: {digest}" in capsys.readouterr().out
    pinned = small(model, env={**WEBSHOP, "revision": digest}, eval=few)
    check_run(pinned).require()
    part = {**WEBSHOP["kwargs"], "data_dir": str(DATASET.folder / "small")}  # type: ignore[dict-item]
    assert data_digest(small(model, env={**WEBSHOP, "kwargs": part})) == digest
    webshop(3)
    with pytest.raises(ConfigError, match=rf"env\.revision: {digest}, and the data here have [0-9a-f]{{64}}"):
        check_run(pinned)


def test_a_digest_of_data_is_refused_where_no_official_data_are_played(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"env\.revision: it is of installed official data"):
        check_run(small(model, env={"kwargs": {"observation": "text"}, "revision": OTHER}))
    assert data_digest(small(model)) is None


@pytest.mark.parametrize("bad", ["", "x" * 64, "--upload", "a b", "../x"])
def test_words_that_are_no_revision_are_refused(model: Path, bad: str) -> None:
    with pytest.raises(ConfigError, match=r"env\.revision"):
        small(model, env={"revision": bad})
    if bad != "x" * 64:
        with pytest.raises(ConfigError, match="revision"):
            small(model, revision=bad)


class Hub:
    """A hub with one model, of which `newest` may move on."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.newest = place, FIRST
        for seed, commit in enumerate((FIRST, SECOND)):
            fresh_policy(seed).save(place / commit)
        monkeypatch.setattr(files, "snapshot_download", lambda name, revision=None, **_: str(self.folder(revision)))
        monkeypatch.setattr(
            files, "hf_hub_download", lambda name, file, revision=None: str(self.folder(revision) / file)
        )

    def folder(self, revision: str | None) -> Path:
        commit = {None: self.newest, "v1": FIRST}.get(revision, revision)
        if not (self.place / str(commit)).is_dir():
            raise OSError(f"no revision {revision}")
        return self.place / str(commit)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    return Hub(tmp_path / "hub", monkeypatch)


def from_hub(model: Path, **changes: Any) -> Any:
    return small(model, updates=1, save_every=1, **changes).model_copy(update={"model": HUB})


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_run_goes_on_with_the_commit_that_it_began_with(hub: Hub, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Learner(from_hub(model), Run.start(folder, from_hub(model), resume=False)).train()
    assert read_versions(folder)["revision"] == FIRST and Run.open(folder).config.model == HUB
    hub.newest = SECOND
    config = from_hub(model)
    again = Run.start(folder, config, resume=True)
    assert weights(Path(again.config.model)) == weights(hub.place / FIRST)
    assert own_model(folder, config).revision == FIRST
    Run.start(folder, from_hub(model, revision="v1"), resume=True)  # another name of the same
    with pytest.raises(ConfigError, match=rf"was started with revision = {FIRST} of {HUB}, not {SECOND}"):
        Run.start(folder, from_hub(model, revision=SECOND), resume=True)


def test_a_revision_chooses_the_commit(hub: Hub, model: Path, tmp_path: Path) -> None:
    config = from_hub(model, revision=SECOND)
    run = Run.start(tmp_path / "run", config, resume=False)
    assert weights(Path(run.config.model)) == weights(hub.place / SECOND) != weights(hub.place / FIRST)
    with pytest.raises(ConfigError, match=r"revision v9 is not on the hub, nor in its cache"):
        run_model.revision(from_hub(model, revision="v9"), tmp_path)
