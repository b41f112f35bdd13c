"""measure_splits and `crbc bench splits`: what of the held-out splits is also in training."""

from __future__ import annotations

import re

import gymnasium
import pytest
import toy_env  # registers Corridor-v0
from effort import effort
from refusals import refusal

import crbc_envs
from crbc_envs import measure_splits
from crbc_envs.checking.splits import ANCHOR, CONTENT, TEXT
from crbc_envs.sokoban.env import BOARD, LAYOUT
from crbc_envs.tasks import SPLITS, Task
from crbc_lab import cli

SMALL = {"train_tasks": 27, "held_out_tasks": 27, "walks": 4}


class SameTasks(toy_env.CorridorEnv):
    """The test split is the training split."""

    def __init__(self, split="train", **options):
        super().__init__("train" if split == "test" else split, **options)


class Inner(toy_env.Corridors):
    """Training starts in cells 0 to 4; every other split has the same keys, one cell further right."""

    def _task(self, index):
        start, key = divmod(index, 4)
        start += self.split != "train"
        return Task(f"inner/{self.split}/{index}", toy_env.TEXT, (start, key), f"{self.split} {start}{key}")


class InnerEnv(toy_env.CorridorEnv):
    """No held-out task is a training task, yet nearly every start can be reached in one."""

    def __init__(self, split="train", **options):
        super().__init__(split, **options)
        self.panel = Inner(split, 20)

    def canonical_forms(self):
        return {"mirrored": str(min((self.cell, self.key), (8 - self.cell, 8 - self.key)))}

    def traits(self):
        return {"key": str(self.key)}

    def near_traits(self):
        return {"key": {str(self.key + 1)}}


class NoTestAnchors(toy_env.CorridorEnv):
    def _anchor(self):
        return None if self.panel.split == "test" else super()._anchor()


class NoSplits(toy_env.CorridorEnv):
    def __init__(self, max_steps=30, render_mode=None):
        super().__init__("train", max_steps, render_mode=render_mode)


class OwnSplits(toy_env.CorridorEnv):
    def __init__(self, split="train", render_mode=None):
        if split not in ("train", "dev"):
            raise ValueError(f"split must be train or dev; got {split!r}")
        super().__init__("train", render_mode=render_mode)


for kind in (SameTasks, InnerEnv, NoSplits, NoTestAnchors, OwnSplits):
    # A function cannot be imported elsewhere, so the checks start no other processes.
    gymnasium.register(f"{kind.__name__}-v0", entry_point=lambda kind=kind, **options: kind(**options))


def test_splits_without_anything_in_common():
    report = measure_splits("Corridor-v0", **SMALL)
    assert not report.leaks
    assert [part.split for part in report.held_out] == ["validation", "test"]
    for part in report.held_out:
        assert part.tasks == part.different[CONTENT] == 27
        assert part.train[CONTENT] == part.train[ANCHOR] == part.visited[ANCHOR] == 0
        assert not any(part.other.values())
        assert TEXT not in part.train  # every task has the same text, so it tells nothing


def test_a_split_that_is_the_training_split_is_found():
    validation, test = measure_splits("SameTasks-v0", **SMALL).held_out
    assert validation.train[CONTENT] == 0
    assert test.train[CONTENT] == test.train[ANCHOR] == test.visited[ANCHOR] == 27
    assert measure_splits("SameTasks-v0", **SMALL).leaks


def test_a_start_inside_a_training_task_is_found_by_random_walks_only():
    alone = measure_splits("InnerEnv-v0", **{**SMALL, "walks": 0})
    walked = measure_splits("InnerEnv-v0", **SMALL)
    for part in alone.held_out:
        # Starts 1 to 4 are training starts too; start 5 is not.
        assert (part.tasks, part.train[CONTENT], part.train[ANCHOR], part.visited[ANCHOR]) == (20, 0, 16, 0)
    for part in walked.held_out:
        assert part.train[ANCHOR] == 16 and part.visited[ANCHOR] == 20
        assert part.other[ANCHOR] == 20 and part.other[CONTENT] == 0
    assert walked.steps > alone.steps == 0
    assert walked.leaks


