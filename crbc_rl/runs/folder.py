"""A run folder: its config, versions, metrics, checkpoints and recorded rollouts.

config.yaml      the config with all defaults            metrics.jsonl   one record per update
versions.json    packages, Python, platform              groups.jsonl    one group per update, for the report
model/           a copy of the initial model             best/           the best policy on validation
checkpoints/     the newest, for --resume                report.html     written by `crbc report`
tensorboard/     the same metrics as metrics.jsonl       .lock           who writes here
train.log        what a run of several seeds says        train.yaml      the config that it was started with
invalid.jsonl    invalid replies as they came, by cause  outcomes.jsonl  each held-out task of every evaluation
tracking.json    what the tracker has, with `tracking`   wandb/          its files, with tracking=wandb
rollouts/        every rollout of every `record_every`-th update, for `crbc view`
transcripts/     held-out tasks and training groups, as they were played (`crbc_rl.runs.transcripts`)

It may be moved: no path in it leads out, but to modules and data sets of the config, and where its user made links.

Who looks at a run alone waits for no torch: what loads a model is imported where one is loaded.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchors import ANCHOR_VERSION, RolloutGroup
from crbc_envs.actions import CAUSES
from crbc_envs.storage.files import WriteErrors, append_line, replace_file
from crbc_envs.storage.rollouts import write_groups
from crbc_rl.config import TrainConfig, flat, parse_config, read_mapping, set_value
from crbc_rl.config.revisions import data_digest, model_files
from crbc_rl.errors import ConfigError, nearest
from crbc_rl.rollout.invalid import LONGEST, InvalidReplies
from crbc_rl.runs import model, transcripts
from crbc_rl.runs.lines import OUTCOMES, cut_lines, last_record, read_lines
from crbc_rl.runs.own import ASKED, LOG, clear_leftovers, lock, require_own, was_locked
from crbc_rl.runs.tracking import Tracker
from crbc_rl.runs.transcripts import Transcripts, recorded
from crbc_rl.runs.versions import read_versions, say_once, versions, write_config
from crbc_rl.training.files import damage, share_files
from crbc_rl.training.folders import newest, publish, published, retire
from crbc_rl.version import __version__, commit

if TYPE_CHECKING:
    from crbc_rl.batches import RolloutBatch, Turn
    from crbc_rl.distributed import Distributed
    from crbc_rl.policies.transformers import TransformersPolicy

log = logging.getLogger(__name__)

FREE = {"updates", "save_every", "record_every", "transcripts", "tracking"}
FREE |= {"model", "base", "revision", "env.revision"}
COST = {f"generator.{key}" for key in ("memory", "tensor_parallel", "prefix_cache")}
COST |= {f"optim.{key}" for key in ("microbatch", "microbatch_tokens", "score_microbatch")}
COST |= {f"policy.{key}" for key in ("attention", "gradient_checkpointing", "offload_reference")}
COST |= {"threads", "rollout.backend", "rollout.num_workers", "rollout.truncation", "rollout.waves"}
"""Keys of memory and speed, which change sums by rounding alone: a run without enough of either goes on with others,
which its config then has. Truncation is here since a run that it ended would meet the same long prompt again."""
FREE |= COST
"""Keys that may change in a resumed run: they do not affect what is trained; `updates` only where `optim.schedule` is
constant, micro-batches not where `optim.order` weighs by them. The model's files are compared."""


