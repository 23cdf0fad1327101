"""Answer the requests of the fake API server as the real one words its answers."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
import uuid
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

from tests.fakes import api_objects, api_reviews
from tests.fakes.api_faults import Fault, Request
from tests.fakes.api_objects import KINDS, Change, ConflictError, Object

if TYPE_CHECKING:
    from tests.fakes.api_server import ApiServer

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True, slots=True)
class Target:
    """Say which resource a path names; ``group_version`` is "v1" or "<group>/<version>"."""

    group_version: str
    resource: str
    namespace: str
    name: str
    subresource: str


class StatusError(Exception):
    """Carry a failure to the client as a Status."""

    def __init__(self, code: int, message: str, target: Target | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.target = target

    def body(self) -> Object:
        """Return the Status (k8s.io/apimachinery/pkg/api/errors)."""
        details: Object = {}
        if self.target is not None:
            group = self.target.group_version.rpartition("/")[0]
            named = {"name": self.target.name, "group": group, "kind": self.target.resource}
            details = {key: value for key, value in named.items() if value}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": REASONS[self.code],
            "details": details,
            "code": self.code,
        }


def parse_path(path: str) -> Target | None:
    """Return what a path names, None for one that no API server has."""
    parts = [part for part in path.split("/") if part]
    if parts[:2] == ["api", "v1"]:
        group_version, rest = "v1", parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 4:
        group_version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
    else:
        return None
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) >= 3:
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3 or KINDS.get(rest[0], ("", ""))[0] != group_version:
        return None
    resource, name, subresource = (*rest, "", "")[:3]
    return Target(group_version, resource, namespace, name, subresource)


class Handler(BaseHTTPRequestHandler):
    """Answer the requests of one connection."""

    protocol_version = "HTTP/1.1"

    def __init__(self, connection: socket.socket, api: ApiServer) -> None:
        self.api = api
        self.user = ""
        self.watches_ended = 0
        # The base class asks nothing of its server.
        super().__init__(connection, ("", 0), cast("BaseServer", None))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""

    def do_GET(self) -> None:
        """Get, list or watch."""
        self._answer_safely()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - http.server's names

    # ---- one request ---------------------------------------------------------------------------
    def _answer_safely(self) -> None:
        body = self._read_body()
        url = urlsplit(self.path)
        self.user = self._authenticate()
        fault = self.api.fault_of(url.path)
        request = Request(
            self.command, url.path, url.query, self.user, self.headers.get("User-Agent", "")
        )
        with self.api.store.changed:
            # Before anybody can see the request and end its watch.
            self.watches_ended = self.api.watch_end
            with self.api.lock:
                self.api.requests.append(request)
            self.api.store.changed.notify_all()
        if fault is not None and self._do_fault(fault):
            return
        try:
            self._route(url.path, {k: v[-1] for k, v in parse_qs(url.query).items()}, body)
        except StatusError as error:
            self._send(error.code, error.body())
        except KeyError:
            target = parse_path(url.path)
            missing = StatusError(404, _not_found(target), target)
            self._send(404, missing.body())
        except ConflictError:
            self._send(409, StatusError(409, "the object has been modified").body())

    def _route(self, path: str, query: dict[str, str], body: Object) -> None:
        if path in ("/healthz", "/livez", "/readyz"):
            self._send_bytes(200, "text/plain", b"ok")
            return
        if not self.user:
            raise StatusError(401, "Unauthorized")
        if path == "/version":
            self._send(200, {"major": "1", "minor": "36", "gitVersion": "v1.36.2"})
            return
        review = api_reviews.answer(path, self.user, self.api.granted, body)
        if review is not None:
            self._send(201, review)
            return
        target = parse_path(path)
        if target is None:
            self._send_bytes(404, "text/plain", b"404 page not found\n")
            return
        self._authorize(target)
        if self.command != "GET":
            self._send(201 if self.command == "POST" else 200, self._change(target, query, body))
        elif target.name:
            found = self.api.store.get(target.resource, target.namespace, target.name)
            if found is None:
                raise KeyError(target.name)
            self._send(200, found)
        elif query.get("watch") in ("true", "1"):
            self._watch(target, query)
        else:
            self._send(200, self._list(target, query))

    def _authenticate(self) -> str:
        secure = cast("ssl.SSLSocket", self.connection)
        certificate, der = secure.getpeercert(), secure.getpeercert(binary_form=True)
        # As a real one: a certificate is judged in the request, not in the handshake.
        if certificate and der and self.api.pki.ca.has_signed(der):
            subject = cast("tuple[tuple[tuple[str, str], ...], ...]", certificate["subject"])
            names = [value for part in subject for key, value in part if key == "commonName"]
            return names[0] if names else ""
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        return self.api.tokens.get(token, "") if kind == "Bearer" else ""

    def _authorize(self, target: Target) -> None:
        granted = self.api.granted
        if not api_reviews.is_granted(self.user, granted, target.resource, target.name):
            verb = {"GET": "get" if target.name else "list"}.get(self.command, "change")
            raise StatusError(
                403, f'User "{self.user}" cannot {verb} resource "{target.resource}"', target
            )

    def _change(self, target: Target, query: dict[str, str], body: Object) -> Object:
        store = self.api.store
        if self.command == "POST":
            body.setdefault("metadata", {})
            if target.namespace:
                body["metadata"]["namespace"] = target.namespace
            return store.create(target.resource, body)
        if self.command == "PUT":
            return store.update(target.resource, body)
        if self.command == "PATCH":
            return store.merge(target.resource, target.namespace, target.name, body)
        grace = query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))
        seconds = None if grace is None else int(grace)
        return store.delete(target.resource, target.namespace, target.name, seconds)

    # ---- lists and watches ---------------------------------------------------------------------
    def _list(self, target: Target, query: dict[str, str]) -> Object:
        server = self.api
        if "continue" in query:
            with server.lock:
                found = server.continues.pop(query["continue"], None)
            if found is None:
                raise StatusError(410, "The provided continue parameter is too old")
            items, version = found
        else:
            objects, number = server.store.list(target.resource, target.namespace)
            items = list(api_objects.select(objects, query.get("fieldSelector", "")))
            version = str(number)
        limit = int(query.get("limit", "0")) or len(items)
        metadata = {"resourceVersion": version}
        if len(items) > limit:
            token = uuid.uuid4().hex
            with server.lock:
                server.continues[token] = (items[limit:], version)
            metadata["continue"] = token
        api_version, kind = KINDS[target.resource]
        # Items of a list carry no type of their own.
        bare = [
            {k: v for k, v in one.items() if k not in ("kind", "apiVersion")}
            for one in items[:limit]
        ]
        return {
            "kind": f"{kind}List", "apiVersion": api_version, "metadata": metadata, "items": bare,
        }  # fmt: skip

    def _watch(self, target: Target, query: dict[str, str]) -> None:
        store, selector = self.api.store, query.get("fieldSelector", "")
        version = int(query.get("resourceVersion") or "0")
        if self.api.too_old_is_http and store.changes_after(version) is None:
            raise StatusError(410, f"too old resource version: {version}")
        ended = self.watches_ended
        self._begin_chunks()
        if version == 0:
            objects, version = store.list(target.resource, target.namespace)
            for one in api_objects.select(objects, selector):
                self._send_event("ADDED", one)
        bookmarks = query.get("allowWatchBookmarks") == "true"
        until = time.monotonic() + float(query.get("timeoutSeconds", "1800"))
        while time.monotonic() < until:
            changes, version, is_over = self._wait_for_changes(version, ended)
            if changes is None:
                error = StatusError(410, f"too old resource version: {version}")
                self._send_event("ERROR", error.body())
                break
            for change in changes:
                self._send_change(target, selector, change)
            if is_over:
                break
            if not changes and bookmarks:
                self._send_event("BOOKMARK", _bookmark(target.resource, version))
        self._end_chunks()

    def _wait_for_changes(
        self, version: int, ended: int
    ) -> tuple[tuple[Change, ...] | None, int, bool]:
        """Wait for changes, the time of the next bookmark, or the end of the watch."""
        server, store = self.api, self.api.store
        with store.changed:
            until = time.monotonic() + server.bookmark_every
            while True:
                is_over = server.watch_end != ended or server.stopping.is_set()
                changes = store.changes_after(version)
                rest = until - time.monotonic()
                if changes is None or changes or is_over or rest <= 0:
                    now = version if changes is None else store.version
                    return changes, now, is_over
                store.changed.wait(rest)

    def _send_change(self, target: Target, selector: str, change: Change) -> None:
        if change.resource != target.resource:
            return
        before, after = (
            one
            if api_objects.is_selected(one, selector)
            and one is not None
            and target.namespace in ("", one["metadata"].get("namespace", ""))
            else None
            for one in (change.before, change.after)
        )
        if after is not None:
            self._send_event("ADDED" if before is None else "MODIFIED", after)
        elif before is not None:
            gone = {**before, "metadata": dict(before["metadata"])}
            gone["metadata"]["resourceVersion"] = str(change.version)
            self._send_event("DELETED", gone)

    def _begin_chunks(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send_event(self, kind: str, carried: Object) -> None:
        line = json.dumps({"type": kind, "object": carried}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def _end_chunks(self) -> None:
        if self.api.watch_end_abrupt or self.api.stopping.is_set():
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    # ---- plain answers -------------------------------------------------------------------------
    def _read_body(self) -> Object:
        length = int(self.headers.get("Content-Length", "0"))
        content = self.rfile.read(length) if length else b"{}"
        return cast("Object", json.loads(content))

    def _send(self, code: int, body: Any) -> None:
        self._send_bytes(code, "application/json", json.dumps(body).encode())

    def _send_bytes(self, code: int, kind: str, content: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    # ---- faults --------------------------------------------------------------------------------
    def _do_fault(self, fault: Fault) -> bool:
        """Do the fault; return False where the request is to be answered all the same."""
        if fault.value.isdigit():
            code = int(fault.value)
            self._send(code, StatusError(code, f"a fault: {REASONS[code]}").body())
        elif fault is Fault.HTML:
            self._send_bytes(200, "text/html", b"<html><body>Log in</body></html>")
        elif fault is Fault.HANG:
            self.api.released.wait(60)
            self.close_connection = True
        elif fault is Fault.CLOSE:
            self.close_connection = True
        elif fault is Fault.DRIP:
            self._drip()
        elif fault is Fault.TRUNCATED:
            self._truncate()
        else:
            return self._spoil_list(fault)
        return True

    def _drip(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Slow: ")
        while not self.api.released.wait(0.05):
            self.wfile.write(b"a")
        self.close_connection = True

    def _truncate(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"kind": "PodList", "apiVersion": "v1", "metadata": {"resource')
        self.close_connection = True

    def _spoil_list(self, fault: Fault) -> bool:
        listed: Object = {"kind": "PodList", "apiVersion": "v1", "items": []}
        listed["metadata"] = {"resourceVersion": "99"}
        if fault is Fault.NULL_ITEMS:
            listed["items"] = None
        elif fault is Fault.NO_VERSION:
            listed["metadata"] = {}
        elif fault is Fault.WRONG_KIND:
            listed["kind"] = "NodeList"
        elif fault is not Fault.EMPTY:
            return False
        self._send(200, listed)
        return True


def _not_found(target: Target | None) -> str:
    return "not found" if target is None else f'{target.resource} "{target.name}" not found'


def _bookmark(resource: str, version: int) -> Object:
    api_version, kind = KINDS[resource]
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    return {"kind": kind, "apiVersion": api_version, "metadata": metadata}
