"""Rollout groups on disk: one Parquet file per update, one row per environment step.

pandas, `datasets` and every other Parquet reader can open the files. Columns:

    update, group, rollout, step   the row's position, counted from 0 (`rollout` within its group)
    task_id                        of the group
    anchor, label, action          of the step: key, readable form, executed action
    valid, reward                  whether the reply was well formed; the environment's own reward
    success, truncated, score      of the rollout, the same in all of its rows
    final_anchor                   of the rollout, null if unknown
    prompt, reply                  the policy's input and output, if turns were recorded
    logprob                        of the whole reply, in nats, if turns were recorded
    logprobs, values               of each reply token, where they are known; values are those of a critic
    trained, ratios, advantages,   of each reply token as its optimizer step saw it, where this is known: the
    clipped                        log-probability, its ratio to the old one, the advantage, 1 where it was clipped
    prompt_ids, reply_ids          token ids, if turns were recorded
    cause                          why the reply was invalid, or "", if turns were recorded
    image                          the observation as {bytes: PNG, path: null}, if frames were recorded

Each group is a row group of its own, and has a digest: one group can be read without the others. A lone surrogate, half
a character, is written as "?". The same input gives the same bytes with the same versions of pyarrow and pillow.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anchors import GroupError, InternedRollouts, Rollout, RolloutGroup, Step
from crbc_envs.errors import DataError
from crbc_envs.storage.files import shown
from crbc_envs.storage.parquet import (
    COLUMNS,
    REMEDY,
    STEP_COLUMNS,
    TOKEN_COLUMNS,
    TURN_COLUMNS,
    Lengths,
    Row,
    read_table,
    require_anchor,
    rows_of,
    write_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Frame = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """The policy's input and output at one step. `logprob` is that of the whole reply, in nats. `cause` is why it was
    invalid, one of `crbc_envs.actions.CAUSES`, or "". `logprobs`, `values`, those of a critic, and what the optimizer
    step saw that trained the reply, `trained` (log-probabilities), `ratios`, `advantages` and `clipped` (0 or 1), have
    one number for each reply token, or none where they are not known."""

    prompt: str
    reply: str
    logprob: float
    prompt_ids: tuple[int, ...]
    reply_ids: tuple[int, ...]
    cause: str = ""
    logprobs: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    trained: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
    advantages: tuple[float, ...] = ()
    clipped: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """The contents of one file.

    `dynamics` and `anchor` are `dynamics` and `anchor_name` of the `GroupVectorEnv`: "shared" or "independent", and
    kind and version of the anchors, such as "situation-1". They are None if they were not written.
    `policy` is what played in an evaluation, such as "last, update 60", and None in training.
    `credit` is how the run computes credit, {"method": "crbc", "options": {...}} with all options, None as well.
    `turns` and `images` (PNG bytes, see `decode_frame`) have one entry per step, in the order of groups,
    rollouts and steps. They are None if none were recorded.
    """

    env_id: str
    update: int
    groups: list[RolloutGroup]
    turns: list[RecordedTurn] | None
    images: list[bytes] | None
    dynamics: str | None = None
    anchor: str | None = None
    credit: Mapping[str, Any] | None = None
    policy: str | None = None

    def row(self, group: int, rollout: int, step: int) -> int:
        """The index of a step in `turns` and `images`."""
        rollouts = [one for some in self.groups[:group] for one in some.rollouts]
        return sum(map(len, [*rollouts, *self.groups[group].rollouts[:rollout]])) + step


def write_groups(
    path: Path | str,
    groups: Sequence[RolloutGroup] | InternedRollouts,
    *,
    env_id: str = "",
    update: int = 0,
    turns: Sequence[RecordedTurn] | None = None,
    frames: Sequence[Frame] | None = None,
    dynamics: str | None = None,
    anchor: str | None = None,
    credit: Mapping[str, Any] | None = None,
    policy: str | None = None,
) -> None:
    """Write the `groups` of update number `update` to a temporary file, then rename it to `path`.

    `turns` and `frames` have one entry per step, in the order of groups, rollouts and steps. A frame is the
    observation before the step, (height, width, 3) uint8. `env_id` is the environments' registered id, `dynamics` and
    `anchor` their `dynamics` and `anchor_name`; `credit` and `policy` are as in `Recording`. Raises `GroupError` if
    there are no groups, if `turns` or `frames` do not have one entry per step, for rollouts without names, and for what
    could not be read again: NaN, a score outside 0 to 1, a frame of another shape.
    """
    path = Path(path)
    if not isinstance(groups, InternedRollouts):
        if not groups:
            raise GroupError(f"{path}: no groups given")
        groups = InternedRollouts.from_groups(groups)
    columns = _step_columns(groups, update)
    if turns is not None:
        _check_count("turns", turns, groups)
        columns |= {name: [getattr(turn, name) for turn in turns] for name in (*TURN_COLUMNS, "cause")}
        tokens = {name: [getattr(turn, name) for turn in turns] for name in TOKEN_COLUMNS}
        columns |= {name: values for name, values in tokens.items() if any(values)}
    if frames is not None:
        _check_count("frames", frames, groups)
        columns["image"] = [{"bytes": png, "path": None} for png in _encode_frames(frames)]
    lengths: Lengths = [[] for _ in range(groups.num_groups)]
    for group, length in zip(groups.group.tolist(), groups.length.tolist(), strict=True):
        lengths[group].append(length)
    write_columns(path, columns, env_id, lengths, dynamics=dynamics, anchor=anchor, credit=credit, policy=policy)


def read_groups(path: Path | str, anchor: str | None = None) -> list[RolloutGroup]:
    """The groups of the file `path`, as they were written; an anchor has one label. Turns and images are not read.

    `anchor` is the wanted `anchor_name`, such as that of the environments with whose groups these are compared.

    Raises `DataError` for a file that is missing, not Parquet, damaged or of another version, for one that tells
    other anchors than the wanted ones, and for rows that are missing, repeated, out of order or inconsistent.
    """
    path = Path(path)
    table, header = read_table(path, STEP_COLUMNS)
    require_anchor(path, header, anchor)
    _check_places(path, table, header)
    return _groups(path, rows_of(table), header)


def outcomes_of(path: Path | str) -> list[tuple[str, list[bool]]]:
    """The task of each group of a file, and which of its rollouts succeeded. No turn is read, so a recording
    of many thousand rollouts is listed at once. Raises `DataError` like `read_groups`."""
    path = Path(path)
    table, header = read_table(path, STEP_COLUMNS)
    _check_places(path, table, header)
    begins = np.flatnonzero(table.column("step").to_numpy() == 0)
    tasks, success = (table.column(name).take(begins).to_pylist() for name in ("task_id", "success"))
    ends = np.cumsum([0, *(len(members) for members in header["lengths"])]).tolist()
    return [(tasks[first], success[first:last]) for first, last in pairwise(ends)]


def read_recording(path: Path | str, groups: Iterable[int] | None = None, *, anchor: str | None = None) -> Recording:
    """The contents of the file `path`, or of some `groups` alone, by number: these are read without the others, in its
    order. Takes `anchor` and raises `DataError` like `read_groups`, and for a group that the file does not have.
    """
    path = Path(path)
    table, header = read_table(path, COLUMNS, groups)
    require_anchor(path, header, anchor)
    _check_places(path, table, header)
    rows = rows_of(table)
    found = _groups(path, rows, header)
    first = rows[0]
    return Recording(
        header["env_id"],
        first["update"],
        found,
        [_turn(row) for row in rows] if "reply" in first else None,
        [row["image"]["bytes"] for row in rows] if "image" in first else None,
        header["dynamics"],
        header["anchor"],
        header["credit"],
        header["policy"],
    )


def encode_frame(frame: Frame) -> bytes:
    """Encode a frame (height, width, 3) uint8 as a PNG, without loss."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, format="PNG")
    return buffer.getvalue()


