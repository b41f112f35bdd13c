"""OpenEnv's server in a process of its own: what clients see, and that those who vanish give back what they held."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import recorded_groups
from openenv import GenericEnvClient
from rich.console import Console
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from anchors import GroupError
from crbc_envs import ChatEpisode
from crbc_rl import credit
from crbc_rl.adapters.openenv import CrbcAction, CrbcClient
from crbc_rl.adapters.openenv_server import serve
from crbc_rl.errors import ConfigError

PROGRAM = """
import json, sys
from rich.console import Console
from crbc_rl.adapters import openenv_server
env_id, kwargs, sessions, idle, openenv_server.PING_SECONDS = json.loads(sys.argv[1])
openenv_server.serve(env_id, kwargs, host="127.0.0.1", port=0, sessions=sessions, idle_seconds=idle, exposed=False,
                     console=Console(width=200))
"""

HOLDER = """
import json, sys, time
from websockets.sync.client import connect
url, number = sys.argv[1].replace("http", "ws") + "/ws", int(sys.argv[2])
sessions = [connect(url, proxy=None, open_timeout=60) for _ in range(number)]
for index, session in enumerate(sessions):
    for kind, data in (("reset", {"index": index}), ("step", {"text": "<think></think><action>look</action>"})):
        session.send(json.dumps({"type": kind, "data": data}))
        assert json.loads(session.recv())["type"] == "observation"
print("holding", flush=True)
time.sleep(10_000)
"""

LOOK = "<think></think><action>look</action>"


@dataclass
class Served:
    url: str
    process: subprocess.Popen[str]

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def megabytes(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20

    def session(self, **more: Any) -> Any:
        return connect(self.url.replace("http", "ws") + "/ws", proxy=None, open_timeout=60, **more)

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2])), timeout=60)


@contextmanager
def served(env_id: str, sessions: int, idle: float = 600, ping: float = 20, **kwargs: Any) -> Iterator[Served]:
    command = [sys.executable, "-c", PROGRAM, json.dumps([env_id, kwargs, sessions, idle, ping])]
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            try:
                yield Served(line.split(" at ")[1].split(" for ")[0], process)
            finally:
                process.kill()
        errors.seek(0)
        assert errors.read() == ""  # no client may fill the log


@pytest.fixture(scope="module")
def alfworld() -> Iterator[Served]:
    with served("CRBC-ALFWorld-v0", sessions=64) as server:
        yield server


@pytest.fixture(scope="module")
def strict() -> Iterator[Served]:
    """Two sessions; short times for what is silent."""
    with served("CRBC-ALFWorld-v0", sessions=2, idle=4, ping=0.5) as server:
        yield server


def handshake(**headers: str) -> bytes:
    """The request that begins a session, as bytes."""
    sent = {"Host": "127.0.0.1", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    sent |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", **headers}
    return "\r\n".join(["GET /ws HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]).encode()


def received(client: socket.socket) -> bytes:
    """All that comes until the other side ends the connection."""
    parts = []
    with suppress(ConnectionResetError):
        while part := client.recv(4096):
            parts.append(part)
    return b"".join(parts)


def until(holds: Callable[[], bool]) -> None:
    """Wait for it. The test's own limit is the only one."""
    while not holds():
        time.sleep(0.05)


def asked(session: Any, kind: str, **data: Any) -> dict[str, Any]:
    session.send(json.dumps({"type": kind, "data": data}))
    return json.loads(session.recv(timeout=60))


def gets_in(server: Served) -> bool:
    with server.session() as session:
        try:
            return bool(asked(session, "reset", index=0)["type"] == "observation")
        except ConnectionClosed:  # refused before the message was sent
            return False


def reply(seen: Any, turn: int) -> str:
    return f"<think></think><action>{seen.admissible_actions[turn * 7 % len(seen.admissible_actions)]}</action>"


