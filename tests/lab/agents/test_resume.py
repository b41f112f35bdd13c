"""A run that was stopped anywhere goes on: nothing is lost, played twice, counted twice or bought twice."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import effort
from scripted_model import (
    IMPATIENT,
    KINDS,
    FaultyModel,
    ScriptedPolicy,
    agents_config,
    outcome,
    play,
    served,
    wanderer,
    write_agents_config,
)
from warm import Warm

from crbc_lab.agents.ledger import Answer, Ledger
from crbc_lab.report import write_report
from crbc_rl.errors import ConfigError


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


class Stop(RuntimeError):
    pass


class Stopping(ScriptedPolicy):
    """Dies before its reply number `after`."""

    def __init__(self, after: int) -> None:
        super().__init__(self._reply)
        self.after = after

    def _reply(self, text: str) -> str:
        if len(self.asked) > self.after:
            raise Stop
        return wanderer(text)


def test_a_rerun_makes_no_call(tmp_path: Path) -> None:
    config = agents_config(tmp_path, "reflexion", reflexion={"trials": 2})
    told = play(config, tmp_path / "run", ScriptedPolicy(wanderer))
    written = (tmp_path / "run/agents.json").read_bytes()
    policy = ScriptedPolicy(wanderer)
    again = play(config, tmp_path / "run", policy)
    assert not policy.asked and outcome(again) == outcome(told) and again["spent"] == told["spent"]
    assert (tmp_path / "run/agents.json").read_bytes() == written

    (tmp_path / "run/episodes.jsonl").unlink()
    again = play(config, tmp_path / "run", policy)
    assert not policy.asked, "the cache has every answer"
    assert again["this_start"] == {"asked": 0, "from_cache": told["spent"]["calls"], "played": 6}
    assert (tmp_path / "run/agents.json").read_bytes() == written


@pytest.mark.parametrize("after", [0, 1, 7, 20, 45])
def test_a_run_that_died_goes_on_from_its_last_call(tmp_path: Path, after: int) -> None:
    config = agents_config(tmp_path, "reflexion", reflexion={"trials": 2}, limits={"concurrency": 1})
    whole = play(config, tmp_path / "whole", ScriptedPolicy(wanderer))
    with pytest.raises(Stop):
        play(config, tmp_path / "run", Stopping(after))
    told = json.loads((tmp_path / "run/agents.json").read_text())
    assert not told["complete"] and told["stopped"] == "interrupted" and told["spent"]["calls"] == after
    policy = ScriptedPolicy(wanderer)
    told = play(config, tmp_path / "run", policy)
    assert outcome(told) == outcome(whole) and told["spent"] == whole["spent"]
    assert len(policy.asked) == whole["spent"]["calls"] - after


def test_a_folder_with_other_tasks_is_no_run_to_continue(tmp_path: Path) -> None:
    told = play(agents_config(tmp_path), tmp_path / "run", ScriptedPolicy(wanderer))
    path = tmp_path / "run/settings.json"
    kept = json.loads(path.read_text())
    assert kept["panel"] == told["panel"] and len(told["panel"]["digest"]) > 8
    kept["panel"]["digest"] = "another"
    path.write_text(json.dumps(kept))
    with pytest.raises(ConfigError, match=r"holds a run with other settings \(panel.digest: another there, "):
        play(agents_config(tmp_path), tmp_path / "run", ScriptedPolicy(wanderer))


def test_a_run_under_way_has_a_page(tmp_path: Path) -> None:
    pages: list[str] = []

    def watched(text: str) -> str:
        pages.append(write_report(tmp_path / "run").read_text() if len(pages) in (0, 9) else "")
        return wanderer(text)

    play(agents_config(tmp_path), tmp_path / "run", ScriptedPolicy(watched))
    assert "it is under way, or was killed" in pages[0] and "it is under way, or was killed" in pages[9]
    assert "it is under way" not in write_report(tmp_path / "run").read_text()


def test_a_line_that_a_kill_has_cut_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = agents_config(tmp_path)
    whole = play(config, tmp_path / "run", ScriptedPolicy(wanderer))
    for name, lost in (("calls.jsonl", 0), ("episodes.jsonl", 1)):
        path = tmp_path / "run" / name
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:-1]) + lines[-1][:-5])
        policy = ScriptedPolicy(wanderer)
        told = play(config, tmp_path / "run", policy)
        assert outcome(told) == outcome(whole) and told["this_start"]["played"] == len(policy.asked) == lost
        assert all(json.loads(line) for line in path.read_bytes().splitlines())
    assert not caplog.records
    calls = tmp_path / "run/calls.jsonl"
    calls.write_bytes(b"\xff{]\n[1]\n" + b"[" * 100_000 + b"\n" + calls.read_bytes() + b'{"key": "a", "cost": 3}\n')
    told = play(config, tmp_path / "run", ScriptedPolicy(wanderer))
    assert outcome(told) == outcome(whole) and caplog.text.count("is damaged and left out") == 3


def test_calls_differ_by_all_that_an_answer_depends_on(tmp_path: Path) -> None:
    from crbc_envs.prompts import Prompt

    def key(prompt: Prompt, seed: int = 0, call: int = 0, **model: object) -> str:
        config = agents_config(tmp_path, model=model)
        return Ledger(tmp_path / "calls.jsonl", config).key(prompt, seed, call)

    keys = [
        key(Prompt("p")),
        key(Prompt("q")),
        key(Prompt("p", system="s")),
        key(Prompt("p"), seed=1),
        key(Prompt("p"), call=1),
        key(Prompt("p"), name="other"),
        key(Prompt("p"), temperature=0.5),
        key(Prompt("p"), max_tokens=5),
        key(Prompt("p"), options={"stop": ["\n"]}),
    ]
    assert len(set(keys)) == len(keys)
    assert key(Prompt("p"), endpoint="http://elsewhere/v1", key_variable="KEY") == keys[0], "the address is no part"


def test_a_failed_call_is_no_answer(tmp_path: Path) -> None:
    config = agents_config(tmp_path, prices={"input": 2.0, "output": 10.0})
    ledger = Ledger(tmp_path / "calls.jsonl", config)
    ledger.record("a", Answer(faults={"500": 3}, failure="no"))
    ledger.record("b", Answer("text", 100, 10, faults={"429": 1}))
    for known in (ledger, Ledger(tmp_path / "calls.jsonl", config)):
        assert known.known("a") is None and known.known("b") == Answer("text", 100, 10, faults={"429": 1})
        spent = known.spent
        assert (spent.calls, spent.failed, spent.retries, spent.faults) == (2, 1, 3, {"500": 3, "429": 1})
        assert spent.cost(config.prices) == pytest.approx(300 / 1e6)


# ---- budgets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "budget", [{"limits": {"tokens": 200}}, {"limits": {"money": 0.002}, "prices": {"input": 10.0, "output": 20.0}}]
)
def test_a_budget_ends_the_run_cleanly(tmp_path: Path, budget: dict[str, dict[str, float]]) -> None:
    whole = play(agents_config(tmp_path), tmp_path / "whole", ScriptedPolicy(wanderer))
    limits = {"concurrency": 2, **budget["limits"]}
    config = agents_config(tmp_path, **{**budget, "limits": limits})
    policy = ScriptedPolicy(wanderer)
    told = play(config, tmp_path / "run", policy)
    assert not told["complete"] and 0 < told["episodes"] < 6
    assert f"limits.{next(iter(budget['limits']))}: " in told["stopped"] and "are spent" in told["stopped"]
    calls = told["spent"]["calls"]
    assert calls == len(policy.asked) <= 200 // 13 + 2, "at most the calls that were under way are beyond it"
    assert told["unanswered"] == 0, "an episode that the budget stopped is not finished, and not counted"

    policy = ScriptedPolicy(wanderer)
    assert not play(config, tmp_path / "run", policy)["complete"] and not policy.asked
    more = agents_config(tmp_path, prices=budget.get("prices", {}))
    told = play(more, tmp_path / "run", policy)
    assert outcome(told) == outcome(whole) and len(policy.asked) == whole["spent"]["calls"] - calls


def test_a_folder_belongs_to_one_run(tmp_path: Path) -> None:
    config = agents_config(tmp_path, episodes=1)
    play(config, tmp_path / "run", ScriptedPolicy(wanderer))
    changed = agents_config(tmp_path, episodes=1, limits={"retries": 1}, prices={"input": 1.0}, name="renamed")
    play(changed, tmp_path / "run", ScriptedPolicy(wanderer))
    for change, said in (
        ({"episodes": 2}, "episodes: 1 there, 2 now"),
        ({"episodes": 1, "model": {"temperature": 1.0}}, "model.temperature: 0.4 there, 1.0 now"),
        ({"episodes": 1, "agent": "direct"}, "agent: react there, direct now"),
    ):
        agent = str(change.pop("agent", "react"))  # type: ignore[attr-defined]
        with pytest.raises(ConfigError, match=said):
            play(agents_config(tmp_path, agent, **change), tmp_path / "run", ScriptedPolicy(wanderer))  # type: ignore[arg-type]
    (tmp_path / "training").mkdir()
    (tmp_path / "training/config.yaml").write_text("name: x")
    with pytest.raises(ConfigError, match="holds a training run"):
        play(config, tmp_path / "training", ScriptedPolicy(wanderer))


def test_seeds_are_separate_episodes_of_the_same_tasks(tmp_path: Path) -> None:
    said = Counter[str]()

    def replies(text: str) -> str:
        said[text] += 1
        return "up" if said[text] == 1 else "down"

    told = play(agents_config(tmp_path, seeds=[3, 5], episodes=2), tmp_path / "run", ScriptedPolicy(replies))
    assert told["episodes"] == 4 and set(told["by_seed"]) == {"3", "5"} and told["success"]["different_tasks"] == 2
    assert len(list((tmp_path / "run/rollouts").rglob("*.parquet"))) == 4


# ---- kill -9 ----------------------------------------------------------------------------------------


def killing(pid: int, at: int | None) -> Callable[[int], None]:
    """Kill the process once, after so many answers."""
    killed = threading.Event()

    def kill(count: int) -> None:
        if at is not None and count >= at and not killed.is_set():
            killed.set()
            os.kill(pid, signal.SIGKILL)

    return kill


@pytest.mark.full
def test_a_killed_run_goes_on(warm: Warm, tmp_path: Path) -> None:
    """SIGKILL at any call, again and again, with faults besides; then the result is that of the quiet run."""
    with served(FaultyModel(wanderer)) as url:
        whole = play(agents_config(tmp_path, "reflexion", url, reflexion={"trials": 2}), tmp_path / "whole")
    model = FaultyModel(wanderer, KINDS, rate=0.3)
    write_agents_config(tmp_path / "config.yaml", "reflexion", reflexion={"trials": 2}, limits=IMPATIENT)
    with served(model) as url:
        command = ["agents", tmp_path / "config.yaml", "--endpoint", url, "--run", "run"]
        for kill_at in [*range(5, 5 + 11 * effort(3, full=8), 11), None]:
            process = warm.start(command, tmp_path)
            model.on_answer = killing(process.pid, kill_at)
            ended = process.wait()
            assert kill_at is not None or ended.status == 0, ended
    told = json.loads((tmp_path / "run/agents.json").read_text())
    assert outcome(told) == outcome(whole)
    lines = (tmp_path / "run/episodes.jsonl").read_text().splitlines()
    assert len(lines) == 6, "no episode is played twice"
    assert sum(count - 1 for count in model.answered.values()) <= 3 * effort(3, full=8), "but calls under way"
