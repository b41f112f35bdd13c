"""What limits an agent: every figure by hand, and the command on a tiny run."""

from __future__ import annotations

import json
import math

import gymnasium
import pytest
from learner_fixtures import write_config
from refusals import refusal

from crbc_lab.cli import main
from crbc_lab.commands.agent import play_teacher
from crbc_lab.studies import agent as study
from crbc_lab.studies.agent import Episode, Reply, words_of
from crbc_lab.studies.agent_tables import plain, rows
from crbc_rl.config import load_config
from crbc_rl.learner import Learner
from crbc_rl.rollout.intervals import wilson
from crbc_rl.runs.folder import Run

PROMPT = words_of("Task: put a mug in a drawer. go to: drawer 1 2, desk 1. take mug 1 from desk 1")


def good(action="go to desk 1", tokens=10):
    return Reply(True, action, tokens=tokens)


def bad(action, cut=False, tokens=10):
    return Reply(False, action, cut, PROMPT, tokens)


def episode(task, *replies, success=False, **fields):
    return Episode(task, success, replies, content=f"task {task}", **fields)


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (good(), None),
        (bad(None, cut=True), "cut"),
        (bad("go to drawer 1", cut=True), "cut"),
        (bad(None), "form"),
        (bad("take mug 1 from drawr 1"), "unknown word"),
        (bad("take mug 3 from desk 1"), "unknown word"),
        (bad("take mug 2 from desk 1"), "not possible here"),
        (bad("Take[MUG 1] FROM: desk-1"), "not possible here"),
        (bad("open drawer 1"), "unknown word"),
    ],
)
def test_a_reply_has_one_cause(reply, cause):
    assert study.causes_of(episode(0, reply)) == [cause]


def test_the_same_invalid_action_again_is_repeated_in_one_episode_only():
    same, cut, none = bad("take mug 2 from desk 1"), bad("take mug 2 from desk 1", cut=True), bad(None)
    causes = study.causes_of(episode(0, same, same, good(), same, cut, none, none))
    assert causes == ["not possible here", "repeated", None, "not possible here", "cut", "form", "form"]
    by_itself = study.causes_of(episode(0, same, same), repeats=False)
    assert by_itself == ["not possible here", "not possible here"]
    valid_before = episode(1, good("open drawer 1"), bad("open drawer 1"))
    assert study.causes_of(valid_before) == [None, "unknown word"]
    found = study.analyse([episode(0, same), episode(1, same)])
    assert found.invalid["not possible here"] == 1
    twice = study.analyse([episode(0, same, same)])
    assert (twice.invalid["repeated"], twice.with_repeats["not possible here"]) == (1 / 2, 1)


def test_words_of_ones_own_are_not_copied():
    query = bad("search[red shoes]")
    assert study.causes_of(episode(0, query)) == ["unknown word"]
    assert study.causes_of(episode(0, query, open_forms=("search[",))) == ["not possible here"]
    options = {"category": "electronics", "split": "test", "replies": "tags"}
    assert play_teacher("CRBC-WebShop-v0", options, [0], [0], None, {})[0].open_forms == ("search[",)


def test_words_of_commands_are_not_copied():
    """ "open" is no copying error where it is what every drawer is opened with."""
    assert study.command_words([episode(0, good("Open drawer 1"), bad("eat mug 1"))]) == {*study.GLUE, "open"}
    found = study.analyse([episode(0, good("open drawer 1")), episode(1, bad("open drawer 2"), bad("open safe 2"))])
    assert found.invalid == {"cut": 0, "form": 0, "repeated": 0, "unknown word": 1 / 3, "not possible here": 1 / 3}
    assert found.replies == 3


def test_recovery_leaves_out_the_last_reply():
    wrong = bad(None)
    found = study.recovery(
        [episode(0, wrong, good(), wrong, success=True), episode(1, wrong, wrong), episode(2, good(), success=True)]
    )
    assert found.followed == 1 / 2
    assert (found.some.won, found.some.tasks, found.none.won, found.none.tasks) == (1, 2, 1, 1)
    assert study.recovery([episode(0, good())]).followed is None
    assert study.recovery([episode(0, wrong)]).none is None


def test_success_by_kind_and_by_distance_beside_the_teacher():
    played = [
        episode(0, good(), success=True, kind="heat", distance=2, teacher=True),
        episode(1, good(), kind="heat", distance=7, teacher=True, truncated=True),
        episode(2, good(), kind="cool", distance=math.inf, teacher=False),
        episode(3, good(), kind="cool", distance=None, teacher=False),
    ]
    found = study.analyse(played)
    assert [(p.name, p.agent.won, p.teacher.won, p.agent.tasks) for p in found.by_kind] == [
        ("cool", 0, 0, 2),
        ("heat", 1, 2, 2),
    ]
    assert [(p.name, p.agent.won, p.agent.tasks) for p in found.by_distance] == [
        ("2", 1, 1),
        ("7", 0, 1),
        ("no way", 0, 1),
        ("not known", 0, 1),
    ]
    assert (found.success.agent.low, found.success.agent.high) == wilson(1, 4)
    assert found.out_of_steps == 1 / 4
    assert [row["distance"] for row in rows(played)] == [2, 7, "no way", None]
    assert study.analyse([episode(0, good())]).success.teacher is None


def test_tasks_of_one_content_count_once():
    twice = [Episode(task, True, [good()], content="a") for task in (0, 1)]
    assert study.analyse(twice).success.agent.low == pytest.approx(wilson(1, 1)[0])