def test_a_game_over_the_wire_is_the_game_itself(alfworld: Served) -> None:
    direct = ChatEpisode("CRBC-ALFWorld-v0", split="test")
    with CrbcClient(base_url=alfworld.url).sync() as client:
        for index in (5, 6):
            seen, messages = client.reset(split="test", index=index, seed=3).observation, direct.begin(index, 3)
            for turn in range(60):
                assert (seen.messages, seen.done) == (messages or [], messages is None)
                assert (seen.anchor, seen.record, seen.rows) == (
                    direct.info["anchor"],
                    direct.record,
                    direct.rows if seen.done else [],
                )
                assert client.state().step_count == turn
                if seen.done:
                    break
                text = reply(seen, turn)
                seen, messages = client.step(CrbcAction(text=text)).observation, direct.reply(text)
            assert seen.done


async def _play(url: str, index: int) -> tuple[list[dict[str, Any]], list[str]]:
    async with CrbcClient(base_url=url, connect_timeout_s=60) as client:
        seen, texts = (await client.reset(index=index, rollout=index)).observation, []
        while not seen.done:
            texts.append(reply(seen, len(texts) + index))
            seen = (await client.step(CrbcAction(text=texts[-1]))).observation
        return seen.rows, texts


def test_sixty_four_sessions_play_at_once(alfworld: Served) -> None:
    async def all_of_them() -> Any:
        return await asyncio.gather(*(_play(alfworld.url, index) for index in range(64)))

    direct = ChatEpisode("CRBC-ALFWorld-v0")
    for index, (rows, texts) in enumerate(asyncio.run(all_of_them())):
        direct.begin(index, rollout=index)
        for text in texts:
            direct.reply(text)
        assert rows == direct.rows and direct.over


def test_one_session_more_is_refused_in_a_sentence(strict: Served) -> None:
    with strict.session() as one, strict.session() as two:
        assert asked(one, "reset", index=0)["type"] == asked(two, "reset", index=0)["type"] == "observation"
        with (
            pytest.raises(RuntimeError, match=r"2/2.*CAPACITY_REACHED"),
            CrbcClient(base_url=strict.url).sync() as more,
        ):
            more.reset(index=0)
        with strict.session() as more:
            assert json.loads(more.recv(timeout=60))["data"]["code"] == "CAPACITY_REACHED"
            with pytest.raises(ConnectionClosed, match="1013 .*all sessions are taken"):
                more.recv(timeout=60)
    until(lambda: gets_in(strict))


def killed(server: Served, number: int) -> None:
    """A process that holds so many sessions, in the middle of their episodes, is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, server.url, str(number)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "holding\n"
        assert server.files() >= number
        process.send_signal(signal.SIGKILL)


def test_killed_clients_free_their_sessions(alfworld: Served) -> None:
    assert gets_in(alfworld)
    before = alfworld.files()
    killed(alfworld, 64)
    until(lambda: alfworld.files() <= before)
    assert gets_in(alfworld)


@pytest.mark.slow
def test_a_thousand_killed_clients_leave_nothing_behind(alfworld: Served) -> None:
    killed(alfworld, 64)
    until(lambda: gets_in(alfworld))
    before, memory = alfworld.files(), alfworld.megabytes()
    for _ in range(16):
        killed(alfworld, 64)
        until(lambda: alfworld.files() <= before)
    assert gets_in(alfworld)
    assert alfworld.megabytes() < memory + 16  # a session has about 0.4 MB


def test_half_open_connections_free_their_sessions(strict: Served) -> None:
    """The clients are there and say nothing, not even to a ping: as after a cut line."""
    before = strict.files()
    lost = [strict.raw() for _ in range(2)]
    for client in lost:
        client.sendall(handshake())
    for client in lost:
        answer = received(client)
        assert answer.startswith(b"HTTP/1.1 101") and b"keepalive ping timeout" in answer
    until(lambda: gets_in(strict))
    until(lambda: strict.files() <= before)


@pytest.mark.slow
def test_clients_that_take_no_answer_lose_their_sessions(strict: Served) -> None:
    """They ask and ask, and read nothing. The system gives up after a minute."""
    before = strict.files()
    reset = b'{"type": "reset"}'
    question = b"\x81" + bytes([0x80 | len(reset)]) + bytes(4) + reset
    with strict.raw() as one, strict.raw() as two:
        for client in (one, two):
            client.sendall(handshake())
            client.settimeout(2)
            with suppress(OSError):
                while True:
                    client.sendall(question * 100)
        until(lambda: gets_in(strict))
        until(lambda: strict.files() <= before)


def test_an_idle_session_ends_with_the_reason(strict: Served) -> None:
    with strict.session() as idle:
        assert asked(idle, "reset", index=0)["type"] == "observation"
        with pytest.raises(ConnectionClosed, match="nothing was sent for 4 seconds"):
            idle.recv()


def test_a_client_that_was_idle_is_told_to_reset(strict: Served) -> None:
    """OpenEnv's client connects anew without a word. What it gets is a new session."""
    until(lambda: gets_in(strict))
    before = strict.files()
    with CrbcClient(base_url=strict.url).sync() as client:
        client.reset(index=0)
        until(lambda: strict.files() <= before)
        with pytest.raises(RuntimeError, match=r"call reset first \(a lost session has lost its episode\)"):
            client.step(CrbcAction(text=LOOK))
        assert client.reset(index=1).observation.messages


