"""Be a small API server on a real socket: TLS, LIST, WATCH, objects, and its faults on demand.

In a test: ``with ApiServer(pki.shared()) as server``. As a process of its own, which ends on
SIGTERM and shares its state file with the next one, like an API server its etcd:

    python -m tests.fakes.api_server --port 6443 --state state.json --pki DIRECTORY [--node NAME]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import ssl
import struct
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.fakes import api_requests, pki
from tests.fakes.api_faults import Fault, Request
from tests.fakes.api_objects import ObjectStore

_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
"""openssl/x509_vfy.h, X509_V_FLAG_NO_CHECK_TIME: an API server answers expired clients with 401."""


class ApiServer:
    """Serve an ``ObjectStore``. ``start`` and ``stop`` may alternate: the port stays.

    ``granted`` names the resources that a node's certificate may read; by default what the Node
    authorizer lets it. ``tokens`` maps bearer tokens to users. A client's certificate
    must be of the cluster's authority and valid.
    """

    def __init__(
        self,
        certificates: pki.Pki,
        store: ObjectStore | None = None,
        port: int = 0,
        node_name: str = "node-1",
    ) -> None:
        self.pki = certificates
        self.store = store or ObjectStore()
        if store is None:
            self.store.make_world(node_name)
        self.port = port
        self.bookmark_every = 60.0
        self.granted = {"pods", "nodes", "services", "leases", "secrets", "configmaps", "events"}
        self.tokens: dict[str, str] = {}
        self.requests: list[Request] = []
        self.connections = 0
        """How many connections have been accepted."""
        self.continues: dict[str, tuple[list[dict[str, Any]], str]] = {}
        self.too_old_is_http = False
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.stopping = threading.Event()
        self.watch_end = 0
        self.watch_end_abrupt = False
        self._faults: dict[str, Fault] = {}
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._bound: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._strangers: list[bytes] = []
        self._server_pair = certificates.server
        self._context = self._make_context()

    # ---- life ----------------------------------------------------------------------------------
    def __enter__(self) -> ApiServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Return the server's URL."""
        return f"https://127.0.0.1:{self.port}"

    def kubeconfig(self, pair: pki.Pair | None = None) -> bytes:
        """Return a kubeconfig of the node, or of another client."""
        return pki.kubeconfig(self.url, self.pki.ca.certificate, pair or self.pki.node)

    def bind(self) -> None:
        """Take the port without listening: OSError while another server listens there."""
        self._bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._bound.bind(("127.0.0.1", self.port))
        self.port = self._bound.getsockname()[1]

    def start(self) -> None:
        """Listen."""
        if self._bound is None:
            self.bind()
        assert self._bound is not None
        # What a watch may go back to is kept in memory.
        self.store.cut_history()
        listener, self._bound = self._bound, None
        listener.listen(64)
        self.released.clear()
        self.stopping.clear()
        self._listener = listener
        self._spawn(self._accept, listener)

    def stop(self) -> None:
        """Close the listening socket and every connection, as when the process ends."""
        if self._listener is not None:
            # shutdown wakes accept; close alone does not.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.released.set()
        self.stopping.set()
        with self.store.changed:
            self.store.changed.notify_all()
        for _round in range(100):
            # Again and again: a connection may just have come through its handshake.
            self.close_connections()
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            if not self._threads:
                break
            self._threads[0].join(0.05)
        self._threads.clear()

    def close_connections(self) -> None:
        """Close every open connection: watches end abruptly."""
        with self.lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def show(self, pair: pki.Pair) -> None:
        """Show another certificate from the next connection on."""
        self._server_pair = pair
        self._context = self._make_context()

    def let_in(self, authority: pki.Authority) -> None:
        """Let clients of another authority through the handshake, to be refused with 401."""
        self._strangers.append(authority.certificate)
        self._context = self._make_context()

    # ---- faults --------------------------------------------------------------------------------
    def break_(self, fault: Fault, on: str = "") -> None:
        """Do ``fault`` in place of answering paths that begin with ``on``; new requests only."""
        with self.lock:
            self._faults[on] = fault
            self.released.clear()

    def repair(self) -> None:
        """Answer everything again; requests that hang are dropped."""
        with self.lock:
            self._faults.clear()
        self.released.set()

    def fault_of(self, path: str) -> Fault | None:
        """Return the fault of a path, that of the longest prefix."""
        with self.lock:
            found = [prefix for prefix in self._faults if path.startswith(prefix)]
            return self._faults[max(found, key=len)] if found else None

    def end_watches(self, *, abruptly: bool = False) -> None:
        """End the open watches: with the last chunk, or in the middle."""
        with self.store.changed:
            self.watch_end += 1
            self.watch_end_abrupt = abruptly
            self.store.changed.notify_all()

    def expire_continues(self) -> None:
        """Let every continue token that was given out answer 410, as etcd's compaction does."""
        with self.lock:
            self.continues.clear()

    def count(self, path: str, *, watch: bool = False) -> int:
        """Count the requests for a path so far."""
        with self.lock:
            return sum(r.path == path and r.is_watch == watch for r in self.requests)

    # ---- connections ---------------------------------------------------------------------------
    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _address = listener.accept()
            except OSError:
                return
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with self.lock:
            self.connections += 1
            self._connections.add(connection)
        secure: socket.socket = connection
        try:
            if self._fault_connection(connection):
                return
            connection.settimeout(30)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secure = self._context.wrap_socket(connection, server_side=True)
            with self.lock:
                self._connections.add(secure)
            if self._listener is not None:
                api_requests.Handler(secure, self)
        except OSError:
            return
        finally:
            with self.lock:
                self._connections -= {connection, secure}
            secure.close()

    def _fault_connection(self, connection: socket.socket) -> bool:
        with self.lock:
            fault = self._faults.get("")
        if fault is None or not fault.is_of_connection:
            return False
        if fault is Fault.HANG_IN_HANDSHAKE:
            self.released.wait(60)
        if fault is Fault.RESET:
            # Linger 0: close sends a reset (socket(7)).
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            connection.settimeout(5)
            connection.recv(65536)
        connection.close()
        return True

    def _spawn(self, target: Any, argument: socket.socket) -> None:
        thread = threading.Thread(target=target, args=(argument,), daemon=True)
        with self.lock:
            self._threads = [one for one in self._threads if one.is_alive()]
            self._threads.append(thread)
            thread.start()

    def _make_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_OPTIONAL
        for authority in (self.pki.ca.certificate, *self._strangers):
            context.load_verify_locations(cadata=authority.decode())
        context.verify_flags |= _NO_CHECK_TIME
        with tempfile.TemporaryDirectory() as directory:
            context.load_cert_chain(self._server_pair.write(Path(directory), "server"))
        return context


def read_pki(directory: Path) -> pki.Pki:
    """Read what ``Pki.write`` wrote, but for the authority's own key."""

    class Known(pki.Authority):
        def __init__(self) -> None:
            self.certificate = (directory / "ca.crt").read_bytes()

    def pair(name: str) -> pki.Pair:
        return pki.Pair((directory / f"{name}.pem").read_bytes(), b"")

    return pki.Pki(ca=Known(), server=pair("server"), node=pair("node"), admin=pair("admin"))


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--pki", type=Path, required=True)
    parser.add_argument("--node", default="node-1")
    parser.add_argument("--bookmark-every", type=float, default=60.0)
    parser.add_argument("--grant", action="append", default=[], metavar="RESOURCE")
    options = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    server = ApiServer(read_pki(options.pki), ObjectStore(), options.port)
    # The port is the lock of the state: what is read before it is free may be written once more.
    server.bind()
    fresh = not options.state.exists()
    server.store = ObjectStore(options.state)
    if fresh:
        server.store.make_world(options.node)
    server.bookmark_every = options.bookmark_every
    server.granted |= set(options.grant)
    with server:
        print(json.dumps({"serving": server.url}), flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
