"""A model behind an OpenAI-compatible chat endpoint, to be evaluated: there are no tokens to train on."""

from __future__ import annotations

import base64
import io
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from crbc_envs.prompts import IMAGE, Prompt
from crbc_rl.batches import Turn
from crbc_rl.errors import ConfigError
from crbc_rl.policies.api import answer

RETRY_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504})
"""Answers after which one asks again."""
MAX_PAUSE = 60.0
POLL_SECONDS = 0.05
"""Seconds after which one who waits for replies looks what else there is to do."""


class ChatPolicy:
    """A `crbc_rl.policies.api.Policy` that asks `model` at `url`, as in "http://localhost:8000/v1".

    `key_variable` names the environment variable that holds the API key, where one is needed. At most
    `concurrency` requests are under way at once. One that finds the server busy, broken or silent for `timeout`
    seconds is repeated up to `retries` times, after `pause` seconds at first and twice as long each time, or
    after what the server asks for. With `logprobs` turns carry the log-probabilities of the reply's tokens, where
    the server gives them. `options` goes into each request's body as it is; None leaves a field out, as in
    `{"max_tokens": None, "max_completion_tokens": 512}` for endpoints that know only the newer name.

    A turn has a text and no token ids. Whether equal seeds give equal replies is up to the server.
    Raises `ConfigError` for a missing key, and where the endpoint refuses a request or cannot be reached.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key_variable: str | None = None,
        concurrency: int = 8,
        retries: int = 5,
        timeout: float = 120.0,
        pause: float = 1.0,
        logprobs: bool = False,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.url = f"{url.rstrip('/')}/chat/completions"
        self.model = model
        self.concurrency, self.retries, self.pause = concurrency, retries, pause
        self.options = {"logprobs": logprobs or None, **(options or {})}
        self._key = "" if key_variable is None else _key(key_variable)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._client = httpx.Client(headers=headers, timeout=timeout, limits=httpx.Limits(max_connections=concurrency))

    def generate(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], temperature: float, max_new_tokens: int
    ) -> list[Turn]:
        """One reply to each prompt, in order; see `crbc_rl.policies.api.Policy`."""
        with self.queue(temperature, max_new_tokens) as queue:
            return answer(queue, prompts, seeds)

    @contextmanager
    def queue(self, temperature: float, max_new_tokens: int) -> Iterator[Requests]:
        """Replies as they arrive (see `crbc_rl.policies.api.Continuous`)."""
        with ThreadPoolExecutor(self.concurrency) as pool:
            try:
                yield Requests(self, pool, temperature, max_new_tokens)
            finally:
                pool.shutdown(cancel_futures=True)

    def reply(self, prompt: Prompt, seed: int, temperature: float, max_new_tokens: int) -> Turn:
        """Ask once, and again where the server puts it off."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": _content(prompt)}],
            "temperature": temperature,
            "max_tokens": max_new_tokens,
            "seed": seed % 2**31,  # servers differ in how many bits they take
            **self.options,
        }
        text, logprobs = self._read(self._ask({name: value for name, value in body.items() if value is not None}))
        return Turn([], [], logprobs, text, prompt.images)

    def _ask(self, body: dict[str, Any]) -> httpx.Response:
        """Post until there is an answer other than "later"."""
        for tried in range(self.retries + 1):
            wait = self.pause * 2**tried
            try:
                response = self._client.post(self.url, json=body)
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                raise self._error(f"is no address: {error}") from error
            except httpx.TransportError as error:
                problem = f"cannot be reached ({type(error).__name__}: {error})"
            else:
                if response.status_code == 200:
                    return response
                problem = f"answered {response.status_code}: {self._shown(response)}"
                if response.status_code not in RETRY_STATUS:
                    raise self._error(problem)
                wait = _asked_for(response) or wait
            if tried < self.retries:
                time.sleep(min(wait, MAX_PAUSE))
        raise self._error(f"{problem}, {self.retries + 1} times")

    def _read(self, response: httpx.Response) -> tuple[str, list[float]]:
        """The reply's text, and its tokens' log-probabilities or nothing."""
        try:
            choice = response.json()["choices"][0]
            text = choice["message"]["content"] or ""  # null where there are no words
            logprobs = [float(token["logprob"]) for token in (choice.get("logprobs") or {}).get("content") or ()]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise self._error(f"answered something else than a chat completion: {self._shown(response)}") from error
        return text, logprobs

    def _shown(self, response: httpx.Response) -> str:
        """The beginning of an answer, without the key: there are servers that repeat it."""
        text = response.text.replace(self._key, "[key]") if self._key else response.text
        return " ".join(text.split())[:300]

    def _error(self, problem: str) -> ConfigError:
        return ConfigError(f"{self.url} (model {self.model}) {problem}")


class Requests:
    """A `crbc_rl.policies.api.Queue` of requests that are under way or to be sent."""

    def __init__(self, policy: ChatPolicy, pool: ThreadPoolExecutor, temperature: float, max_new_tokens: int) -> None:
        self.policy, self.pool, self.limits = policy, pool, (temperature, max_new_tokens)
        self.asked: dict[Future[Turn], int] = {}

    @property
    def waiting(self) -> int:
        return len(self.asked)

    def ask(self, key: int, prompt: Prompt, seed: int) -> None:
        self.asked[self.pool.submit(self.policy.reply, prompt, seed, *self.limits)] = key

    def ready(self) -> list[tuple[int, Turn]]:
        arrived, _ = wait(self.asked, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        return sorted(((self.asked.pop(future), future.result()) for future in arrived), key=itemgetter(0))


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"the environment variable {variable} is to hold the endpoint's API key and is not set")
    if not (key.isascii() and key.isprintable()):  # else the HTTP library complains, and quotes it
        raise ConfigError(f"the environment variable {variable} holds characters that no API key has")
    return key


def _asked_for(response: httpx.Response) -> float | None:
    """The seconds a server wants to be left alone for, where it says so in seconds."""
    asked = response.headers.get("retry-after", "")
    return float(asked) if asked.isdecimal() else None


def _content(prompt: Prompt) -> str | list[dict[str, Any]]:
    """The text, or where there are frames the texts between them and the frames in their places."""
    texts = prompt.text.split(IMAGE) if prompt.images else [prompt.text]
    if len(texts) != len(prompt.images) + 1:
        raise ValueError(f"{len(prompt.images)} frames for {len(texts) - 1} places in the prompt")
    if not prompt.images:
        return prompt.text
    parts: list[dict[str, Any]] = [{"type": "text", "text": texts[0]}]
    for image, text in zip(prompt.images, texts[1:], strict=True):
        parts += [{"type": "image_url", "image_url": {"url": _data_url(image)}}, {"type": "text", "text": text}]
    return [part for part in parts if part.get("text") != ""]


def _data_url(image: NDArray[np.uint8]) -> str:
    """A PNG, so that pixels arrive as they are."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
