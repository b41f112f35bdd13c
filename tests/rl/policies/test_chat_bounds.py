"""ChatPolicy and its servers: a request's time is bounded, and no message shows the key."""

from __future__ import annotations

import base64
import gzip
import html
import json
import threading
import time
from collections.abc import Callable
from socket import socket
from urllib.parse import quote

import pytest
from raw_server import raw_server, reply

from crbc_envs.prompts import Prompt
from crbc_rl.errors import ConfigError, keep_secret, redacted
from crbc_rl.policies.chat import ChatPolicy

KEY = 'sk-not/a+re"al=key-93517'
Answer = Callable[[socket, bytes], None]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def sends(data: bytes) -> Answer:
    return lambda connection, request: connection.sendall(data)


def refused(answer: Answer, **options: object) -> str:
    """The one line of the error that a server's answer becomes."""
    with raw_server(answer) as url:
        policy = ChatPolicy(url, "m", **{"retries": 0, "pause": 0.001, **options})
        with pytest.raises(ConfigError) as error:
            policy.generate([Prompt("p")], [0], 1.0, 8)
    assert "\n" not in str(error.value) and str(error.value).isprintable() and len(str(error.value)) < 1_000
    return str(error.value)


# ---- bytes ------------------------------------------------------------------------------------------


def test_an_honest_packed_reply_is_read() -> None:
    body = gzip.compress(json.dumps({"choices": [{"message": {"content": "up"}}]}).encode())
    with raw_server(sends(reply(body, Content_Encoding="gzip"))) as url:
        assert ChatPolicy(url, "m").generate([Prompt("p")], [0], 1.0, 8)[0].text == "up"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x00\xff\x1b[2J\r\n\r\n", "cannot be reached (RemoteProtocolError"),
        (b"", "cannot be reached (RemoteProtocolError"),
        (reply(b"no gzip", Content_Encoding="gzip"), "cannot be reached (DecodingError"),
        (reply(b"up")[:-1], "cannot be reached (RemoteProtocolError"),
    ],
    ids=["noise", "nothing", "damaged", "cut"],
)
def test_a_reply_without_end_or_form_is_one_line(data: bytes, said: str) -> None:
    assert said in refused(sends(data))


# ---- time -------------------------------------------------------------------------------------------

COMPLETION = reply(json.dumps({"choices": [{"message": {"content": "up"}}]}).encode())


def drip(data: bytes, ended: threading.Event) -> Answer:
    """Sends one byte at a time, each long before a read times out. `ended` is set once the client has gone."""

    def answer(connection: socket, request: bytes) -> None:
        try:
            for byte in data:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
        except OSError:
            ended.set()
            raise

    return answer


def test_the_timeout_is_that_of_a_whole_request() -> None:
    ended = threading.Event()
    answer = drip(COMPLETION * 100, ended)
    assert "has not answered completely after 0.4 s, 2 times" in refused(answer, timeout=0.4, retries=1)
    assert ended.wait(10)


def test_leaving_a_queue_cancels_what_it_still_waits_for() -> None:
    asked, ended = threading.Event(), threading.Event()

    def silent(connection: socket, request: bytes) -> None:
        asked.set()
        assert connection.recv(1) == b""  # until the client goes
        ended.set()

    with raw_server(silent) as url:
        with ChatPolicy(url, "m", timeout=3600.0).queue(1.0, 8) as queue:
            queue.ask(0, Prompt("p"), 0)
            assert asked.wait(10)
        assert ended.wait(10)
    assert "http requests" not in {thread.name for thread in threading.enumerate()}


def test_checking_waits_no_longer_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crbc_rl.policies.chat.CHECK_SECONDS", 0.2)
    ended = threading.Event()
    with raw_server(drip(COMPLETION, ended)) as url:
        ChatPolicy(url, "m").check()  # it is there
        assert ended.wait(10)


def test_a_redirect_is_not_followed() -> None:
    reached: list[bytes] = []
    with raw_server(lambda connection, request: reached.append(request)) as elsewhere:
        moved = reply(b"over there", "307 Temporary Redirect", Location=f"{elsewhere}/chat/completions")
        assert "answered 307: over there" in refused(sends(moved))
        with raw_server(sends(moved)) as url:
            ChatPolicy(url, "m").check()
    assert not reached


# ---- types ------------------------------------------------------------------------------------------


def choice(**fields: object) -> bytes:
    return json.dumps({"choices": [{"message": {"content": "up"}, **fields}]}).encode()


