"""Rollouts on disk: exact, whole or not there, and one clear error for anything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_fixtures import fresh_policy, small
from strategies import groups, random_group

from anchors import GroupError, Rollout, RolloutGroup, Step
from crbc_envs import GroupVectorEnv
from crbc_envs.errors import DataError
from crbc_envs.storage.parquet import TOKEN_COLUMNS
from crbc_envs.storage.rollouts import RecordedTurn, decode_frame, read_groups, read_recording, write_groups
from crbc_rl.batches import RolloutBatch
from crbc_rl.learner import Learner
from crbc_rl.rollout.worker import RolloutWorker
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics

TEXTS = st.text(max_size=8)


@st.composite
def detailed_groups(draw: st.DrawFn) -> RolloutGroup:
    """Groups of `strategies.groups` with rewards, labels, a task and final anchors of every kind."""

    labels: dict[str, str] = {}  # one for each anchor

    def dressed(rollout: Rollout) -> Rollout:
        for s in rollout.steps:
            labels.setdefault(s.anchor, draw(TEXTS))
        steps = [
            Step(s.anchor, s.action, draw(st.floats(allow_nan=False, allow_infinity=False)), labels[s.anchor])
            for s in rollout.steps
        ]
        cut = draw(st.booleans()) and not rollout.success
        final = draw(st.none() | st.text(min_size=1, max_size=8))
        return Rollout(steps, rollout.success, cut, final, draw(st.none() | st.floats(0, 1)))

    return RolloutGroup([dressed(rollout) for rollout in draw(groups()).rollouts], draw(TEXTS))


def per_step(value: Callable[[int], Any], of: list[RolloutGroup]) -> list[Any]:
    """A value for every step, made from the step's number in its rollout."""
    return [value(t) for group in of for rollout in group.rollouts for t in range(len(rollout))]


def some_groups(seed: int = 0, count: int = 3) -> list[RolloutGroup]:
    rng = np.random.default_rng(seed)
    return [random_group(rng) for _ in range(count)]


def turn(t: int) -> RecordedTurn:
    return RecordedTurn(f"prompt {t}", f"<think>é</think> \0 {t}", -0.1 * t, (1, 2, t), tuple(range(t)))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_groups(tmp_path / "a.parquet", some_groups(), env_id="CRBC-Sokoban-v0", update=7)
    return tmp_path / "a.parquet"


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    """The file after somebody changed its rows and kept its header."""
    pq.write_table(change(pq.read_table(path)), path)
    return path


# ---- there and back -------------------------------------------------------------------------------


@given(given_groups=st.lists(detailed_groups(), min_size=1, max_size=4), update=st.integers(0, 10**6))
def test_groups_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, given_groups: list[RolloutGroup], update: int
) -> None:
    path = tmp_path_factory.mktemp("record") / "x.parquet"
    write_groups(path, given_groups, env_id="CRBC-Sokoban-v0", update=update)
    # As text, where nan equals itself, -0.0 is not 0.0 and labels count.
    assert repr(read_groups(path)) == repr(given_groups)
    recording = read_recording(path)
    assert (recording.env_id, recording.update) == ("CRBC-Sokoban-v0", update)
    assert recording.turns is None and recording.images is None


def test_turns_come_back_as_they_were(tmp_path: Path) -> None:
    there = some_groups()
    write_groups(tmp_path / "t.parquet", there, turns=per_step(turn, there))
    recording = read_recording(tmp_path / "t.parquet")
    assert recording.groups == there == read_groups(tmp_path / "t.parquet")
    assert recording.turns == per_step(turn, there)


