"""A checkpoint of verl's as a model's folder, for `crbc eval DIR` and `crbc serve model DIR`.

    python -m crbc_rl.adapters.verl_folder checkpoints/crbc/RUN/global_step_150 DIR
    crbc eval DIR --out result.json

It runs verl's own merger, so it runs where verl is installed. The folder is an ordinary one of transformers, with a
warmstart.json that says how the policy plays.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from crbc_rl.errors import ConfigError
from crbc_rl.names import WARMSTART

PLAYED = "crbc.json"
"""The environment and the length of a reply, in a checkpoint of ours."""


def convert(checkpoint: Path, folder: Path, backend: str = "fsdp") -> None:
    """Write `checkpoint`, a folder global_step_N, as the new `folder`. `backend` is the merger's, fsdp or megatron; the
    latter needs a GPU.

    Raises `ConfigError` where there is none such, where `folder` is there already, and where the merger fails.
    """
    if not (checkpoint / "actor").is_dir():
        raise ConfigError(f"{checkpoint} is no checkpoint of verl's: a folder global_step_N with actor/ is wanted")
    if folder.exists():
        raise ConfigError(f"{folder} is there already: name a new folder")
    merger = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", backend]
    places = ["--local_dir", str(checkpoint / "actor"), "--target_dir", str(folder)]
    done = subprocess.run([*merger, *places], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode or not any(folder.glob("*.safetensors")):
        shutil.rmtree(folder, ignore_errors=True)
        said = done.stdout.strip().splitlines() or ["no output"]
        raise ConfigError(f"verl's merger has failed on {checkpoint}: {said[-1][:300]}")
    if (checkpoint / PLAYED).is_file():
        shutil.copyfile(checkpoint / PLAYED, folder / WARMSTART)
        keep_in_template(json.loads((checkpoint / PLAYED).read_text("utf-8")).get("chat_template_kwargs") or {}, folder)
    else:
        print(
            f"{checkpoint} has no {PLAYED}, which says how it plays: name a config, crbc eval CONFIG --model {folder}"
        )


def keep_in_template(variables: dict[str, Any], folder: Path) -> None:
    """Give the folder's chat template what `data.apply_chat_template_kwargs` gave it in training."""
    if variables:
        from transformers import AutoTokenizer  # here, because `verl` imports this file before it asks for its trainer

        template = AutoTokenizer.from_pretrained(folder).get_chat_template(variables.get("chat_template"))
        begin = "".join(f"{{% set {name} = {value!r} %}}" for name, value in variables.items())
        (folder / "chat_template.jinja").write_text(begin + template, "utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(f"python -m {__spec__.name} CHECKPOINT DIR [fsdp or megatron]")
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
    except ConfigError as error:
        sys.exit(str(error))
