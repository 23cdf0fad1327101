"""A client of the API server, as administrator, from inside a machine's network."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping

from tests.e2e.node import namespaces
from tests.e2e.node.machine import Machine
from tests.e2e.node.pki import Authority, Certificate
from tests.e2e.node.waiting import NotYetError

PODS = "/api/v1/namespaces/kube-system/pods"


class ApiError(NotYetError):
    """An answer other than 2xx."""

    def __init__(self, status: int, message: str) -> None:
        """Keep the status beside the text."""
        super().__init__(f"{status}: {message[:500]}")
        self.status = status


class Connection(http.client.HTTPConnection):
    """An HTTP connection that is made in the network namespace of a process."""

    def __init__(
        self,
        pid: int,
        address: tuple[str, int],
        context: ssl.SSLContext | None = None,
        timeout: float = 5,
    ) -> None:
        """Prepare a connection to an IP address and port; with a context it is TLS."""
        super().__init__(address[0], address[1], timeout=timeout)
        self._pid = pid
        self._address = address
        self._context = context
        self._seconds = timeout

    def connect(self) -> None:
        """Connect from within the namespace."""
        raw = namespaces.connect(self._pid, self._address, self._seconds)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            self.sock = raw
        else:
            self.sock = self._context.wrap_socket(raw, server_hostname=self._address[0])

    def exchange(
        self, method: str, path: str, body: bytes | None = None, content_type: str = ""
    ) -> tuple[int, str, bytes]:
        """Send one request; return status, content type and body, with nothing left open."""
        self.request(method, path, body, {"Content-Type": content_type} if content_type else {})
        with self.getresponse() as response:
            return response.status, response.headers.get("Content-Type", ""), response.read()


def fetch(pid: int, address: tuple[str, int], path: str) -> bytes:
    """Return the body of a GET over plain HTTP from where process `pid` is; 200 or ApiError."""
    connection = Connection(pid, address)
    try:
        status, _, body = connection.exchange("GET", path)
    finally:
        connection.close()
    if status != 200:
        raise ApiError(status, body.decode(errors="replace"))
    return body


def client_context(authority: Authority, client: Certificate) -> ssl.SSLContext:
    """Return a TLS context that trusts the cluster's authority and shows a client certificate."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.load_cert_chain(str(client.certificate), str(client.key))
    return context


class Api:
    """The API server at an address, seen from a machine.

    Each call is a connection of its own and raises OSError or http.client.HTTPException when
    nobody answers, ApiError for any answer but 2xx.
    """

    def __init__(self, machine: Machine, address: tuple[str, int], context: ssl.SSLContext) -> None:
        """Connect to `address` (IP, port) from inside of `machine`."""
        self.machine = machine
        self.address = address
        self.context = context

    def request(
        self,
        method: str,
        path: str,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> object:
        """Send one request and return the answer's JSON (or its text, where it is not JSON)."""
        connection = Connection(self.machine.leader, self.address, self.context)
        payload = None if body is None else json.dumps(body).encode()
        try:
            status, kind, content = connection.exchange(method, path, payload, content_type)
        finally:
            connection.close()
        answer = content.decode()
        if not 200 <= status < 300:
            raise ApiError(status, answer)
        return json.loads(answer) if kind.startswith("application/json") else answer

    def get(self, path: str) -> object:
        """GET a path."""
        return self.request("GET", path)

    def create(self, path: str, body: Mapping[str, object]) -> object:
        """POST an object to a collection."""
        return self.request("POST", path, body)

    def delete(self, path: str, *, grace_seconds: int | None = None) -> object:
        """DELETE an object, with its own grace period unless one is given."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        return self.request("DELETE", path, options)

    def merge(self, path: str, body: Mapping[str, object]) -> object:
        """PATCH an object with a JSON merge patch."""
        return self.request("PATCH", path, body, "application/merge-patch+json")

    def exists(self, path: str) -> bool:
        """Say whether an object is there; only a 404 is a no."""
        try:
            self.get(path)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def is_ready(self) -> bool:
        """Say whether /readyz answers ok; nobody there is a no."""
        try:
            return self.get("/readyz") == "ok"
        except (OSError, http.client.HTTPException, ApiError):
            return False