def logprob(value: str) -> bytes:
    return choice(logprobs={"content": [{"logprob": 0}]}).replace(b"0", value.encode())


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b"\xff\xfe{",
        choice(message={"content": 5}),
        choice(message=[]),
        choice(logprobs=7),
        choice(logprobs={"content": [7]}),
        *map(logprob, ["NaN", '"none"', "null"]),
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_an_answer_of_wrong_types_is_one_line(body: bytes) -> None:
    assert "answered something else than a chat completion: " in refused(sends(reply(body)))


def test_half_a_surrogate_pair_in_a_reply_or_a_prompt_is_sent_and_returned_as_text() -> None:
    with raw_server(sends(reply(b'{"choices": [{"message": {"content": "a\\ud800b"}}]}'))) as url:
        (turn,) = ChatPolicy(url, "m").generate([Prompt("half \udfff")], [0], 1.0, 8)
    assert turn.text == "a\ufffdb"


# ---- what messages show -----------------------------------------------------------------------------

FORMS = {
    "raw": KEY,
    "json": json.dumps(KEY),
    "json codes": "".join(f"\\u{ord(symbol):04X}" for symbol in KEY),
    "python": "".join(f"\\x{ord(symbol):02x}" for symbol in KEY),
    "url": quote(KEY, safe=""),
    "html": html.escape(KEY),
    "base64 for urls": base64.urlsafe_b64encode(KEY.encode()).decode(),
    "base64 of the header, moved": base64.b64encode(f"x-key: {KEY}\r\n".encode()).decode(),
    "wrapped": KEY[:9] + "\r\n  " + KEY[9:],
}


def shows(message: str) -> bool:
    """Whether a message has a piece of the key, in whatever form."""
    plain = message.replace("[key]", "").lower()
    pieces = ("not/a", "real", "re&quot;", "93517", "7265", "%2d93", "&#x33;", "\\u0033", "\\x33")
    coded = base64.b64encode(KEY.encode()).decode().lower()
    return any(piece in plain for piece in (*pieces, coded[4:12], coded[-12:-4]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [0, 16_375])
def test_the_key_is_in_no_message_in_whatever_form(form: str, before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SERVICE_KEY", KEY)
    body = ("." * before + " " + FORMS[form] + " is wrong").encode()
    for data in (reply(body, "401 Unauthorized"), reply(body)):
        message = refused(sends(data), key_variable="A_SERVICE_KEY")
        assert not shows(message)
        assert "[key]" in message or before


def test_a_long_key_is_not_shown_in_part_where_the_search_for_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "".join(f"k{i:04d}" for i in range(200))
    monkeypatch.setenv("A_SERVICE_KEY", key)
    message = refused(sends(reply(f"{key} ".encode() * 50, "401 Unauthorized")), key_variable="A_SERVICE_KEY")
    assert "answered 401" in message and "k00" not in message


def test_the_password_of_an_address_is_in_no_message() -> None:
    secret = "hush%2Fhush-hush"
    for answer in (sends(reply(b"you are me:hush/hush-hush", "403 No")), sends(b"")):
        with raw_server(answer) as url:
            policy = ChatPolicy(url.replace("//", f"//me:{secret}@"), "m", retries=0)
            with pytest.raises(ConfigError) as error:
                policy.generate([Prompt("p")], [0], 1.0, 8)
        assert "hush" not in str(error.value)
        assert "//[key]@127.0.0.1" in str(error.value)
    for broken in (f"http://me:{secret}@h:-1/v1", f"ftp://me:{secret}@h/v1", "", "http:///v1"):
        with pytest.raises(ConfigError, match="is no address: ") as error:
            ChatPolicy(broken, "m")
        assert "hush" not in str(error.value)


def test_an_address_is_redacted_wherever_it_is() -> None:
    text = (
        r"see https://me:se%40cret@host/v1 and https:\/\/me:secret@host, //token@host; mail me@host or http://host/@me"
    )
    shown = r"see https://[key]@host/v1 and https:\/\/[key]@host, //[key]@host; mail me@host or http://host/@me"
    assert redacted(text) == shown


def test_what_is_in_every_text_is_no_secret() -> None:
    keep_secret("x")
    keep_secret("")
    assert redacted("axb") == "axb"


def test_a_proxy_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("ALL_PROXY", "nonsense://me:hush-hush@proxy")
    with pytest.raises(ConfigError, match="HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names no proxy") as error:
        ChatPolicy("http://127.0.0.1:9/v1", "m").check()
    assert "hush" not in str(error.value)
