"""A model whose replies are a function of its messages: in this process, or behind a server with faults to order."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import socket
from typing import Any

import yaml
from raw_server import raw_server, reply

from crbc_envs.prompts import Prompt
from crbc_lab.agents.config import AgentsConfig, load_agents_config
from crbc_lab.agents.ledger import Ledger
from crbc_lab.agents.run import Run
from crbc_rl.batches import Turn
from crbc_rl.policies.api import Policy
from crbc_rl.policies.chat import ChatPolicy

Replies = Callable[[str], str]
"""From the text of a prompt to a reply."""

HANG = 5.0
"""Seconds after which a hanging answer goes away by itself."""


def share(*parts: object) -> float:
    """A number in [0, 1) that depends on these parts alone."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def wanderer(text: str) -> str:
    """Walks about in Sokoban, thinks now and then, says something odd at times, and reflects where it is asked to."""
    if text.endswith("New plan:"):
        return f"Go around it, plan {share(text):.3f}."
    said = ("think: which way?", "> up", "down", "left", "right", "up", "right\nand then up", "fly away")
    return said[int(share(text) * len(said))]


class ScriptedPolicy:
    """A policy of this process. `asked` are the prompts so far."""

    def __init__(self, replies: Replies | Sequence[str]) -> None:
        self.asked: list[str] = []
        self._replies = replies if callable(replies) else lambda text: replies[len(self.asked) - 1]

    def generate(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], temperature: float, max_new_tokens: int
    ) -> list[Turn]:
        turns = []
        for prompt in prompts:
            self.asked.append(prompt.text)
            turns.append(Turn([1] * 10, [2] * 3, [0.0] * 3, self._replies(prompt.text)))
        return turns


def completion(text: str, usage: bool = True) -> bytes:
    counts = {"prompt_tokens": 100, "completion_tokens": 7}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], **({"usage": counts} if usage else {})}).encode()


KINDS = ("429", "500", "hang", "bytes", "json", "cut", "closed")
# An attempt at a server that hangs ends soon. Elsewhere a busy machine must not count as a fault.
IMPATIENT = {"attempt_seconds": 0.3}


class FaultyModel:
    """A server's answers. A share `rate` of the requests meets a fault of `kinds`.

    It is drawn by the request's body and how often that came before. So a repeated request fares differently, and equal
    runs meet equal faults.
    """

    def __init__(self, replies: Replies, kinds: Sequence[str] = (), rate: float = 0.3, usage: bool = True) -> None:
        self.replies, self.kinds, self.rate, self.usage = replies, kinds, rate, usage
        self.requests: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.over = threading.Event()
        self.on_answer: Callable[[int], None] = lambda count: None
        self._lock = threading.Lock()

    def __call__(self, connection: socket, request: bytes) -> None:
        body = request.partition(b"\r\n\r\n")[2]
        if not body:  # GET /v1/models
            connection.sendall(reply(b'{"data": []}'))
            return
        key = hashlib.sha256(body).hexdigest()
        with self._lock:
            self.requests[key] += 1
            number = self.requests[key]
            fault = ""
            if self.kinds and share(key, number) < self.rate:
                fault = self.kinds[int(share("kind", key, number) * len(self.kinds))]
                self.faults[fault] += 1
        said = completion(self.replies(self._text(body)), self.usage)
        if fault:
            self._fail(connection, fault, said)
            return
        with self._lock:
            self.answered[key] += 1
            count = sum(self.answered.values())
        connection.sendall(reply(said))
        self.on_answer(count)

    def _fail(self, connection: socket, fault: str, said: bytes) -> None:
        whole = reply(said)
        answers = {
            "429": reply(b'{"error": "slow down"}', "429 Too Many Requests", Retry_After="0"),
            "500": reply(b"oops", "500 Internal Server Error"),
            "bytes": b"\x00\xff\xfe nonsense\r\n\r\n",
            "json": reply(b'{"choices": [{"message": {"content": 5}}]}'),
            "cut": whole[: -len(said) // 2],
            "closed": b"",
            "refused": reply(b"no such field", "400 Bad Request"),
        }
        if fault == "hang":
            self.over.wait(HANG)
        with suppress(OSError):
            connection.sendall(answers.get(fault, b""))

    @staticmethod
    def _text(body: bytes) -> str:
        content = json.loads(body)["messages"][-1]["content"]
        return content if isinstance(content, str) else content[0]["text"]


@contextmanager
def served(model: FaultyModel) -> Iterator[str]:
    """The address of a server with this model."""
    with raw_server(model) as url:
        try:
            yield url
        finally:
            model.over.set()


def write_agents_config(path: Path, agent: str = "react", **changes: Any) -> Path:
    """A config of Sokoban with few and short episodes. A section in `changes` replaces keys of that section."""
    data: dict[str, Any] = {
        "name": "small",
        "agent": agent,
        "env": {"id": "CRBC-Sokoban-v0", "prompt": "compact", "kwargs": {"observation": "text", "max_steps": 5}},
        "episodes": 6,
        "model": {"name": "scripted", "endpoint": "http://127.0.0.1:1/v1"},
        "react": {"examples": 1},
        "limits": {"concurrency": 3, "retries": 30, "pause": 0.001, "attempt_seconds": 30},
    }
    for name, value in changes.items():
        data[name] = {**data.get(name, {}), **value} if isinstance(value, dict) else value
    path.write_text(yaml.safe_dump(data))
    return path


def agents_config(folder: Path, agent: str = "react", url: str | None = None, **changes: Any) -> AgentsConfig:
    return load_agents_config(write_agents_config(folder / "config.yaml", agent, **changes), endpoint=url)


def play(config: AgentsConfig, folder: Path, model: Policy | None = None, again: bool = False) -> dict[str, Any]:
    """Play a run in `folder`: with a policy of this process, or with the config's endpoint."""
    limits = config.limits
    if model is None:
        assert config.model.endpoint is not None
        model = ChatPolicy(config.model.endpoint, config.model.name, concurrency=limits.concurrency)
    run = Run(config)
    try:
        return run.play(folder, model, again, no_progress)
    finally:
        run.close()


def no_progress(done: int, ledger: Ledger) -> None:
    pass


def outcome(told: dict[str, Any]) -> dict[str, Any]:
    """A result without what a server and its faults have a part in."""
    return {name: value for name, value in told.items() if name not in ("endpoint", "spent", "this_start")}