class Run:
    """A run that is open in `folder`. `config.model` is its own copy of the initial model, or a name on the hub."""

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        self.folder = folder
        self.config = config
        self.checkpoints = folder / "checkpoints"
        self.lock: object = None
        """Held by the process that writes here, as long as it has the run."""

    @classmethod
    def start(
        cls,
        folder: Path,
        config: TrainConfig,
        resume: bool,
        distributed: Distributed | None = None,
        follow_links: bool = False,
    ) -> Run:
        """Begin a run of `config` in `folder`, or with `resume` continue the one in it, and lock it.

        Every rank of `distributed` calls this; None is a single process. A run begins with its first record: what an
        earlier start left behind is replaced. Raises `ConfigError` where another process writes there, and where the
        folder holds a run already, or one with other settings. Raises `DataError` where the run would be written
        through a link; with `follow_links` its folders may be links.
        """
        from crbc_rl.distributed import Distributed

        distributed = distributed or Distributed()
        held = None
        if distributed.main:
            require_own(folder, follow_links)
            _require_free(folder)
            folder.mkdir(parents=True, exist_ok=True)
            held = lock(folder)
            clear_leftovers(folder)
            if not begun(folder):
                _write_settings(folder, config)
            elif not resume:
                raise ConfigError(
                    f"{folder} already holds a run: add --resume to continue it, or --run DIR for another"
                )
            else:
                require_same(folder, config)
                _keep_costs(folder, config)
        distributed.barrier()
        own = cls.open(folder)
        # Every rank takes the same files, also where the hub has newer ones by now, and the limit that the run derived.
        kept = {"model": str(own.model()), "revision": own.config.revision, "rollout": own.config.rollout}
        run = cls(folder, config.model_copy(update=kept))
        run.lock = held
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Open the run in `folder` for reading. Raises `ConfigError` without one, and for a config it cannot read."""
        path = folder / "config.yaml"
        if not path.is_file():
            if folder.is_file():
                raise ConfigError(f"{folder} is a file; name the folder of a run")
            raise ConfigError(
                f"{folder} is no run folder: it has no config.yaml{near_runs(folder)}; "
                "`crbc train CONFIG --run DIR` makes one"
            )
        kept = read_versions(folder)
        if kept.get("config", (found := sha256(path.read_bytes()).hexdigest())) != found:
            say_once(f"{path} was changed after the run began, by hand or by damage; what it says now counts")
        try:
            return cls(folder, parse_config(read_mapping(path), str(path), folder))
        except ConfigError as error:
            reason = " ".join(str(error).split())
            if kept.get("crbc", __version__) != __version__:
                made = f"the run was made by crbc {kept['crbc']}"
                reason += f"; {made}, and this is {__version__}: use that version"
            raise ConfigError(reason) from error

    def model(self) -> Path:
        """The folder of the initial model: the run's own copy, or of a model of the hub its place in the cache."""
        from crbc_rl.policies.files import model_folder

        if model.is_local(self.config):
            return model.initial(self.config)
        return model_folder(self.config.model, self.config.revision)

    def keep_world(self, anchor: str, tasks: str, distributed: Distributed) -> None:
        """Write into versions.json what is played: `anchor` is `AnchorEnv.anchor_name`, and `tasks` the digest of the
        first and the number of all. Once the run has begun, compare instead, and raise `ConfigError` where one is
        another now; older runs have the digest alone. Every rank of `distributed` calls this."""
        kept = read_versions(self.folder)
        if not begun(self.folder):
            versions = {**kept, "anchor": anchor, "tasks": tasks}
            if distributed.main:
                replace_file(self.folder / "versions.json", json.dumps(versions, indent=2).encode() + b"\n")
            return
        remedy = "continue it with the crbc and the data that began it, or choose another folder with --run DIR"
        before = kept.get("anchor"), kept.get("anchors")
        if kept and before != (anchor, str(ANCHOR_VERSION)):
            raise ConfigError(
                f"{self.folder} has anchors {before[0]} (keys of version {before[1]}), and the environment now makes "
                f"{anchor} (version {ANCHOR_VERSION}): {remedy}"
            )
        if kept and kept.get("tasks") not in (tasks, tasks.split()[0]):
            raise ConfigError(f"{self.folder} was trained on other tasks than {self.config.env.id} has now: {remedy}")

    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint whose files are as they were written; a warning names damaged ones.

        Raises `ConfigError` where all are damaged.
        """
        return newest(self.checkpoints)

    def resume_point(self, distributed: Distributed) -> Path | None:
        """The checkpoint from which training continues, if any: rank 0 checks its files and tells all `distributed`."""
        found = self.last_checkpoint() if distributed.main else None
        name = distributed.gather(found and found.name)[0]
        return self.checkpoints / name if name else None

    def best(self) -> Path | None:
        """The folder of the policy with the highest validation success, a plain transformers checkpoint."""
        return next(reversed(published(self.folder / "best")), None)

    def policy_folder(self, which: str) -> Path:
        """The folder of a policy by `which`: of the highest validation success ("best"), the last one saved ("last") or
        the initial one ("start"). Raises `ConfigError` where it was not saved yet, is missing or is damaged."""
        folder: Path | None
        if which == "last":
            folder = self.last_checkpoint()
        else:
            folder = self.best() if which == "best" else self.model()
            if folder is not None and (wrong := damage(folder)):
                raise ConfigError(f"{folder}: {wrong}: restore it, or choose another with --policy last")
        if folder is None:
            raise ConfigError(f"{self.folder} has no checkpoint yet: continue it with crbc train CONFIG --resume")
        return folder

    def policy(self, which: str) -> TransformersPolicy:
        """The policy in `policy_folder(which)`, to be played: see `load_player`."""
        from crbc_rl.policies.load import load_player

        return load_player(self.policy_folder(which), self.config.rollout, self.config.policy.precision)

    def keep_best(self, update: int, policy: TransformersPolicy, distributed: Distributed) -> Path:
        """Write `policy` to best/UPDATE, by number `update`, and return that folder. Every rank of `distributed` calls
        this. Before training, at 0, it is the initial model, whose files are shared. That of the last checkpoint stays
        until `best_saved`: a run that ends before the next goes on from there."""

        def write(place: Path) -> None:
            if update:
                policy.save(place, main=distributed.main)
            elif distributed.main:
                share_files((path for path in model_files(self.model()) if path.name not in model.ORIGIN), place)

        saved = published(self.checkpoints)
        behind = int(saved[-1].name) if saved else None
        return publish(self.folder / "best", update, write, keep=1, distributed=distributed, behind=behind)

    def best_saved(self, update: int) -> None:
        """Keep the best policy up to `update`, from whose checkpoint training goes on, and no other."""
        retire(self.folder / "best", update, keep=1)

    def trackers(self) -> list[Tracker]:
        """Where the metrics go besides this folder. The model goes by its name, and modules without their places."""
        if self.config.tracking is None:
            return []
        settings = self.config.model_dump(mode="json", exclude={"modules": {"__all__": {"file"}}})
        settings["model"] = read_versions(self.folder).get("model", Path(self.config.model).name)
        return [Tracker(self.folder, self.config.name, settings)]

    def keep_group(self, update: int, group: RolloutGroup) -> None:
        """Append a `group` of update number `update` to groups.jsonl, for the report."""
        append_line(self.folder / "groups.jsonl", {"update": update, "group": group.to_dict()})

    def keep_outcomes(self, update: int, split: str, outcomes: Mapping[str, list[Any]]) -> None:
        """Append `outcomes`, an `Evaluation`'s on `split` at `update`, to outcomes.jsonl, to pair methods by task."""
        append_line(self.folder / OUTCOMES, {"update": update, "split": split, **outcomes})

    def keep_invalid(self, update: int, turns: Iterable[Turn]) -> None:
        """Append the first invalid replies of each cause among `turns` of `update` to invalid.jsonl, as they came."""
        path = self.folder / "invalid.jsonl"
        for turn in (turn for turn in turns if turn.cause):
            if self.invalid.add(turn.text, turn.cause):
                append_line(path, {"update": update, "cause": turn.cause, "reply": turn.text[:LONGEST]})

    @cached_property
    def invalid(self) -> InvalidReplies:
        """The invalid replies that invalid.jsonl has."""
        kept = InvalidReplies()
        for record in read_lines(self.folder / "invalid.jsonl"):
            if isinstance(reply := record.get("reply"), str) and record.get("cause") in CAUSES:
                kept.add(reply, record["cause"])
        return kept

    def cut_lines(self, upto: int) -> None:
        """Drop the best policies, rollouts, groups, outcomes, transcripts and invalid replies behind `upto`, which
        training repeats."""
        self.best_saved(upto)
        transcripts.cut(self.folder, upto)
        for path in (self.folder / "rollouts").glob("*.parquet"):
            if path.stem.isdecimal() and int(path.stem) > upto:
                path.unlink()
        for name in ("groups.jsonl", "invalid.jsonl", OUTCOMES):
            cut_lines(self.folder / name, upto)

    def keep_rollouts(self, update: int, batch: RolloutBatch, kept: Transcripts) -> None:
        """Write `batch`, all rollouts of `update`, to rollouts/UPDATE.parquet, with prompts and replies as text and as
        ids. `kept` decodes the prompts, and has what the file's header tells."""
        path = self.folder / "rollouts" / f"{update:06d}.parquet"
        with WriteErrors(path):
            write_groups(path, batch.rollouts, update=update, turns=recorded(batch, kept.decode), **kept.told)

    def groups(self) -> dict[int, RolloutGroup]:
        """The groups of groups.jsonl by update, without damaged ones, of which a warning names the first."""
        path, groups, damaged = self.folder / "groups.jsonl", dict[int, RolloutGroup](), []
        for record in read_lines(path):
            try:
                groups[record["update"]] = RolloutGroup.from_dict(record["group"])
            except (KeyError, TypeError, ValueError) as error:
                damaged.append(f"the group of update {record['update']} is damaged and left out: {error}")
        if damaged:
            log.warning("%s: %s%s", path, damaged[0], f"; and {len(damaged) - 1} more" if damaged[1:] else "")
        return groups


def is_run(folder: Path) -> bool:
    """Whether a run was started in a folder, even if it never came to its first record."""
    return was_locked(folder) or begun(folder)


def near_runs(folder: Path) -> str:
    """The end of a message about a folder that is no run: the nearest one beside it; empty if there are none."""
    runs = [path.name for path in folder.parent.glob("*") if is_run(path)]
    return nearest(folder.name, runs) if runs else ""


def _require_free(folder: Path) -> None:
    """Raise `ConfigError` for a folder with other people's files."""
    names = {path.name for path in folder.iterdir()} - {ASKED, LOG} if folder.is_dir() else set()
    if names and not is_run(folder):
        raise ConfigError(
            f"{folder} holds other files, such as {min(names)}: choose a new folder with --run DIR, or empty this one"
        )


def begun(folder: Path) -> bool:
    """Whether the run in a folder has a record or a checkpoint. Until then nothing of it is worth keeping."""
    metrics = folder / "metrics.jsonl"
    recorded = metrics.is_file() and metrics.stat().st_size > 0
    return recorded or bool(published(folder / "checkpoints") or published(folder / "best"))


def finished(folder: Path, updates: int) -> bool:
    """Whether the run in a folder has made all of `updates`, with its last test and checkpoint."""
    last = last_record(folder / "metrics.jsonl")
    saved = [int(one.name) for one in published(folder / "checkpoints")]
    return last.get("update", -1) >= updates and "test/success" in last and saved[-1:] >= [updates]


