"""OpenEnv: what stands before the server's application, and bounds what strangers and lost clients can cost."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

LOOPBACK = {"127.0.0.1": "127.0.0.1", "::1": "[::1]", "localhost": "localhost"}
"""The hosts that only this machine reaches, and how a Host header has them."""

LARGEST_MESSAGE, LARGEST_BODY = 2**21, 2**16
"""Bytes of one message of a session, and of the body of any other request."""

REQUEST_SECONDS = 60.0
"""The time of a connection that is no session: all its requests and their answers together."""


class Gate:
    """An application that web pages do not reach, nor other hosts' names unless `exposed`.

    A client that sends nothing for `seconds`, or takes nothing, is gone.
    """

    def __init__(self, app: ASGIApp, seconds: float, exposed: bool) -> None:
        self.app, self.seconds, self.exposed = app, seconds, exposed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif self._admits(Headers(scope=scope)) and not scope["query_string"]:  # ?session_id= enters another's session
            wait = self._message if scope["type"] == "websocket" else _Body()
            await self.app(scope, partial(wait, receive, send), partial(self._send, send))
        else:
            refusal = "this server is for programs of its own machine, and for no web page"
            await PlainTextResponse(refusal, status_code=403)(scope, receive, send)

    def _admits(self, headers: Headers) -> bool:
        """A page's script sends an Origin. One whose site's name was bound to this machine sends that name as Host."""
        host = headers.get("host", "").lower()
        named = {host, host.rpartition(":")[0]} & set(LOOPBACK.values())
        return "origin" not in headers and (self.exposed or bool(named))

    async def _message(self, receive: Receive, send: Send) -> Message:
        try:
            return await asyncio.wait_for(receive(), self.seconds)
        except TimeoutError:
            reason = f"nothing was sent for {self.seconds:g} seconds"
            await self._send(send, {"type": "websocket.close", "code": 1008, "reason": reason})
            return {"type": "websocket.disconnect", "code": 1008}

    async def _send(self, send: Send, message: Message) -> None:
        await asyncio.wait_for(send(message), self.seconds)  # TimeoutError is an OSError, as for a lost connection


class _Body:
    """Receives a request's body, and calls one that is larger than `LARGEST_BODY` disconnected."""

    def __init__(self) -> None:
        self.size = 0

    async def __call__(self, receive: Receive, send: Send) -> Message:
        message = await receive()
        self.size += len(message.get("body", b""))
        return message if self.size <= LARGEST_BODY else {"type": "http.disconnect"}


class ShortLived(H11Protocol):
    """HTTP connections that end after `REQUEST_SECONDS`, unless they have become sessions."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(REQUEST_SECONDS, self._end)

    def _end(self) -> None:
        if self in self.connections:
            self.transport.abort()
