"""`vf-eval crbc_verifiers` against a server of our own that replays replies; its traces beside the environment."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded_groups

from anchors import GroupError, Rollout, RolloutGroup, Step
from crbc_envs import ChatEpisode
from crbc_rl import credit

TASKS, SIZE = 3, 4
KWARGS = {"observation": "text", "max_steps": 6}
MOVES = ("up", "down", "left", "right")
Answer = Callable[[int, str], tuple[int, str, str]]
"""The status, text and finish_reason of the n-th reply, from n and the prompt."""


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    lock, asked = threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number, asked[0] = asked[0], asked[0] + 1
            status, text, reason = answer(number, body["messages"][-1]["content"])
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": reason}
            told = {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
            sent = json.dumps(
                told | {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
            ).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}/v1"
        made.shutdown()


def evaluate(folder: Path, answer: Answer, *more: str) -> list[dict[str, Any]]:
    """The traces of `SIZE` rollouts of each of the first test tasks."""
    with server(answer) as url:
        command = [Path(sys.executable).parent / "vf-eval", "crbc_verifiers", "--no-push", "--model", "replay"]
        command += ["--env.agent.runtime.type", "subprocess"]
        command += ["--env.taskset.env-id", "CRBC-Sokoban-v0", "--env.taskset.kwargs", json.dumps(KWARGS)]
        command += ["--client.type", "eval", "--client.base-url", url, "--select.limit", str(TASKS), "-r", str(SIZE)]
        done = subprocess.run([*command, *more], cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    (path,) = folder.glob("outputs/*/traces.jsonl") or [None]
    assert path is not None, done.stdout[-2000:] + done.stderr[-2000:]
    return [trace for line in path.read_text().splitlines() for trace in json.loads(line)["traces"]]


def moves(number: int, prompt: str) -> tuple[int, str, str]:
    rng = np.random.default_rng([number])
    text = f"<think>x</think><action>{rng.choice(MOVES)}</action>"
    return 200, text if rng.random() < 0.8 else "I do not know", "stop"


def replies(trace: dict[str, Any]) -> list[str]:
    return [node["message"]["content"] for node in trace["nodes"] if node["message"]["role"] == "assistant"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return evaluate(tmp_path_factory.mktemp("run"), moves)


def test_the_rows_are_those_of_the_environment(traces: list[dict[str, Any]]) -> None:
    assert len(traces) == TASKS * SIZE
    episode = ChatEpisode("CRBC-Sokoban-v0", "compact", split="test", **KWARGS)
    for trace in traces:
        data, rows = trace["task"]["data"], trace["info"]["crbc"]["rows"]
        episode.begin(data["task"], group=data["name"], rollout=trace["id"])
        for call in trace["calls"]:
            episode.reply(trace["nodes"][call["node"]]["message"]["content"])
        assert rows == episode.rows and len(rows) == len(trace["calls"])
        assert trace["rewards"]["success"]["score"] == float(episode.success)
        assert trace["metrics"]["steps"] == len(rows)
    assert not all(row["valid"] for trace in traces for row in trace["info"]["crbc"]["rows"])


@pytest.mark.parametrize(("method", "options"), [*recorded_groups.KINDS, ("gigpo", {})], ids=str)
def test_rows_from_traces_get_the_credit_of_their_groups(
    traces: list[dict[str, Any]], method: str, options: dict[str, Any]
) -> None:
    rows = [row for trace in traces for row in trace["info"]["crbc"]["rows"]]
    order = np.random.default_rng(0).permutation(len(rows))
    named = {"earns" if name == "reward" else name: value for name, value in options.items()}
    found, figures = credit.advantages_of_update([rows[i] for i in order], group_size=SIZE, method=method, **named)
    wanted: dict[tuple[str, int], float] = {}
    for name in {row["group"] for row in rows}:
        members = [trace["info"]["crbc"]["rows"] for trace in traces if trace["task"]["data"]["name"] == name]
        rollouts = [
            Rollout(
                [Step(row["anchor"], row["action"], row["reward"]) for row in own],
                **{key: own[-1][key] for key in ("success", "truncated", "final_anchor", "score")},
            )
            for own in members
        ]
        for own, values in zip(members, credit.advantages(RolloutGroup(rollouts), method, **options), strict=True):
            wanted |= {(row["rollout"], row["step"]): value for row, value in zip(own, values, strict=True)}
    for i, value in zip(order, found, strict=True):
        assert value == pytest.approx(wanted[rows[i]["rollout"], rows[i]["step"]], abs=1e-6)
    assert figures["broken_groups"] == 0.0 and found.any()


def test_a_lost_and_a_repeated_row_of_a_trace_are_named(traces: list[dict[str, Any]]) -> None:
    first, *others = sorted((trace["info"]["crbc"]["rows"] for trace in traces), key=len, reverse=True)
    rest = [row for rows in others for row in rows]
    named = "rollout {rollout!r}, step {step}".format(**first[-1])
    with pytest.warns(UserWarning, match=f"{named}: the row is lost.*1 of {TASKS} groups get no credit"):
        credit.advantages_of_update([*first[:-1], *rest], group_size=SIZE)
    with pytest.raises(GroupError, match="rollout {rollout!r}, step {step} is there twice".format(**first[0])):
        credit.advantages_of_update([*first, first[0], *rest], group_size=SIZE)


def test_a_reply_that_was_cut_executes_nothing_that_may_be_more(tmp_path: Path) -> None:
    def cut(number: int, prompt: str) -> tuple[int, str, str]:
        return 200, "<think>x</think>up", "length" if number % 2 else "stop"

    found = evaluate(tmp_path, cut)
    for trace in found:
        for call, row in zip(trace["calls"], trace["info"]["crbc"]["rows"], strict=True):
            assert row["valid"] == (call["finish_reason"] == "stop")
    assert {row["valid"] for trace in found for row in trace["info"]["crbc"]["rows"]} == {True, False}


def test_a_rollout_that_verifiers_stops_is_cut(tmp_path: Path) -> None:
    found = evaluate(tmp_path, lambda number, prompt: (200, "hm", "stop"), "--env.agent.max-turns", "2")
    assert not any(trace["errors"] for trace in found)
    for trace in found:
        rows = trace["info"]["crbc"]["rows"]
        assert len(rows) == 2 and all(row["truncated"] and row["length"] == 2 for row in rows)
        assert trace["rewards"]["success"]["score"] == 0.0


def test_a_system_prompt_reaches_the_model(tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("Play well.")
    found = evaluate(tmp_path, moves, "--env.taskset.system-prompt", str(tmp_path / "system.txt"))
    assert all(trace["nodes"][0]["message"]["role"] == "system" for trace in found)


def test_a_server_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    found = evaluate(tmp_path, lambda number, prompt: (503, "busy", "stop") if number % 9 == 5 else moves(number, ""))
    assert len(found) == TASKS * SIZE
    for trace in found:
        rows = trace["info"]["crbc"]["rows"]
        assert not trace["errors"] and len(rows) == len(replies(trace)) == rows[-1]["length"]


def test_a_server_that_fails_is_an_error_of_the_trace_that_says_where(tmp_path: Path) -> None:
    found = evaluate(tmp_path, lambda number, prompt: (400, "too long", "stop") if number == 5 else moves(number, ""))
    failed = [trace for trace in found if trace["errors"]]
    assert len(failed) == 1 and "crbc" not in failed[0]["info"]
    assert "upstream 400" in str(failed[0]["errors"])
    rows = [row for trace in found if not trace["errors"] for row in trace["info"]["crbc"]["rows"]]
    with pytest.warns(UserWarning, match="has rows of 3 rollouts, of 4; 1 of 3 groups get no credit"):
        credit.advantages_of_update(rows, group_size=SIZE)


def test_without_verifiers_one_sentence_says_what_to_install() -> None:
    code = """
import crbc_rl.adapters
crbc_rl.adapters.version = lambda package: None
import crbc_verifiers
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert "needs verifiers, which is not installed" in last and "[verifiers]" in last


def test_a_wrong_environment_is_said(tmp_path: Path) -> None:
    command = [Path(sys.executable).parent / "vf-eval", "crbc_verifiers", "--no-push", "--model", "x"]
    command += ["--env.agent.runtime.type", "subprocess"]
    command += ["--env.taskset.env-id", "CRBC-Sokobann-v0", "--select.limit", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "CRBC-Sokobann" in done.stdout + done.stderr and done.returncode != 0