def test_prompts_in_thirds_and_those_that_do_not_fit():
    long = Reply(False, None, tokens=90, shortened=True)
    played = [
        episode(0, good(tokens=10), good(tokens=20), success=True),
        episode(1, good(tokens=50), long, success=True),
        episode(2, long),
    ]
    found = study.context(played)
    assert (found.median, found.longest, found.shortened, found.first_shortened) == (50, 90, 2 / 5, 1)
    assert [(p.name, p.agent.won) for p in found.by_first] == [("10", 1), ("50", 1), ("90", 0)]
    assert [(p.name, p.agent.won, p.agent.tasks) for p in found.by_longest] == [("20", 1, 1), ("90", 1, 2)]
    assert found.invalid == {"10": 0, "20 to 50": 0, "90": 1}
    alike = study.context([episode(task, good()) for task in range(9)])
    assert [(p.name, p.agent.tasks) for p in alike.by_first] == [("10", 9)]


def test_exploration_by_hand():
    found = study.exploration([[1, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 0]], ["a", "b", "c", "d"])
    assert (found.tasks, found.samples, found.success) == (4, 3, 1 / 2)
    assert (found.mixed, found.all_lost, found.best.won) == (1 / 2, 1 / 4, 3)
    assert found.best_of == pytest.approx({1: 1 / 2, 2: (2 / 3 + 0 + 1 + 1) / 4, 3: 3 / 4})
    assert study.exploration([[True]], ["a"]).best_of == {1: 1.0}


def test_the_teacher_wins_what_can_be_won_in_the_steps():
    options = {"observation": "text", "split": "test", "replies": "tags"}
    careful = play_teacher("CRBC-Sokoban-v0", options, range(4), range(4), None, {})
    assert all(start.won and 0 < start.distance < math.inf for start in careful)
    far = max(range(4), key=lambda task: careful[task].distance)
    for steps, won in ((0, True), (-1, False)):
        short = {**options, "max_steps": int(careful[far].distance) + steps}
        assert play_teacher("CRBC-Sokoban-v0", short, [far], [0], None, {})[0].won is won
    with pytest.raises(TypeError, match="nothing"):
        play_teacher("CRBC-Sokoban-v0", options, [0], [0], None, {"nothing": 1})


@pytest.fixture(scope="module")
def run(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "run"
    changes = {"updates": 1, "env": {"kwargs": {"observation": "text", "max_steps": 3}}}
    config = load_config(write_config(folder.with_suffix(".yaml"), model, **changes))
    Learner(config, Run.start(folder, config, resume=False)).train()
    return folder


def test_the_command_prints_and_writes(run, tmp_path, capsys):
    main(["study", "agent", str(run), "--episodes", "5", "--samples", "2", "--out", str(tmp_path / "new")])
    said = capsys.readouterr().out
    main(["eval", str(run), "--episodes", "5"])
    assert capsys.readouterr().out.splitlines()[0] in said
    for part in ("invalid replies, of all 15", "unknown word", "exploration", "recovery", "context", "expert"):
        assert part in said, part
    written = json.loads((tmp_path / "new" / "agent.json").read_text())
    found = written["findings"]
    assert (written["evaluation"]["episodes"], len(written["tasks"]), found["replies"]) == (5, 5, 15)
    assert sum(found["invalid"].values()) == pytest.approx(written["evaluation"]["invalid_share"])
    assert found["success"]["teacher"]["tasks"] == 5 and found["exploration"]["samples"] == 2
    assert all(row["distance"] >= 1 for row in written["tasks"])
    assert plain(study.Rate(1, 2, 0.1, 0.9))["rate"] == 0.5


def test_it_is_played_as_it_is_set(run, tmp_path, capsys):
    changes = ["--set", "env.kwargs.max_steps=2", "--teacher", "hasty=1.0", "--samples", "0", "--episodes", "2"]
    main(["study", "agent", str(run), "--policy", "start", "--out", str(tmp_path), *changes])
    assert "exploration" not in capsys.readouterr().out
    written = json.loads((tmp_path / "agent.json").read_text())
    assert [row["length"] for row in written["tasks"]] == [2, 2]
    assert (written["teacher"], written["env_kwargs"]["max_steps"]) == ({"hasty": 1.0}, 2)
    assert written["findings"]["exploration"] is None


def test_spread_takes_tasks_from_the_whole_split(run, tmp_path):
    split = ["--split", "train", "--spread", "--episodes", "4", "--samples", "1"]
    main(["study", "agent", str(run), *split, "--out", str(tmp_path)])
    written = json.loads((tmp_path / "agent.json").read_text())
    size = len(gymnasium.make("CRBC-Sokoban-v0", observation="text").unwrapped.panel)
    assert [row["task"] for row in written["tasks"]] == [0, size // 4, size // 2, 3 * size // 4]
    assert (written["split"], written["spread"], written["findings"]["exploration"]["tasks"]) == ("train", True, 4)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--set", "optim.lr=1"], "change what is played"),
        (["--teacher", "nothing=1"], "--teacher nothing=1: the expert of CRBC-Sokoban-v0 cannot play"),
    ],
)
def test_a_wrong_command_is_one_line(run, arguments, why, capsys, tmp_path):
    assert why in refusal(capsys, "study", "agent", str(run), "--out", str(tmp_path / "out"), *arguments)
    assert not (tmp_path / "out").exists()
