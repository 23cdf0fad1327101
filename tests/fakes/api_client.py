"""Ask an API server as the other components of a cluster do: objects, patches, one watch."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from tests.fakes.api_objects import Object

PODS = "/api/v1/pods"


class ApiError(Exception):
    """Carry an answer other than success."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body[:300]}")
        self.status = status


FAILURES = (OSError, http.client.HTTPException, ApiError)
"""All that a call may raise."""


def pod_path(namespace: str, name: str) -> str:
    """Return the path of a pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


class ApiClient:
    """Talk to one server on loopback with the certificate in ``pair`` (PEM, with its key)."""

    def __init__(self, port: int, pki: Path, pair: str = "admin", seconds: float = 5.0) -> None:
        self._port = port
        self._seconds = seconds
        self._context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._context.load_cert_chain(pki / f"{pair}.pem")
        self._kept: http.client.HTTPSConnection | None = None

    def get(self, path: str) -> Object:
        """Get an object."""
        return self.request("GET", path)

    def list(self, path: str) -> list[Object]:
        """List objects."""
        return cast("list[Object]", self.request("GET", path)["items"])

    def create(self, path: str, made: Object) -> Object:
        """Create an object."""
        return self.request("POST", path, made)

    def patch(self, path: str, patch: Object) -> Object:
        """Merge into an object."""
        return self.request("PATCH", path, patch)

    def delete(self, path: str, grace: int | None = None) -> Object:
        """Delete an object; 0 seconds of grace remove a pod at once."""
        return self.request("DELETE", path, {} if grace is None else {"gracePeriodSeconds": grace})

    def request(self, method: str, path: str, body: Object | None = None) -> Object:
        """Ask once more on a new connection where the kept one turns out to be closed."""
        kept = self._kept
        try:
            if kept is not None:
                return self._ask(kept, method, path, body)
        except (ConnectionError, ssl.SSLError, http.client.BadStatusLine):
            self.close()
        try:
            self._kept = self._kept or self._connect(self._seconds)
            return self._ask(self._kept, method, path, body)
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def close(self) -> None:
        """Close the kept connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def watch(self, path: str, version: str, seconds: float = 600.0) -> Iterator[Object]:
        """Yield events until the stream ends."""
        connection = self._connect(seconds)
        with contextlib.closing(connection):
            separator = "&" if "?" in path else "?"
            connection.request("GET", f"{path}{separator}watch=true&resourceVersion={version}")
            answer = connection.getresponse()
            if answer.status != 200:
                raise ApiError(answer.status, answer.read().decode(errors="replace"))
            while line := answer.readline():
                yield cast("Object", json.loads(line))

    def _connect(self, seconds: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=seconds, context=self._context
        )

    @staticmethod
    def _ask(
        connection: http.client.HTTPSConnection, method: str, path: str, body: Object | None
    ) -> Object:
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise ApiError(answer.status, text.decode(errors="replace"))
        found: Any = json.loads(text)
        return cast("Object", found)
