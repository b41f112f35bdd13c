"""Warm starts from a model that is there already, whole or by LoRA, and what takes them."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from paths import ROOT
from safetensors.torch import load_file, save_file
from served import serving

from crbc_envs.prompts import Prompt
from crbc_lab.cli import main
from crbc_lab.commands import serving as serve
from crbc_lab.commands import warmstart as warmstart_module
from crbc_lab.commands import warmstart_model
from crbc_lab.commands.warmstart import warmstart
from crbc_lab.commands.warmstart_config import WarmstartConfig, load_warmstart_config, read_recipe
from crbc_lab.evaluation.record import read_evaluation
from crbc_lab.plan.check import check_run
from crbc_rl.batches import RolloutBatch, Turn, micro_batches
from crbc_rl.config import parse_config
from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError
from crbc_rl.policies import load as load_module
from crbc_rl.policies.load import load_policy, merged
from crbc_rl.runs.folder import Run
from crbc_rl.runs.model import initial, require_same_model
from crbc_rl.training.actor import Actor

ENV = {"id": "CRBC-Sokoban-v0", "kwargs": {"observation": "text", "num_boxes": 2}, "prompt": "compact", "history": 4}
BASE = ROOT / "warmstarts/sokoban-tiny"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setattr(warmstart_module, "SAMPLE", 30)
    monkeypatch.setattr(warmstart_model, "EVERY", 2)
    monkeypatch.setattr(warmstart_module, "EVERY", 2)
    monkeypatch.setenv("CRBC_DATA", str(tmp_path_factory.mktemp("home")))


def config(out: Path, **changes: Any) -> WarmstartConfig:
    few = {"steps": 6, "batch": 4, "warmup": 1, "lr": 3e-3, "threads": 1, "eval": {"test_episodes": 1}}
    return WarmstartConfig(**{"out": str(out), "model": "sokoban-tiny", "lora_rank": 2, "env": ENV, **few, **changes})


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warmstart_module, "SAMPLE", 30)
        folder = tmp_path_factory.mktemp("adapter") / "boxes"
        warmstart(config(folder))
        return folder


def logits(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0].float()


def test_the_folder_is_what_peft_loads(adapter: Path) -> None:
    """And what is merged of it is the same model but for rounding to bfloat16."""
    peft = pytest.importorskip("peft")
    base, whole = load_policy(BASE), load_policy(merged(adapter))
    ids = base.encode(Prompt("Go left or right?"))
    plain = logits(base.model, ids)
    adapted = logits(peft.PeftModel.from_pretrained(base.model, str(adapter)).eval(), ids)
    apart = (adapted - plain).abs().max()
    assert apart > 0.1 and (logits(whole.model, ids) - adapted).abs().max() < 0.1 * apart
    assert {"README.md", "NOTICE.txt", "warmstart.json"} <= {path.name for path in adapter.iterdir()}
    assert "sokoban-tiny" in (adapter / "README.md").read_text()


def test_a_warm_start_that_was_stopped_goes_on_to_the_same_bytes(adapter: Path, tmp_path: Path) -> None:
    def stop(step: int, nll: float) -> None:
        if step == 5:
            raise KeyboardInterrupt

    ours, seen = config(tmp_path / "boxes"), []
    with pytest.raises(KeyboardInterrupt):
        warmstart(ours, stop)
    assert not (tmp_path / "boxes").exists()
    with pytest.raises(ConfigError, match=r"partial\.safetensors is of another config"):
        warmstart(config(tmp_path / "boxes", lr=1e-3))
    warmstart(ours, lambda step, nll: seen.append(step))
    assert seen == [5, 6]  # the last checkpoint was that of step 4
    for name in ("adapter_model.safetensors", "adapter_config.json", "NOTICE.txt"):
        assert (tmp_path / "boxes" / name).read_bytes() == (adapter / name).read_bytes(), name
    assert not list(tmp_path.glob(".*"))


def test_the_weights_of_a_model_may_be_trained_whole(tmp_path: Path) -> None:
    warmstart(config(tmp_path / "whole", lora_rank=0))
    now, before = (load_file(folder / "model.safetensors") for folder in (tmp_path / "whole", BASE))
    assert all(now[name].dtype == torch.bfloat16 for name in now)
    assert any((now[name].float() - before[name].float()).abs().max() > 1e-3 for name in now)
    assert read_recipe(tmp_path / "whole").model == str((tmp_path / "whole").resolve())


def test_replies_that_would_be_cut_are_told_and_the_length_is_derived(adapter: Path, tmp_path: Path) -> None:
    longest = r"a lesson's reply has up to (\d+) tokens: it would be cut"
    with pytest.raises(ConfigError, match=f"max_new_tokens: 3, and with the tokenizer of sokoban-tiny {longest}"):
        warmstart(config(tmp_path / "boxes", max_new_tokens=3))
    kept = json.loads((adapter / "warmstart.json").read_text())["max_new_tokens"]
    assert 8 <= kept <= 16  # a quarter more than "<think></think><action>right</action>" has
    assert read_recipe(adapter).rollout.max_new_tokens == kept


def test_random_moves_in_the_environment_of_an_adapter_need_no_base(
    adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(adapter, tmp_path / "copy")
    about = json.loads((adapter / "adapter_config.json").read_text())
    (tmp_path / "copy/adapter_config.json").write_text(json.dumps(about | {"base_model_name_or_path": "smollm2-135m"}))
    asked = ["eval", str(tmp_path / "copy"), "--episodes", "2"]
    main([*asked, "--policy", "random"])
    assert "random: success" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(asked)
    assert "its base model smollm2-135m is not here" in capsys.readouterr().err


def test_a_server_plays_an_adapter_as_an_evaluation_does(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    env = {"id": "CRBC-ALFWorld-v0", "kwargs": {"rooms": "small", "max_steps": 2}, "prompt": "compact"}
    Path("c.yaml").write_text(json.dumps({"name": "t", "model": str(adapter), "env": env}))  # the limit is derived
    asked = ["eval", "c.yaml", "--episodes", "3", "--out"]
    main([*asked, "here.json"])
    with serving(serve.load(adapter, None), "boxes") as url, suppress(SystemExit):
        main([*asked, "there.json", "--endpoint", url, "--model", "boxes"])
    here, there = (read_evaluation(Path(name)) for name in ("here.json", "there.json"))
    assert here["rows"] == there["rows"] and here["max_new_tokens"] == there["policy"]["max_new_tokens"] > 16


def test_a_run_goes_on_with_its_adapter_in_another_folder(adapter: Path, tmp_path: Path) -> None:
    run, moved = tmp_path / "run", tmp_path / "moved"
    Run.start(run, run_config(str(adapter)), resume=False)
    shutil.copytree(adapter, moved)
    require_same_model(Run.open(run).config, run_config(str(moved)), run)
    weights = load_file(moved / "adapter_model.safetensors")
    first = next(name for name in weights if "lora_B" in name)
    save_file(weights | {first: weights[first] + 1}, moved / "adapter_model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match="differs from it"):
        require_same_model(Run.open(run).config, run_config(str(moved)), run)


def test_a_run_goes_on_without_the_base_of_its_adapter_and_with_another_recipe(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, moved = tmp_path / "run", tmp_path / "moved"
    Run.start(run, run_config(str(adapter)), resume=False)
    shutil.copytree(adapter, moved)
    recipe = json.loads((moved / "warmstart.json").read_text())
    (moved / "warmstart.json").write_text(json.dumps({**recipe, "python": "another"}))
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "empty"))
    monkeypatch.setattr(load_module, "base_of", lambda *_: pytest.fail("the base is not needed"))
    require_same_model(Run.open(run).config, run_config(str(adapter)), run)
    whole, other = tmp_path / "whole", tmp_path / "other"
    shutil.copytree(BASE, whole)
    (whole / "warmstart.json").write_text("{}")
    Run.start(other, run_config(str(BASE)), resume=False)
    require_same_model(Run.open(other).config, run_config(str(whole)), other)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"vocabulary": 500}, "vocabulary: of no use with a pretrained model"),
        ({"copies": True}, "copies: of no use"),
        ({"dagger": 0.5}, "dagger: of no use"),
        ({"model": None}, "lora_rank: a tiny policy is trained whole"),
    ],
)
def test_keys_that_make_no_sense_are_refused(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=told):
        config(tmp_path, **changes)


def run_config(model: Any, **changes: Any) -> Any:
    rollout = {"num_groups": 2, "group_size": 2, "max_new_tokens": 12}
    return parse_config({"name": "t", "model": model, "env": ENV, "rollout": rollout, **changes}, "test")


def test_a_training_takes_an_adapter_and_its_reference_is_base_plus_adapter(adapter: Path, tmp_path: Path) -> None:
    ours = run_config(str(adapter), policy={"lora_rank": 2})
    both = run_config({"base": str(BASE), "adapter": str(adapter)})
    assert initial(ours) == merged(adapter) and initial(both) == merged(adapter, str(BASE)) and both.base == str(BASE)
    check_run(ours).require()
    run = Run.start(tmp_path / "run", ours, resume=False)
    actor, whole, base = Actor(run.config, Distributed()), load_policy(merged(adapter)), load_policy(BASE)
    with torch.no_grad():  # as after some updates: the factors of the training are not 0
        for name, factor in actor.policy.model.named_parameters():
            if ".lora_B." in name:
                factor.add_(0.02)
    prompt = whole.encode(Prompt("Go left or right?"))
    rows = RolloutBatch.of_turns([Turn(prompt, [5, 6, whole.eos], [0.0] * 3)])
    (batch,) = micro_batches(rows, torch.arange(1).numpy(), torch.ones(1).numpy(), whole.pad, None)
    reference = actor._reference(batch)
    assert reference is not None
    scores = [policy.logprobs(batch, 1.0)[0] for policy in (whole, base, actor.policy)]
    assert torch.allclose(reference, scores[0], atol=1e-5)
    assert all((reference - other).abs().max() > 1e-2 for other in scores[1:])
    told = json.loads((tmp_path / "run/model/merged.json").read_text())
    assert told["base"] == "sokoban-tiny" and {len(told[key]) for key in ("base_digest", "adapter_digest")} == {64}


def test_the_merged_folders_made_last_are_kept(adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("crbc_rl.policies.load.MERGED", 2)
    theirs = tmp_path / "data/models/merged-of-mine"
    theirs.mkdir(parents=True)
    made = []
    for name in "abc":
        shutil.copytree(adapter, tmp_path / name)
        made.append(merged(tmp_path / name, str(BASE)))
        os.utime(made[-1] / "merged.json", (len(made), len(made)))
    assert sorted(theirs.parent.glob("merged-*")) == sorted([*made[1:], theirs])


def read_merged(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_an_adapter_of_another_base_is_one_sentence(adapter: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(BASE, other)
    recipe = json.loads((other / "generation_config.json").read_text())
    (other / "generation_config.json").write_text(json.dumps({**recipe, "transformers_version": "5.0.0"}))
    assert read_merged(merged(adapter, str(other))) == read_merged(merged(adapter, str(BASE)))  # the same weights
    weights = load_file(other / "model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    for take in (merged, lambda folder, base: serve.load(folder, None, base)):
        with pytest.raises(ConfigError, match=f"{adapter} is no adapter of {other}: its base has weights of digest"):
            take(adapter, str(other))
    with pytest.raises(ConfigError, match="its base model .*nowhere is not here"):
        merged(adapter, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="its base model smollm2-135m is not here; fetch it: crbc model get smollm2"):
        merged(adapter, "smollm2-135m")
    with pytest.raises(ConfigError, match="model: a name or a folder is wanted, or"):
        run_config({"base": str(BASE)})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("adapter_model.safetensors", r"adapter_model\.safetensors cannot be read \(copy it again\)"),
        ("warmstart.json", r"warmstart\.json cannot be read"),
    ],
)
def test_a_damaged_file_of_an_adapter_is_named(adapter: Path, tmp_path: Path, name: str, told: str) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(adapter, damaged)
    (damaged / name).write_bytes((damaged / name).read_bytes()[:100])
    with pytest.raises(ConfigError, match=told):
        merged(damaged, str(BASE))


def test_what_a_killed_merge_left_is_deleted_a_day_later(adapter: Path, tmp_path: Path) -> None:
    place = merged(adapter, str(BASE)).parent
    left, new = place / ".merged-0123456789abcdef.abcdefgh.tmp", place / ".merged-1123456789abcdef.abcdefgh.tmp"
    left.mkdir()
    new.mkdir()
    os.utime(left, (0, 0))
    shutil.copytree(adapter, tmp_path / "other")
    merged(tmp_path / "other", str(BASE))
    assert not left.exists() and new.exists()


def test_the_config_of_a_warm_start_is_none_of_a_training(tmp_path: Path) -> None:
    path = tmp_path / "ws.yaml"
    path.write_text("out: w\nmodel: sokoban-tiny\nlora_rank: 2\nsteps: 3\n")
    assert load_warmstart_config(path).lora_rank == 2
    (tmp_path / "here").mkdir()
    for given, wanted in (("here", str(tmp_path / "here")), ("smollm2-135m", "smollm2-135m")):
        assert load_warmstart_config(path, [f"model={given}"]).model == wanted, "a folder is relative to the file"
    from crbc_rl.config import load_config

    with pytest.raises(ConfigError, match="is the config of a warm start"):
        load_config(path)


def test_a_training_says_that_replies_would_be_cut(adapter: Path, caplog: pytest.LogCaptureFixture) -> None:
    def told(**rollout: Any) -> list[str]:
        caplog.clear()
        check_run(run_config(str(adapter), rollout={"num_groups": 2, "group_size": 2, **rollout}))
        return [record.message for record in caplog.records if "max_new_tokens" in record.message]

    assert not told(max_new_tokens=12)
    (warning,) = told(max_new_tokens=6)
    assert re.match(
        r"rollout.max_new_tokens: 6, and in this model's tokens .* has up to \d+: such replies are cut", warning
    )


def test_eval_takes_an_adapter_by_itself_and_beside_a_config(adapter: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(json.dumps({"name": "t", "model": str(BASE), "env": ENV, "rollout": {"max_new_tokens": 15}}))
    files = [tmp_path / "own.json", tmp_path / "beside.json"]
    for given, out in zip(([str(adapter)], [str(path), "--model", str(adapter)]), files, strict=True):
        main(["eval", *given, "--episodes", "2", "--out", str(out)])
    rows = [json.loads(out.read_text())["rows"] for out in files]
    assert rows[0] == rows[1] and len(rows[0]) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("README.md", "---\nlicense: apache-2.0\n---\n"),
        ("NOTICE", "SmolLM2, by HuggingFaceTB. Licence: apache-2.0.\n"),
        ("other.txt", ""),
    ],
)
def test_the_licence_of_the_base_is_told(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert warmstart_model.licence(tmp_path) == ("apache-2.0" if text else "see the model's own page")
