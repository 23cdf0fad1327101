from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from checkpointd.clients import bounded_http
from checkpointd.errors import RefusedError, RejectedError, SilentError

Serve = Callable[[socket.socket, threading.Event], None]


@contextmanager
def serving(serve: Serve) -> Generator[bounded_http.Target]:
    """Serve one connection with ``serve(connection, ended)``; ``ended`` is set at the end."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _address = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                serve(connection, ended)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        yield bounded_http.Target(host="127.0.0.1", port=port, path="/x")
        ended.set()
        thread.join(5.0)


def fetch(target: bounded_http.Target, timeout: float = 10.0, most: int = 1000) -> bytes:
    with bounded_http.get(target, {"X-A": "b"}, timeout=timeout, most=most) as answer:
        return b"".join(answer.chunks())


def say(content: bytes) -> Serve:
    return lambda connection, _ended: connection.sendall(content)


def drip(head: bytes) -> Serve:
    """Send ``head``, then one byte at a time, for ever."""

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(head)
        while not ended.wait(0.01):
            connection.sendall(b"x")

    return serve


def with_tls(target: bounded_http.Target) -> bounded_http.Target:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return dataclasses.replace(target, context=context, server_name="localhost")


def test_a_document_is_read() -> None:
    with serving(say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as target:
        assert fetch(target) == b"ok"


def test_a_document_in_chunks_is_read() -> None:
    body = b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    with serving(say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)) as target:
        assert fetch(target) == b"abc"


@pytest.mark.parametrize(
    "head",
    [b"", b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"],
    ids=["status line", "headers", "body"],
)
def test_a_server_that_drips_is_silent_when_the_deadline_is_over(head: bytes) -> None:
    with serving(drip(head)) as target, pytest.raises(SilentError):
        fetch(target, timeout=0.15)


def test_a_server_that_says_nothing_is_silent() -> None:
    with serving(lambda _connection, ended: (ended.wait(10.0), None)[1]) as target:
        with pytest.raises(SilentError):
            fetch(target, timeout=0.1)


def test_a_connection_that_closes_without_an_answer_is_refused() -> None:
    with serving(say(b"")) as target, pytest.raises(RefusedError):
        fetch(target)


def test_a_port_that_nobody_listens_on_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(RefusedError):
        fetch(bounded_http.Target(host="127.0.0.1", port=port, path="/"))


def test_a_handshake_that_hangs_is_silent_when_the_deadline_is_over() -> None:
    with serving(lambda _connection, ended: (ended.wait(10.0), None)[1]) as target:
        with pytest.raises(SilentError):
            fetch(with_tls(target), timeout=0.1)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_handshake_that_fails_is_refused(answer: bytes) -> None:
    with serving(say(answer)) as target, pytest.raises(RefusedError):
        fetch(with_tls(target))


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
def test_what_is_not_http_is_rejected(answer: bytes) -> None:
    with serving(say(answer)) as target, pytest.raises(RejectedError):
        fetch(target)


def test_an_answer_that_is_too_large_is_rejected() -> None:
    with serving(say(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001)) as target:
        with pytest.raises(RejectedError, match="larger than 1000"):
            fetch(target)
