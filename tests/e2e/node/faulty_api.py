"""A server between the daemon and a real one that passes requests on, or answers otherwise.

It listens inside of a machine with a certificate of the cluster's own authority, so the daemon
speaks TLS to it as to the API server, or to the kubelet. What it passes on reaches the real server
as another client's; what it spoils is a real answer with a part of it changed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.e2e.node import namespaces
from tests.e2e.node.api import Connection
from tests.e2e.node.machine import Machine

Place = tuple[str, int]
LARGEST_HEAD = 65536
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 s: close() sends RST
SILENT_WATCH = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)
PODS = "/api/v1/pods"
OTHER_UID = "00000000-0000-4000-8000-000000000000"
SERVICE = "/api/v1/namespaces/default/services/kubernetes"


@dataclass(frozen=True)
class Request:
    """One GET that came."""

    path: str
    query: str

    @property
    def is_watch(self) -> bool:
        """Say whether it asks for a watch."""
        return "watch=true" in self.query


class Reset:
    """Reset the connection before the handshake."""


@dataclass(frozen=True)
class Hang:
    """Send this much, and then nothing for as long as the client waits."""

    first: bytes = b""


@dataclass(frozen=True)
class Spoil:
    """Send the real server's answer with its body changed."""

    change: Callable[[bytes], bytes]


Answer = bytes | Reset | Hang | Spoil | None
"""A whole answer, or what to do; None passes the request on."""
Fault = Callable[[Request], Answer]


class Gate:
    """One such server; `fault` says of each request what becomes of it. Close it at the end."""

    def __init__(
        self,
        machine: Machine,
        port: int,
        server: ssl.SSLContext | None,
        real: Place,
        client: ssl.SSLContext | None,
    ) -> None:
        """Listen at 127.0.0.1 of a running machine, before the server at `real` inside of it.

        Without a context that side speaks plain HTTP.
        """
        self._pid = machine.leader
        self._server, self._client, self._real = server, client, real
        self._fault: Fault = pass_on
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.requests: list[Request] = []
        self._listener = namespaces.listen(self._pid, ("127.0.0.1", port))
        threading.Thread(target=self._accept, name=f"gate {port}", daemon=True).start()

    def turn(self, fault: Fault) -> None:
        """Answer by another rule from now on; connections that are open end."""
        with self._lock:
            self._fault = fault
            self.requests.clear()
            for one in self._open:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(one, socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening, and end what is open."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.turn(pass_on)

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException), plain:
            if isinstance(self._fault(Request("", "")), Reset):
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                return
            plain.settimeout(10)
            with self._kept(self._shake_hands(plain)) as client:
                self._answer(client)

    def _shake_hands(self, plain: socket.socket) -> socket.socket:
        if self._server is None:
            return plain
        return self._server.wrap_socket(plain, server_side=True)

    @contextlib.contextmanager
    def _kept(self, opened: socket.socket) -> Any:
        with opened:
            with self._lock:
                self._open.add(opened)
            try:
                yield opened
            finally:
                with self._lock:
                    self._open.discard(opened)

    def _answer(self, client: socket.socket) -> None:
        head = read_head(client)
        target = head.split(b" ", 2)[1].decode()
        path, _, query = target.partition("?")
        request = Request(path, query)
        with self._lock:
            self.requests.append(request)
            answer = self._fault(request)
        match answer:
            case bytes():
                client.sendall(answer)
            case Hang(first):
                client.sendall(first)
                client.settimeout(None)
                client.recv(1)  # until the client or turn() ends it
            case Spoil():
                client.sendall(self._spoilt(target, answer))
            case _:
                self._pass_on(head, client)

    def _spoilt(self, target: str, spoil: Spoil) -> bytes:
        connection = Connection(self._pid, self._real, self._client)
        try:
            status, kind, body = connection.exchange("GET", target)
        finally:
            connection.close()
        return reply(status, spoil.change(body), kind)

    def _pass_on(self, head: bytes, client: socket.socket) -> None:
        """Send a request to the real server; copy what comes until one of both ends."""
        connection = Connection(self._pid, self._real, self._client)
        connection.connect()
        with self._kept(connection.sock) as real:
            lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
            kept = [line for line in lines if not line.lower().startswith(b"connection:")]
            real.sendall(b"\r\n".join([*kept, b"Connection: close", b"", b""]))
            real.settimeout(None)
            copy(real, client)


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy what comes until either side ends."""
    while True:
        readable, _, _ = select.select([source, target], [], [])
        if target in readable:
            return  # it has asked its one request: now it can only end
        chunk = source.recv(65536)
        if not chunk:
            return
        target.sendall(chunk)
        while isinstance(source, ssl.SSLSocket) and source.pending():
            target.sendall(source.recv(65536))


def read_head(client: socket.socket) -> bytes:
    """Return a request without body, up to its empty line."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        chunk = client.recv(4096)
        if not chunk or len(head) > LARGEST_HEAD:
            raise ConnectionAbortedError
        head += chunk
    return head


# ---- faults ----------------------------------------------------------------------------------
def pass_on(_request: Request) -> Answer:
    """Pass everything on."""
    return None


def reset(_request: Request) -> Answer:
    """Reset every connection."""
    return Reset()


def hang(_request: Request) -> Answer:
    """Take every request and answer none."""
    return Hang()


def status(code: int, *headers: str) -> Fault:
    """Answer everything with a Status of that code."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"a fault of the test: {http.client.responses[code]}",
        "reason": http.client.responses[code].replace(" ", ""),
        "code": code,
    }
    whole = reply(code, json.dumps(body).encode(), "application/json", *headers)
    return lambda _request: whole


def html(_request: Request) -> Answer:
    """Answer as a proxy that wants somebody to log in."""
    return reply(200, b"<html><body>Please log in</body></html>", "text/html")


def truncated(request: Request) -> Answer:
    """Answer with the first half of each real answer."""
    return Hang(SILENT_WATCH) if request.is_watch else Spoil(lambda body: body[: len(body) // 2])


def cut_list(_request: Request) -> Answer:
    """Answer with the beginning of a list of pods."""
    return reply(200, b'{"kind": "PodList", "items": [{"metadata": {"name', "application/json")


def empty_list(request: Request) -> Answer:
    """List no pods, and tell of none."""
    if request.path != PODS:
        return None
    return Hang(SILENT_WATCH) if request.is_watch else Spoil(without_items)


def other_uid(*paths: str) -> Fault:
    """Give the objects at these paths another UID, as if they had been made anew."""

    def fault(request: Request) -> Answer:
        return Spoil(with_other_uid) if request.path in paths else None

    return fault


def without_items(body: bytes) -> bytes:
    """Return a list that is empty."""
    return json.dumps({**json.loads(body), "items": []}).encode()


def with_other_uid(body: bytes) -> bytes:
    """Return an object whose UID is not its own."""
    found = json.loads(body)
    found["metadata"]["uid"] = OTHER_UID
    return json.dumps(found).encode()


def reply(code: int, body: bytes, kind: str, *headers: str) -> bytes:
    """Return a whole answer; the connection ends after it."""
    lines = (
        f"HTTP/1.1 {code} {http.client.responses[code]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    )
    return "\r\n".join([*lines, "", ""]).encode() + body
