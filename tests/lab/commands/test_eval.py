"""`crbc eval --out`: one JSON file with a row per episode, which a killed evaluation comes to all the same."""

from __future__ import annotations

import itertools
import json
import re
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from learner_fixtures import fresh_policy, small, write_config
from refusals import refusal
from rich.console import Console
from warm import Warm

from crbc_envs.actions import requested_action
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.storage.rollouts import read_recording
from crbc_envs.tasks import rng
from crbc_envs.vector.members import make_member
from crbc_envs.webshop.env import WebShopEnv
from crbc_lab import cli, progress
from crbc_lab.commands import evaluate, recording
from crbc_lab.evaluation.record import columns_of, read_evaluation, record_metrics, rows_of, written
from crbc_lab.evaluation.scripted import play_scripted
from crbc_rl.errors import ConfigError
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.rollout.evaluate import play_tasks, rollout_seed
from crbc_rl.runs.folder import Run

ROOMS = {"kwargs": {"max_steps": 3, "observation": "text"}}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config for policies without a model, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(recording, "CHUNK", 4)
    monkeypatch.setattr(evaluate, "CHUNK", 4)
    return write_config(Path("c.yaml"), Path("none"), env=ROOMS)


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    return refusal(capsys, "eval", *args)


def test_the_file_says_what_was_played_and_how_each_episode_ended(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["eval", str(config), "--policy", "random", "--episodes", "10", "--out", "a.json"])
    printed = capsys.readouterr().out
    data = read_evaluation(Path("a.json"))
    assert list(data) == [
        *("format", "crbc", "policy", "env", "modules", "data", "split", "panel", "seed", "temperature"),
        *("max_new_tokens", "max_thought_tokens", "max_prompt_tokens", "truncation", "threads", "chunk"),
        *("result", "by_kind", "rows"),
    ]
    panel = data["panel"]
    assert (data["policy"], panel["name"], panel["episodes"], len(panel["digest"])) == (
        {"which": "random"},
        "first",
        10,
        64,
    )
    assert [row["task"] for row in data["rows"]] == list(range(10))
    result = data["result"]
    assert result["success"] == sum(row["success"] for row in data["rows"]) / 10
    assert (result["distinct_tasks"], result["clusters"]) == (10, 10)
    assert f"panel first-1 {panel['digest'][:8]}: 10 distinct tasks in 10 clusters" in printed
    assert f"random: success {result['success']:.1%} (95 % interval " in printed and "wrote a.json" in printed
    assert not Path("a.partial.jsonl").exists()
    assert written(data) == Path("a.json").read_bytes()
    assert rows_of(columns_of(data["rows"])) == data["rows"]


