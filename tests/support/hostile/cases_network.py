"""Chat servers, clients of the site's server, and texts that would act on the terminal."""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

from raw_server import raw_server, reply

from hostile.case import Case

KEY = 'sk-not/a+re"al=key-93517'
ASKS = ("eval", "sokoban-tiny", "--episodes", "2", "--endpoint", "{url}", "--model", "m")
WITH_KEY = (*ASKS, "--key-variable", "SOME_KEY")
ESCAPES = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r\b"

Answer = Callable[[socket.socket, bytes], None]


def sends(data: bytes) -> Answer:
    return lambda connection, request: connection.sendall(data)


def served(answer: Answer) -> Callable[[], AbstractContextManager[str]]:
    return partial(raw_server, answer)


def packed(mebibytes: int) -> bytes:
    """So many MiB of blanks, packed: one block again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    blanks = b" " * 2**20
    first = packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + again * (mebibytes - 1)


def completion(**fields: object) -> bytes:
    return json.dumps({"choices": [{"message": {"content": "up"}, **fields}]}).encode()


def endless(start: bytes, piece: bytes) -> Answer:
    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(start)
        while True:
            connection.sendall(piece)

    return answer


def drip(data: bytes) -> Answer:
    def answer(connection: socket.socket, request: bytes) -> None:
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(0.1)

    return answer


def asks(answer: Answer) -> Callable[[Path], None]:
    """One request with a short timeout and no repetition."""

    def probe(folder: Path) -> None:
        from crbc_envs.prompts import Prompt
        from crbc_rl.policies.chat import ChatPolicy

        with raw_server(answer) as url:
            ChatPolicy(url, "m", retries=0, timeout=1.0).generate([Prompt("p")], [0], 1.0, 8)

    return probe


NO_COMPLETION = ("answered something else than a chat completion",)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chat(name: str, finding: str, says: tuple[str, ...], data: bytes | Answer, **options: object) -> Case:
    answer = sends(data) if isinstance(data, bytes) else data
    return Case(
        **{
            "name": f"chat-{name}",
            "finding": finding,
            "status": 2,
            "says": says,
            "argv": ASKS,
            "serve": served(answer),
            **options,
        }
    )  # type: ignore[arg-type]


def replies(name: str, body: bytes) -> Case:
    return chat(name, "numbers and types in a reply", NO_COMPLETION, reply(body))


def logprob(value: str) -> bytes:
    return completion(logprobs={"content": [{"logprob": 0}]}).replace(b"0", value.encode())


def echoes(name: str, form: str) -> Case:
    """A server that repeats the key in some form."""
    data = reply(f"no such key: {form} .".encode(), "401 Unauthorized")
    pieces = ("real", "93517", "35\\u0031", "%2a%72", base64.b64encode(KEY.encode()).decode()[8:20])
    return chat(
        f"echoes-key-{name}",
        "a key is in no message",
        ("answered 401", "[key]"),
        data,
        argv=WITH_KEY,
        never=pieces,
        env={"SOME_KEY": KEY},
    )


BOUND = "one reply's bytes"
TIME = "a request's total time"
CHAT = [
    chat("honest", "what is honest still works", ("success",), reply(completion()), status=0),
    chat("gzip-bomb", BOUND, ("more than 8 mib",), reply(packed(1_500), Content_Encoding="gzip")),
    chat("gzip-of-gzip", BOUND, ("packed its reply as",), reply(packed(8), Content_Encoding="gzip, gzip")),
    chat("endless-chunks", BOUND, ("more than 8 mib",), endless(CHUNKED, b"10000\r\n" + b" " * 65_536 + b"\r\n")),
    chat("endless-body", BOUND, ("more than 8 mib",), endless(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65_536)),
    Case(
        "chat-endless-headers",
        BOUND,
        2,
        ("cannot be reached",),
        probe=asks(endless(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 1_000)),
    ),
    Case("chat-drips-headers", TIME, 2, ("after 1 s",), probe=asks(drip(b"HTTP/1.1 200 OK\r\n" * 999))),
    Case(
        "chat-drips-body",
        TIME,
        2,
        ("after 1 s",),
        probe=asks(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + b" " * 9_999)),
    ),
    Case("chat-drips-continue", TIME, 2, ("after 1 s",), probe=asks(drip(b"HTTP/1.1 100 Go\r\n\r\n" * 999))),
    replies("deep-lists", b"[" * 1_000_000),
    replies("deep-objects", b'{"choices":' * 200_000),
    replies("huge-integer", logprob("-" + "9" * 4_000)),
    replies("integer-of-a-million-digits", b"9" * 1_000_000),
    replies("nan", logprob("NaN")),
    replies("infinite", logprob("-1e999")),
    replies("logprob-text", logprob('"-1"')),
    replies("content-number", completion(message={"content": 5})),
    replies("content-list", completion(message={"content": ["up"]})),
    echoes("raw", KEY),
    echoes("json", json.dumps(KEY)),
    echoes("json-codes", "".join(f"\\u{ord(symbol):04x}" for symbol in KEY)),
    echoes("url", quote(KEY, safe="")),
    echoes("base64", base64.b64encode(f"Bearer {KEY}".encode()).decode()),
    echoes("wrapped", KEY[:9] + "\r\n  " + KEY[9:]),
    Case(
        "chat-password-in-address",
        "a key is in no message",
        2,
        ("//[key]@",),
        ("hush",),
        argv=("eval", "sokoban-tiny", "--endpoint", "http://me:hush-hush@no.invalid/v1", "--model", "m"),
    ),
    Case(
        "chat-port-of-six-digits",
        "numbers and types",
        2,
        ("is no address",),
        argv=("eval", "sokoban-tiny", "--endpoint", "http://127.0.0.1:123456/v1", "--model", "m"),
    ),
    chat(
        "escapes",
        "text on the terminal",
        ("answered 400", "[red]no"),
        reply(f"[red]no[/]{ESCAPES}".encode(), "400 Bad"),
    ),
    chat(
        "model-of-markup",
        "text on the terminal",
        ("[/]: success",),
        reply(completion()),
        status=0,
        argv=(*ASKS[:-1], "[/]"),
    ),
]


# ---- the site's server ------------------------------------------------------------------------------


@contextmanager
def shop_server() -> Iterator[object]:
    from crbc_envs.webshop.env import WebShopEnv
    from crbc_envs.webshop.site.server import Site, SiteServer, serving

    env = WebShopEnv()
    with SiteServer(Site(env.shop, env.panel)) as server, serving(server):
        yield server


def status_of(port: int, target: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", target, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def half_open(folder: Path) -> None:
    with shop_server() as server, ExitStack() as stack:
        for _ in range(500):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.sendall(b"GET / HTTP/1.1\r\n")
        assert status_of(server.port, "/goal/0", {}) == 200
        assert threading.active_count() < 200, f"{threading.active_count()} threads"


def large_head(folder: Path) -> None:
    with shop_server() as server:
        try:
            status = status_of(server.port, "/goal/0", {f"X-{i}": "x" * 60_000 for i in range(90)})
        except OSError:  # the answer is lost where the server has not read all
            status = 431
        assert status == 431, status


def no_address(folder: Path) -> None:
    from crbc_envs.webshop.site.address import PageNotFound

    with shop_server() as server:
        for target in ("//", "//[x", "//\u2100/goal/0"):
            assert server.site.respond(target).status == 404
        try:
            from crbc_envs.webshop.site.address import read_address

            read_address("//", server.site.shop)
        except PageNotFound:
            return
        raise AssertionError("it was an address")


SITE = [
    Case("site-half-open-connections", "sessions and threads of the site", 0, probe=half_open),
    Case("site-large-headers", "sessions and threads of the site", 0, probe=large_head),
    Case("site-no-address", "numbers and types", 0, probe=no_address),
]
if hasattr(os, "geteuid") and os.geteuid() == 0:
    SITE.append(
        Case(
            "browser-as-root",
            "the browser's sandbox",
            2,
            ("sandbox", "crbc_unsafe_root=1"),
            argv=("play", "CRBC-WebShopSite-v0"),
            env={"CRBC_UNSAFE_ROOT": ""},
            stdin="quit\n",
        )
    )


# ---- texts ------------------------------------------------------------------------------------------

GAME = """
import gymnasium
TEXT = {text!r}