def own_model(folder: Path, config: TrainConfig) -> TrainConfig:
    """The config with the model that the run in `folder` keeps, if it has begun. Then the config's own may be gone."""
    if not begun(folder):
        return config
    own = Run.open(folder).config
    return config.model_copy(update={"model": own.model, "base": None, "revision": config.revision or own.revision})


def _write_settings(folder: Path, config: TrainConfig) -> None:
    """Model, versions and config of a new run. The config comes last: a folder without it is no run."""
    model.copy_model(config, folder)
    data = config.model_dump()
    kept = {**versions(), "commit": commit(), "model": Path(config.model).name}
    kept["revision"] = model.revision(config, folder)
    if model.is_local(config):
        data |= {"model": model.FOLDER, "base": None}
    else:
        data["revision"] = kept["revision"]  # where it begins is where it goes on
    if (found := data_digest(config)) is not None:
        kept["data"] = found
    write_config(folder, data, kept)


def _keep_costs(folder: Path, now: TrainConfig) -> None:
    """Take the keys of `COST` and the updates with which a run is resumed into its config."""
    data = read_mapping(folder / "config.yaml")
    before, given = flat(Run.open(folder).config.model_dump()), flat(now.model_dump())
    for name in (changed := [name for name in sorted({*COST, "updates"}) if before[name] != given[name]]):
        set_value(data, f"{name}={json.dumps(given[name])}")
    if changed:
        write_config(folder, data, read_versions(folder))


def require_same(folder: Path, now: TrainConfig) -> None:
    """Raise `ConfigError` where the settings of the run in `folder` differ from those that it is resumed with."""
    first = Run.open(folder).config
    before, given = flat(first.model_dump()), flat(now.model_dump())
    if not now.rollout.limit_named:  # then the run has derived its own
        given["rollout.max_new_tokens"] = before["rollout.max_new_tokens"]
    reached = last_record(folder / "metrics.jsonl").get("update", 0)
    if now.updates < reached:
        raise ConfigError(f"updates: {now.updates}, and {folder} is at update {int(reached)} already: set it to more")
    for name in {**before, **given}:
        moved = name.startswith("modules.") and name.endswith(".file")
        falls = name == "updates" and now.optim.schedule != "constant"  # towards the last update
        weighs = name in ("optim.microbatch", "optim.score_microbatch") and now.optim.order == "ranks"
        free = moved or (name in FREE and not falls and not weighs)
        if not free and before.get(name) != given.get(name):
            raise ConfigError(
                f"{folder} was started with {name} = {before.get(name)!r}, not {given.get(name)!r}: "
                "undo the change to resume, or choose another folder with --run DIR"
            )
    model.require_same_model(first, now, folder)
    kept, data = read_versions(folder).get("data"), data_digest(now)
    if None not in (kept, data) and kept != data:  # which may be more, and the same games
        say_once(f"{folder}: the installed data of {now.env.id} are not those that the run began with")
