"""Asks an endpoint of ours, on the loopback address, as OpenAI's clients do."""

from __future__ import annotations

import json
from typing import Any

import httpx


class Client:
    def __init__(self, url: str, model: str = "model", **headers: str) -> None:
        self.url, self.model = url, model
        self.http = httpx.Client(timeout=60, trust_env=False, headers=headers)

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self.send(path, json.dumps({"model": self.model, **body}).encode())

    def send(self, path: str, body: bytes) -> httpx.Response:
        return self.http.post(f"{self.url}/{path}", content=body, headers={"Content-Type": "application/json"})

    def chat(self, text: Any, **fields: Any) -> dict[str, Any]:
        return self._read("chat/completions", {"messages": [{"role": "user", "content": text}], **fields})

    def complete(self, prompt: Any, **fields: Any) -> dict[str, Any]:
        return self._read("completions", {"prompt": prompt, **fields})

    def refusal(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the error."""
        answer = self.post(path, body)
        return answer.status_code, answer.json()["error"]

    def _read(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.post(path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()
