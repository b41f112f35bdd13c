"""The groups that a page shows, with the prompts and replies of their steps where these were kept."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from anchors import Rollout, RolloutGroup
from crbc_envs.errors import DataError
from crbc_envs.storage.rollouts import RecordedTurn, read_recording
from crbc_rl.config.sections import CreditConfig
from crbc_rl.runs.folder import Run
from crbc_rl.runs.transcripts import kept

log = logging.getLogger(__name__)

SHOWN = 5
"""The number of groups that are shown of a run without transcripts."""
TASKS = 16
"""The most held-out tasks of a file that are shown; a run that has not ended keeps more."""
PIECE = re.compile(r"[^\n,]+[\n,]*|[\n,]+")
"""What texts are cut into, since prompts repeat lines of each other, and parts of lists."""
KINDS = {"training": "training", "start": "held out, at the start", "last": "held out, last policy", "task": "tasks"}
"""What was played, in words."""


class Entry(NamedTuple):
    """A group in the list of a page. `ends` has a character for each rollout, 1 where it succeeded and 0 where not."""

    key: str
    kind: str
    title: str
    ends: str

    @property
    def rate(self) -> float:
        return self.ends.count("1") / len(self.ends)


@dataclass(frozen=True, slots=True)
class Scene:
    """One group under its name in links. `turns` and `images` (PNG) have one entry for each step, in the order of
    rollouts and steps."""

    key: str
    kind: str
    update: int
    group: RolloutGroup
    turns: Sequence[RecordedTurn] | None = None
    credit: CreditConfig | None = None
    images: Sequence[bytes] = ()
    of: str = ""
    """Whose it is, where a page has several runs."""
    run: Path = Path()
    """The folder of the run that played it."""

    @property
    def ending(self) -> str:
        """How the group ended, or its only rollout."""
        if len(self.group) > 1:
            return f"{sum(r.success for r in self.group.rollouts)} of {len(self.group)} solved"
        steps = len(self.group.rollouts[0])
        return f"{ending(self.group.rollouts[0])}, {steps} step{'s' * (steps > 1)}"

    @property
    def title(self) -> str:
        """What tells it apart in a list."""
        whose = f"{self.of}, " if self.of else ""
        if self.kind == "training":
            return f"{whose}update {self.update}: {self.ending}"
        return f"{whose or self.key + ': '}{self.ending}, {shortened(self.group.task, 60)}"

    @property
    def entry(self) -> Entry:
        ends = "".join("01"[one.success] for one in self.group.rollouts)
        return Entry(self.key, KINDS[self.kind], self.title, ends)

    def turns_of(self, rollout: int) -> Sequence[RecordedTurn]:
        """The turns of one rollout; empty where none were kept."""
        return (self.turns or ())[self._steps(rollout)]

    def images_of(self, rollout: int) -> Sequence[bytes]:
        """What the agent saw in one rollout; empty where no frames were kept."""
        return self.images[self._steps(rollout)]

    def _steps(self, rollout: int) -> slice:
        first = sum(map(len, self.group.rollouts[:rollout]))
        return slice(first, first + len(self.group.rollouts[rollout]))


@dataclass
class Texts:
    """Texts as lists of numbered pieces, and numbered frames, each of which is kept once."""

    pieces: dict[str, int] = field(default_factory=dict)
    frames: dict[bytes, int] = field(default_factory=dict)
    tokens: int = 0
    """So many more tokens fit the page."""

    def cut(self, text: str) -> list[int]:
        return [self.pieces.setdefault(piece, len(self.pieces)) for piece in PIECE.findall(text)]

    def frame(self, png: bytes) -> int:
        return self.frames.setdefault(png, len(self.frames))


def ending(rollout: Rollout) -> str:
    return "solved" if rollout.success else "out of steps" if rollout.truncated else "failed"


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def choose(groups: Mapping[int, RolloutGroup], at_most: int = SHOWN) -> list[tuple[int, RolloutGroup]]:
    """At most `at_most` groups: the first, the last and evenly between, with mixed outcomes if there are any."""
    mixed = [u for u in sorted(groups) if 0 < groups[u].success_rate < 1]
    updates = mixed or sorted(groups)
    if len(updates) > at_most:
        updates = [updates[round(i * (len(updates) - 1) / (at_most - 1))] for i in range(at_most)]
    return [(update, groups[update]) for update in updates]


def scenes_of(run: Run, prefix: str = "", left_out: list[str] | None = None) -> list[Scene]:
    """What a run kept: groups of training, by update, then held-out tasks at the start and by the last policy.

    What damaged files say is added to `left_out`.
    Of a run without transcripts, the recorded groups of the most mixed outcomes, and those of groups.jsonl.
    """
    own, files = run.config.credit, kept(run.folder)
    damaged = [] if left_out is None else left_out
    training = [path for _, kind, path in files if kind == "training"]
    found: dict[int, list[Scene]] = {}
    for path in training or sorted((run.folder / "rollouts").glob("*.parquet"))[-SHOWN:]:
        if scenes := sound_scenes(path, damaged, "training", prefix, own):
            mixed = min(scenes, key=lambda scene: abs(scene.group.success_rate - 0.5))
            found[mixed.update] = scenes if training else [mixed]
    bare = {} if training else {update: group for update, group in run.groups().items() if update not in found}
    for update, group in choose(bare)[: max(SHOWN - len(found), 0)]:
        found[update] = [Scene(f"{prefix}training-{update}", "training", update, group, None, own)]
    tests = [(path, "last" if update else "start") for update, kind, path in files if kind == "test"]
    held_out = [sound_scenes(path, damaged, kind, prefix, own)[:TASKS] for path, kind in tests]
    return [scene for scenes in [*(found[update] for update in sorted(found)), *held_out] for scene in scenes]


def sound_scenes(path: Path, left_out: list[str], *more: Any) -> list[Scene]:
    """`read_scenes`, or nothing where the file is damaged, which is warned of and added to `left_out`: other files are
    shown."""
    try:
        return read_scenes(path, *more)
    except DataError as error:
        log.warning("left out of the report: %s", error)
        left_out.append(str(error))
        return []


def read_scenes(
    path: Path, kind: str, prefix: str = "", own: CreditConfig | None = None, only: Sequence[int] | None = None
) -> list[Scene]:
    """The groups of a file of recorded rollouts, or those with the numbers `only`, which are numbered anew. Without
    `own`, credit is as the file says that its run computes it."""
    recording = read_recording(path, only)
    if own is None and recording.credit is not None:
        method, options = recording.credit["method"], recording.credit["options"]
        try:
            own = CreditConfig.model_validate({"method": method, method.rpartition(":")[2]: options})
        except ValidationError as error:
            raise DataError(f"{path}: its credit is none: {error.errors()[0]['msg']}") from error
    name = f"{prefix}{kind}-{recording.update}" if kind == "training" else f"{prefix}{kind}"
    scenes, first = [], 0
    for number, group in enumerate(recording.groups):
        key = name if kind == "training" and len(recording.groups) == 1 else f"{name}-{number}"
        size = sum(map(len, group.rollouts))
        turns = recording.turns and recording.turns[first : first + size]
        images = (recording.images or ())[first : first + size]
        scenes.append(Scene(key, kind, recording.update, group, turns, own, images, run=path.parent.parent))
        first += size
    return scenes
