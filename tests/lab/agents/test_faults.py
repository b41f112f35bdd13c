"""A server with faults: every episode is counted once, and the result is that of a server without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scripted_model import IMPATIENT, KINDS, FaultyModel, ScriptedPolicy, agents_config, outcome, play, served, wanderer

from crbc_rl.errors import ConfigError


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def records(folder: Path) -> list[dict[str, object]]:
    """The lines of episodes.jsonl, in the order of their tasks, without costs."""
    found = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    return sorted(found, key=lambda record: (record["seed"], record["task"]))


def recordings(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a Reflexion run without a fault."""
    folder = tmp_path_factory.mktemp("peaceful")
    with pytest.MonkeyPatch.context() as patch, served(FaultyModel(wanderer)) as url:
        patch.setenv("NO_PROXY", "127.0.0.1")
        told = play(agents_config(folder, "reflexion", url, reflexion={"trials": 2}), folder / "run")
    assert told["complete"] and told["unanswered"] == 0 and not told["spent"]["faults"]
    assert told["trials"] > 6, "some trials fail, and reflections follow"
    return folder / "run"


@pytest.mark.parametrize(
    "kinds", [KINDS, *(pytest.param((kind,), marks=pytest.mark.full, id=kind) for kind in KINDS)], ids=["all", *KINDS]
)
def test_three_in_ten_faults_change_nothing(kinds: tuple[str, ...], peaceful: Path, tmp_path: Path) -> None:
    model = FaultyModel(wanderer, kinds, rate=0.3)
    with served(model) as url:
        config = agents_config(tmp_path, "reflexion", url, reflexion={"trials": 2}, limits=IMPATIENT)
        told = play(config, tmp_path / "run")
    before = json.loads((peaceful / "agents.json").read_text())
    assert outcome(told) == outcome(before)
    assert [record["task"] for record in records(tmp_path / "run")] == list(range(6))
    assert records(tmp_path / "run") == records(peaceful)
    assert recordings(tmp_path / "run") == recordings(peaceful)
    spent = told["spent"]
    assert set(model.faults) == set(kinds) and sum(model.faults.values()) > 5
    assert sum(spent["faults"].values()) == spent["retries"] >= sum(model.faults.values())
    assert (spent["calls"], spent["tokens_in"]) == (before["spent"]["calls"], before["spent"]["tokens_in"])
    assert spent["failed"] == 0 and max(model.answered.values()) == 1, "no answer is bought twice"


def test_the_account_names_the_faults(tmp_path: Path) -> None:
    names = {"429": "429", "500": "500", "hang": "timeout", "json": "garbage", "cut": "cut", "closed": "cut"}
    for kind, name in names.items():
        (tmp_path / kind).mkdir()
        with served(FaultyModel(wanderer, (kind,))) as url:
            told = play(agents_config(tmp_path / kind, url=url, episodes=2, limits=IMPATIENT), tmp_path / kind / "run")
        assert name in told["spent"]["faults"], kind


def test_without_repetitions_a_failed_call_fails_its_episode_once(peaceful: Path, tmp_path: Path) -> None:
    model = FaultyModel(wanderer, ("500", "cut", "json"), rate=0.05)
    changes = {"reflexion": {"trials": 2}, "limits": {"retries": 0}}
    with served(model) as url:
        config = agents_config(tmp_path, "reflexion", url, **changes)
        told = play(config, tmp_path / "run")
        found = records(tmp_path / "run")
        assert [record["task"] for record in found] == list(range(6))
        lost = [record for record in found if record["unanswered"]]
        assert 0 < len(lost) < 6 and told["unanswered"] == len(lost)
        assert told["complete"] and told["success"]["episodes"] == 6
        assert all(record["solved_at"] is None and record["score"] == 0.0 for record in lost)
        assert told["endings"]["unanswered"] <= len(lost)
        assert told["spent"]["failed"] == sum(model.faults.values()) == len(lost)
        for record, other in zip(found, records(peaceful), strict=True):
            assert record == other or record["unanswered"]

        model.kinds = ()
        same = play(config, tmp_path / "run")
        assert same["this_start"] == {"asked": 0, "from_cache": 0, "played": 0}, "what is counted is not played again"
        told = play(config, tmp_path / "run", again=True)
    assert told["unanswered"] == 0 and told["this_start"]["played"] == len(lost)
    assert outcome(told) == outcome(json.loads((peaceful / "agents.json").read_text()))
    assert recordings(tmp_path / "run") == recordings(peaceful)
    assert max(model.answered.values()) == 1


