"""OpenEnv: what stands before the server. It keeps web pages out and ends the sessions of lost clients."""

from __future__ import annotations

import asyncio
import json

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = {"127.0.0.1": "127.0.0.1", "::1": "[::1]", "localhost": "localhost"}
"""The hosts that only this machine reaches, and how a Host header has them."""

REFUSED, TRY_AGAIN_LATER = 1008, 1013
"""Close codes of WebSockets."""


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
            closing = {"type": "websocket.close", "code": REFUSED}
            await (send(closing) if scope["type"] == "websocket" else refusal(scope, receive, send))
        elif scope["type"] == "websocket":
            session = _Session(receive, send, self.seconds)
            await self.app(scope, session.receive, session.send)
        else:
            await self.app(scope, receive, send)

    def _admits(self, headers: Headers) -> bool:
        """A page's script sends an Origin. One whose site's name was bound to this machine sends that name as Host."""
        host = headers.get("host", "").lower()
        foreign = {host, host.rpartition(":")[0]}.isdisjoint(LOOPBACK.values())
        return "origin" not in headers and (self.exposed or not foreign)


class _Session:
    """What a WebSocket receives and sends.

    What is no JSON object is answered here, because OpenEnv would end the session. Whatever is sent to a client that is
    gone is dropped.
    """

    def __init__(self, receive: Receive, send: Send, seconds: float) -> None:
        self._receive, self._send, self.seconds, self.gone = receive, send, seconds, False
        self._full = False

    async def receive(self) -> Message:
        while not self.gone:
            try:
                message = await asyncio.wait_for(self._receive(), self.seconds)
            except TimeoutError:
                reason = f"nothing was sent for {self.seconds:g} seconds"
                await self.send({"type": "websocket.close", "code": REFUSED, "reason": reason})
                self.gone = True
                break
            if message["type"] != "websocket.receive" or _is_object(message.get("text")):
                return message
            error = {"message": "a message is one JSON object, as text in Unicode", "code": "INVALID_JSON"}
            await self.send({"type": "websocket.send", "text": json.dumps({"type": "error", "data": error})})
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(self, message: Message) -> None:
        if message["type"] == "websocket.close" and self._full:
            message = {**message, "code": TRY_AGAIN_LATER, "reason": "CAPACITY_REACHED: all sessions are taken"}
        self._full = '"CAPACITY_REACHED"' in (message.get("text") or "")
        if not self.gone:
            try:
                await asyncio.wait_for(self._send(message), self.seconds)
            except OSError:  # lost, or late
                self.gone = True


def _is_object(text: str | None) -> bool:
    """Whether a text is a JSON object that can be written as UTF-8. Of a binary message there is no text."""
    try:
        message = json.loads(text or "")
        json.dumps(message, ensure_ascii=False).encode()  # fails for half a surrogate pair
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict)
