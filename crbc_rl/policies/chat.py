"""A model behind an OpenAI-compatible chat endpoint. It can be evaluated but not trained: it returns no token ids."""

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
from crbc_rl.policies.api import answer, messages

RETRY_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504})
"""HTTP status codes after which a request is repeated."""
MAX_PAUSE = 60.0
POLL_SECONDS = 0.05
"""Longest wait for replies in `Requests.ready`, in seconds."""


class ChatPolicy:
    """A `crbc_rl.policies.api.Policy` that asks `model` at `url`, as in "http://localhost:8000/v1".

    `key_variable` names the environment variable that holds the API key, if one is needed. At most `concurrency`
    requests run at once. If the server is busy, fails or does not answer for `timeout` seconds, the request is repeated
    up to `retries` times. The pause before a repetition is `pause` seconds, then twice as long each time, or what the
    server asks for. With `logprobs`, turns have the log-probabilities of the reply's tokens, if the server returns
    them. `options` is merged into each request's body. A value of None removes a field, as in
    `{"max_tokens": None, "max_completion_tokens": 512}` for endpoints that accept only the newer name.

    A turn has a text and no token ids. It depends on the server whether equal seeds give equal replies.
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
        """Send one request, with repetitions, and return the reply."""
        body = {
            "model": self.model,
            "messages": messages(_content(prompt), prompt.system),
            "temperature": temperature,
            "max_tokens": max_new_tokens,
            "seed": seed % 2**31,  # servers differ in how many bits they take
            **self.options,
        }
        text, logprobs = self._read(self._ask({name: value for name, value in body.items() if value is not None}))
        return Turn([], [], logprobs, text, prompt.images)

    def check(self) -> None:
        """Raise `ConfigError` where no server answers at the address: once, before many requests wait for it."""
        try:
            self._client.get(self.url.removesuffix("/chat/completions") + "/models", timeout=10.0)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise self._error(f"is no address: {error}") from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise self._error(f"cannot be reached ({error}): start the server, or correct --endpoint") from error
        except httpx.TransportError:
            return  # it is there; the requests are repeated after temporary errors

    def _ask(self, body: dict[str, Any]) -> httpx.Response:
        """Post the request and repeat it after temporary errors. Raises `ConfigError` after the last attempt."""
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
                if response.status_code in (401, 403):
                    problem += "; name the variable that holds your API key with --key-variable"
                if response.status_code not in RETRY_STATUS:
                    raise self._error(problem)
                wait = _asked_for(response) or wait
            if tried < self.retries:
                time.sleep(min(wait, MAX_PAUSE))
        raise self._error(f"{problem}, {self.retries + 1} times")

    def _read(self, response: httpx.Response) -> tuple[str, list[float]]:
        """The reply's text, and the log-probabilities of its tokens, empty if there are none."""
        try:
            choice = response.json()["choices"][0]
            text = choice["message"]["content"] or ""  # null for an empty reply
            logprobs = [float(token["logprob"]) for token in (choice.get("logprobs") or {}).get("content") or ()]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise self._error(f"answered something else than a chat completion: {self._shown(response)}") from error
        return text, logprobs

    def _shown(self, response: httpx.Response) -> str:
        """The beginning of a response, with the API key removed, since some servers echo it."""
        text = response.text.replace(self._key, "[key]") if self._key else response.text
        return " ".join(text.split())[:300]

    def _error(self, problem: str) -> ConfigError:
        return ConfigError(f"{self.url} (model {self.model}) {problem}")


class Requests:
    """A `crbc_rl.policies.api.Queue` of HTTP requests in a thread pool."""

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
    if not variable.isidentifier():  # perhaps the key itself, which must not be printed
        raise ConfigError("--key-variable: give the name of an environment variable that holds the key, not the key")
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"--key-variable {variable}: there is no such environment variable; give the name of one that holds the "
            "server's API key"
        )
    if not (key.isascii() and key.isprintable()):  # otherwise the HTTP library raises an error that contains the key
        raise ConfigError(f"the environment variable {variable} holds characters that no API key has")
    return key


def _asked_for(response: httpx.Response) -> float | None:
    """The Retry-After header in seconds, None if it is absent or a date."""
    asked = response.headers.get("retry-after", "")
    return float(asked) if asked.isdecimal() else None


def _content(prompt: Prompt) -> str | list[dict[str, Any]]:
    """The message content: the text, or with frames a list of text and image parts in order."""
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
    """The image as a PNG data URL. PNG is lossless."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
