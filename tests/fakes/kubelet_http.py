"""Be a kubelet's HTTP side: healthz, the secure port and the read-only port, on loopback.

With the quirks of kubelet facts K-16: items without TypeMeta, static pods with the node's name as a
suffix, ``/runningpods/`` with names and UIDs alone and never on the read-only port, refusals of who
may not ask.
"""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import cast

from tests.fakes import pki
from tests.fakes.kubelet_pki import KubeletPki


class Authorization(Enum):
    """Say what the secure port makes of a client (facts, "10250 after the API's death")."""

    ALLOW = 200
    UNAUTHENTICATED = 401
    FORBIDDEN = 403
    BROKEN = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class FakePod:
    """Hold one pod of the kubelet; ``name`` is without the node's suffix, which static pods get.

    ``item`` is the whole pod as the kubelet has it, where a test knows it.
    """

    namespace: str
    name: str
    uid: str
    static: bool = False
    phase: str = "Running"
    containers: tuple[str, ...] = ("app",)
    item: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class User:
    """Hold who showed a certificate of the cluster."""

    name: str
    groups: frozenset[str]


Answer = tuple[int, str, bytes]
"""(status, content type, body)."""

_ATTRIBUTES = "verb=get, resource=nodes, subresource=proxy"
"""A kubelet with KubeletFineGrainedAuthz asks for more, and names the last."""
_TEXT = "text/plain; charset=utf-8"
_UNKNOWN: Answer = (404, _TEXT, b"404 page not found\n")


class FakeKubelet:
    """Serve ``pods`` (what it has) and ``running`` (what its cache sees), lists that may change.

    ``port``, ``read_only_port`` and ``healthz_port`` are chosen by the system. ``authorization`` is
    of clients with a certificate of ``cluster``; others are unauthenticated. What is FORBIDDEN is
    allowed to system:masters: that group has every right. ``hanging`` are paths
    that never answer; ``override`` answers a path as told. All may change at any time.
    """

    def __init__(
        self,
        root_dir: Path,
        node_name: str = "node1",
        *,
        address: str = "127.0.0.1",
        cluster: pki.Authority | None = None,
    ) -> None:
        self.root_dir = root_dir
        self.node_name = node_name
        self.address = address
        self.pki = KubeletPki(root_dir / "pki", node_name, cluster or pki.shared().ca)
        self.pods: list[FakePod] = []
        self.running: list[FakePod] = []
        self.authorization = Authorization.ALLOW
        self.healthy = True
        self.hanging: set[str] = set()
        self.override: dict[str, Answer] = {}
        self.requests: list[str] = []
        self.port = self.read_only_port = self.healthz_port = 0
        self._servers: list[_Server] = []
        self._released = threading.Event()

    def start(self, *, secure: bool = True, read_only: bool = False, healthz: bool = True) -> None:
        """Serve; ports that are left out stay 0."""
        self._released.clear()
        if secure:
            self.port = self._serve(self.port, self._secure, self.pki.server_context())
        if read_only:
            self.read_only_port = self._serve(self.read_only_port, self._read_only, None)
        if healthz:
            self.healthz_port = self._serve(self.healthz_port, self._healthz, None)

    def stop(self) -> None:
        """Refuse connections; the ports stay the same for the next start."""
        self._released.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers.clear()

    def __enter__(self) -> FakeKubelet:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def wait_while_hanging(self, path: str) -> None:
        """Answer nothing while this path hangs."""
        while path in self.hanging and not self._released.wait(0.02):
            pass

    def _serve(
        self,
        port: int,
        answer: Callable[[str, User | None], Answer],
        context: ssl.SSLContext | None,
    ) -> int:
        server = _Server(self, (self.address, port), answer, context)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self._servers.append(server)
        return int(server.server_address[1])

    def _secure(self, path: str, user: User | None) -> Answer:
        if path == "/runningpods":
            link = b'<a href="/runningpods/">Moved Permanently</a>.\n\n'
            return 301, "text/html; charset=utf-8", link
        if path not in {"/pods", "/runningpods/", "/healthz"}:
            return _UNKNOWN
        denial = self._deny(user)
        if denial is not None:
            return denial
        if path == "/healthz":
            return self._healthz(path, user)
        return self._pods() if path == "/pods" else self._running()

    def _deny(self, user: User | None) -> Answer | None:
        """Return the refusal of who may not ask."""
        authorization = self.authorization
        if user is None or authorization is Authorization.UNAUTHENTICATED:
            return 401, _TEXT, b"Unauthorized"
        if authorization is Authorization.BROKEN:
            return 500, _TEXT, b"Authorization error (dial tcp: connect: connection refused)"
        if authorization is Authorization.FORBIDDEN and "system:masters" not in user.groups:
            return 403, _TEXT, f"Forbidden (user={user.name}, {_ATTRIBUTES})".encode()
        return None

    def _read_only(self, path: str, _user: User | None) -> Answer:
        if path == "/runningpods/":
            return 405, _TEXT, b"Debug endpoints are disabled.\n"
        return self._pods() if path == "/pods" else _UNKNOWN

    def _healthz(self, path: str, _user: User | None) -> Answer:
        if path != "/healthz":
            return _UNKNOWN
        return (200, _TEXT, b"ok") if self.healthy else (500, _TEXT, b"not ok")

    def _pods(self) -> Answer:
        items = [_whole(pod, self.node_name) for pod in self.pods]
        return _list(items)

    def _running(self) -> Answer:
        return _list([_bare(pod, self.node_name) for pod in self.running])


