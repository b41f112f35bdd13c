"""What an endpoint refuses, and what strangers cannot do to it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest
from endpoint_client import Client
from learner_fixtures import fresh_policy
from served import serving

from crbc_envs.chat import messages
from crbc_envs.prompts import IMAGE, Prompt
from crbc_lab.model_server import app, batcher, requests
from crbc_lab.model_server.server import bind
from crbc_rl.errors import ConfigError
from crbc_rl.policies.decoding import Decoding
from crbc_rl.policies.transformers import TransformersPolicy

ASK = {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 3}


@pytest.fixture(scope="module")
def policy() -> TransformersPolicy:
    return fresh_policy()


@pytest.fixture(scope="module")
def client(policy: TransformersPolicy) -> Iterator[Client]:
    with serving(policy) as url:
        yield Client(url)


def until(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


# ---- fields -------------------------------------------------------------------------------------------

PNG = "data:image/png;base64,"
WRONG_CHATS: dict[str, Any] = {
    "temperature": [-0.1, 2.1, "hot"],
    "max_tokens": [0, 1.5, 2_048],
    "max_completion_tokens": [4],
    "seed": [-1, 2**63],
    "n": [0, 129],
    "logprobs": [1],
    "top_logprobs": [1, 21],
    "stop": [[""] * 5, "x" * 257, 3],
    "stream": [1],
    "stream_options": [{"include_usage": 1}, {"unheard_of": True}],
    "top_p": [0, 1.1],
    "continue_final_message": [True],
    "logit_bias": [{"3": 1}],
    "tools": [[{"type": "function"}]],
    "response_format": [{"type": "json_object"}],
    "echo": [True],
    "unheard_of": [1],
    "messages": [
        [],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": "Go.", "weight": 1}],
        [{"role": "tool", "content": "Go."}],
        [{"role": "system", "content": "Go."}],
        [{"role": "user", "content": "Go."}] * 2,
        [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "up"}],
        [{"role": "assistant", "content": "up"}, {"role": "user", "content": "Go."}],
        [{"role": "user", "content": "Go."}, {"role": "system", "content": "up"}, {"role": "user", "content": "Go."}],
        [{"role": "user", "content": "Go."}] * 2_000,
        [{"role": "user", "content": [{"type": "video", "url": "x"}]}],
        [{"role": "user", "content": [{"type": "text", "text": 3}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}]}],
        [{"role": "user", "content": "\ud800"}],
        [{"role": "system", "content": "\ud800"}, {"role": "user", "content": "Go."}],
        [{"role": "system", "content": "x" * 200_000}, {"role": "user", "content": "Go."}],
        [{"role": "user", "content": "x" * 200_000}],
        [{"role": "user", "content": "up " * 3_000}],
    ],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in WRONG_CHATS.items() for value in values], ids=repr
)
def test_a_wrong_field_of_a_chat_is_named(client: Client, field: str, value: Any) -> None:
    answer = client.post("chat/completions", {**ASK, field: value})
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["type"] == "invalid_request_error", answer.text
    named = (error["param"] or "") + error["message"]
    assert field in named or "2,048 positions" in named
    assert len(answer.text) < 500 and "\n" not in answer.text


def test_of_a_field_with_two_types_the_nearer_fault_is_told(client: Client) -> None:
    error = client.post("chat/completions", {**ASK, "stop": ["a"] * 5}).json()["error"]
    assert error["param"] == "stop" and "at most 4 items" in error["message"]
    error = client.post("chat/completions", {**ASK, "stop": ["a", 3]}).json()["error"]
    assert error["param"] == "stop.1" and "valid string" in error["message"]


def test_a_system_message_is_a_text_as_others_are(client: Client) -> None:
    asked = [{"role": "system", "content": "\ud800"}, {"role": "user", "content": "Go."}]
    said = client.post("chat/completions", {**ASK, "messages": asked}).json()["error"]["message"]
    assert "half a surrogate pair" in said


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("prompt", value) for value in ("", [], [""], None, [1, "a"], [10**6], ["a"] * 129)),
        ("logprobs", 21),
        ("best_of", 2),
        ("prompt", "\udc00"),
        ("messages", []),
    ],
    ids=repr,
)
def test_a_wrong_field_of_a_completion_is_named(client: Client, field: str, value: Any) -> None:
    status, error = client.refusal("completions", {"prompt": "Go.", "max_tokens": 3, field: value})
    assert status == 400 and (field in error["message"]), error


def test_a_field_that_changes_nothing_may_be_there(client: Client) -> None:
    plain = client.chat("Go.", max_tokens=3, seed=1)
    neutral = {"top_k": -1, "stop": [], "stream": False, "tools": None, "user": "me", "frequency_penalty": 0.0}
    assert client.chat("Go.", max_completion_tokens=3, seed=1, **neutral)["choices"] == plain["choices"]


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_request(client: Client, body: bytes) -> None:
    answer = client.send("completions", body)
    assert answer.status_code == 400 and answer.json()["error"]["message"]


def test_other_addresses_methods_and_kinds(client: Client) -> None:
    assert client.http.get(f"{client.url}/nowhere").status_code == 404
    assert client.http.get(f"{client.url}/completions").status_code == 405
    assert client.http.post(f"{client.url}/completions", content=b"{}").status_code == 415
    status, error = client.refusal("completions", {"model": "gpt-4", "prompt": "Go."})
    assert status == 404 and error["code"] == "model_not_found" and "'model'" in error["message"]


def test_a_model_without_eyes_refuses_frames(client: Client) -> None:
    frame = np.zeros((28, 28, 3), np.uint8)
    status, error = client.refusal("chat/completions", {"messages": messages(Prompt(IMAGE, (frame,)))})
    assert status == 400 and "images" in error["message"]


# ---- who may ask --------------------------------------------------------------------------------------


def test_a_name_that_leads_here_is_not_ours(policy: TransformersPolicy, client: Client) -> None:
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost:80.evil.example", ""):
        for path in ("models", "chat/completions", "nowhere"):  # open, for POST alone, and unknown
            answer = client.http.get(f"{client.url}/{path}", headers={"Host": host})
            assert answer.status_code == 421
    port = httpx.URL(client.url).port
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", "LOCALHOST:9", "127.0.0.1", "[::1]", "[::1]:80"):
        assert client.http.get(f"{client.url}/models", headers={"Host": host}).status_code == 200
    with serving(policy, exposed=True) as url:
        assert Client(url, Host="evil.example").http.get(f"{url}/models").status_code == 200


def test_a_key_is_wanted_where_there_is_one(policy: TransformersPolicy) -> None:
    with serving(policy, key="sk-right") as url:
        for headers in ({}, {"Authorization": "Bearer sk-wrong"}, {"Authorization": "Bearer \xff"}):
            answer = httpx.get(f"{url}/models", headers={k.encode(): v.encode("latin-1") for k, v in headers.items()})
            assert answer.status_code == 401 and "sk-right" not in answer.text
        assert Client(url, Authorization="Bearer sk-right").chat("Go.", max_tokens=2)["choices"]


def test_only_this_machine_is_served_unless_it_is_told_otherwise() -> None:
    with pytest.raises(ConfigError, match="--exposed"):
        bind("0.0.0.0", 0, False)
    with bind("127.0.0.1", 0, False) as taken, pytest.raises(ConfigError, match="in use; choose another --port"):
        bind("127.0.0.1", taken.getsockname()[1], False)


# ---- too much -----------------------------------------------------------------------------------------


def test_a_huge_body_is_refused_before_it_is_read(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LARGEST_BODY", 1_000)
    status, error = client.refusal("completions", {"prompt": "x" * 2_000})
    assert status == 413 and "1,000" in error["message"]


def test_more_than_can_wait_is_told_to_come_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "MOST_WAITING", 8)
    assert client.refusal("chat/completions", {**ASK, "n": 9})[0] == 429
    assert len(client.chat("Go.", n=8, max_tokens=2)["choices"]) == 8


def test_a_body_that_comes_slowly_ends(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS", 0.2)
    url = httpx.URL(client.url)
    with socket.create_connection((url.host, url.port), 30) as slow:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {url.host}:{url.port}\r\nContent-Type: application/json\r\n"
        slow.sendall(head.encode() + b"Content-Length: 1000\r\n\r\n{")
        assert b"408" in slow.recv(4_096)
        while slow.recv(4_096):  # and the connection ends
            pass


def test_a_client_that_went_away_costs_nothing_more(policy: TransformersPolicy) -> None:
    """The row ends at the next token, or is never begun."""
    passes: list[int] = []
    going = threading.Event()
    read_on = policy.read_on

    def watched(ids: Any, *given: Any) -> Any:
        going.set()
        passes.append(len(ids))
        return read_on(ids, *given)

    policy.ends, ends = (), policy.ends  # so that no reply ends by itself
    policy.read_on = watched  # type: ignore[method-assign]
    try:
        with serving(policy) as url:
            place = httpx.URL(url)
            body = json.dumps({"model": "model", "prompt": "Go.", "max_tokens": 2_000, "n": 2}).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nHost: {place.host}:{place.port}\r\nContent-Type: application/json"
            gone = [socket.create_connection((place.host, place.port), 30) for _ in range(3)]
            for connection in gone:
                connection.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            assert going.wait(30)
            for connection in gone:
                connection.close()
            policy.ends = ends
            assert Client(url).chat("Go.", max_tokens=2)["choices"]
        assert 0 < len(passes) < 2_000
    finally:
        del policy.read_on
        policy.ends = ends


def test_an_error_of_the_model_is_told_and_the_next_request_answered(policy: TransformersPolicy) -> None:
    with serving(policy) as url:
        client = Client(url)

        def fail(*args: Any) -> Any:
            raise RuntimeError("no memory")

        policy.read = fail  # type: ignore[method-assign]
        try:
            answer = client.post("chat/completions", ASK)
        finally:
            del policy.read
        assert answer.status_code == 500 and answer.json()["error"]["type"] == "server_error"
        assert answer.headers["connection"] == "close"  # the server ends it: the next request needs another
        assert client.chat("Go.", max_tokens=2)["choices"]


def test_requests_that_wait_together_keep_their_own_limits(policy: TransformersPolicy) -> None:
    with serving(policy) as url, ThreadPoolExecutor(8) as pool:
        ask = partial(Client(url).chat, "Go.", seed=3, return_token_ids=True)
        limits = [(most, (0.5, 2.0)[most % 2]) for most in (2, 9, 4, 2, 9, 4, 7, 1)]
        replies = [
            one["choices"][0]["token_ids"]
            for one in pool.map(lambda limit: ask(max_tokens=limit[0], temperature=limit[1]), limits)
        ]
        longest = {heat: ask(max_tokens=9, temperature=heat)["choices"][0]["token_ids"] for heat in (0.5, 2.0)}
    assert longest[0.5] != longest[2.0] and min(map(len, longest.values())) > 4
    assert replies == [longest[heat][:most] for most, heat in limits]


def test_requests_that_wait_are_generated_together(policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    rows: list[int] = []

    def watched(self: Decoding, replies: list[Any], own: Any = Decoding.join) -> None:
        own(self, replies)
        read.append(len(replies))
        rows.append(len(self.replies))

    monkeypatch.setattr(Decoding, "join", watched)
    with serving(policy) as url, ThreadPoolExecutor(80) as pool:
        client = Client(url)
        answers = list(pool.map(lambda i: client.chat("Go.", seed=i, max_tokens=10), range(200)))
    assert len(answers) == sum(read) == 200 and len(read) < 150
    assert max(rows) <= batcher.MOST_ROWS == 64 and requests.MOST_CHOICES == 128


def test_requests_that_come_later_join_those_that_go_on(
    policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each comes when the one before has begun. The passes are those of one batch, and the replies those alone."""
    passes: list[int] = []
    most = 120
    monkeypatch.setattr(policy, "ends", ())  # so that no reply ends by itself
    begun = threading.Event()

    def watched(ids: Any, *given: Any, own: Any = policy.read_on) -> Any:
        if ids.shape[1] == 1:
            passes.append(len(ids))
            begun.set()
            time.sleep(0.002)
        return own(ids, *given)

    with serving(policy) as url, ThreadPoolExecutor(8) as pool:
        client = Client(url)
        ask = partial(client.chat, max_tokens=most, logprobs=True, return_token_ids=True)
        texts = ["Go. " * (1 + k) for k in range(8)]
        alone = [ask(text, seed=k)["choices"][0] for k, text in enumerate(texts)]
        monkeypatch.setattr(policy, "read_on", watched)
        waiting = []
        for k, text in enumerate(texts):
            begun.clear()
            waiting.append(pool.submit(ask, text, seed=k, top_logprobs=int(k == 5)))
            assert begun.wait(30)
        told = [future.result()["choices"][0] for future in waiting]
    assert len(passes) < 4 * most and max(passes) > 4
    for one, other in zip(told, alone, strict=True):
        assert one["token_ids"] == other["token_ids"]
        values = [[token["logprob"] for token in choice["logprobs"]["content"]] for choice in (one, other)]
        assert values[0] == pytest.approx(values[1], abs=1e-5)
