"""Transcripts that a run keeps by itself, so that everybody can see why an agent fails.

In RUN/transcripts/, each a recording of `crbc_envs.storage.rollouts`:

test-000000.parquet       held-out tasks as the policy played them before training; the first ones until the run ends
test-000060.parquet       up to `transcripts` of them, as the last policy played them: half of them those that it lost,
                          half those that it won, as far as there are, with the kinds of tasks in turn. Each task is a
                          group of one rollout. From then on, test-000000 has the same tasks in the same order.
training-000010.parquet   a group of the update before each validation, with mixed outcomes if there is one

With several ranks the held-out tasks are those that rank 0 plays. `crbc eval --out F.json` writes F.transcripts.parquet
and `crbc agents` FOLDER/transcripts/test-000000.parquet, with tasks chosen like those of the last policy.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from anchors import GroupError, RolloutGroup
from crbc_envs.errors import DataError
from crbc_envs.storage.files import WriteErrors
from crbc_envs.storage.rollouts import Frame, RecordedTurn, Recording, decode_frame, read_recording, write_groups
from crbc_rl import credit
from crbc_rl.config import CRITIC, TrainConfig
from crbc_rl.rollout.panel import in_turns

if TYPE_CHECKING:
    from crbc_rl.batches import RolloutBatch, Turn
    from crbc_rl.rollout.evaluate import Columns

log = logging.getLogger(__name__)

FOLDER = "transcripts"
_NAME = re.compile(r"(training|validation|test)-(\d{6,9})\.parquet")
CANDIDATES = 8
"""So many times the wanted tasks are looked at for lost and won ones."""
TEST_BYTES, TRAINING_BYTES = 5_000_000, 10_000_000
"""The most bytes of a file of held-out tasks, and of all training groups together."""
MOST_BYTES = 2 * TEST_BYTES + TRAINING_BYTES

Decode = Callable[["Turn"], str]
"""The prompt of a turn as text."""


class Kept(NamedTuple):
    """A file of transcripts: after which update, and what was played: "training", "validation" or "test"."""

    update: int
    kind: str
    path: Path


def kept(folder: Path) -> list[Kept]:
    """The transcripts of a run folder, by update and kind; none where there are none."""
    found = [(match, path) for path in (folder / FOLDER).glob("*.parquet") if (match := _NAME.fullmatch(path.name))]
    return sorted(Kept(int(match[2]), match[1], path) for match, path in found)


def cut(folder: Path, upto: int) -> None:
    """Delete the transcripts of a run behind update `upto`."""
    for update, _, path in kept(folder):
        if update > upto:
            path.unlink()


class Play(NamedTuple):
    """A task as it was played: its kind, its rollouts, and for each of their steps the turn, and the frame if any."""

    kind: str
    group: RolloutGroup
    turns: Sequence[RecordedTurn]
    frames: Sequence[Frame]


def recorded(batch: RolloutBatch, decode: Decode, rows: Iterable[int] | None = None) -> list[RecordedTurn]:
    """The turns of some `rows` of a batch, by default of all, with what is known of each token."""
    ends, turns = batch.ends, []
    for row in range(len(batch)) if rows is None else rows:
        turn, begin = batch.turns[row], ends[row] - batch.response_length[row]
        values = () if batch.value is None else tuple(batch.value[begin : ends[row]].tolist())
        seen = np.empty((0, 0)) if batch.seen is None else batch.seen[:, begin : ends[row]].copy()
        seen[1:, slice(*turn.forced)] = [[1.0], [0.0], [0.0]][
            : max(0, len(seen) - 1)
        ]  # ratio, advantage, clipped: none
        told = list(map(tuple, seen.tolist())) if np.isfinite(seen).all() else []
        ids = tuple(turn.prompt), tuple(turn.response)
        sums: Any = (math.fsum(turn.logprobs), *ids, turn.cause, tuple(turn.logprobs), values, *told)
        turns.append(RecordedTurn(turn.asked or decode(turn), turn.text, *sums))
    return turns


def play_of(batch: RolloutBatch, number: int, decode: Decode, kind: str = "") -> Play:
    """Group `number` of a batch. Frames are those that the policy saw, where it saw one at every step."""
    rows = batch.rollouts.rows_of([number]).tolist()
    frames = [image for row in rows for image in batch.turns[row].images[:1]]
    group = batch.rollouts.select([number]).groups()[0]
    return Play(kind, group, recorded(batch, decode, rows), frames if len(frames) == len(rows) else ())


def plays_of(recording: Recording) -> Iterator[Play]:
    """The groups of a recording; their kinds are not known."""
    for number, group in enumerate(recording.groups):
        begin = recording.row(number, 0, 0)
        rows = slice(begin, begin + sum(map(len, group.rollouts)))
        images = [decode_frame(png) for png in (recording.images or [])[rows]]
        yield Play("", group, (recording.turns or [])[rows], images)


@dataclass
class Plays:
    """Called with what is played, a task a group, it collects the first tasks: `CANDIDATES` times `wanted`. A task that
    comes again is left out."""

    wanted: int
    decode: Decode
    all: list[Play] = field(default_factory=list)

    def __call__(self, columns: Columns, batch: RolloutBatch) -> None:
        again = columns["repeat"].tolist()
        for number, kind in enumerate(columns["kind"].tolist()):
            if len(self.all) < CANDIDATES * self.wanted and not again[number]:
                self.all.append(play_of(batch, number, self.decode, kind))


def chosen(plays: Sequence[Play], wanted: int) -> list[Play]:
    """`wanted` of the tasks: half lost ones and half won ones in turns, as far as there are. Kinds take turns."""
    ends: dict[bool, dict[str, list[Play]]] = {False: {}, True: {}}
    for play in plays:
        ends[any(rollout.success for rollout in play.group.rollouts)].setdefault(play.kind, []).append(play)
    lost, won_ones = (list(in_turns(ends[won])) for won in (False, True))
    lost = lost[: max(wanted - wanted // 2, wanted - len(won_ones))]
    return list(in_turns({"lost": lost, "won": won_ones[: wanted - len(lost)]}))


def write_plays(path: Path, plays: Sequence[Play], update: int = 0, room: int = TEST_BYTES, **told: Any) -> list[Play]:
    """Write what fits into `room` bytes, and return it; nothing is left of an older file. `told` is as in
    `write_groups`. Numbers that cannot be written are left out with a warning: they are no reason to end a run.
    """
    fit = list(plays)
    while fit:
        turns = [turn for play in fit for turn in play.turns]
        told["frames"] = [frame for play in fit for frame in play.frames] if all(play.frames for play in fit) else None
        try:
            with WriteErrors(path):
                write_groups(path, [play.group for play in fit], update=update, turns=turns, **told)
        except GroupError as error:
            log.warning("no transcripts: %s", error)
            break
        if (size := path.stat().st_size) <= room:
            return fit
        fit = fit[: min(len(fit) - 1, len(fit) * room // size)]
    path.unlink(missing_ok=True)
    return []


class Transcripts:
    """Keeps the transcripts of a run, those of `tasks` held-out tasks, as they come. `told` is as in `write_groups`."""

    def __init__(self, folder: Path, tasks: int, decode: Decode, told: Mapping[str, Any]) -> None:
        self.folder, self.tasks, self.decode, self.told = folder, tasks, decode, told

    def keep_training(self, update: int, batch: RolloutBatch, number: int) -> None:
        """Keep group `number` of an update. The oldest groups go where all together have more than `TRAINING_BYTES`."""
        self._write("training", update, [play_of(batch, number, self.decode)], TRAINING_BYTES)
        groups = [one for one in kept(self.folder) if one.kind == "training"]
        sizes = [one.path.stat().st_size for one in groups]
        for place, one in enumerate(groups):
            if sum(sizes[place:]) > TRAINING_BYTES:
                log.warning("%s: left out, as the training groups have %d bytes", one.path, TRAINING_BYTES)
                one.path.unlink()

    def keep_test(self, update: int, plays: Sequence[Play]) -> None:
        """Keep held-out tasks as the policy of `update` played them. The start's are then reduced to the same ones."""
        if update == 0:
            self._write("test", 0, plays, TEST_BYTES)
            return
        for one in kept(self.folder):
            if one.kind == "test" and one.update:  # of a run that was shorter before
                one.path.unlink()
        start = {play.group.task: play for play in _start(self.folder)}
        shared = [play for play in plays if play.group.task in start] or plays
        written = self._write("test", update, chosen(shared, self.tasks), TEST_BYTES)
        if start:
            self._write("test", 0, [start[play.group.task] for play in written if play.group.task in start], TEST_BYTES)

    def take_start(self, other: Path) -> None:
        """Keep the start's tasks that the run in the folder `other` has."""
        if plays := _start(other):
            self._write("test", 0, plays, TEST_BYTES)

    def _write(self, kind: str, update: int, plays: Sequence[Play], room: int) -> list[Play]:
        path = self.folder / FOLDER / f"{kind}-{update:06d}.parquet"
        written = write_plays(path, plays, update, room, **self.told)
        if len(written) < min(len(plays), self.tasks):
            missing = len(plays) - len(written)
            log.warning("%s: %d of %d are left out, as it has at most %d bytes", path, missing, len(plays), room)
        return written


def _start(folder: Path) -> list[Play]:
    """What a run keeps of its start; nothing where that is damaged, which a warning says."""
    path = folder / FOLDER / f"test-{0:06d}.parquet"
    try:
        return list(plays_of(read_recording(path))) if path.is_file() else []
    except DataError as error:
        log.warning("the start's transcripts are left out: %s", error)
        return []


def credit_of(config: TrainConfig) -> dict[str, Any]:
    """How a run computes credit, with all options, as a recording keeps it: plain data."""
    method = config.credit.method
    defaults = {} if method == CRITIC else credit.estimator_of(config.method()).options
    options = {**defaults, **config.credit_options()}
    return {"method": method, "options": json.loads(json.dumps(options, default=str))}


def mixed(rates: Any) -> int:
    """The group whose success rate is nearest to one half, of all rates (groups,)."""
    return int(np.argmin(np.abs(rates - 0.5)))