def full_name(pod: FakePod, node_name: str) -> str:
    """Return the name by which a kubelet knows a pod (K:config/common.go: applyDefaults)."""
    return f"{pod.name}-{node_name.lower()}" if pod.static else pod.name


def _list(items: list[Mapping[str, object]]) -> Answer:
    body: Mapping[str, object] = {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {},
        "items": items or None,
    }
    return 200, "application/json", json.dumps(body).encode()


def _whole(pod: FakePod, node_name: str) -> Mapping[str, object]:
    if pod.item is not None:
        return pod.item
    source = "file" if pod.static else "api"
    return {
        "metadata": {
            "name": full_name(pod, node_name),
            "namespace": pod.namespace,
            "uid": pod.uid,
            "annotations": {
                "kubernetes.io/config.source": source,
                "kubernetes.io/config.seen": "2026-01-01T00:00:00.000000000Z",
            },
        },
        "spec": {"containers": [{"name": name, "image": "app:1"} for name in pod.containers]},
        "status": {"phase": pod.phase},
    }


def _bare(pod: FakePod, node_name: str) -> Mapping[str, object]:
    containers = [{"name": name, "image": "app:1"} for name in pod.containers]
    return {
        "metadata": {
            "name": full_name(pod, node_name),
            "namespace": pod.namespace,
            "uid": pod.uid,
            "creationTimestamp": None,
        },
        "spec": {"containers": containers or None},
        "status": {},
    }


def _user_of(subject: Sequence[tuple[str, str]]) -> User:
    """Read a certificate's subject as Kubernetes does."""
    name = next((value for key, value in subject if key == "commonName"), "")
    return User(name, frozenset(value for key, value in subject if key == "organizationName"))


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        kubelet: FakeKubelet,
        address: tuple[str, int],
        answer: Callable[[str, User | None], Answer],
        context: ssl.SSLContext | None,
    ) -> None:
        self.kubelet = kubelet
        self.answer = answer
        self.context = context
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that go away are what the tests make."""


class _Handler(http.server.BaseHTTPRequestHandler):
    def setup(self) -> None:
        self._of = cast("_Server", self.server)
        # The handshake is the connection's own thread's: a client that hangs in it stops no other.
        if self._of.context is not None:
            self.request = self._of.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        super().finish()
        if self._of.context is not None:
            self.request.close()

    def do_GET(self) -> None:
        kubelet = self._of.kubelet
        kubelet.requests.append(self.path)
        kubelet.wait_while_hanging(self.path)
        answer = kubelet.override.get(self.path) or self._of.answer(self.path, self._find_user())
        status, kind, body = answer
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status == 301:
            self.send_header("Location", self.path + "/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _find_user(self) -> User | None:
        """Return who showed a certificate; the handshake has verified it."""
        if not isinstance(self.request, ssl.SSLSocket):
            return None
        certificate = self.request.getpeercert()
        if not certificate:
            return None
        subject = cast("tuple[tuple[tuple[str, str], ...], ...]", certificate["subject"])
        return _user_of([pair for part in subject for pair in part])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Write no log."""
