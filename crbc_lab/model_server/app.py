"""The endpoint as an ASGI application: who may ask, what is asked, and the answers in OpenAI's shape."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex
from typing import Any, TypeVar

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from crbc_lab.model_server.batcher import Batcher, Row, Scores
from crbc_lab.model_server.requests import LARGEST_BODY, Order, Reader, Refused
from crbc_rl.batches import Turn
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.version import __version__

log = logging.getLogger(__name__)

BODY_SECONDS = 30.0
"""For the whole body of a request, however its bytes are spread."""

Body = dict[str, Any]
T = TypeVar("T")


class Endpoint:
    """Answers requests to `policy`, which is called `name`.

    A request without a seed gets one from a generator with `seed`, and the answer tells it. `key` is what an
    Authorization header must hold, if anything. `hosts` are the Host headers that are answered; None: all.
    """

    def __init__(
        self, policy: TransformersPolicy, name: str, *, seed: int = 0, key: str = "", hosts: set[str] | None = None
    ) -> None:
        self.policy, self.name, self.key, self.hosts = policy, name, key.encode(), hosts
        self.reader, self.batcher = Reader(policy, name), Batcher(policy)
        self.made = int(time.time())
        self._seeds = np.random.default_rng(seed)
        self._thread = ThreadPoolExecutor(1, "requests")
        """Reads requests: a long text takes a while, and others are answered meanwhile."""

    def application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self._guarded(self.models), methods=["GET"]),
                Route("/v1/chat/completions", self._guarded(self.chat), methods=["POST"]),
                Route("/v1/completions", self._guarded(self.completions), methods=["POST"]),
            ],
            exception_handlers={Refused: _refused, HTTPException: self._unknown, Exception: _broken},
        )

    async def models(self, request: Request) -> Body:
        about = {"created": self.made, "owned_by": "crbc", "max_model_len": self.reader.positions}
        return {"object": "list", "data": [{"id": self.name, "object": "model", **about}]}

    async def chat(self, request: Request) -> Body:
        order, seed, replies = await self._replies(request, self.reader.chat)
        choices = []
        for index, (turn, scores) in enumerate(replies):
            message = {"role": "assistant", "content": turn.text, "refusal": None}
            listed = {"content": self._listed(turn, scores), "refusal": None} if order.logprobs else None
            choices.append({**self._choice(order, index, turn), "message": message, "logprobs": listed})
        answer = self._answer("chat.completion", order, seed, replies, choices)
        return {**answer, "prompt_token_ids": order.prompts[0].prompt} if order.token_ids else answer

    async def completions(self, request: Request) -> Body:
        order, seed, replies = await self._replies(request, self.reader.completion)
        choices = []
        for index, (turn, scores) in enumerate(replies):
            text = (self.policy.tokenizer.decode(turn.prompt) if order.echo else "") + turn.text
            listed = self._columns(order, turn, scores) if order.logprobs else None
            ids = {"prompt_token_ids": turn.prompt} if order.token_ids else {}
            choices.append({**self._choice(order, index, turn), "text": text, "logprobs": listed, **ids})
        return self._answer("text_completion", order, seed, replies, choices)

    # ---- from requests to replies -------------------------------------------------------------

    async def _replies(
        self, request: Request, read: Callable[[bytes], Order]
    ) -> tuple[Order, int, list[tuple[Turn, Scores | None]]]:
        """The order, its seed, and `n` replies to each prompt. Raises `ClientDisconnect` where the client went away."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused("send the body with the header Content-Type: application/json", None, 415)
        body = await _body(request)
        return await _unless_gone(request, self._ordered(body, read))

    async def _ordered(
        self, body: bytes, read: Callable[[bytes], Order]
    ) -> tuple[Order, int, list[tuple[Turn, Scores | None]]]:
        order = await asyncio.get_running_loop().run_in_executor(self._thread, read, body)
        seed = int(self._seeds.integers(2**31)) if order.seed is None else order.seed
        # Otherwise the log-probabilities of sampling are at hand.
        scored = order.logprobs and bool(order.top or order.echo or not order.temperature)
        limits = (order.temperature, order.most, scored, order.echo, order.top)
        rows = [Row(turn, (seed + k) % 2**63, *limits) for turn in order.prompts for k in range(order.n)]
        return order, seed, await self.batcher.replies(rows)

    # ---- from replies to answers --------------------------------------------------------------

    def _answer(
        self, kind: str, order: Order, seed: int, replies: list[tuple[Turn, Scores | None]], choices: list[Body]
    ) -> Body:
        asked = sum(len(turn.prompt) for turn in order.prompts)
        given = sum(len(turn.response) for turn, _ in replies)
        return {
            "id": f"{'chatcmpl' if kind.startswith('chat') else 'cmpl'}-{token_hex(12)}",
            "object": kind,
            "created": int(time.time()),
            "model": self.name,
            "system_fingerprint": f"crbc-{__version__}",
            "seed": seed,
            "choices": choices,
            "usage": {"prompt_tokens": asked, "completion_tokens": given, "total_tokens": asked + given},
        }

    def _choice(self, order: Order, index: int, turn: Turn) -> Body:
        ended = turn.response[-1:] == [self.policy.eos]
        ids = {"token_ids": turn.response} if order.token_ids else {}
        return {"index": index, "finish_reason": "stop" if ended else "length", **ids}

    def _listed(self, turn: Turn, scores: Scores | None) -> list[Body]:
        """The tokens of a chat's reply with their log-probabilities, the end token included."""
        logprobs = turn.logprobs if scores is None else scores.logprobs
        tops = [[]] * len(turn.response) if scores is None else scores.top
        return [
            {**self._token(token, value), "top_logprobs": [self._token(*pair) for pair in top]}
            for token, value, top in zip(turn.response, logprobs, tops, strict=True)
        ]

    def _token(self, token: int, logprob: float) -> Body:
        return {"token": self._text(token), "logprob": logprob, "bytes": None}

    def _columns(self, order: Order, turn: Turn, scores: Scores | None) -> Body:
        """The tokens of a completion as columns; with `echo` the prompt's before them, whose first has no score."""
        tokens = turn.response
        values: list[float | None] = [*(turn.logprobs if scores is None else scores.logprobs)]
        tops: list[Body | None] = [
            {self._text(token): value for token, value in top} for top in (scores.top if scores is not None else ())
        ]
        if order.echo:
            tokens, values, tops = turn.prompt + turn.response, [None, *values], [None, *tops]
        texts = [self._text(token) for token in tokens]
        offsets = np.cumsum([0, *map(len, texts)])[:-1].tolist()
        listed = {"tokens": texts, "token_logprobs": values, "text_offset": offsets}
        return {**listed, "top_logprobs": tops if order.top else None}

    def _text(self, token: int) -> str:
        return self.policy.tokenizer.decode([token])

    # ---- who may ask --------------------------------------------------------------------------

    def _guarded(
        self, answer: Callable[[Request], Coroutine[Any, Any, Body]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            self._require_host(request)
            given = request.headers.get("authorization", "").removeprefix("Bearer ").encode("utf-8", "surrogateescape")
            if self.key and not hmac.compare_digest(given, self.key):
                raise Refused("a key is wanted: Authorization: Bearer KEY", None, 401, "invalid_api_key")
            try:
                return JSONResponse(await answer(request))
            except ClientDisconnect:
                return Response(status_code=499)

        return respond

    def _require_host(self, request: Request) -> None:
        """Another site's name may lead a browser to this server. Raises `Refused` for it."""
        if self.hosts is not None and request.headers.get("host", "").lower() not in self.hosts:
            raise Refused("this endpoint is open on its own machine only", None, 421)

    async def _unknown(self, request: Request, error: Exception) -> Response:
        """A path or a method that there is not."""
        assert isinstance(error, HTTPException)
        try:
            self._require_host(request)
        except Refused as foreign:
            return await _refused(request, foreign)
        refused = Refused(f"{request.method} {request.url.path}: {error.detail}", None, error.status_code)
        return JSONResponse(refused.answer(), error.status_code, error.headers)


async def _body(request: Request) -> bytes:
    """The body of a request. Raises `Refused` for one that is too large or takes too long."""
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                content += chunk
                if len(content) > LARGEST_BODY:
                    raise Refused(f"the body has more than {LARGEST_BODY:,} bytes", None, 413)
    except TimeoutError as error:
        raise Refused(f"the body did not arrive within {BODY_SECONDS:g} s", None, 408) from error
    return bytes(content)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client goes away, with `ClientDisconnect`."""
    working, gone = asyncio.create_task(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    # A body that was not read to its end would be taken for the next request.
    close = {"Connection": "close"} if error.status in (408, 413, 415, 421, 401) else {}
    return JSONResponse(error.answer(), error.status, close)


async def _broken(request: Request, error: Exception) -> Response:
    """A bug, or no memory. The server goes on, and tells it in one line."""
    log.error("%s: %s: %s", request.url.path, type(error).__name__, error)
    # uvicorn ends the connection after an error, so a client must not send its next request on it.
    close = {"Connection": "close"}
    return JSONResponse(Refused(f"{type(error).__name__} in the server", None, 500).answer(), 500, close)
