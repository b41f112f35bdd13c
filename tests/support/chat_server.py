"""A chat server on the loopback address, which answers as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]


def completion(text: str | None, logprobs: list[float] | None = None) -> Answer:
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    if logprobs is not None:
        choice["logprobs"] = {"content": [{"token": "x", "logprob": value} for value in logprobs]}
    return 200, {}, json.dumps({"choices": [choice]}).encode()


def echo(body: dict[str, Any]) -> Answer:
    return completion(f"<action>{body['messages'][0]['content']}</action>")


class Server(ThreadingHTTPServer):
    """Answers as `answer` says, and keeps what it was asked and how many asked at once."""

    daemon_threads = True
    answer: Callable[[dict[str, Any]], Answer] = staticmethod(echo)

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.lock = threading.Lock()
        self.now = self.most = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.server.paths.append(self.path)
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        status, headers, data = self.server.answer(body)
        with self.server.lock:
            self.server.now -= 1
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass
