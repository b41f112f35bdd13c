"""What a model folder of others cannot do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from learner_fixtures import fresh_policy
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from crbc_rl.config import RolloutConfig
from crbc_rl.errors import ConfigError
from crbc_rl.policies import files
from crbc_rl.policies.load import load_policy


@pytest.fixture
def model(tmp_path: Path) -> Path:
    fresh_policy().save(tmp_path / "model")
    return tmp_path / "model"


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **changes}))


def test_an_honest_model_in_parts_is_loaded(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    names = sorted(weights)
    parts = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
    for file, some in parts.items():
        save_file({name: weights[name] for name in some}, model / file, metadata={"format": "pt"})
    (model / "model.safetensors").unlink()
    places = {name: file for file, some in parts.items() for name in some}
    change(model / files.INDEX, metadata={}, weight_map=places)
    loaded = load_policy(model).model.state_dict()
    assert all(torch.equal(loaded[name].cpu(), weight) for name, weight in weights.items())
    (model / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ConfigError, match="has no weights in safetensors"):
        load_policy(model)


def test_positions_are_those_of_one_set_of_frequencies(model: Path) -> None:
    """A longrope model beyond its original positions reads every row of a batch by other frequencies."""
    assert files.positions(files.read_config(model)) == 2_048
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "rope_theta": 1e4}
    rope |= {"original_max_position_embeddings": 96, "factor": 4.0}
    change(model / "config.json", rope_parameters=rope)
    assert files.positions(files.read_config(model)) == 96
    assert load_policy(model, rollout=RolloutConfig(max_new_tokens=90)).max_prompt_tokens == 6
    with pytest.raises(ConfigError, match="96 new tokens leaves no room for a prompt: the model has 96 positions"):
        load_policy(model, rollout=RolloutConfig(max_new_tokens=96))


@pytest.mark.parametrize("key", ["AutoConfig", "AutoModelForCausalLM"])
def test_code_beside_a_model_never_runs(model: Path, key: str) -> None:
    (model / "evil.py").write_text(f"open({str(model / 'ran')!r}, 'w')\n")
    change(model / "config.json", auto_map={key: "evil.Evil"})
    change(model / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Evil", None]})
    load_policy(model)  # of a known type: its code is the library's
    change(model / "config.json", model_type="evil")
    with pytest.raises(ConfigError, match="'evil' needs the code beside it"):
        load_policy(model)
    assert not (model / "ran").exists()
    with pytest.raises(ValueError, match="trust_remote_code|does not recognize"):
        AutoConfig.from_pretrained(model, **files.SAFE)
    assert not (model / "ran").exists()


def test_a_pickle_is_no_model(model: Path) -> None:
    torch.save(load_file(model / "model.safetensors"), model / "pytorch_model.bin")
    (model / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"pytorch_model\.bin is a pickle"):
        load_policy(model)


@pytest.mark.parametrize("name", ["../w.safetensors", "/w.safetensors", "w.bin", ""])
def test_an_index_names_files_beside_it(model: Path, name: str) -> None:
    (model / "model.safetensors").unlink()
    change(model / files.INDEX, weight_map={"w": name})
    with pytest.raises(ConfigError, match="weight_map: .* is no name of a file"):
        files.weight_files(model)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": 4_096, "num_attention_heads": 4}, "and the files have"),
        ({"attn_implementation": "someone/kernel"}, "is code on the hub"),
        ({"attn_implementation": {"text": "sdpa", "vision": "someone/kernel"}}, "is code on the hub"),
        ({"quantization_config": {"quant_method": "gptq"}}, "not quantized"),
        ({"num_attention_heads": 0}, "no language model can be built"),
        ({"hidden_size": "wide"}, "cannot be read"),
    ],
)
def test_a_shape_that_no_model_has_takes_no_memory(model: Path, changes: dict[str, Any], says: str) -> None:
    change(model / "config.json", **changes)
    with pytest.raises(ConfigError, match=says):
        load_policy(model)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("config.json", "[" * 100_000, "nested too deeply"),
        ("tokenizer.json", '{"version": "1.0"}', "cannot be loaded"),
        ("model.safetensors", "0" * 1_000_000, r"model\.safetensors cannot be read \(fetch it again\)"),
        ("adapter_config.json", "{}", "an adapter"),
        ("chat_template.jinja", "{% for %}", "/model: the model's chat template fails"),
    ],
)
def test_a_damaged_file_is_named(model: Path, file: str, text: str, says: str) -> None:
    (model / file).write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_policy(model)


def test_a_tokenizer_without_its_vocabulary_is_told(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="/model: its tokenizer has no vocabulary: fetch tokenizer.json again"):
        load_policy(model)


def test_a_model_without_a_chat_template_is_told(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="/model: the model has no chat template: take its instruct version, or put"):
        load_policy(model)


def test_weights_are_finite(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    weights["model.norm.weight"][1] = torch.inf
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"model\.norm\.weight has weights that are not finite"):
        load_policy(model)


def test_a_model_of_the_hub_is_read_from_its_folder_in_the_cache(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def snapshot(name: str, **options: Any) -> str:
        asked.append(name)
        assert not [pattern for pattern in options["allow_patterns"] if pattern.endswith((".bin", ".py", "*"))]
        return str(model)

    monkeypatch.setattr(files, "snapshot_download", snapshot)
    monkeypatch.chdir(tmp_path)
    assert files.model_folder("someone/tiny") == model
    assert asked == ["someone/tiny"]
    assert files.model_folder("model") == Path("model")
    assert asked == ["someone/tiny"]