def test_a_server_that_never_answers_costs_its_deadline(tmp_path: Path) -> None:
    limits = {"call_seconds": 0.4, "attempt_seconds": 0.15}
    with served(FaultyModel(wanderer, ("hang",), rate=1.0)) as url:
        told = play(agents_config(tmp_path, url=url, episodes=3, limits=limits), tmp_path / "run")
    assert told["unanswered"] == told["episodes"] == 3 and told["success"]["success"] == 0.0
    found = records(tmp_path / "run")
    assert all("no answer within 0.4 s" in str(record["unanswered"]) for record in found)
    assert not recordings(tmp_path / "run"), "no step was made"
    assert told["endings"] == {"unanswered": 3} and told["steps"] == 0


def test_an_episode_has_a_deadline_too(tmp_path: Path) -> None:
    with served(FaultyModel(wanderer)) as url:
        limits = {"episode_seconds": 1e-6}
        told = play(agents_config(tmp_path, url=url, episodes=2, limits=limits), tmp_path / "run")
    assert told["unanswered"] == 2
    assert all("no answer within" in str(record["unanswered"]) for record in records(tmp_path / "run"))


def test_a_refused_prompt_fails_its_episode_and_a_refused_run_is_an_error(tmp_path: Path) -> None:
    with served(FaultyModel(wanderer, ("refused",), rate=1.0)) as url:
        config = agents_config(tmp_path, url=url)
        with pytest.raises(ConfigError, match="answered 400: no such field"):
            play(config, tmp_path / "none")
    told = json.loads((tmp_path / "none/agents.json").read_text())
    assert "answered 400: no such field" in told["stopped"]
    with served(FaultyModel(wanderer)) as url:  # nothing was answered, so what was wrong may be corrected
        assert play(agents_config(tmp_path, url=url, episodes=1), tmp_path / "none")["complete"]
    model = FaultyModel(wanderer)
    with served(model) as url:
        config = agents_config(tmp_path, url=url, limits={"concurrency": 1})

        def refuse_later(count: int) -> None:
            if count == 3:
                model.kinds, model.rate = ("refused",), 0.2

        model.on_answer = refuse_later
        told = play(config, tmp_path / "some")
        assert told["episodes"] == 6 and 0 < told["unanswered"] < 6
        assert told["spent"]["retries"] == 0, "the same request would be refused again"
        model.on_answer, model.rate = (lambda count: None), 1.0
        again = play(config, tmp_path / "some", again=True)
        assert again["unanswered"] == told["unanswered"], "a server that has answered before is no wrong server"


@pytest.mark.parametrize(
    ("status", "message"),
    [("401 Unauthorized", r"answered 401.*--key-variable"), ("402 Payment Required", "answered 402")],
)
def test_what_came_before_a_server_that_refuses_all_is_kept(status: str, message: str, tmp_path: Path) -> None:
    model = FaultyModel(wanderer)
    with served(model) as url:
        config = agents_config(tmp_path, url=url, limits={"concurrency": 1})
        model._fail = lambda connection, fault, said: connection.sendall(  # type: ignore[method-assign]
            f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )

        def refuse_later(count: int) -> None:
            if count == 8:
                model.kinds, model.rate = (status[:3],), 1.0

        model.on_answer = refuse_later
        with pytest.raises(ConfigError, match=message):
            play(config, tmp_path / "run")
        told = json.loads((tmp_path / "run/agents.json").read_text())
        assert not told["complete"] and told["spent"]["calls"] == 8
        model.kinds = ()
        told = play(config, tmp_path / "run")
    assert told["complete"] and told["this_start"]["from_cache"] > 0 and max(model.answered.values()) == 1


def test_a_server_without_counts_is_estimated(tmp_path: Path) -> None:
    with served(FaultyModel(wanderer, usage=False)) as url:
        told = play(agents_config(tmp_path, url=url, episodes=1), tmp_path / "run")
    assert told["spent"]["estimated"] == told["spent"]["calls"] > 0 and told["spent"]["tokens_in"] > 100


def test_a_server_and_a_policy_with_the_same_replies_agree(tmp_path: Path, peaceful: Path) -> None:
    config = agents_config(tmp_path, "reflexion", reflexion={"trials": 2})
    play(config, tmp_path / "run", ScriptedPolicy(wanderer))
    assert recordings(tmp_path / "run") == recordings(peaceful)
