"""The initial model of a run: a copy in the run folder, so that a moved run resumes and evaluates."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from crbc_envs.storage.files import WriteErrors, read_json, replacing_folder
from crbc_rl.config import TrainConfig
from crbc_rl.config.revisions import MADE_OF, digest_of, model_digest, model_files
from crbc_rl.errors import ConfigError
from crbc_rl.names import ADAPTER, WARMSTART
from crbc_rl.training.files import damage, digests, read_manifest, read_mark, write_manifest

log = logging.getLogger(__name__)

FOLDER = "model"
_UNDO = "undo the change to resume, or choose another folder with --run DIR"
_MARK = {"crbc": "model"}
ORIGIN = {WARMSTART, "words.json", MADE_OF, "adapters.safetensors"}
"""Files of a model that no checkpoint has: what tells where it is from, and factors of LoRA that it has already."""


def is_local(config: TrainConfig) -> bool:
    """Whether the model is a folder on this machine, not a name on the hub."""
    return Path(config.model).is_absolute()


def initial(config: TrainConfig) -> Path:
    """The folder of a config's model that is on this machine; of an adapter, the one that it makes of its base."""
    if not (Path(config.model) / ADAPTER).is_file():
        return Path(config.model)
    from crbc_rl.policies.load import merged  # waits for torch

    return merged(Path(config.model), config.base)


def copy_model(config: TrainConfig, run: Path) -> None:
    """Copy the config's model into RUN/model, with the digests of its files. A copy of an earlier start is replaced.

    It is a copy and no hard link: a link changes with a file that is written again in place. What a run saves takes
    several times the space. Nothing is copied for a model of the hub. Raises `ConfigError` where the folder is missing,
    and where RUN/model is somebody's own.
    """
    target = run / FOLDER
    if target.exists() and read_mark(target) != _MARK:
        raise ConfigError(f"{target} is no copy that this run made: move it, or choose another folder with --run DIR")
    if not is_local(config):
        shutil.rmtree(target, ignore_errors=True)
        return
    source = initial(config)
    if not source.is_dir():
        raise ConfigError(f"model: {source} is no folder: set it to a transformers checkpoint")
    with WriteErrors(target), replacing_folder(target) as fresh:
        for path in model_files(source):
            shutil.copyfile(path, fresh / path.name)
        write_manifest(fresh, _MARK)


def revision(config: TrainConfig, run: Path) -> str:
    """Which model a run begins with: the commit of one of the hub, or the digest of the files in RUN/model."""
    if is_local(config):
        return digest_of(read_manifest(run / FOLDER) or {})
    from crbc_rl.policies.files import commit_of  # waits for torch

    return commit_of(config.model, config.revision)


def require_same_model(first: TrainConfig, now: TrainConfig, run: Path) -> None:
    """Raise `ConfigError` unless both configs start from the same model: the same files, wherever they are.

    A run that keeps its model needs no other copy, so `now` may name a folder that is not here.
    """
    before, given = Path(first.model), Path(now.model)
    if before == run.resolve() / FOLDER and (wrong := damage(before)):
        raise ConfigError(f"{before}: {wrong}: copy the files of the initial model there again, unchanged, to resume")
    if first.model == now.model:
        if is_local(now) or now.revision in (None, first.revision):
            return
        if revision(now, run) == first.revision:
            return
        raise ConfigError(
            f"{run} was started with revision = {first.revision} of {first.model}, not {now.revision}: {_UNDO}"
        )
    if is_local(first) and is_local(now):
        if not before.is_dir():
            raise ConfigError(f"{run} starts from the model {before}, which is missing: put it back to resume")
        if not given.is_dir():
            log.warning("%s is not here; the run goes on with its own copy of the model", given)
            return
        made = read_json(before / MADE_OF) if (before / MADE_OF).is_file() else {}
        if (given / ADAPTER).is_file() and made.get("adapter_digest") == model_digest(given):
            return  # its base need not be here
        given = initial(now)
        known, mine = read_manifest(before) or digests(before, model_files(before)), digests(given, model_files(given))
        if not {name for name, _ in known.items() ^ mine.items()} - {MADE_OF, WARMSTART}:  # these tell how it was made
            return
    raise ConfigError(f"{run} was started with model = {first.model}, and {now.model} differs from it: {_UNDO}")
