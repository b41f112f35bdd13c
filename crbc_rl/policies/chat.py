"""A model behind an OpenAI-compatible chat endpoint. It can be evaluated but not trained: it returns no token ids."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal

from crbc_envs.actions import LIMITS, REFUSAL, REFUSALS, as_thought
from crbc_envs.chat import messages
from crbc_envs.printable import one_line
from crbc_envs.prompts import Prompt
from crbc_rl.batches import Turn
from crbc_rl.errors import ConfigError, keep_secret, redacted
from crbc_rl.policies.api import answer

if TYPE_CHECKING:
    from openai import AsyncOpenAI

RETRY_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""HTTP status codes after which a request is repeated."""
FAILURES = frozenset({"error", "insufficient_system_resource", "network_error", "engine_error"})
"""The `finish_reason` of an answer that the server did not finish; it is repeated too."""
HINTS = {
    "max_completion_tokens": """give --extra-body '{"max_completion_tokens": 4096}', or model.options for agents""",
    "max_tokens": "give fewer with --max-tokens, or model.max_tokens for agents",
    "context length": "give fewer new tokens with --max-tokens, or model.max_tokens for agents",
    "temperature": """leave it out with --extra-body '{"temperature": null}', or model.options for agents""",
    "seed": """leave it out with --extra-body '{"seed": null}', or model.options for agents""",
}
"""What to do about a refused request, by a word of the server's answer; the first that fits."""
MAX_PAUSE = 60.0
"""Longest pause before a repetition, in seconds, whatever the server asks for."""
CHECK_SECONDS = 10.0
"""How long `ChatPolicy.check` waits for the server."""
POLL_SECONDS = 0.05
"""Longest wait for replies in `Requests.ready`, in seconds."""
LONGEST_READ = 16_384
"""Characters of a server's answer that are searched for the key."""
OURS = "crbc"
"""Who owns the models of `crbc serve model`, as its list of models says."""
QUOTED = 300
"""Characters of a server's answer that an error quotes."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A server's answer: its text, the log-probabilities of its tokens, if there are any, the numbers of tokens of the
    prompt and of the answer, if the server counts them, and why the answer ended, if the server says.

    A thought that the server keeps apart stands before the text, as a model writes it: "<think>...</think>".
    """

    text: str
    logprobs: list[float]
    usage: tuple[int, int] | None
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """OpenAI's client, and an event loop in another thread. It can cancel a request wherever it waits, while the
    timeout of a synchronous client is that of each read, and a server that sends a byte per second outlives it."""

    client: AsyncOpenAI
    portal: BlockingPortal


class Fault(Exception):
    """One request without an answer; the message says why.

    `kind` is the HTTP status, such as "429", "timeout", "cut" (the connection ended too early), "unreachable" or
    "garbage" (no chat completion). `final`: the same request would fail again. `pause`: seconds that the server asks
    to wait.
    """

    def __init__(self, problem: str, kind: str, *, final: bool = False, pause: float | None = None) -> None:
        super().__init__(problem)
        self.kind, self.final, self.pause = kind, final, pause


