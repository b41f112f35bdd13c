"""OpenEnv: what stands before the server's application, and bounds what strangers and lost clients can cost."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

LOOPBACK = {"127.0.0.1": "127.0.0.1", "::1": "[::1]", "localhost": "localhost"}
"""The hosts that only this machine reaches, and how a Host header has them."""

LARGEST_MESSAGE, LARGEST_BODY = 2**21, 2**16
"""Bytes of one message of a session, and of the body of any other request."""

REFUSAL: Message = {"type": "websocket.close", "code": 1008}

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
        elif not self._admits(Headers(scope=scope)) or scope["query_string"]:  # ?session_id= enters another's session
            refusal = PlainTextResponse("for programs of this machine, and for no web page", status_code=403)
            await (send(REFUSAL) if scope["type"] == "websocket" else refusal(scope, receive, send))
        elif scope["type"] == "websocket":
            session = _Session(receive, send, self.seconds)
            await self.app(scope, session.receive, session.send)
        else:
            await self.app(scope, _Body(receive), send)

    def _admits(self, headers: Headers) -> bool:
        """A page's script sends an Origin. One whose site's name was bound to this machine sends that name as Host."""
        host = headers.get("host", "").lower()
        foreign = {host, host.rpartition(":")[0]}.isdisjoint(LOOPBACK.values())
        return "origin" not in headers and (self.exposed or not foreign)


class _Session:
    """What a WebSocket receives and sends. Whatever is sent to a client that is gone is dropped."""

    def __init__(self, receive: Receive, send: Send, seconds: float) -> None:
        self._receive, self._send, self.seconds, self.gone = receive, send, seconds, False

    async def receive(self) -> Message:
        if not self.gone:
            try:
                return await asyncio.wait_for(self._receive(), self.seconds)
            except TimeoutError:
                reason = f"nothing was sent for {self.seconds:g} seconds"
                await self.send({**REFUSAL, "reason": reason})
                self.gone = True
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(self, message: Message) -> None:
        if not self.gone:
            try:
                await asyncio.wait_for(self._send(message), self.seconds)
            except OSError:  # lost, or late
                self.gone = True


class _Body:
    """Receives a request's body. One that is larger than `LARGEST_BODY` counts as cut off."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self.size = receive, 0

    async def __call__(self) -> Message:
        message = await self._receive()
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
