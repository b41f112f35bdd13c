"""The groups that a page shows, with the prompts and replies of their steps where these were kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anchors import Rollout, RolloutGroup
from crbc_envs.storage.rollouts import RecordedTurn, Recording, read_recording
from crbc_rl.config.sections import CreditConfig
from crbc_rl.runs.folder import Run

SHOWN = 5
"""The number of groups that are shown of those without transcripts."""
FILES = 24
"""The most files of transcripts of an agents' folder that are shown."""
PIECE = re.compile(r"[^\n.]+[\n.]*|[\n.]+")
"""What texts are cut into, since prompts repeat each other's lines and sentences."""
KINDS = {"training": "training", "validation": "validation", "start": "held out, at the start", "last": "held out, last"}


@dataclass(frozen=True, slots=True)
class Scene:
    """One group under its name in links. `turns` has one entry for each step, in the order of rollouts and steps."""

    key: str
    kind: str
    update: int
    group: RolloutGroup
    turns: Sequence[RecordedTurn] | None = None
    credit: CreditConfig | None = None

    @property
    def outcome(self) -> str:
        return f"{sum(r.success for r in self.group.rollouts)} of {len(self.group)}"

    @property
    def title(self) -> str:
        """What tells it apart in a list."""
        if self.kind == "training":
            return f"update {self.update}: {self.outcome} solved"
        first = self.group.rollouts[0]
        how = ending(first) if len(self.group) == 1 else f"{self.outcome} solved"
        return f"{self.key}: {how}, {shortened(self.group.task, 60)}"

    def turns_of(self, rollout: int) -> Sequence[RecordedTurn]:
        """The turns of one rollout; empty where none were kept."""
        first = sum(map(len, self.group.rollouts[:rollout]))
        return (self.turns or ())[first : first + len(self.group.rollouts[rollout])]


@dataclass
class Texts:
    """Texts as lists of numbered pieces, each of which is kept once."""

    pieces: dict[str, int] = field(default_factory=dict)

    def cut(self, text: str) -> list[int]:
        return [self.pieces.setdefault(piece, len(self.pieces)) for piece in PIECE.findall(text)]


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


def scenes_of(run: Run, prefix: str = "") -> list[Scene]:
    """What a run kept: groups of training, by update, then held-out tasks at the start and by the last policy.

    A run without transcripts has the groups of groups.jsonl.
    """
    own = run.config.credit
    found = {}
    for path in sorted((run.folder / "rollouts").glob("*.parquet")):
        recording = read_recording(path)
        number = max(range(len(recording.groups)), key=lambda i: -abs(recording.groups[i].success_rate - 0.5))
        found[recording.update] = recorded(recording, number, f"{prefix}training-{recording.update}", "training", own)
    bare = {update: group for update, group in run.groups().items() if update not in found}
    for update, group in choose(bare)[: max(SHOWN - len(found), 0)]:
        found[update] = Scene(f"{prefix}training-{update}", "training", update, group, None, own)
    return [found[update] for update in sorted(found)]


def recorded(recording: Recording, number: int, key: str, kind: str, credit: CreditConfig | None) -> Scene:
    """One group of a file."""
    group, first = recording.groups[number], recording.row(number, 0, 0)
    turns = recording.turns and recording.turns[first : first + sum(map(len, group.rollouts))]
    return Scene(key, kind, recording.update, group, turns, credit)