def decode_frame(png: bytes) -> Frame:
    """Decode a PNG to a frame, (height, width, 3) uint8. Raises `DataError` for what is none, or a huge one."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            return np.array(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise DataError(f"an image of the recording is no PNG, or damaged ({shown(str(error))})") from error


# ---- from rollouts to columns ---------------------------------------------------------------------


def _step_columns(rollouts: InternedRollouts, update: int) -> dict[str, Any]:
    names, labels, actions, finals, tasks = rollouts.names()
    rollout, group = rollouts.rollout, rollouts.group[rollouts.rollout]
    first = np.searchsorted(rollouts.group, rollouts.group)  # the first rollout of each rollout's group
    return {
        "update": np.full(len(rollout), update),
        "group": group,
        "rollout": (np.arange(len(first)) - first)[rollout],
        "step": rollouts.step,
        "task_id": [tasks[g] for g in group.tolist()],
        "anchor": [names[s] for s in rollouts.anchor.tolist()],
        "label": [labels[s] for s in rollouts.anchor.tolist()],
        "action": [actions[a] for a in rollouts.action.tolist()],
        "valid": rollouts.valid,
        "reward": rollouts.reward,
        "success": rollouts.success[rollout],
        "truncated": rollouts.truncated[rollout],
        "final_anchor": [finals[i] or None for i in rollout.tolist()],
        "score": rollouts.score[rollout],
    }


def _encode_frames(frames: Sequence[Frame]) -> Iterator[bytes]:
    """The frames as PNG. Equal frames are encoded once, because members of a group often have the same one."""
    known: dict[tuple[tuple[int, ...], bytes], bytes] = {}
    for number, frame in enumerate(frames):
        if frame.dtype != np.uint8 or frame.shape[2:] != (3,) or not frame.size:
            raise GroupError(f"frames: number {number} is {frame.shape} {frame.dtype}, not (height, width, 3) uint8")
        key = frame.shape, frame.tobytes()
        if key not in known:
            known[key] = encode_frame(frame)
        yield known[key]


def _check_count(name: str, values: Sequence[Any], rollouts: InternedRollouts) -> None:
    if len(values) != len(rollouts.rollout):
        raise GroupError(f"{name}: one per step is needed; got {len(values)} for {len(rollouts.rollout)} steps")


# ---- from rows to groups --------------------------------------------------------------------------


def _groups(path: Path, rows: list[Row], header: Row) -> list[RolloutGroup]:
    """The groups of these rows. Raises `DataError` that names the wrong row."""
    _check_equal(path, rows, "update")
    groups = []
    for members in _nest(rows, [header["lengths"][number] for number in header["groups"]]):
        _check_equal(path, [row for own in members for row in own], "task_id")
        first = members[0][0]
        try:
            groups.append(RolloutGroup([_rollout(path, own) for own in members], first["task_id"]))
        except GroupError as error:
            raise DataError(f"{path}: group {first['group']}: {str(error)[:300]}; {REMEDY}") from error
    return groups


def _rollout(path: Path, rows: list[Row]) -> Rollout:
    _check_equal(path, rows, "success", "truncated", "final_anchor", "score")
    steps = (Step(row["anchor"], row["action"], row["reward"], row["label"]) for row in rows)
    first = rows[0]
    return Rollout(steps, first["success"], first["truncated"], first["final_anchor"], first["score"])


def _turn(row: Row) -> RecordedTurn:
    ids = tuple(row["prompt_ids"]), tuple(row["reply_ids"])
    tokens = (tuple(row.get(name, ())) for name in TOKEN_COLUMNS)
    return RecordedTurn(row["prompt"], row["reply"], row["logprob"], *ids, row.get("cause", ""), *tokens)


def _check_places(path: Path, table: pa.Table, header: Row) -> None:
    """Check that every row of every rollout is there once and in order. Otherwise the credit would be wrong."""
    places_read = np.stack([table.column(name).to_numpy() for name in ("group", "rollout", "step")])
    written = _places([(number, header["lengths"][number]) for number in header["groups"]])
    both = min(places_read.shape[1], written.shape[1])
    wrong = np.flatnonzero((places_read[:, :both] != written[:, :both]).any(axis=0))
    at = int(wrong[0]) if wrong.size else both
    if at < max(places_read.shape[1], written.shape[1]):
        there, expected = (
            "group {}, rollout {}, step {}".format(*places[:, at]) if at < places.shape[1] else "none"
            for places in (places_read, written)
        )
        raise DataError(f"{path}: row {at} is {there}, and {expected} was written there; {REMEDY}")


def _places(lengths: Sequence[tuple[int, list[int]]]) -> NDArray[np.int64]:
    """Group, rollout and step of every row, (3, rows); `lengths` has groups and the lengths of their rollouts."""
    return np.array([(g, i, t) for g, members in lengths for i, count in enumerate(members) for t in range(count)]).T


def _check_equal(path: Path, rows: list[Row], *names: str) -> None:
    for row in rows:
        for name in names:
            if row[name] != rows[0][name]:
                where = f"group {row['group']}, rollout {row['rollout']}, step {row['step']}"
                before = f"{shown(rows[0][name])} in the rows before it"
                raise DataError(f"{path}: {where}: {name} is {shown(row[name])}, and {before}; {REMEDY}")


def _nest(values: Sequence[T], lengths: Lengths) -> list[list[list[T]]]:
    ahead = iter(values)
    return [[list(islice(ahead, n)) for n in members] for members in lengths]
