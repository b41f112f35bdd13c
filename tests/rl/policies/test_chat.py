"""ChatPolicy against a small HTTP server on the loopback address."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from chat_server import Answer, Server, completion, echo
from PIL import Image

from crbc_envs.prompts import Prompt
from crbc_rl.batches import Turn
from crbc_rl.errors import ConfigError
from crbc_rl.policies.chat import ChatPolicy

KEY = "sk-not-a-real-key-93517"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(policy: ChatPolicy, *texts: str) -> list[str]:
    turns = policy.generate([Prompt(text) for text in texts], list(range(len(texts))), 0.4, 32)
    return [turn.text for turn in turns]


def in_turn(*answers: Answer | Callable[[], Answer]) -> Callable[[dict[str, Any]], Answer]:
    left = list(answers)

    def answer(body: dict[str, Any]) -> Answer:
        found = left.pop(0)
        return found() if callable(found) else found

    return answer


@pytest.mark.parametrize("late", [0, 3])
def test_each_prompt_gets_its_reply(server: Server, late: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies depend on prompt and seed. Of four requests at a time, the first `late` are answered after all others."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    texts, last = [f"go {i // 2}" for i in range(20)], threading.Event()

    def answer(body: dict[str, Any]) -> Answer:
        assert body["seed"] >= late or last.wait(timeout=30)
        if body["seed"] == 19:
            last.set()
        return completion(f"{body['messages'][0]['content']}, seed {body['seed']}")

    server.answer = answer
    policy = ChatPolicy(server.url, "a-model", concurrency=4)
    assert ask(policy, *texts) == [f"{text}, seed {seed}" for seed, text in enumerate(texts)]
    assert set(server.paths) == {"/v1/chat/completions"}
    assert {headers["authorization"] for headers in server.headers} == {"Bearer none"}  # and not OPENAI_API_KEY
    body = next(b for b in server.bodies if b["seed"] == 7)
    assert body == {
        "model": "a-model",
        "messages": [{"role": "user", "content": "go 3"}],
        "temperature": 0.4,
        "max_tokens": 32,
        "seed": 7,
    }


def test_log_probabilities_are_those_the_server_gives(server: Server) -> None:
    server.answer = lambda body: completion("up", [-0.5, -0.25] if body.get("logprobs") else None)
    asking, other = ChatPolicy(server.url, "m", logprobs=True), ChatPolicy(server.url, "m")
    assert asking.generate([Prompt("p")], [0], 1.0, 8)[0].logprobs == [-0.5, -0.25]
    assert other.generate([Prompt("p")], [0], 1.0, 8)[0].logprobs == []


def test_pictures_arrive_pixel_for_pixel(server: Server) -> None:
    images = tuple(np.random.default_rng(i).integers(0, 256, (12, 9, 3), dtype=np.uint8) for i in range(2))
    policy = ChatPolicy(server.url, "m")
    server.answer = lambda body: completion("up")
    (turn,) = policy.generate([Prompt("You see <image> and <image>", images)], [0], 1.0, 8)
    first, one, second, two = server.bodies[0]["messages"][0]["content"]
    assert (first, second) == ({"type": "text", "text": "You see "}, {"type": "text", "text": " and "})
    for part, image in zip((one, two), images, strict=True):
        kind, _, data = part["image_url"]["url"].partition(",")
        assert kind == "data:image/png;base64"
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), image)
    assert turn.images == images


def test_as_many_requests_at_once_as_allowed_and_no_more(server: Server) -> None:
    def slowly(body: dict[str, Any]) -> Answer:
        time.sleep(0.05)
        return echo(body)

    server.answer = slowly
    ask(ChatPolicy(server.url, "m", concurrency=3), *map(str, range(12)))
    assert server.most == 3


def test_a_slow_reply_keeps_no_other_waiting(server: Server) -> None:
    handed_out = threading.Event()

    def answer(body: dict[str, Any]) -> Answer:
        if body["messages"][0]["content"] == "slow":
            assert handed_out.wait(timeout=30)
        return echo(body)

    server.answer = answer
    with ChatPolicy(server.url, "m").queue(1.0, 8) as queue:
        queue.ask(5, Prompt("slow"), 0)
        queue.ask(6, Prompt("fast"), 0)
        replies: list[tuple[int, Turn]] = []
        while not replies:
            replies = queue.ready()
        assert [(key, turn.text) for key, turn in replies] == [(6, "<action>fast</action>")]
        assert queue.waiting == 1
        handed_out.set()
        while queue.waiting:
            replies += queue.ready()
    assert [key for key, _ in replies] == [6, 5]


def test_options_are_added_to_the_body_and_none_takes_a_field_out(server: Server) -> None:
    options = {"max_tokens": None, "max_completion_tokens": 512, "top_p": 0.9}
    ask(ChatPolicy(server.url, "m", options=options), "p")
    assert "max_tokens" not in server.bodies[0]
    assert (server.bodies[0]["max_completion_tokens"], server.bodies[0]["top_p"]) == (512, 0.9)


def test_seeds_are_cut_to_what_every_server_takes(server: Server) -> None:
    ChatPolicy(server.url, "m").generate([Prompt("p")], [2**62 + 5], 1.0, 8)
    assert server.bodies[0]["seed"] == 5


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_or_broken_server_is_asked_again(server: Server, status: int) -> None:
    server.answer = in_turn((status, {}, b"later"), (status, {}, b"later"), completion("up"))
    assert ask(ChatPolicy(server.url, "m", pause=0.001), "p") == ["up"]
    assert len(server.bodies) == 3


def test_the_pauses_double_up_to_a_minute_unless_the_server_asks_for_one(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("crbc_rl.policies.chat.asyncio.sleep", pause)
    limited = 429, {"retry-after": "7"}, b""
    forever = 429, {"retry-after": "86400"}, b""
    dated = 429, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, b""
    spelled = 429, {"retry-after": "1e9"}, b""
    endless = 429, {"retry-after": "9" * 400}, b""
    busy = 503, {}, b""
    server.answer = in_turn(busy, busy, limited, forever, dated, spelled, endless, completion("up"))
    ask(ChatPolicy(server.url, "m", pause=1.0, retries=7), "p")
    assert pauses == [1.0, 2.0, 7.0, 60.0, 16.0, 32.0, 60.0]


def test_a_silent_server_is_asked_again(server: Server) -> None:
    def silent() -> Answer:
        time.sleep(1.0)
        return completion("too late")

    server.answer = in_turn(silent, completion("up"))
    assert ask(ChatPolicy(server.url, "m", timeout=0.2, pause=0.001), "p") == ["up"]


def test_what_stays_broken_is_one_clear_error(server: Server) -> None:
    server.answer = lambda body: (503, {}, b"no\n capacity")
    with pytest.raises(ConfigError, match=r"/v1/chat/completions \(model m\) answered 503: no capacity, 3 times"):
        ask(ChatPolicy(server.url, "m", retries=2, pause=0.001), "p")
    assert len(server.bodies) == 3


def test_a_server_that_is_not_there_is_one_clear_error(server: Server) -> None:
    with Server() as gone:
        url = gone.url
    with pytest.raises(ConfigError, match=r"cannot be reached \(ConnectError.*, 2 times"):
        ask(ChatPolicy(url, "m", retries=1, pause=0.001), "p")
    with pytest.raises(ConfigError, match=r"is no address: .*http"):
        ask(ChatPolicy("localhost:8000/v1", "m"), "p")


def test_a_refusal_is_not_repeated_and_ends_the_rest(server: Server) -> None:
    server.answer = lambda body: (404, {}, b'{"error": "the model `m` does not exist"}')
    with pytest.raises(ConfigError, match="answered 404: .*does not exist"):
        ask(ChatPolicy(server.url, "m", concurrency=1), *["p"] * 50)
    assert len(server.bodies) < 20


@pytest.mark.parametrize("data", [b"<html>", b"{}", b'{"choices": []}', b'{"choices": [{"message": "up"}]}', b"[]"])
def test_an_answer_of_another_kind_is_one_clear_error(server: Server, data: bytes) -> None:
    server.answer = lambda body: (200, {}, data)
    with pytest.raises(ConfigError, match="answered something else than a chat completion"):
        ask(ChatPolicy(server.url, "m"), "p")


def test_the_key_is_sent_and_never_shown(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SERVICE_KEY", f"{KEY}\n")
    policy = ChatPolicy(server.url, "m", key_variable="A_SERVICE_KEY")
    assert ask(policy, "p") == ["<action>p</action>"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    server.answer = lambda body: (401, {}, f"{'.' * 290} {KEY} is wrong".encode())
    with pytest.raises(ConfigError) as refused:
        ask(policy, "p")
    assert "answered 401" in str(refused.value)
    assert "sk-" not in f"{refused.value!r} {policy!r}"


def test_a_missing_key_is_named_and_a_damaged_one_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A_SERVICE_KEY", raising=False)
    with pytest.raises(ConfigError, match="A_SERVICE_KEY: there is no such environment variable"):
        ChatPolicy("http://127.0.0.1:1/v1", "m", key_variable="A_SERVICE_KEY")
    monkeypatch.setenv("A_SERVICE_KEY", f"{KEY}\n{KEY}")
    with pytest.raises(ConfigError, match="characters that no API key has") as damaged:
        ChatPolicy("http://127.0.0.1:1/v1", "m", key_variable="A_SERVICE_KEY")
    assert KEY not in str(damaged.value)


@pytest.mark.parametrize(
    "answer", [{"error": {"code": 502, "message": "provider"}}, "error", "insufficient_system_resource"]
)
def test_a_failure_that_comes_as_an_answer_is_repeated(server: Server, answer: Any) -> None:
    choice = {"message": {"content": ""}, "finish_reason": answer}
    body = answer if isinstance(answer, dict) else {"choices": [choice]}
    server.answer = in_turn((200, {}, json.dumps(body).encode()), completion("up"))
    assert ask(ChatPolicy(server.url, "m", pause=0.0), "go") == ["up"]


def test_a_prompt_that_the_providers_filter_refuses_is_a_refused_reply(server: Server) -> None:
    server.answer = in_turn((400, {}, b'{"error": {"code": "content_filter", "message": "policy"}}'))
    (turn,) = ChatPolicy(server.url, "m").generate([Prompt("go")], [0], 0.4, 32)
    assert (turn.text, turn.finish_reason) == ("", "refusal")


@pytest.mark.parametrize(
    ("status", "said", "hint"),
    [
        (400, "maximum context length is 2048, you requested 4096", "--max-tokens"),
        (
            400,
            "Unsupported parameter: max_tokens; use max_completion_tokens",
            '--extra-body \'{"max_completion_tokens"',
        ),
        (422, "seed is not supported", "--extra-body '{\"seed\": null}'"),
        (404, "Not Found", "mostly in /v1"),
        (301, "", "it has moved to http://elsewhere/v1"),
    ],
)
def test_a_refused_request_says_what_to_do(server: Server, status: int, said: str, hint: str) -> None:
    server.answer = in_turn((status, {"location": "http://elsewhere/v1"}, json.dumps({"error": said}).encode()))
    with pytest.raises(ConfigError) as refused:
        ask(ChatPolicy(server.url, "m"), "go")
    assert hint in str(refused.value)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_a_thought_that_the_server_keeps_apart_stands_before_the_reply(server: Server, field: str) -> None:
    message = {"content": "<action>up</action>", field: "not </think> yet"}
    server.answer = in_turn((200, {}, json.dumps({"choices": [{"message": message}]}).encode()))
    assert ask(ChatPolicy(server.url, "m"), "go") == ["<think>not < /think> yet</think><action>up</action>"]