class ChatPolicy:
    """A `crbc_rl.policies.api.Policy` that asks `model` at `url`, as in "http://localhost:8000/v1".

    `key_variable` names the environment variable that holds the API key, if one is needed. At most `concurrency`
    requests run at once. If the server is busy, fails or has not answered completely after `timeout` seconds, the
    request is repeated up to `retries` times. The pause before a repetition is `pause` seconds, then twice as long each
    time, or what the server asks for, at most `MAX_PAUSE`. With `logprobs`, turns have the log-probabilities of the
    reply's tokens, if the server returns them. `options` is merged into each request's body. A value of None removes a
    field, as in `{"max_tokens": None, "max_completion_tokens": 512}` for endpoints that accept only the newer name.

    A turn has a text and no token ids. It depends on the server whether equal seeds give equal replies.
    Raises `ConfigError` for a missing key, where the endpoint refuses a request or cannot be reached, and for an answer
    that is no chat completion. No message shows the key. Redirects are not followed.
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
        self.base = url.rstrip("/")
        self.url = f"{self.base}/chat/completions"
        self.model = model
        self.concurrency, self.retries, self.timeout, self.pause = concurrency, retries, timeout, pause
        self.extra = options or {}
        if "max_completion_tokens" in self.extra:  # the newer name; servers refuse both
            self.extra = {"max_tokens": None, **self.extra}
        self.options = {"logprobs": logprobs or None, **self.extra}
        self._key = "" if key_variable is None else read_key(key_variable)
        keep_secret(self._key)
        try:
            _require_address(url)
        except (ValueError, httpx2.InvalidURL) as error:
            raise self.error(f"is no address: {error}") from error

    def generate(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], temperature: float, max_new_tokens: int
    ) -> list[Turn]:
        """One reply to each of `prompts`, in order. `seeds` (sent modulo 2**31), `temperature` and `max_new_tokens` are
        as in `Policy.generate`."""
        with self.queue(temperature, max_new_tokens) as queue:
            return answer(queue, prompts, seeds)

    @contextmanager
    def queue(self, temperature: float, max_new_tokens: int) -> Iterator[Requests]:
        """A `crbc_rl.policies.api.Queue` of replies at `temperature`, of at most `max_new_tokens` tokens each.
        Leaving it cancels the requests without a reply."""
        with self.session() as opened:
            yield Requests(self, opened, temperature, max_new_tokens)

    def body(self, prompt: Prompt, seed: int, temperature: float, max_new_tokens: int) -> bytes:
        """The body of a request, JSON in ASCII: `prompt`, `seed`, `temperature`, `max_new_tokens` and `options`."""
        fields = {
            "model": self.model,
            "messages": messages(prompt),
            "temperature": temperature,
            "max_tokens": max_new_tokens,
            "seed": seed % 2**31,  # servers differ in how many bits they take
            **self.options,
        }
        return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()

    def check(self) -> bool:
        """Ask once, before many requests wait, which models there are. Returns whether `crbc serve model` serves this
        one. Raises `ConfigError` where no server answers at the address."""
        with self.session() as opened:
            return opened.portal.call(self._reach, opened.client)

    async def _reach(self, client: AsyncOpenAI) -> bool:
        patience = httpx2.Timeout(None, connect=CHECK_SECONDS)
        try:
            models = await _answered(
                client.get("/models", cast_to=str, options={"timeout": patience}), 2 * CHECK_SECONDS
            )
            return any(one["id"] == self.model and one.get("owned_by") == OURS for one in json.loads(models)["data"])
        except Fault as fault:
            if fault.kind == "unreachable":  # else it is there, and requests are repeated after temporary errors
                raise self.error(f"{fault}: start the server, or correct --endpoint") from fault
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            pass  # not every server lists its models
        return False

    async def ask(self, client: AsyncOpenAI, body: bytes) -> Completion:
        """Post the request `body` with OpenAI's `client`, and repeat it after temporary errors.

        Raises `ConfigError` for a final error, and after the last attempt.
        """
        problem = ""
        for tried in range(self.retries + 1):
            try:
                completion = await self.attempt(client, body, self.timeout)
            except Fault as fault:
                if fault.final:
                    raise self.error(str(fault)) from fault
                problem = str(fault)
                if tried < self.retries:
                    await asyncio.sleep(min(fault.pause or self.pause * 2**tried, MAX_PAUSE))
            else:
                return completion
        waiting = "; on a server with few places requests wait: --timeout, --concurrency" * ("completely" in problem)
        raise self.error(f"{problem}, {self.retries + 1} times{waiting}")

    async def attempt(self, client: AsyncOpenAI, body: bytes, seconds: float) -> Completion:
        """Post `body` with `client` once. Raises `Fault` where there is no complete answer within `seconds`."""
        try:
            return _read(await _answered(client.post("/chat/completions", cast_to=str, content=body), seconds))
        except Fault as fault:
            if fault.kind == "400" and "content_filter" in str(fault):  # Azure's
                return Completion("", [], None, REFUSAL)
            raise

    @contextmanager
    def session(self) -> Iterator[Session]:
        """What `attempt` needs. At its end, what still waits is cancelled. Raises `ConfigError` for a wrong proxy."""
        client = self._client()
        with start_blocking_portal(name="http requests") as portal:
            portal.start_task_soon(_close_at_end, client)
            try:
                yield Session(client, portal)
            finally:
                portal.call(portal.stop, True)

    def _client(self) -> AsyncOpenAI:
        import openai

        try:
            http = openai.DefaultAsyncHttpxClient(follow_redirects=False)
        except (ValueError, ImportError, httpx2.InvalidURL) as error:
            problem = f"HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names no proxy that can be used: {error}"
            raise ConfigError(one_line(redacted(problem))) from error
        key = self._key or "none"  # without one the client would send OPENAI_API_KEY
        return openai.AsyncOpenAI(base_url=self.base, api_key=key, http_client=http, max_retries=0, timeout=None)

    def error(self, problem: str) -> ConfigError:
        """The error that this endpoint has `problem`, in one line without its key."""
        return ConfigError(one_line(redacted(f"{self.url} (model {self.model}) {problem}")))


class Requests:
    """A `crbc_rl.policies.api.Queue` of HTTP requests in an event loop."""

    def __init__(self, policy: ChatPolicy, opened: Session, temperature: float, max_new_tokens: int) -> None:
        self.policy, self.opened, self.limits = policy, opened, (temperature, max_new_tokens)
        self.asked: dict[Future[Turn], int] = {}
        self._free = asyncio.Semaphore(policy.concurrency)

    @property
    def waiting(self) -> int:
        return len(self.asked)

    def ask(self, key: int, prompt: Prompt, seed: int) -> None:
        body = self.policy.body(prompt, seed, *self.limits)
        self.asked[self.opened.portal.start_task_soon(self._turn, prompt, body)] = key

    def ready(self) -> list[tuple[int, Turn]]:
        arrived, _ = wait(self.asked, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        return sorted(((self.asked.pop(future), future.result()) for future in arrived), key=itemgetter(0))

    async def _turn(self, prompt: Prompt, body: bytes) -> Turn:
        async with self._free:
            answer = await self.policy.ask(self.opened.client, body)
        told: Any = {"finish_reason": answer.finish_reason, "asked": prompt.text}
        return Turn([], [], answer.logprobs, answer.text, prompt.images, **told)


async def _close_at_end(client: AsyncOpenAI) -> None:
    async with client:
        await asyncio.Event().wait()  # until it is cancelled


def read_key(variable: str) -> str:
    """The API key that an environment variable holds. Raises `ConfigError` where there is none, without showing it."""
    if not variable.isidentifier():  # perhaps the key itself, which must not be printed
        raise ConfigError("--key-variable: give the name of an environment variable that holds the key, not the key")
    key = os.environ.get(variable, "").strip()
    if not key:
        shown = variable if variable.isupper() else "..."  # otherwise, too, it may be the key
        raise ConfigError(
            f"--key-variable {shown}: there is no such environment variable; give the name of one that holds the "
            "server's API key"
        )
    if not (key.isascii() and key.isprintable()):  # otherwise the HTTP library raises an error that contains the key
        raise ConfigError(f"the environment variable {variable} holds characters that no API key has")
    return key


def _require_address(url: str) -> None:
    """Raise `ValueError` or `httpx2.InvalidURL` for what is no address. Its password will be in no message."""
    keep_secret(url.partition("//")[2].rpartition("@")[0])
    address = httpx2.URL(url)
    keep_secret(address.password)
    if address.scheme not in ("http", "https") or not address.host:
        raise ValueError("write it as http://HOST:PORT/v1, or with https")
    if not 0 < (address.port or 80) <= 65_535:
        raise ValueError("a port is a number from 1 to 65535")


async def _answered(exchange: Awaitable[str], seconds: float) -> str:
    """What a server answers. Raises `Fault` where it does not answer with success within so many seconds."""
    import openai

    try:
        async with asyncio.timeout(seconds):
            return await exchange
    except TimeoutError as error:
        raise Fault(f"has not answered completely after {seconds:g} s", "timeout") from error
    except openai.APIStatusError as error:
        problem = f"answered {error.status_code}: {_shown(error.response.text)}"
        if error.status_code in (401, 403):
            problem += "; name the variable that holds your API key with --key-variable"
        if error.status_code == 404:
            problem += "; is the model's name right, and does the address end where the server's does, mostly in /v1?"
        if error.status_code in (400, 422):
            hint = next((hint for word, hint in HINTS.items() if word in problem), None)
            problem += f"; {hint}" if hint else ""
        if 300 <= error.status_code < 400:
            problem += f"it has moved to {error.response.headers.get('location', 'somewhere else')}"
        asked = error.response.headers.get("retry-after", "")
        pause = float(asked) if asked.isdecimal() else None  # it may be a date
        final = error.status_code not in RETRY_STATUS
        raise Fault(problem, str(error.status_code), final=final, pause=pause) from error
    except openai.APIConnectionError as error:
        cause = error.__cause__
        cut = isinstance(cause, httpx2.RemoteProtocolError | httpx2.ReadError)
        problem = f"cannot be reached ({type(cause).__name__}: {cause})"
        raise Fault(problem, "cut" if cut else "unreachable") from error


def _read(reply: str) -> Completion:
    """A chat completion. Raises `Fault` for anything else."""
    try:
        answer = json.loads(reply)
        if answer.get("error"):  # of a provider behind a router
            raise Fault(f"answered 200 with an error: {_shown(reply)}", "error")
        choice = answer["choices"][0]
        ended = str(choice.get("finish_reason") or "").lower()
        if choice.get("error") or ended in FAILURES:
            raise Fault(f"did not finish its answer: {_shown(reply)}", "error")
        message = choice.get("message") or {}
        if not message and ended not in LIMITS | REFUSALS:  # then nothing was left to say
            raise LookupError("message")
        text, thought = _parts(message.get("content"))
        apart = message.get("reasoning_content") or message.get("reasoning")
        thought += apart if isinstance(apart, str) else ""
        if not text and message.get("refusal"):
            text, ended = str(message["refusal"]), REFUSAL
        logprobs = [_logprob(token["logprob"]) for token in (choice.get("logprobs") or {}).get("content") or ()]
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        problem = f"answered something else than a chat completion: {_shown(reply)}"
        raise Fault(problem, "garbage", final=True) from error
    if thought:
        text = as_thought(thought, whole=bool(text) or ended not in LIMITS) + text
    # half a surrogate pair cannot be sent or recorded
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return Completion(text, logprobs, _usage(answer.get("usage")), ended or None)


def _parts(content: Any) -> tuple[str, str]:
    """The text of a message, and the thought that some servers put into parts beside it. Null is an empty reply."""
    if not isinstance(content, list):
        if not isinstance(content, str | None):
            raise TypeError("the content is no text")
        return content or "", ""
    said, thought = "", ""
    for part in content:
        if part["type"] == "thinking":
            inner = part["thinking"]
            thought += inner if isinstance(inner, str) else "".join(one["text"] for one in inner)
        elif part["type"] in ("text", "output_text"):
            said += part["text"]
    return said, thought


def _usage(usage: object) -> tuple[int, int] | None:
    """The tokens of prompt and answer, None where a server tells none, or no numbers."""
    counts = [usage.get(name) if isinstance(usage, dict) else None for name in ("prompt_tokens", "completion_tokens")]
    asked, given = (count if type(count) is int and 0 <= count < 2**31 else None for count in counts)
    return None if asked is None or given is None else (asked, given)


def _shown(reply: str) -> str:
    """The beginning of a server's answer, without what some servers echo: the key."""
    text = " ".join(reply.split())
    shown = redacted(text[:LONGEST_READ])
    if len(text) > LONGEST_READ:  # where it ends, a key may be cut in two
        shown = shown[: -LONGEST_READ // 4]
    return one_line(shown, QUOTED)


def _logprob(value: Any) -> float:
    """A finite number. Raises `ValueError`, `TypeError` or `OverflowError`."""
    if not math.isfinite(number := float(value)):
        raise ValueError("a log-probability is not finite")
    return number