def test_forms_and_traits_are_compared_too():
    (part, _) = measure_splits("InnerEnv-v0", **SMALL).held_out
    assert part.different["key"] == 4
    assert part.train["key"] == 20 and "key" not in part.visited
    assert part.near == {"key": 15}  # the key one cell further is a training key but for the last
    assert part.visited["mirrored"] == 20


def test_a_name_by_which_all_starts_are_alike_tells_nothing():
    report = measure_splits("CRBC-WebShop-v0", train_tasks=5, held_out_tasks=5, walks=1)
    for part in report.held_out:
        assert part.different[ANCHOR] == 1 and part.visited[ANCHOR] == 5  # the page on which every search begins
        assert part.worst == (0, ANCHOR)
    assert not report.leaks


def test_sokoban_s_splits_share_no_layout_and_no_visited_start():
    numbers = {"train_tasks": 200, "held_out_tasks": 600, "walks": 8}
    report = measure_splits("CRBC-Sokoban-v0", **numbers, observation="text")
    assert not report.leaks
    for part in report.held_out:
        assert part.tasks == part.different[BOARD] == part.different[LAYOUT] == 600
        assert part.train[LAYOUT] == part.visited[BOARD] == part.visited[ANCHOR] == part.other[LAYOUT] == 0
        assert 20 < part.near[LAYOUT] < 600


def test_the_leak_of_the_paper_s_panel_is_seen():
    numbers = {"train_tasks": 300, "held_out_tasks": 300, "walks": effort(2, full=8)}
    report = measure_splits("CRBC-Sokoban-v0", **numbers, observation="text", panel="paper")
    assert report.leaks
    for part in report.held_out:
        assert part.different[LAYOUT] < 250 and part.train[CONTENT] > 30 and part.visited[BOARD] > 60


def test_the_figures_depend_on_the_seed_alone():
    first, again, other = (measure_splits("Corridor-v0", seed=seed, **SMALL) for seed in (3, 3, 4))
    assert first == again != other


def test_an_environment_without_a_panel_is_compared_by_its_starts():
    class Seeds(gymnasium.Wrapper):
        """Any environment of the contract: its tasks are seeds."""

        panel = None

    gymnasium.register("Seeds-v0", entry_point=lambda split="train": Seeds(toy_env.CorridorEnv(split)))
    try:
        report = measure_splits("Seeds-v0", train_tasks=5, held_out_tasks=5, walks=1)
    finally:
        del gymnasium.registry["Seeds-v0"]
    assert set(report.held_out[0].different) == {ANCHOR}
    assert report.steps > 0


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"train_tasks": 0}, "train_tasks must be at least 1, got 0"),
        ({"held_out_tasks": 0}, "held_out_tasks must be at least 1, got 0"),
        ({"walks": -1}, "walks must be at least 0, got -1"),
    ],
)
def test_a_number_that_is_too_small_is_refused(numbers, message):
    with pytest.raises(ValueError, match=message):
        measure_splits("Corridor-v0", **numbers)


def test_progress_is_told_up_to_the_last_task():
    told = []
    measure_splits("Corridor-v0", train_tasks=5, held_out_tasks=6, walks=0, progress=lambda *done: told.append(done))
    assert told == [(done, 17) for done in range(1, 18)]


# ---- in check_anchor_env --------------------------------------------------------------------------


def check(env_id, **options):
    return crbc_envs.check_anchor_env(gymnasium.make(env_id), episodes=4, fuzz=0, **options)


def test_the_check_compares_a_few_tasks_of_each_split():
    report = check("InnerEnv-v0", split_tasks=5)
    assert report.splits == measure_splits("InnerEnv-v0", train_tasks=5, held_out_tasks=5, walks=1)
    assert "splits          of 5 test tasks, 0 are among the train tasks compared, and " in str(report)
    assert check("InnerEnv-v0", split_tasks=0).splits is None


