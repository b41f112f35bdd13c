"""The site's server against clients that hold on to it: their number, their time and what they may send."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest
from webshop_catalogue import shop

from crbc_envs.webshop.shop.panels import WebShopPanel
from crbc_envs.webshop.site import connections
from crbc_envs.webshop.site.server import LONGEST_HEAD, Site, SiteServer, serving

REQUEST = b"GET /style.css HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"


@pytest.fixture(scope="module")
def site():
    opened = shop()
    return Site(opened, WebShopPanel("test", "train", opened.goals))


@pytest.fixture
def server(site):
    with SiteServer(site) as opened, serving(opened):
        yield opened


def honest(server):
    """A request like a browser's, and whether it is answered."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/goal/0")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status == 200


@contextmanager
def connected(server, sent=b""):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(sent)
        yield client


def answered(server, sent):
    """All that comes back until the server closes the connection."""
    with connected(server, sent) as client:
        received = b""
        with suppress(ConnectionError):
            while chunk := client.recv(65_536):
                received += chunk
        return received


def soon(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    "sent", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: x\r\n", REQUEST], ids=["none", "word", "head", "whole"]
)
def test_five_hundred_connections_take_no_turn_from_a_browser(server, sent):
    threads = threading.active_count()
    with ExitStack() as stack:
        for i in range(500):
            stack.enter_context(connected(server, sent.replace(b"%d", b"%d" % server.port)))
            if i % 100 == 50:
                assert honest(server)
        assert honest(server)
        soon(lambda: not server.connections._ending)
        # Soon: the thread of the browser's last connection may still be about to end.
        soon(lambda: connections.MOST // 2 < threading.active_count() - threads <= connections.MOST)
    soon(lambda: threading.active_count() <= threads)
    assert not server.connections._deadlines


def test_a_connection_that_cannot_end_at_once_makes_no_room_for_more_than_as_many(monkeypatch):
    monkeypatch.setattr(connections, "MOST", 3)
    table = connections.Connections()
    pairs = [socket.socketpair() for _ in range(8)]
    ours = [pair[0] for pair in pairs]
    assert [table.add(one) for one in ours] == [True] * 6 + [False] * 2
    assert list(table._deadlines) == ours[3:6] and table._ending == set(ours[:3])
    table.remove(ours[0])
    table.progress(ours[3])
    assert table.add(ours[6])
    assert list(table._deadlines) == [ours[5], ours[3], ours[6]]
    for pair in pairs:
        pair[0].close()
        pair[1].close()


def test_a_dripping_request_ends_in_time_and_others_are_served(server, monkeypatch):
    monkeypatch.setattr(connections, "SECONDS", 0.5)
    with connected(server, b"GET / HTTP/1.1\r\n") as client, pytest.raises(ConnectionError):  # noqa: PT012
        for i in range(1_000):
            client.sendall(b"X-%d: a\r\n" % i if i < 90 else b"x")
            time.sleep(0.05)
            if i == 2:
                assert honest(server)
    soon(lambda: not server.connections._deadlines and not server.connections._ending)


def test_a_client_that_never_reads_is_left(server, monkeypatch):
    monkeypatch.setattr(connections, "SECONDS", 0.5)
    request = b"GET /goal/0/results?q=shoe HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.port
    with connected(server) as client:
        client.settimeout(5.0)
        with pytest.raises(OSError, match=r"."):  # noqa: PT012
            while True:
                client.sendall(request * 100)
    assert honest(server)
    soon(lambda: not server.connections._deadlines and not server.connections._ending)


def test_a_silent_connection_ends_in_time(server, monkeypatch):
    monkeypatch.setattr(connections, "SECONDS", 0.2)
    assert answered(server, b"") == b""


def test_a_browser_keeps_its_connection(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.connect()
    local = connection.sock.getsockname()
    for target in ("/goal/0", "/style.css", "/nowhere") * 5:
        connection.request("GET", target)
        assert connection.getresponse().read()
    assert connection.sock.getsockname() == local
    connection.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"x" * 66_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 66_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + (b"X: " + b"y" * 2000 + b"\r\n") * 90 + b"\r\n", b"431"),
        (b"x" * (LONGEST_HEAD + 1), b"431"),
        (b"GET / HTTP/9.0\r\n\r\n", b"505"),
        (b"\xff\x00\x1b[2J\r\n\r\n", b"400"),
    ],
    ids=["line", "header", "headers", "bytes", "no line", "version", "noise"],
)
def test_a_request_is_bounded(server, sent, status):
    answer = answered(server, sent)
    # what was not read when the connection is closed may take the answer with it
    assert status in answer[:400] or (len(sent) > LONGEST_HEAD and not answer)
    assert honest(server)


def test_half_a_request_is_not_answered(server):
    with connected(server, b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % server.port) as client:
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""


def test_a_body_is_never_taken_for_a_request(server):
    head = REQUEST % server.port
    body = head.replace(b"\r\n\r\n", b"\r\nContent-Length: 40\r\n\r\n") + REQUEST % server.port
    assert answered(server, body).count(b"HTTP/1.1 200") == 1
    assert answered(server, head * 2 + body).count(b"HTTP/1.1 200") == 3


def test_closing_the_server_ends_all_connections(site):
    threads = threading.active_count()
    with ExitStack() as stack:
        with SiteServer(site) as opened, serving(opened):
            for _ in range(5):
                stack.enter_context(connected(opened))
            assert honest(opened)
        soon(lambda: threading.active_count() <= threads)