def test_a_pipe_is_told_how_long_it_takes_yet(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text is looked at in the middle, by a clock of 2 s for each look."""
    said, clock = list[str](), itertools.count(0.0, 2.0)

    class Spied(evaluate.Bars):
        def __init__(self, console: Console, say: Callable[[], str]) -> None:
            super().__init__(console, say)
            self._begun, self.update = 0.0, lambda *args, **told: said.append(say())

    monkeypatch.setattr(evaluate, "Bars", Spied)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    cli.main(["eval", str(config), "--policy", "random", "--episodes", "8"])
    assert len(said) > 1 and re.fullmatch(r"  \d of 8 test tasks, \d+ s, about \d+ s left", said[0]), said
    assert said[-1].startswith("  8 of 8 test tasks, ") and said[-1].endswith("about 0 s left")


KILLED = """
import os, signal, sys
from pathlib import Path
from crbc_lab import cli
from crbc_lab.commands import evaluate, recording
from crbc_envs.storage import files
calls = []
def append(path, record):
    calls.append(record)
    if len(calls) < 3:
        return files.append_line(path, record)
    with open(path, "ab") as file:
        file.write(b'{"rows": [{"task": 4, "rep')
    os.kill(os.getpid(), signal.SIGKILL)
recording.append_line, recording.CHUNK, evaluate.CHUNK = append, 4, 4
cli.main(sys.argv[1:])
"""


@pytest.mark.parametrize("policy", ["start", "random"])
def test_a_killed_evaluation_comes_to_the_same_file(
    warm: Warm,
    policy: str,
    model: Path,
    config: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed inside its second write, and continued in another process."""
    Run.start(Path("r"), small(model, env=ROOMS), resume=False)
    asked = ["eval", "r", "--policy", policy, "--episodes", "10", "--out"]
    forget, forgot = TransformersPolicy.forget, list[None]()
    monkeypatch.setattr(TransformersPolicy, "forget", lambda self: forgot.append(forget(self)))
    cli.main([*asked, "whole.json"])
    assert len(forgot) == (3 if policy == "start" else 0)  # of 4, 4 and 2: a resumed one has read no prompt before
    assert warm.run(["-c", KILLED, *asked, "cut.json"], Path.cwd()).status == -signal.SIGKILL
    kept = Path("cut.partial.jsonl").read_bytes()
    assert kept.count(b"\n") == 2 and not kept.endswith(b"\n") and not Path("cut.json").exists()
    assert "add --resume to continue it" in refused(capsys, *asked[1:], "cut.json")
    if policy == "random":  # what is kept is not played again
        monkeypatch.setattr(evaluate, "play_scripted", _only_from(4, evaluate.play_scripted))
    cli.main([*asked, "cut.json", "--resume"])
    assert Path("cut.json").read_bytes() == Path("whole.json").read_bytes()
    assert not Path("cut.partial.jsonl").exists()
    if policy == "random":  # its replies are no model's
        assert not Path("whole.transcripts.parquet").exists()
    else:  # those of this start alone
        whole, rest = (read_recording(f"{name}.transcripts.parquet") for name in ("whole", "cut"))
        assert len(whole.groups) == 10 and len(rest.groups) == 6 and rest.credit["method"] == "crbc"
        assert (whole.policy, whole.update) == ("start", 0)
        assert {one.task for one in rest.groups} < {one.task for one in whole.groups}
        cli.main([*asked, "two.json", "--transcripts", "2"])
        assert len(read_recording("two.transcripts.parquet").groups) == 2
    capsys.readouterr()
    monkeypatch.setattr(evaluate, "_played", None)  # it is finished: nothing is played
    cli.main([*asked, "cut.json", "--resume"])
    assert f"{policy}: success" in capsys.readouterr().out


def _only_from(first: int, play: Any) -> Any:
    def played(script: str, config: Any, split: str, tasks: Any, *rest: Any) -> Any:
        assert min(tasks) == first
        return play(script, config, split, tasks, *rest)

    return played


def test_what_differs_is_named_before_anything_is_played(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [str(config), "--policy", "random", "--episodes", "6", "--out"]
    cli.main(["eval", *asked, "a.json"])
    capsys.readouterr()
    data = json.loads(Path("a.json").read_text())
    header = {name: value for name, value in data.items() if name not in ("result", "by_kind", "rows")}
    lines = [json.dumps(header), json.dumps({"rows": data["rows"][:4]})]
    Path("b.partial.jsonl").write_text("\n".join(lines) + "\n")
    begun = (*asked, "b.json", "--resume")
    assert "policy.which = 'random', and now it is 'expert'" in refused(capsys, *(*begun[:2], "expert", *begun[3:]))
    assert "panel.digest = " in refused(capsys, *begun[:4], "7", *begun[5:])
    moved = {**header, "policy": {**header["policy"], "url": "http://elsewhere/v1"}, "rows": data["rows"]}
    Path("moved.json").write_text(json.dumps({**data, **moved}))
    cli.main(["eval", *asked, "moved.json", "--resume"])  # a server may start elsewhere
    write_config(config, Path("none"), env=ROOMS, seed=3)
    assert "seed = 0, and now it is 3" in refused(capsys, *begun)
    assert "seed = 0, and now it is 3" in refused(capsys, *asked, "a.json", "--resume")
    write_config(config, Path("none"), env={**ROOMS, "replies": "tags"})
    assert "env.replies = None, and now it is 'tags'" in refused(capsys, *begun)
    write_config(config, Path("none"), env=ROOMS, rollout={"max_new_tokens": 4, "max_thought_tokens": 2})
    assert "max_thought_tokens = None, and now it is 2" in refused(capsys, *begun)
    write_config(config, Path("none"), env=ROOMS)
    for broken in (b"{}\n", b'{"rows": [{"task": 0}]}\n', json.dumps({"rows": data["rows"][1:5]}).encode() + b"\n"):
        Path("b.partial.jsonl").write_bytes(lines[0].encode() + b"\n" + broken)
        assert "b.partial.jsonl is damaged" in refused(capsys, *begun)
    Path("b.partial.jsonl").write_bytes(b"somebody's notes")
    assert "b.partial.jsonl is damaged" in refused(capsys, *begun)
    assert Path("b.partial.jsonl").read_bytes() == b"somebody's notes"
    assert "a.json is there already" in refused(capsys, *asked, "a.json")
    assert "ends with .json" in refused(capsys, *asked, "a.txt")
    assert "there is no folder" in refused(capsys, *asked, "no/a.json")
    assert "name that file" in refused(capsys, *asked[:-1], "--resume")
    Path("c.json").write_text("{}")
    with pytest.raises(ConfigError, match="it has no rows of episodes"):
        read_evaluation(Path("c.json"))


def test_what_finds_the_nouns_of_the_reward_is_kept_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(Path("c.yaml"), Path("none"), env={"id": "CRBC-WebShop-v0", "kwargs": {"max_steps": 3}})
    asked = [str(config), "--policy", "random", "--episodes", "2", "--out", "a.json"]
    cli.main(["eval", *asked])
    kept = json.loads(Path("a.json").read_text())["panel"]["reward_tagger"]
    monkeypatch.setattr(WebShopEnv, "reward_tagger", "another")
    assert f"panel.reward_tagger = '{kept}', and now it is 'another'" in refused(capsys, *asked, "--resume")


def test_an_evaluation_that_only_began_is_begun_anew(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.partial.jsonl").write_bytes(b'{"format": 1, "cr')
    cli.main(["eval", str(config), "--policy", "random", "--episodes", "2", "--out", "a.json"])
    assert len(read_evaluation(Path("a.json"))["rows"]) == 2


def test_households_are_drawn_as_in_the_paper_and_told_by_family(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = {"id": "CRBC-ALFWorld-v0", "kwargs": {"rooms": "small", "max_steps": 1}}
    write_config(config, Path("none"), env=env)
    asked = [str(config), "--policy", "random", "--split", "validation", "--episodes", "12", "--panel", "paper"]
    cli.main(["eval", *asked, "--out", "a.json"])
    data = read_evaluation(Path("a.json"))
    assert {kind: told["episodes"] for kind, told in data["by_kind"].items()} == {
        **{"pick": 3, "clean": 2, "cool": 2},
        **{"look": 1, "heat": 2, "pick2": 2},
    }
    for told in data["by_kind"].values():
        assert told["distinct_tasks"] <= told["episodes"] and told["interval"][0] <= told["success"]
    assert "panel paper-1 " in capsys.readouterr().out


def test_sokobans_two_scores_are_those_of_its_rollouts() -> None:
    """The success rate, and the paper's text_score: the mean over steps of the return of the step's rollout."""
    config = small(Path("unused"), env={"kwargs": {"max_steps": 6, "observation": "text"}})
    (columns,) = play_scripted("expert", config, "test", range(12), [0] * 12, 0)
    returns, wins = [], 0
    with closing(make_member("CRBC-Sokoban-v0", {**config.env.kwargs, "split": "test"})) as env:
        for task in range(12):
            seen, info = env.reset(seed=0, options={"task": task})
            expert, rewards, over = env.expert(rng("expert", rollout_seed("evaluation", 0, task, 0))), [], False
            assert expert is not None
            while not over:
                seen, reward, won, cut, info = env.step(expert(seen, info))
                rewards, over = [*rewards, reward], won or cut
            returns.append(rewards)
            wins += info["success"]
    told = record_metrics("test", rows_of(columns))
    assert 0 < wins < 12 and told["success"] == wins / 12  # six steps are too few for some rooms
    assert told["return"] == pytest.approx(np.mean([sum(rewards) for rewards in returns]))
    assert told["text_score"] == pytest.approx(np.mean([sum(rewards) for rewards in returns for _ in rewards]))
    assert told["text_score"] < told["return"]


class Terse(SokobanEnv):
    """Its expert replies with bare actions."""

    def expert(self, rng: np.random.Generator, **options: Any) -> Any:
        expert = super().expert(rng, **options)
        return None if expert is None else lambda seen, info: requested_action(expert(seen, info))


def test_an_expert_may_reply_with_a_bare_action() -> None:
    gymnasium.register("Terse-v1", entry_point=Terse, kwargs={"observation": "text"})
    config = small(Path("unused"), env={"id": "Terse-v1", "kwargs": {}})
    (columns,) = play_scripted("expert", config, "test", range(4), [0] * 4, 0)
    assert columns["success"].all() and not columns["invalid"].any()
    del gymnasium.registry["Terse-v1"]


def test_a_policys_scores_are_those_of_its_rollouts() -> None:
    config = small(Path("unused"), env=ROOMS)
    ((columns, batch),) = play_tasks(fresh_policy(), config, "test", range(5), "evaluation", 0, temperature=1.0)
    told, rewards = record_metrics("test", rows_of(columns)), batch.rollouts.reward
    sums = np.bincount(batch.rollouts.rollout, rewards)
    assert told["return"] == pytest.approx(sums.mean())
    assert told["text_score"] == pytest.approx(sums[batch.rollouts.rollout].mean())
    assert told["success"] == batch.rollouts.success.mean()


# ---- tasks and settings -----------------------------------------------------------------------------


def rows(config: Path, *words: str) -> list[dict[str, Any]]:
    Path("x.json").unlink(missing_ok=True)
    cli.main(["eval", str(config), "--policy", "random", "--out", "x.json", *words])
    return list(read_evaluation(Path("x.json"))["rows"])


def test_chosen_tasks_are_played_as_in_a_whole_panel(config: Path) -> None:
    whole = rows(config, "--episodes", "6", "--split", "validation")
    assert rows(config, "--tasks", "5,2", "--split", "validation") == [whole[5], whole[2]]
    assert [row["repeat"] for row in rows(config, "--tasks", "2,5,2")] == [0, 0, 1]


def test_a_manifest_names_its_split_and_is_checked_before_anything_is_played(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    played = rows(config, "--tasks", "7,3", "--split", "train")
    Path("x.json").rename("manifest.json")
    assert rows(config, "--tasks", "manifest.json") == played
    Path("own.json").write_text('{"split": "train", "tasks": [7, 3]}')
    assert rows(config, "--tasks", "own.json") == played
    monkeypatch.setattr(evaluate, "_played", lambda *args: pytest.fail("it was played"))
    other = ["--tasks", "manifest.json", "--set", "env.kwargs.height=9"]
    assert "its tasks have the digest" in refused(capsys, str(config), "--policy", "random", *other)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--tasks", "5,"], "--tasks '5,': write it as 5,23,28"),
        (["--tasks", "5", "--episodes", "2"], "--tasks names the tasks: leave --episodes and --panel out"),
        (["--tasks", "99999999"], "--tasks: task 99999999, and the test panel has 0 to "),
        (["--tasks", "some/game.tw-pddl"], "the test panel has no task by the name of 'some/game.tw-pddl'"),
        (["--tasks", "gone.json"], "--tasks gone.json: No such file or directory; a manifest is JSON such as"),
        (["--tasks", "c.json"], "--tasks c.json: it names no tasks; a manifest is JSON such as"),
        (["--set", "env.kwargs.nope=1"], "CRBC-Sokoban-v0 has no argument 'nope'"),
        (["--set", "env.replies=loose"], "env.replies"),
        (["--extra-body", "{}"], "--extra-body is for the requests to a server"),
    ],
)
def test_a_mistake_in_what_is_evaluated_is_one_line(
    config: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    Path("c.json").write_text('{"tasks": [1.5]}')
    assert expected in refused(capsys, str(config), "--policy", "random", *words)


@pytest.mark.parametrize("body", ["{", "[]", '{"messages": []}'])
def test_a_mistake_in_extra_fields_is_one_line(config: Path, capsys: pytest.CaptureFixture[str], body: str) -> None:
    server = ["--endpoint", "http://127.0.0.1:9/v1", "--model", "m"]
    assert "--extra-body: " in refused(capsys, str(config), *server, "--extra-body", body)


def test_settings_replace_those_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fresh_policy().save(tmp_path / "model")
    Run.start(tmp_path / "run", small(tmp_path / "model", env=ROOMS), resume=False)
    played = rows(Path("run"), "--set", "env.kwargs.max_steps=2", "--episodes", "3")
    assert [row["length"] for row in played] == [2, 2, 2]


def test_a_model_folder_is_asked_as_it_was_trained_or_else_is_told_how_to_reply(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh_policy().save(Path("mine"))
    Path("mine/warmstart.json").write_text("{}")
    fresh_policy().save(Path("theirs"))
    for name in ("mine", "theirs"):
        with pytest.raises(SystemExit) as ended:  # neither was trained
            cli.main(
                ["eval", str(config), "--model", name, "--max-tokens", "5", "--episodes", "2", "--out", f"{name}.json"]
            )
        assert ended.value.code == 1
    mine, theirs = (read_evaluation(Path(f"{name}.json"))["policy"] for name in ("mine", "theirs"))
    assert (mine["replies"], mine["instructed"], mine["max_new_tokens"]) == ("tags", False, 5)
    assert (theirs["replies"], theirs["instructed"], theirs["max_new_tokens"]) == ("thought", True, 5)
    printed = capsys.readouterr().out
    assert "mine was trained by crbc" in printed and "theirs: the prompt 'compact' names no tags" in printed
    limits = ["--set", "rollout.max_prompt_tokens=3", "--set", "rollout.truncation=error", "--episodes", "2"]
    assert "max_prompt_tokens=3: a prompt has 49" in refused(capsys, str(config), "--model", "mine", *limits)
    assert "name a model folder" in refused(capsys, str(config), "--model", "c.yaml")