def test_images_decode_to_the_frames(tmp_path: Path) -> None:
    envs = GroupVectorEnv("CRBC-Sokoban-v0", num_groups=2, group_size=2)
    frames, _ = envs.reset(options={"task": [3, 4]})
    seen: list[list[Any]] = [[] for _ in range(4)]
    while envs.active.any():
        for m in np.flatnonzero(envs.active):
            seen[m].append(frames[m].copy())
        frames, *_ = envs.step(["left", "up", "down", "right"])
    there = envs.groups()
    write_groups(tmp_path / "f.parquet", there, frames=[frame for one in seen for frame in one])
    recording = read_recording(tmp_path / "f.parquet")
    assert recording.groups == there
    assert recording.images is not None
    assert len(recording.images) == sum(map(len, seen))
    for m in range(4):
        for t, frame in enumerate(seen[m]):
            assert np.array_equal(decode_frame(recording.images[recording.row(m // 2, m % 2, t)]), frame)


def test_other_readers_find_plain_columns(tmp_path: Path) -> None:
    there = some_groups()
    frame = np.zeros((4, 5, 3), np.uint8)
    write_groups(tmp_path / "f.parquet", there, turns=per_step(turn, there), frames=per_step(lambda t: frame, there))
    table = pq.read_table(tmp_path / "f.parquet")
    assert {name: str(kind) for name, kind in zip(table.schema.names, table.schema.types, strict=True)} == {
        **dict.fromkeys(("update", "group", "rollout", "step"), "int64"),
        **dict.fromkeys(("task_id", "anchor", "label", "action", "final_anchor", "prompt", "reply", "cause"), "string"),
        **dict.fromkeys(("valid", "success", "truncated"), "bool"),
        **dict.fromkeys(("reward", "score", "logprob"), "double"),
        **dict.fromkeys(("prompt_ids", "reply_ids"), "list<element: int64>"),
        "image": "struct<bytes: binary, path: string>",
    }
    assert all(field.nullable for field in table.schema)  # `datasets` takes no other field for an image
    assert json.loads(table.schema.metadata[b"huggingface"]) == {"info": {"features": {"image": {"_type": "Image"}}}}
    assert table.num_rows == sum(len(rollout) for group in there for rollout in group.rollouts)


def test_same_input_same_bytes(tmp_path: Path) -> None:
    there = some_groups()
    rng = np.random.default_rng(1)
    frame = rng.integers(256, size=(16, 16, 3), dtype=np.uint8)
    for name in ("a", "b"):
        write_groups(
            tmp_path / name,
            there,
            update=3,
            turns=per_step(turn, there),
            frames=per_step(lambda t: frame + np.uint8(t), there),
        )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# ---- whole or not there ---------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["crbc_envs.storage.parquet.sealed", "crbc_envs.storage.files.os.fsync"])
def test_a_crash_in_the_middle_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def crash(*args: Any, **kwargs: Any) -> None:
        for file in (arg for arg in args if hasattr(arg, "write")):
            file.write(b"PAR1 and half of the rows")
        raise OSError("no space left on device")

    monkeypatch.setattr(place, crash)
    with pytest.raises(OSError, match="no space left"):
        write_groups(tmp_path / "a.parquet", some_groups())
    assert not list(tmp_path.iterdir())


def test_a_crash_leaves_the_file_before_it(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("crbc_envs.storage.files.os.replace", crash)
    with pytest.raises(KeyboardInterrupt):
        write_groups(written, some_groups(seed=9))
    assert read_groups(written) == some_groups()
    assert list(written.parent.iterdir()) == [written]


# ---- what is refused ------------------------------------------------------------------------------


def test_what_cannot_be_written(tmp_path: Path) -> None:
    there = some_groups()
    with pytest.raises(GroupError, match="no groups given"):
        write_groups(tmp_path / "a", [])
    turns = per_step(turn, there)
    turns.append(turn(0))
    with pytest.raises(
        GroupError, match=rf"turns: one per step is needed; got {len(turns)} for {len(turns) - 1} steps"
    ):
        write_groups(tmp_path / "a", there, turns=turns)
    with pytest.raises(GroupError, match=r"frames: one per step is needed; got \d+ for \d+ steps"):
        write_groups(tmp_path / "a", there, frames=per_step(lambda t: np.zeros((2, 2, 3), np.uint8), there[:2]))
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.parquet: no such file; `crbc train CONFIG` writes"):
        read_groups(tmp_path / "nowhere.parquet")


@pytest.mark.parametrize("content", [b"", b"PAR1" * 100])
def test_a_file_that_is_no_parquet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet is damaged, cut short or no Parquet file"):
        read_groups(tmp_path / "a.parquet")


def test_another_version(written: Path) -> None:
    def newer(table: pa.Table) -> pa.Table:
        header = json.loads(table.schema.metadata[b"crbc"])
        return table.replace_schema_metadata({"crbc": json.dumps({**header, "version": 2})})

    with pytest.raises(DataError, match=r"a\.parquet is of record version 2, this crbc reads version 1"):
        read_groups(rewritten(written, newer))


def test_a_parquet_file_of_something_else(written: Path) -> None:
    with pytest.raises(DataError, match="without recorded rollouts"):
        read_groups(rewritten(written, lambda table: table.replace_schema_metadata({}).drop_columns(["anchor"])))


@pytest.mark.parametrize("dynamics", [None, "shared", "independent"])
def test_the_dynamics_are_told(tmp_path: Path, dynamics: str | None) -> None:
    write_groups(tmp_path / "a.parquet", some_groups(), dynamics=dynamics)
    assert read_recording(tmp_path / "a.parquet").dynamics == dynamics


def test_the_anchors_are_told_and_others_than_the_wanted_ones_refused(tmp_path: Path) -> None:
    told, silent = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_groups(told, some_groups(), anchor="situation-1")
    write_groups(silent, some_groups())
    assert (read_recording(told).anchor, read_recording(silent).anchor) == ("situation-1", None)
    for path in (told, silent):
        assert read_groups(path, anchor="situation-1") == read_groups(path) == some_groups()
    for wanted in ("paper-2", "situation-2"):
        for read in (read_groups, read_recording):
            with pytest.raises(
                DataError, match=rf"a\.parquet has anchors 'situation-1', and '{wanted}' is wanted"
            ) as no:
                read(told, anchor=wanted)
            assert "\n" not in str(no.value)


def test_keys_of_another_version_are_refused(written: Path) -> None:
    header = '{"version":1,"env_id":"","lengths":[[1]],"anchor_version":99}'
    with pytest.raises(
        DataError, match=r"a\.parquet has anchor keys of version 99, this crbc makes version 1: read it"
    ):
        read_groups(rewritten(written, lambda table: table.replace_schema_metadata({"crbc": header})))


@pytest.mark.parametrize(
    "header",
    [
        "{",
        "[]",
        '{"version": 1, "env_id": ""}',
        '{"version": 1, "env_id": "", "lengths": [[2], []]}',
        '{"version": 1, "env_id": "", "lengths": [[1000001]]}',
    ],
)
def test_a_damaged_header(written: Path, header: str) -> None:
    with pytest.raises(DataError, match=r"a\.parquet: its header is damaged"):
        read_groups(rewritten(written, lambda table: table.replace_schema_metadata({"crbc": header})))


HAND_MADE = [
    RolloutGroup([Rollout([Step("s", "a"), Step("t", "b"), Step("u", "c")], True)], "one"),
    RolloutGroup([Rollout([Step("v", "a"), Step("w", "<invalid>")], False)] * 2, "two"),
]
"""Seven rows: three of group 0, and two for each of the two rollouts of group 1."""


def place(group: int, rollout: int, step: int) -> str:
    return f"group {group}, rollout {rollout}, step {step}"


def set_value(column: str, row: int, value: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = table.column(column).to_pylist()
        values[row] = value
        at = table.schema.get_field_index(column)
        return table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.take([0, 2, 3, 4, 5, 6]), f"row 1 is {place(0, 0, 2)}, and {place(0, 0, 1)} was written there"),
        (lambda t: t.slice(0, 6), f"row 6 is none, and {place(1, 1, 1)} was written there"),
        (lambda t: t.slice(0, 0), f"row 0 is none, and {place(0, 0, 0)} was written there"),
        (lambda t: t.take([0, 1, 2, 3, 4, 5, 6, 6]), f"row 7 is {place(1, 1, 1)}, and none was written there"),
        (lambda t: t.take([0, 1, 2, 5, 6, 3, 4]), f"row 3 is {place(1, 1, 0)}, and {place(1, 0, 0)} was written there"),
        (set_value("success", 1, False), "group 0, rollout 0, step 1: success is False, and True in the rows before"),
        (set_value("final_anchor", 6, "x"), "group 1, rollout 1, step 1: final_anchor is 'x', and None in the rows"),
        (set_value("task_id", 5, "three"), "group 1, rollout 1, step 0: task_id is 'three', and 'two' in the rows"),
        (set_value("update", 3, 8), "group 1, rollout 0, step 0: update is 8, and 0 in the rows before it"),
        (set_value("anchor", 5, "z"), "group 1: group 'two': rollout 1 starts at anchor z, rollout 0 at v"),
        (set_value("anchor", 5, None), "column 'anchor' has no value in 1 rows"),
        (lambda t: t.drop_columns(["action"]), "it has no column 'action'"),
        (lambda t: t.set_column(9, "reward", pa.array(["1"] * 7)), "column 'reward' is of type string, not double"),
    ],
)
def test_rows_that_are_not_those_written(tmp_path: Path, change: Callable[[pa.Table], pa.Table], message: str) -> None:
    path = tmp_path / "hand.parquet"
    write_groups(path, HAND_MADE)
    with pytest.raises(DataError) as caught:
        read_groups(rewritten(path, change))
    assert f"{path}: {message}" in str(caught.value) and "crbc train" in str(caught.value)


# ---- the learner ----------------------------------------------------------------------------------


def test_the_learner_keeps_what_it_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_policy().save(tmp_path / "model")
    config = small(tmp_path / "model", record_every=2, transcripts=0)
    samples: list[RolloutBatch] = []

    def watched(worker: RolloutWorker, update: int) -> RolloutBatch:
        samples.append(sample(worker, update))
        return samples[-1]

    sample = RolloutWorker.sample
    monkeypatch.setattr(RolloutWorker, "sample", watched)
    learner = Learner(config, Run.start(tmp_path / "run", config, resume=False))
    learner.train()

    folder = tmp_path / "run/rollouts"
    assert sorted(file.name for file in folder.iterdir()) == ["000002.parquet", "000004.parquet"]
    recording = read_recording(folder / "000004.parquet")
    assert (recording.update, recording.env_id, recording.dynamics) == (4, "CRBC-Sokoban-v0", "shared")
    assert recording.anchor == "paper-1"
    assert repr(recording.groups) == repr(samples[3].rollouts.groups())
    assert recording.turns is not None
    row = recording.row(1, 2, 0)
    kept, trained = recording.turns[row], samples[3].turns[row]
    assert (kept.prompt_ids, kept.reply_ids) == (tuple(trained.prompt), tuple(trained.response))
    assert kept.reply == trained.text
    assert f"Sokoban\n{recording.groups[1].rollouts[2].steps[0].label}\nYour move?" in kept.prompt
    assert kept.logprob == pytest.approx(sum(trained.logprobs))

    metrics = next(record for record in read_metrics(tmp_path / "run") if record["update"] == 4)
    told = {name: np.concatenate([getattr(turn, name) for turn in recording.turns]) for name in TOKEN_COLUMNS}
    assert told["ratios"].max() == pytest.approx(metrics["ratio_max"], rel=1e-6)
    assert told["clipped"].mean() == pytest.approx(metrics["clip_share"], rel=1e-5)
    assert told["ratios"] == pytest.approx(np.exp(told["trained"] - told["logprobs"]), rel=1e-5)
    assert all(len(set(turn.advantages)) == 1 for turn in recording.turns), "a step's tokens share its advantage"
    assert metrics["advantage_max"] == pytest.approx(told["advantages"].max(), rel=1e-6)


def test_a_run_goes_on_with_another_number_of_kept_updates(model: Path, tmp_path: Path) -> None:
    Run.start(tmp_path, small(model), resume=False)
    (tmp_path / "metrics.jsonl").write_text('{"update": 0}\n')  # the run has begun
    assert Run.start(tmp_path, small(model, record_every=1), resume=True).config.record_every == 1


@pytest.mark.parametrize("order", [1, -1])
def test_frames_of_equal_bytes_and_unequal_shapes_stay_apart(tmp_path, order):
    shapes = [(2, 6, 3), (6, 2, 3), (3, 4, 3), (2, 6, 3)][::order]
    group = RolloutGroup([Rollout([Step("s", "a")] * 4, True)])
    frames = [np.full(shape, 7, dtype=np.uint8) for shape in shapes]
    write_groups(tmp_path / "a.parquet", [group], frames=frames)
    images = read_recording(tmp_path / "a.parquet").images
    assert images is not None
    assert [decode_frame(png).shape for png in images] == shapes


# ---- the task score -------------------------------------------------------------------------------

GRADED = [
    RolloutGroup(
        [Rollout([Step("s", "a"), Step("t", "b")], False, score=0.75), Rollout([Step("s", "a")], True)], "one"
    ),
    RolloutGroup([Rollout([Step("s", "a")], False, True), Rollout([Step("s", "b")], False, score=0.1)], "two"),
]


def test_a_score_comes_back_as_it_was(tmp_path: Path) -> None:
    write_groups(tmp_path / "s.parquet", GRADED)
    assert read_groups(tmp_path / "s.parquet") == GRADED
    assert pq.read_table(tmp_path / "s.parquet").column("score").to_pylist() == [0.75, 0.75, 1.0, 0.0, 0.1]
    with pytest.raises(DataError, match=r"group 0, rollout 0, step 1: score is 0.5, and 0.75 in the rows before it"):
        read_groups(rewritten(tmp_path / "s.parquet", set_value("score", 1, 0.5)))