NO_MESSAGES = [
    "[]",
    "null",
    "[" * 10**5,
    '"reset"',
    "5",
    "",
    "{",
    b"\x00\xff",
    '{"type": "step", "data": {"text": "\\ud800"}}',
]


@pytest.mark.parametrize("sent", NO_MESSAGES, ids=lambda sent: repr(sent)[:20])
def test_what_is_no_message_is_an_error_and_the_session_goes_on(alfworld: Served, sent: str | bytes) -> None:
    with alfworld.session() as session:
        session.send(sent)
        answer = json.loads(session.recv(timeout=60))
        assert answer["type"] == "error" and "one JSON object" in answer["data"]["message"]
        assert asked(session, "reset", index=0)["type"] == "observation"


def test_a_message_of_an_unknown_type_is_an_error(alfworld: Served) -> None:
    with alfworld.session() as session:
        session.send('{"type": 5}')
        assert json.loads(session.recv(timeout=60))["type"] == "error"
        assert asked(session, "reset", index=0)["type"] == "observation"


def test_errors_leave_the_session(alfworld: Served) -> None:
    with alfworld.session() as session:
        assert "call reset first" in asked(session, "step", text=LOOK)["data"]["message"]
        assert asked(session, "reset", idx=3)["data"]["message"].startswith("reset: idx: Extra inputs")
        assert asked(session, "reset", index=0)["type"] == "observation"
        assert asked(session, "step", texts="x")["data"]["code"] == "VALIDATION_ERROR"
        assert asked(session, "mcp", jsonrpc="2.0", method="tools/list", id=1)["data"].get("error")
        assert asked(session, "step", text=LOOK)["data"]["observation"]["record"]["step"] == 0


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/reset", "/step", "/state", "/web", "/", "/crbc/state"])
def test_only_what_is_needed_is_served(alfworld: Served, path: str) -> None:
    for answer in (httpx.get(alfworld.url + path), httpx.post(alfworld.url + path, json={})):
        assert answer.status_code in (404, 405)
    with pytest.raises(InvalidStatus):
        connect(alfworld.url.replace("http", "ws") + path, proxy=None)


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": "evil.example:80"}, {"Host": "127.0.0.1.evil.example"}, {"Origin": "null"}],
    ids=str,
)
def test_web_pages_do_not_get_in(alfworld: Served, headers: dict[str, str]) -> None:
    assert httpx.get(f"{alfworld.url}/health", headers=headers).status_code == 403
    with alfworld.raw() as client:
        client.sendall(handshake(**headers))
        assert received(client).startswith(b"HTTP/1.1 403")


