"""HTTP requests with bounds: on the time of a whole exchange, on the bytes of a reply, and on where it comes from."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import httpx

from crbc_envs.printable import one_line
from crbc_rl.errors import ConfigError, redacted

LARGEST_REPLY = 8 * 2**20
"""Bytes of a reply's body, unpacked."""

T = TypeVar("T")


class ReplyError(Exception):
    """A reply is not read: it is too large or damaged. The message says which."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply of a server."""

    status: int
    retry_after: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Session:
    """Sends requests from an event loop, which runs in another thread."""

    client: httpx.AsyncClient
    loop: asyncio.AbstractEventLoop

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    async def exchange(self, method: str, url: str, seconds: float, content: bytes | None = None) -> Reply:
        """Send a request and read the whole reply. Redirects are not followed.

        Raises `TimeoutError` after so many seconds for connection, request and reply together, however the server
        spreads its bytes. Raises `ReplyError`, and `httpx.HTTPError` or `httpx.InvalidURL` as httpx does.
        """
        async with asyncio.timeout(seconds), self.client.stream(method, url, content=content) as response:
            return Reply(response.status_code, response.headers.get("retry-after", ""), await _body(response))

    async def reach(self, url: str, seconds: float) -> None:
        """Connect within so many seconds, and wait as long for the status and headers of a reply alone.

        The errors are those of `exchange`, `httpx.ConnectTimeout` where nothing takes the connection.
        """
        patience = httpx.Timeout(None, connect=seconds)
        async with asyncio.timeout(2 * seconds), self.client.stream("GET", url, timeout=patience):
            return


@contextmanager
def session(headers: dict[str, str], connections: int) -> Iterator[Session]:
    """A session in a thread of its own. At the end, what it still runs is cancelled.

    An event loop can cancel an exchange wherever it waits. The timeouts of a synchronous client are those of each
    read, and a server that sends one byte per second outlives them. Raises `ConfigError` for a proxy that is none.
    """
    started: Future[tuple[Session, asyncio.Event]] = Future()
    client = _client(headers, connections)

    async def serve() -> None:
        async with client:
            stop = asyncio.Event()
            started.set_result((Session(client, asyncio.get_running_loop()), stop))
            await stop.wait()
            running = asyncio.all_tasks() - {asyncio.current_task()}
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="http requests", daemon=True)
    thread.start()
    opened, stop = started.result()
    try:
        yield opened
    finally:
        opened.loop.call_soon_threadsafe(stop.set)
        thread.join()


@cache
def _certificates() -> ssl.SSLContext:
    """Whom to trust, as httpx has it. Reading them takes longer than many requests."""
    return httpx.create_ssl_context()


def _client(headers: dict[str, str], connections: int) -> httpx.AsyncClient:
    headers = {**headers, "Accept-Encoding": "gzip", "Content-Type": "application/json"}
    limits = httpx.Limits(max_connections=connections)
    try:
        return httpx.AsyncClient(headers=headers, timeout=None, limits=limits, verify=_certificates())
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        problem = f"HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names no proxy that can be used: {error}"
        raise ConfigError(one_line(redacted(problem))) from error


async def _body(response: httpx.Response) -> bytes:
    """The unpacked body."""
    body = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > LARGEST_REPLY:
                raise ReplyError(f"sent a reply of more than {LARGEST_REPLY >> 20} MiB")
    except httpx.DecodingError as error:
        raise ReplyError(f"sent a damaged reply ({error})") from error
    return bytes(body)
