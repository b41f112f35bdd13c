"""The endpoint as an ASGI application: who may ask, and the way of a request to its answer."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import cache, partial
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Send

from crbc_envs.actions import OPEN_THINK
from crbc_lab.model_server.answers import Answer
from crbc_lab.model_server.batcher import Batcher
from crbc_lab.model_server.requests import LARGEST_BODY, Order, Reader, Refused
from crbc_lab.model_server.rows import Row
from crbc_rl.policies.chat import OURS
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.version import __version__

log = logging.getLogger(__name__)

BODY_SECONDS = 30.0
"""For the whole body of a request, however its bytes are spread."""

_OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)
"""A client leaves ":80" out, and has another port where a tunnel leads here."""


class Endpoint:
    """Answers requests to `policy`, which is called `name`.

    A request without a seed gets one from a generator with `seed`, and the answer tells it. `key` is what an
    Authorization header must hold, if anything. Only Host headers that name this machine are answered, unless it is
    `exposed`. The list of models says who is the `owner`: `crbc eval` asks a model of ours as in training.
    """

    owner = OURS

    def __init__(
        self, policy: TransformersPolicy, name: str, *, seed: int = 0, key: str = "", exposed: bool = False
    ) -> None:
        self.policy, self.name, self.key, self.exposed = policy, name, key.encode(), exposed
        self.reader, self.batcher = Reader(policy, name), Batcher(policy)
        self.text, self.made = cache(lambda token: policy.tokenizer.decode([token])), int(time.time())
        self.about = {"model": name, "system_fingerprint": f"crbc-{__version__}"}
        self._seeds = np.random.default_rng(seed)
        self._thread = ThreadPoolExecutor(1, "requests")
        """Reads requests: a long text takes a while, and others are answered meanwhile."""

    def application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self._guarded(self.models), methods=["GET"]),
                Route("/v1/chat/completions", self._guarded(partial(self._ask, self.reader.chat)), methods=["POST"]),
                Route("/v1/completions", self._guarded(partial(self._ask, self.reader.completion)), methods=["POST"]),
            ],
            exception_handlers={Refused: _refused, HTTPException: self._unknown, Exception: _broken},
        )

    async def models(self, request: Request) -> Response:
        about = {"created": self.made, "owned_by": self.owner, "max_model_len": self.reader.positions}
        return JSONResponse({"object": "list", "data": [{"id": self.name, "object": "model", **about}]})

    # ---- from requests to answers -------------------------------------------------------------

    async def _ask(self, read: Callable[[bytes], Order], request: Request) -> Response:
        """The answer, which is sent while it is written."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused("send the body with the header Content-Type: application/json", None, 415)
        order = await asyncio.get_running_loop().run_in_executor(self._thread, read, await _body(request))
        asked = order.fields
        seed = int(self._seeds.integers(2**31)) if asked.seed is None else asked.seed
        changed = asyncio.Event() if asked.stream else None
        draws, thought = np.random.default_rng, self.policy.thought
        opened = OPEN_THINK * (order.chat and self.policy.opens_thought)
        row = partial(Row, most=order.most, thought=thought, order=order, changed=changed, text=opened)
        rows = [row(turn, draws((seed + k) % 2**63)) for turn in order.prompts for k in range(asked.n)]
        answer = Answer(self.policy, self.text, order, rows, seed=seed, **self.about)
        return _Sent(self._pieces(answer), "text/event-stream" if asked.stream else "application/json")

    async def _pieces(self, answer: Answer) -> AsyncGenerator[bytes]:
        """The bytes of an answer, after nothing for a sign that there is one. Once closed it costs nothing more."""
        with self.batcher.asked(answer.rows):
            if answer.order.fields.stream:
                yield b""
                async for event in answer.events():
                    yield event
                return
            await asyncio.gather(*(row.done for row in answer.rows))
            yield b""
            if answer.order.logprobs or answer.order.echo:
                async for piece in self.batcher.written(answer.whole()):
                    yield piece
            else:
                yield "".join(answer.whole()).encode()

    # ---- who may ask --------------------------------------------------------------------------

    def _guarded(
        self, answer: Callable[[Request], Coroutine[Any, Any, Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            self._require_host(request)
            given = request.headers.get("authorization", "").removeprefix("Bearer ").encode("utf-8", "surrogateescape")
            if self.key and not hmac.compare_digest(given, self.key):
                raise Refused(
                    "no key came, or not the server's: Authorization: Bearer KEY", None, 401, "invalid_api_key"
                )
            try:
                return await answer(request)
            except ClientDisconnect:
                return Response(status_code=499)

        return respond

    def _require_host(self, request: Request) -> None:
        """Another site's name may lead a browser to this server. Raises `Refused` for it."""
        if not self.exposed and not _OWN_HOST.fullmatch(request.headers.get("host", "")):
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


class _Sent(StreamingResponse):
    """An answer, which begins with its first piece: an error before it has a status. It is closed at its end, and when
    the client goes away."""

    def __init__(self, pieces: AsyncGenerator[bytes], kind: str) -> None:
        super().__init__(pieces, media_type=kind)
        self.pieces = pieces

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.pieces):
            await anext(self.pieces)
            await super().stream_response(send)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    # A body that was not read to its end would be taken for the next request.
    close = {"Connection": "close"} if error.status in (408, 413, 415, 421, 401) else {}
    return JSONResponse(error.answer(), error.status, close)


async def _broken(request: Request, error: Exception) -> Response:
    """A bug, or no memory. The server goes on, and tells it in one line."""
    log.error("%s: %s: %s", request.url.path, type(error).__name__, error)
    # uvicorn ends the connection after an error, so a client must not send its next request on it.
    answer = Refused(f"{type(error).__name__} in the server", None, 500).answer()
    return JSONResponse(answer, 500, {"Connection": "close"})
