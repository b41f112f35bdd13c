"""A recording that was damaged anywhere is an error, and what could not be read again is not written."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anchors import GroupError, InternedRollouts, Rollout, RolloutGroup, Step
from crbc_envs.errors import DataError
from crbc_envs.storage import parquet
from crbc_envs.storage.parquet import MARK, WHOLE_MARK
from crbc_envs.storage.rollouts import RecordedTurn, Recording, read_groups, read_recording, write_groups

HALF = "see \ud83d here"
GROUPS = [
    RolloutGroup([Rollout([Step("s", "a", -0.1, "one"), Step("t", "<invalid>", 0.5)], True, score=0.75)], "task"),
    RolloutGroup([Rollout([Step("s", "b")], False, True, "end"), Rollout([Step("s", "a")], False)], "other"),
]
OLD_TURNS = [RecordedTurn(f"prompt {t}", "reply", -0.5, (1, 2), (3,)) for t in range(4)]
TURNS = [replace(turn, logprobs=(-0.5,), values=(0.25 * t,)) for t, turn in enumerate(OLD_TURNS)]
CREDIT = {"method": "crbc", "options": {"beta": 0.9, "depth": None}}
OLD = Path(__file__).parents[2] / "data/recording_whole_seal.parquet"
"""A recording as it was written before groups had digests of their own: `GROUPS`, `OLD_TURNS` and `FRAMES`."""
FRAMES = [np.full((2, 3, 3), t, np.uint8) for t in range(4)]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "a.parquet"
    told: Any = {"env_id": "CRBC-Sokoban-v0", "update": 7, "dynamics": "shared", "credit": CREDIT}
    write_groups(path, GROUPS, turns=TURNS, frames=FRAMES, **told)
    return path


def footer_of(content: bytes) -> int:
    """Where the footer begins."""
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def refused(path: Path, content: bytes, whole: Recording) -> bool:
    """Whether damaged content is refused, by one line that says what and where. Otherwise it reads as it was."""
    path.write_bytes(content)
    try:
        assert repr(read_recording(path)) == repr(whole)
    except DataError as error:
        text = str(error)
        assert str(path) in text and "crbc train" in text and "\n" not in text and len(text) < 1_000
        return True
    return False


def changed(content: bytes, at: int) -> bytes:
    """The content with one bit, or all bits, of one byte turned."""
    damaged = bytearray(content)
    damaged[at] ^= (0x01, 0x80, 0xFF)[at % 3]
    return bytes(damaged)


def places(content: bytes) -> list[int]:
    """Bytes of header, middle and footer: all where one of these ends."""
    footer = footer_of(content)
    return [
        *range(64),
        *range(64, footer - 64, 7),
        *range(footer - 64, footer + 64),
        *range(footer + 64, len(content), 5),
    ]


@pytest.mark.parametrize("old", [False, True])
def test_every_changed_byte_is_found(written: Path, old: bool) -> None:
    if old:
        shutil.copy(OLD, written)
    whole, content, begun = read_recording(written), written.read_bytes(), WHOLE_MARK if old else MARK
    mark = range(content.index(begun), content.index(begun) + len(begun))
    for at in places(content):
        # Without its mark the seal is none, and everything else is as it was.
        assert refused(written, changed(content, at), whole) == (at not in mark), at


def test_every_cut_is_found(written: Path) -> None:
    whole, content = read_recording(written), written.read_bytes()
    for length in places(content):
        assert refused(written, content[:length], whole), length
    for end in (b"\0", content[-8:], content):
        assert refused(written, content + end, whole)


def test_an_older_recording_opens_whole_and_in_part() -> None:
    whole = read_recording(OLD)
    assert (whole.groups, whole.turns, whole.update, whole.credit) == (GROUPS, OLD_TURNS, 7, None)
    assert read_recording(OLD, [1]).groups == GROUPS[1:] and read_recording(OLD, [0]).turns == OLD_TURNS[:2]


@pytest.mark.parametrize("again", [False, True])  # as it is, and as a tool wrote it
def test_one_group_is_read_without_the_others(written: Path, again: bool) -> None:
    whole = read_recording(written)
    assert (whole.groups, whole.turns, whole.credit) == (GROUPS, TURNS, CREDIT) and whole.images
    if again:
        pq.write_table(pq.read_table(written), written)
    second = read_recording(written, [1])
    assert (second.groups, second.turns, second.images) == (GROUPS[1:], TURNS[2:], whole.images[2:])
    assert second.row(0, 1, 0) == 1 and second.credit == CREDIT
    assert read_recording(written, (1, 0, 1)) == whole
    for wrong in ([2], [-1], []):
        with pytest.raises(DataError, match=r"it has no group -?\d; choose from 0 to 1"):
            read_recording(written, wrong)


def test_damage_of_a_group_is_found_when_it_is_read(written: Path) -> None:
    content, first = bytearray(written.read_bytes()), read_recording(written, [0])
    content[content.index(MARK) - 1] ^= 1
    written.write_bytes(content)
    assert read_recording(written, [0]) == first
    for groups in ([1], None):
        with pytest.raises(DataError, match="the digest of group 1 differs"):
            read_recording(written, groups)


@pytest.mark.parametrize("parts", [b"7", b"[]", b"[[1]]", b"{}", b'[["a", 2], [3, 4]]'])
def test_parts_that_are_none_are_damage(written: Path, monkeypatch: pytest.MonkeyPatch, parts: bytes) -> None:
    dumps = json.dumps
    monkeypatch.setattr(
        parquet.json, "dumps", lambda value: parts.decode() if isinstance(value, list) else dumps(value)
    )
    write_groups(written, GROUPS)
    with pytest.raises(DataError, match="is damaged, cut short or no Parquet file"):
        read_recording(written)


def test_a_file_that_a_tool_wrote_again_is_read_with_a_warning(
    written: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = read_recording(written)
    assert not caplog.messages
    pq.write_table(pq.read_table(written), written)
    assert MARK not in written.read_bytes() and repr(read_recording(str(written))) == repr(whole)
    assert caplog.messages == [f"{written} was written by another tool: nothing tells whether a row was changed there"]


@pytest.mark.parametrize("final", ["end", None])  # pandas writes a column without values as one of nulls
def test_a_recording_that_pandas_wrote_again_is_read(tmp_path: Path, final: str | None) -> None:
    path = tmp_path / "a.parquet"
    members = [Rollout([Step("s", "a"), Step("t", "b")], False, final_anchor=final), Rollout([Step("s", "a")], True)]
    groups = [RolloutGroup(members, "one"), RolloutGroup(members[::-1], "two")]
    write_groups(path, groups, env_id="Own-v0", turns=(TURNS * 2)[:6], frames=(FRAMES * 2)[:6], update=3)
    whole = read_recording(path)
    frame = pd.read_parquet(path)
    frame.to_parquet(path)
    again = read_recording(path)
    assert (again.groups, again.turns, again.images, again.update) == (groups, whole.turns, whole.images, 3)
    assert again.env_id == "" and read_groups(path) == groups
    frame[frame.group != 0].to_parquet(path)
    with pytest.raises(DataError, match="its groups are not numbered from 0 on"):
        read_groups(path)
    frame[frame.index != 1].to_parquet(path)  # a row in the middle: group 0, rollout 0, step 1 is the last of its own
    assert [len(rollout) for rollout in read_groups(path)[0].rollouts] == [1, 1]
    frame[frame.index != 0].to_parquet(path)
    with pytest.raises(DataError, match="row 0 is group 0, rollout 0, step 1, and group 0, rollout 0, step 0 was"):
        read_groups(path)


def test_a_file_of_far_too_many_rows_is_not_read(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MOST_ROWS", 3)
    with pytest.raises(DataError, match="it has 4 rows, and at most 3 are read"):
        read_recording(written)


# ---- what is written can be read ------------------------------------------------------------------


def test_more_rows_than_are_read_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MOST_ROWS", 1)
    with pytest.raises(GroupError, match="not written: of 2 rows at most 1 are read: write several"):
        write_groups(tmp_path / "a.parquet", group())
    assert not list(tmp_path.iterdir())


def group(reward: Any = 0.0, task: Any = "t", label: Any = "", **ends: Any) -> list[RolloutGroup]:
    return [RolloutGroup([Rollout([Step("s", "a", 1.0), Step("t", "b", reward, label)], False, **ends)], task)]


def test_half_a_character_is_written_as_a_question_mark(tmp_path: Path) -> None:
    turn = RecordedTurn("whole \U0001f600", HALF, 0.0, (), ())
    write_groups(tmp_path / "a.parquet", group(label=HALF), turns=[turn] * 2)
    found = read_recording(tmp_path / "a.parquet")
    assert found.turns == [RecordedTurn("whole \U0001f600", "see ? here", 0.0, (), ())] * 2
    assert found.groups[0].rollouts[0].steps[1].label == "see ? here"


@pytest.mark.parametrize(
    ("there", "options", "message"),
    [
        (group(math.nan), {}, "reward of group 0, rollout 0, step 1 is nan, not a finite number"),
        (group(score=1.5), {}, "score of group 0, rollout 0, step 0 is 1.5, not a number from 0 to 1"),
        (group(task=3), {}, "column 'task_id': "),
        (group(label=None), {}, "column 'label' has no value in 1 rows"),
        (group(), {"update": 2**63}, "column 'update': "),
        (group(), {"turns": [RecordedTurn("", "", math.nan, (), ())] * 2}, "logprob of group 0, rollout 0, step 0"),
        (group(), {"turns": [RecordedTurn("", "", 0.0, (2**70,), ())] * 2}, "column 'prompt_ids': "),
        (group(), {"turns": [replace(TURNS[0], values=(math.inf,))] * 2}, "'values' has a value that is no finite"),
        (group(), {"frames": [np.zeros((2, 3), np.uint8)] * 2}, "number 0 is (2, 3) uint8, not (height, width, 3)"),
    ],
)
def test_what_could_not_be_read_is_refused_by_name(
    tmp_path: Path, there: list[RolloutGroup], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(GroupError) as caught:
        write_groups(tmp_path / "a", there, **options)
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", [list, InternedRollouts.from_groups])
def test_truncated_is_kept(tmp_path: Path, there: Callable[[Any], Any]) -> None:
    write_groups(tmp_path / "a.parquet", there(GROUPS))
    found = read_recording(tmp_path / "a.parquet").groups
    assert [[r.truncated for r in one.rollouts] for one in found] == [[False], [True, False]]
    assert pq.read_table(tmp_path / "a.parquet").column("truncated").to_pylist() == [False, False, True, False]
    again = [RolloutGroup.from_dict(json.loads(json.dumps(one.to_dict()))) for one in GROUPS]
    assert repr(again) == repr(GROUPS)


@pytest.mark.parametrize("wrong", ["false", 0.5, None])
def test_a_truncation_that_is_no_flag_is_refused(wrong: Any) -> None:
    data = {**GROUPS[1].to_dict()}
    data["rollouts"][0]["truncated"] = wrong
    with pytest.raises(GroupError, match="truncated must be binary"):
        RolloutGroup.from_dict(data)


def test_a_column_of_another_type_is_refused_by_the_same_words(written: Path) -> None:
    table = pq.read_table(written)
    column = table.schema.get_field_index("truncated")
    pq.write_table(table.set_column(column, "truncated", pa.array([0, 1, 0, 0])), written)
    with pytest.raises(DataError, match="column 'truncated' is of type int64, not bool"):
        read_recording(written)