def test_the_check_goes_on_where_there_are_no_such_splits():
    report = check("NoSplits-v0")
    assert report.splits is None and "splits" not in report.skipped
    report = check("OwnSplits-v0")
    assert report.splits is None
    assert report.skipped["splits"] == "split must be train or dev; got 'validation'"


def test_a_task_of_another_split_that_cannot_be_played_fails_the_check():
    with pytest.raises(
        crbc_envs.AnchorEnvError, match="check 'splits', test task 0, step 0: EnvError: .*the anchor is None"
    ):
        check("NoTestAnchors-v0")


# ---- the command ----------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_says_by_its_status_whether_there_is_a_leak(capsys):
    numbers = ["--train-tasks", "20", "--held-out-tasks", "40", "--walks", "2"]
    cli.main(["bench", "splits", "CRBC-Sokoban-v0", "--set", "observation=text", *numbers])
    printed = capsys.readouterr().out
    assert "CRBC-Sokoban-v0, seed 0: 20 train tasks, 2 random walks in each" in printed
    assert "also in train: content" in printed and "0 (0.0%)" in printed
    with pytest.raises(SystemExit) as left:
        cli.main(["bench", "splits", "CRBC-Sokoban-v0", "--set", "panel=paper", "observation=text", *numbers])
    assert left.value.code == 1
    cli.main(["bench", "splits", "CRBC-WebShop-v0", "--train-tasks", "2", "--held-out-tasks", "2", "--walks", "1"])
    assert "all starts have one anchor, so its visits tell nothing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["splits"], "takes an environment, such as crbc bench splits CRBC-Sokoban-v0"),
        (["splits", "CRBC-Sokoban-v0", "--games", "x"], "takes an environment, such as"),
        (["conformance"], "crbc bench conformance --games DIR"),
        (["conformance", "CRBC-Sokoban-v0", "--games", "x"], "takes an environment or a folder of games"),
        (["conformance", "--games", "x", "--set", "a=b"], "takes an environment or a folder of games"),
        (["conformance", "CRBC-WebShop-v0"], "names no original to compare with; these do: CRBC-ALFWorld-v0, CRBC-S"),
        (["conformance", "CartPole-v1"], "CartPole-v1 names no original to compare with"),
        (["conformance", "CRBC-Sokoban-v0", "--set", "engine=gym"], "--set engine=gym: write an argument"),
        (["conformance", "CRBC-Sokoban-v0", "--set", "level=9x9"], "it cannot be made: level must be one of"),
        (["splits", "Nope-v0"], "no environment 'Nope-v0'"),
        (["splits", "CartPole-v1"], "its splits cannot be compared: .*unexpected keyword argument 'split'"),
        (["splits", "CRBC-Sokoban-v0", "--set", "split=test"], "--set split=test: write an argument"),
        (["splits", "CRBC-Sokoban-v0", "--set", "panel"], "--set panel: write an argument of the environment as"),
        (["splits", "CRBC-Sokoban-v0", "--set", "panel=clean"], "panel must be one of v3, paper; got 'clean'"),
        (["splits", "CRBC-Sokoban-v0", "--set", "level=9x9"], "level must be one of 6x6, "),
    ],
)
def test_a_mistake_is_one_line(words, message, capsys):
    assert re.search(message, refusal(capsys, "bench", *words))


def test_a_task_that_cannot_be_played_is_one_line(capsys):
    gymnasium.register("Damaged-v0", entry_point="broken_envs:OneTaskCannotBePlayed")
    said = refusal(capsys, "bench", "splits", "Damaged-v0", "--train-tasks", "2", "--held-out-tasks", "27")
    assert "Damaged-v0: its splits cannot be compared: check 'splits', test task 20" in said


def test_every_environment_of_the_suite_names_the_splits_of_the_comparison():
    assert SPLITS == ("train", "validation", "test")
    for env_id in ("CRBC-ALFWorld-v0", "CRBC-WebShop-v0"):
        report = measure_splits(env_id, train_tasks=3, held_out_tasks=3, walks=1)
        assert set(report.held_out[0].train) >= {CONTENT, ANCHOR}
        assert not any(part.train[CONTENT] for part in report.held_out)
