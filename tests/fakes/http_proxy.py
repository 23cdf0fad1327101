"""Be a small HTTP proxy: CONNECT alone, to whatever is asked for."""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import threading
from types import TracebackType


class HttpProxy:
    """Tunnel, or answer every CONNECT with ``answer``. ``heads`` are the requests so far."""

    def __init__(self) -> None:
        self.answer = b""
        self.heads: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        """Return where it is."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> HttpProxy:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._thread.join(5)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), client:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096)
            self.heads.append(head.decode())
            if self.answer:
                client.sendall(self.answer)
                return
            found = re.match(rb"CONNECT ([^ ]+):([0-9]+) HTTP/1.1\r\n", head)
            assert found is not None
            try:
                server = socket.create_connection((found[1].decode(), int(found[2])), 5)
            except OSError:
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                return
            self._open.append(server)
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with server:
                _pipe(client, server)


def _pipe(one: socket.socket, other: socket.socket) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in selector.select(30):
                source, target = key.fileobj, key.data
                assert isinstance(source, socket.socket)
                chunk = source.recv(65536)
                if not chunk:
                    return
                target.sendall(chunk)