class Game(gymnasium.Env):
    action_space = gymnasium.spaces.Text(99)
    observation_space = gymnasium.spaces.Text(99_999)

    def __init__(self, split="train"):
        self.spec = None

    def _info(self):
        return {{"anchor": "a", "admissible_actions": (TEXT, "go " + TEXT), "task": TEXT, "task_id": TEXT, "step": 0,
                 "label": TEXT, "action": TEXT, "valid": True, "success": False, "score": 0.0}}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return TEXT, self._info()

    def step(self, action):
        return TEXT, 0.0, False, False, self._info()

gymnasium.register("Hostile-v0", entry_point=Game)
"""


def game(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "here" / "hostile_game.py").write_text(GAME.format(text=text), "utf-8") and None


def recording(text: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from anchors import Rollout, RolloutGroup, Step
        from crbc_envs.storage.rollouts import RecordedTurn, write_groups

        group = RolloutGroup([Rollout([Step(text, text, 0.0, text)], True)], text)
        turn = RecordedTurn("p", text, -1.0, (1,), (2,))
        write_groups(folder / "here" / "r.parquet", [group], env_id=text, update=1, turns=[turn])

    return make


TEXTS = {
    "escapes": f"see {ESCAPES}",
    "markup": "see [/] [link=http://x]here[/link] [bold",
    "long": "see " + "x" * 3_000_000,
}


def is_short(folder: Path) -> None:
    assert (folder / "stdout").stat().st_size < 300_000


PRINTED = [
    Case(
        f"{what}-{name}",
        "text on the terminal",
        0,
        ("see",),
        make=make(text),
        argv=argv,
        stdin="\nquit\n",
        check=is_short,
    )
    for name, text in TEXTS.items()
    for what, make, argv in (
        ("play", game, ("play", "hostile_game:Hostile-v0")),
        ("replay", recording, ("play", "--replay", "r.parquet")),
    )
]
PRINTED += [
    Case("argument-of-escapes", "text on the terminal", 2, ("no environment",), argv=("play", f"X{ESCAPES}")),
    Case(
        "config-name-of-escapes", "text on the terminal", 2, argv=("train", "sokoban-tiny", "--set", f"name={ESCAPES}")
    ),
]

CASES = [*CHAT, *SITE, *PRINTED]
