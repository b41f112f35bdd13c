"""What a run keeps by itself to show why its agent fails: which tasks, within how many bytes, and with what beside."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learner_fixtures import small

from anchors import InternedRollouts, Rollout, RolloutGroup, Step
from crbc_envs.storage.rollouts import RecordedTurn, decode_frame, read_recording
from crbc_rl.batches import RolloutBatch, Turn
from crbc_rl.learner import Learner
from crbc_rl.runs import transcripts
from crbc_rl.runs.folder import Run
from crbc_rl.runs.initial_eval_cache import LIKE
from crbc_rl.runs.lines import OUTCOMES, read_lines
from crbc_rl.runs.transcripts import Play, Plays, Transcripts, chosen, kept, play_of, plays_of, write_plays


def train(folder: Path, model: Path, resume: bool = False, **changes: Any) -> Path:
    config = small(model, **changes)
    Learner(config, Run.start(folder, config, resume)).train()
    return folder


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("run") / "run", model, transcripts=4)


def test_a_run_keeps_tasks_before_and_after_and_a_group_at_each_validation(run: Path) -> None:
    found = [(update, kind) for update, kind, _ in kept(run)]
    assert found == [(0, "test"), (2, "training"), (4, "test"), (4, "training")]
    recordings = [read_recording(path) for _, _, path in kept(run)]
    start, group, last, _ = recordings
    assert [one.task for one in start.groups] == [one.task for one in last.groups] and len(start.groups) == 4
    assert all(len(one) == 1 for one in start.groups) and (len(group.groups), len(group.groups[0])) == (1, 3)
    assert start.update == 0 and {one.anchor for one in recordings} == {"paper-1"}
    options = last.credit["options"]
    assert last.credit["method"] == "crbc" and (options["beta"], options["w_group"]) == (0.98, 1.0)
    assert "depth" in options and last.env_id == "CRBC-Sokoban-v0"
    for turn in (turn for one in recordings for turn in one.turns):
        assert len(turn.logprobs) == len(turn.reply_ids) > 0 and sum(turn.logprobs) == pytest.approx(turn.logprob)
        assert turn.values == () and "Sokoban" in turn.prompt
    first = read_recording(kept(run)[0].path, [2])
    assert first.groups == start.groups[2:3]


def test_what_is_kept_was_played(run: Path) -> None:
    outcomes = {line["update"]: line for line in read_lines(run / OUTCOMES) if line["split"] == "test"}
    for update in (0, 4):
        recording = read_recording(run / f"transcripts/test-{update:06d}.parquet")
        returns = [one.rollouts[0].reward for one in recording.groups]
        assert set(np.round(returns, 9)) <= set(np.round(outcomes[update]["reward"], 9))


def test_a_run_killed_behind_its_last_evaluation_comes_to_the_same_bytes(
    run: Path, model: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(run, cut)
    shutil.rmtree(cut / "checkpoints" / "000004")  # its transcripts are there, and those of the start are reduced
    (cut / "transcripts/training-000009.parquet").write_bytes(b"behind the resume point")
    train(cut, model, resume=True, transcripts=4)
    files = [{one.path.name: one.path.read_bytes() for one in kept(folder)} for folder in (run, cut)]
    assert files[0] == files[1]


def test_a_longer_run_keeps_the_tasks_of_its_start_and_its_new_end(model: Path, tmp_path: Path) -> None:
    folder = train(tmp_path / "run", model, transcripts=4, updates=2)
    assert [(one.update, one.kind) for one in kept(folder)] == [(0, "test"), (2, "test"), (2, "training")]
    train(folder, model, resume=True, transcripts=4)
    found = [(one.update, one.kind) for one in kept(folder)]
    assert found == [(0, "test"), (2, "training"), (4, "test"), (4, "training")]


def test_transcripts_may_be_left_out_and_change_nothing_that_is_trained(run: Path, model: Path, tmp_path: Path) -> None:
    none = train(tmp_path / "none", model, transcripts=0, updates=2)
    assert kept(none) == [] and not (none / "transcripts").exists()
    train(none, model, resume=True, transcripts=4)
    assert [(one.update, one.kind) for one in kept(none)] == [(4, "test"), (4, "training")]
    same = ("checkpoints/000004/model.safetensors", "transcripts/training-000004.parquet")
    assert all((none / file).read_bytes() == (run / file).read_bytes() for file in same)


def test_a_start_that_is_taken_over_brings_its_tasks(
    run: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIKE, str(run))
    other = train(tmp_path / "other", model, transcripts=4, credit={"method": "grpo"})
    first, second = (read_recording(folder / "transcripts/test-000000.parquet") for folder in (run, other))
    by_task = {one.task: one for one in first.groups}
    assert second.groups == [by_task[one.task] for one in second.groups] and second.credit["method"] == "grpo"


def test_a_critic_tells_its_values(model: Path, tmp_path: Path) -> None:
    folder = train(tmp_path / "ppo", model, updates=2, credit={"method": "gae"}, critic={"lr": 1e-2})
    turns = read_recording(folder / "transcripts/training-000002.parquet").turns
    assert all(len(turn.values) == len(turn.reply_ids) for turn in turns) and any(turn.values[0] for turn in turns)
    assert read_recording(folder / "transcripts/test-000002.parquet").turns[0].values == ()


# ---- by hand --------------------------------------------------------------------------------------


def play(task: str, won: bool, kind: str = "", reply: str = "r") -> Play:
    group = RolloutGroup([Rollout([Step("s", "a")], won)], task)
    return Play(kind, group, [RecordedTurn("p", reply, 0.0, (), ())], ())


def names(plays: list[Play]) -> list[str]:
    return [one.group.task for one in plays]


def test_a_task_that_comes_again_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "play_of", lambda batch, number, decode, kind: (number, kind))
    plays = Plays(4, lambda turn: "p")
    plays(
        {"repeat": np.array([0, 1, 0]), "kind": np.array(["a", "a", "b"], dtype=object)},
        RolloutBatch.of_turns([Turn([1], [2], [0.0])] * 3),
    )
    assert plays.all == [(0, "a"), (2, "b")]


def test_the_start_is_reduced_to_the_tasks_of_the_last_policy(tmp_path: Path) -> None:
    (tmp_path / "transcripts").mkdir()
    keeps = Transcripts(tmp_path, 2, lambda turn: "p", {})
    keeps.keep_test(0, [play(f"task {n}", False) for n in range(6)])
    keeps.keep_test(5, [play(f"task {n}", n != 3) for n in range(6)])
    tasks = [[group.task for group in read_recording(path).groups] for _, _, path in kept(tmp_path)]
    assert tasks == [["task 3", "task 0"]] * 2


def test_lost_and_won_tasks_take_turns_and_so_do_kinds() -> None:
    plays = [play(f"lost {kind}{n}", False, kind) for kind in "ab" for n in range(3)]
    plays += [play(f"won {n}", True) for n in range(9)]
    assert names(chosen(plays, 6)) == ["lost a0", "won 0", "lost b0", "won 1", "lost a1", "won 2"]
    assert names(chosen(plays, 15)) == names(chosen(chosen(plays, 15), 15)) and len(chosen(plays, 99)) == 15
    assert names(chosen(plays[5:], 4)) == ["lost b2", "won 0", "won 1", "won 2"]  # few were lost
    assert names(chosen(plays[:7], 5)) == ["lost a0", "won 0", "lost b0", "lost a1", "lost b1"]  # few were won
    assert names(chosen(plays[:7], 1)) == ["lost a0"]


def test_files_stay_within_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    plays = [play(str(n), False, reply=rng.bytes(5_000).hex()) for n in range(10)]
    path = tmp_path / "a.parquet"
    written = write_plays(path, plays, room=40_000)
    assert 0 < len(written) < 10 and path.stat().st_size <= 40_000
    assert names(written) == [str(n) for n in range(len(written))]
    assert write_plays(path, plays, room=10) == [] and not path.exists()
    monkeypatch.setattr(transcripts, "TEST_BYTES", 40_000)
    some = Transcripts(tmp_path, 8, lambda turn: "", {})
    some.keep_test(0, plays)
    some.keep_test(3, plays)
    start, last = (read_recording(one.path).groups for one in kept(tmp_path))
    assert start == last and f"{10 - len(last)} of 10 are left out, as it has at most 40000 bytes" in caplog.text


def test_the_oldest_training_groups_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, some = np.random.default_rng(0), Transcripts(tmp_path, 8, lambda turn: "prompt", {})
    monkeypatch.setattr(transcripts, "TRAINING_BYTES", 40_000)
    for update in range(5):
        turn = Turn([1], [2], [-0.5], rng.bytes(5_000).hex())
        rollouts = InternedRollouts.from_groups([RolloutGroup([Rollout([Step("s", "a")], True)], "t")])
        some.keep_training(update, RolloutBatch.of(rollouts, [turn]), 0)
    left = [one.update for one in kept(tmp_path)]
    assert left == [2, 3, 4] and sum(one.path.stat().st_size for one in kept(tmp_path)) <= 40_000


def test_frames_that_the_policy_saw_are_kept(tmp_path: Path) -> None:
    frames = [np.full((2, 3, 3), n, np.uint8) for n in range(4)]
    groups = [RolloutGroup([Rollout([Step("s", "a"), Step("t", "a")], True)], str(n)) for n in range(2)]
    turns = [Turn([1], [2], [-0.5], str(n), (frame,)) for n, frame in enumerate(frames)]
    batch = RolloutBatch.of(InternedRollouts.from_groups(groups), turns)
    write_plays(tmp_path / "a.parquet", [play_of(batch, 1, lambda turn: "p")])
    recording = read_recording(tmp_path / "a.parquet")
    assert [decode_frame(png).max() for png in recording.images] == [2, 3]
    again = next(plays_of(recording))
    assert [turn.reply for turn in again.turns] == ["2", "3"] and np.array_equal(again.frames[1], frames[3])


def test_what_is_damaged_or_not_finite_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    some = Transcripts(tmp_path, 2, lambda turn: "", {})
    some.keep_test(0, [play("a", False), play("b", True)])
    (tmp_path / "transcripts/test-000000.parquet").write_bytes(b"damaged")
    some.keep_test(3, [play("b", False)])
    assert names(list(plays_of(read_recording(kept(tmp_path)[1].path)))) == ["b"] and "damaged" in caplog.text
    wrong = play("c", False)._replace(turns=[RecordedTurn("p", "r", float("nan"), (), ())])
    assert write_plays(tmp_path / "c.parquet", [wrong]) == [] and "no transcripts: " in caplog.text