def test_openenvs_own_validator_passes(alfworld: Served) -> None:
    command = [str(Path(sys.executable).parent / "openenv"), "validate", "--url", alfworld.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Verdict: PASS" in done.stdout, done.stdout
    paths = httpx.get(f"{alfworld.url}/openapi.json").json()["paths"]
    assert {"/health", "/metadata", "/schema"} < paths.keys() and not {"/reset", "/step", "/state"} & paths.keys()
    answer = httpx.post(f"{alfworld.url}/mcp", json={}).json()
    assert answer["error"]["message"] == "there are no tools: sessions are at /ws"


def test_the_task_api_over_http(alfworld: Served) -> None:
    def post(what: str, **data: Any) -> tuple[int, dict[str, Any]]:
        answer = httpx.post(f"{alfworld.url}/crbc/{what}", json=data)
        return answer.status_code, answer.json()

    panel = ChatEpisode("CRBC-ALFWorld-v0", split="test").env.panel
    assert httpx.get(f"{alfworld.url}/list_environments").json() == ["crbc"]
    assert httpx.get(f"{alfworld.url}/metadata").json()["name"] == "CRBC-ALFWorld-v0"
    assert [s["name"] for s in httpx.get(f"{alfworld.url}/crbc/splits").json()] == ["train", "validation", "test"]
    assert post("num_tasks", split="test") == (200, {"num_tasks": len(panel)})
    assert post("task", split="test", index=2)[1]["task"] == {"id": panel[2].id, "index": 2, "text": panel[2].text}
    assert [t["index"] for t in post("task_range", split="test", start=1, stop=3)[1]["tasks"]] == [1, 2]
    assert len(post("tasks", split="test")[1]["tasks"]) == 100
    assert post("task", split="test", index=10**6)[0] == 400
    status, answer = post("num_tasks", split="nope")
    assert status == 400 and "split must be one of" in answer["detail"]
    assert "ask for at most 100" in post("task_range", split="test")[1]["detail"]


def test_nobody_enters_a_session_by_its_id(alfworld: Served) -> None:
    """A session that two hold would go on, uncounted, when one of them leaves."""
    with alfworld.session() as session:
        create = {"jsonrpc": "2.0", "method": "openenv/session/create", "params": {}, "id": 1}
        number = asked(session, "mcp", **create)["data"]["result"]["session_id"]
        with pytest.raises(InvalidStatus, match="403"):
            connect(f"{alfworld.url.replace('http', 'ws')}/ws?session_id={number}", proxy=None)


@pytest.fixture(scope="module")
def sokoban() -> Iterator[Served]:
    with served(recorded_groups.ENV_ID, sessions=8, **recorded_groups.KWARGS) as server:
        yield server


def test_rows_from_clients_have_the_credit_of_the_rollouts(sokoban: Served) -> None:
    """The recorded groups, their members played by other clients each, and their rows shuffled."""
    groups, rows = recorded_groups.read(), []
    for number, group in enumerate(groups):
        for member, recorded in enumerate(group.rollouts):
            with CrbcClient(base_url=sokoban.url).sync() as client:
                client.reset(index=group.task, seed=group.seed, group=number, rollout=member)
                for text in recorded.replies:
                    seen = client.step(CrbcAction(text=text)).observation
                assert seen.done and seen.rows == recorded.rows
                rows += seen.rows
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    columns = {name: [rows[i][name] for i in order] for name in rows[0]}
    for method, options in recorded_groups.KINDS:
        wanted = np.concatenate(recorded_groups.advantages(groups, method, **options))[order]
        named = {"earns" if name == "reward" else name: value for name, value in options.items()}
        found = credit.advantages_from_rows(**columns, method=method, **named)
        np.testing.assert_allclose(found, wanted, atol=1e-6, rtol=0)
    said = [recorded_groups.score(text) for group in groups for recorded in group.rollouts for text in recorded.replies]
    found = credit.advantages_from_rows(**columns, scores=[said[i] for i in order], method="scores")
    wanted = np.concatenate(recorded_groups.advantages(groups, "scores"))[order]
    np.testing.assert_allclose(found, wanted, atol=1e-6, rtol=0)
    cut = {name: values[1:] for name, values in columns.items()}
    lost = rows[order[0]]
    with pytest.raises(
        GroupError, match="group {group}, rollout {rollout}, step {step}: the row is lost".format(**lost)
    ):
        credit.advantages_from_rows(**cut)


def test_a_generic_client_plays_by_the_schema(sokoban: Served) -> None:
    """As verifiers' taskset does: the action has one required field, and rewards are added up."""
    schema = httpx.get(f"{sokoban.url}/schema").json()["action"]
    assert schema["title"] == "CrbcAction" and schema["required"] == ["text"]

    async def play() -> tuple[float, dict[str, Any]]:
        group, total = recorded_groups.read()[0], 0.0
        async with GenericEnvClient(base_url=sokoban.url) as client:
            result = await client.reset(index=group.task, seed=group.seed)
            for text in group.rollouts[0].replies:
                assert json.dumps(result.observation) and not result.done
                result = await client.step({"text": text})
                total += result.reward or 0.0
            assert result.done
            return total, result.observation["rows"][-1]

    total, last = asyncio.run(play())
    assert total == pytest.approx(sum(row["reward"] for row in recorded_groups.read()[0].rollouts[0].rows))
    assert last["length"] == last["step"] + 1


def test_control_c_ends_the_server_while_sessions_are_open() -> None:
    with served("CRBC-Sokoban-v0", sessions=2, observation="text") as server, server.session() as session:
        assert asked(session, "reset", index=0)["type"] == "observation"
        server.process.send_signal(signal.SIGINT)
        assert server.process.stdout is not None
        assert server.process.stdout.read() == "closed\n"
        assert server.process.wait() == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"host": "0.0.0.0"}, "--host 0.0.0.0: other machines could reach it, and there is no login; add --exposed"),
        ({"host": "no.such.host.invalid", "exposed": True}, "cannot serve at no.such.host.invalid port 0: .*--port"),
        ({"sessions": 0}, "--sessions 0: at least 1 is wanted"),
        ({"sessions": 2**40}, "--sessions 1099511627776: a process may have .* open files here"),
        ({"idle_seconds": 0.0}, "--idle-seconds 0: a positive number is wanted"),
        ({"env_id": "CRBC-Nothing-v0"}, "no environment 'CRBC-Nothing-v0'"),
        ({"env_id": "no_such_module:Nothing-v0"}, "no_such_module"),
        ({"env_id": "CRBC-Sokobann-v0"}, "no environment 'CRBC-Sokobann-v0'; did you mean 'CRBC-Sokoban-v0'"),
        (
            {"kwargs": {"split": "test"}},
            "CRBC-Sokoban-v0 cannot be served: each reset says its split, leave the option",
        ),
        ({"kwargs": {"prompt": "nope"}}, "CRBC-Sokoban-v0 cannot be served: .*nope"),
        ({"kwargs": {}}, "CRBC-Sokoban-v0 cannot be served: .*the observation is a frame"),
        ({"kwargs": {"no_option": 1}}, "CRBC-Sokoban-v0 cannot be served: .*no_option"),
    ],
    ids=str,
)
def test_what_cannot_be_served_is_one_line(changes: dict[str, Any], said: str) -> None:
    text = {"observation": "text"}
    given = {"env_id": "CRBC-Sokoban-v0", "kwargs": text, "host": "127.0.0.1", "port": 0, "sessions": 4} | changes
    with pytest.raises(ConfigError, match=said) as caught:
        serve(**{"idle_seconds": 60.0, "exposed": False, "console": Console(), **given})
    assert "\n" not in str(caught.value)


def test_a_port_in_use_is_one_line(sokoban: Served) -> None:
    port = int(sokoban.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"cannot serve at 127.0.0.1 port {port}: Address already in use; choose"):
        serve(
            "CRBC-Sokoban-v0",
            {"observation": "text"},
            host="127.0.0.1",
            port=port,
            sessions=1,
            idle_seconds=1,
            exposed=False,
            console=Console(),
        )
