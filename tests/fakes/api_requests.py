"""Answer the requests of the fake API server as the real one words its answers."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
import uuid
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

from tests.fakes import api_objects, api_reviews, api_status
from tests.fakes.api_faults import Fault, Request
from tests.fakes.api_objects import KINDS, Change, ConflictError, Object
from tests.fakes.api_status import REASONS, StatusError, Target

if TYPE_CHECKING:
    from tests.fakes.api_server import ApiServer

ANONYMOUS = "system:anonymous"
"""k8s.io/apiserver/pkg/authentication/user: who shows nothing."""
TEXT = "text/plain; charset=utf-8"
BOOKMARK_BEFORE_END = 2.0
"""Seconds: k8s.io/apiserver/pkg/storage/cacher/cacher.go, nextBookmarkTime."""


class Handler(BaseHTTPRequestHandler):
    """Answer the requests of one connection."""

    protocol_version = "HTTP/1.1"

    def __init__(self, connection: socket.socket, api: ApiServer) -> None:
        self.api = api
        self.user = ""
        self.watches_ended = self.version_before = 0
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
            # Before anybody can see the request, and end its watch or change something.
            self.watches_ended = self.api.watch_end
            self.version_before = self.api.store.version
            with self.api.lock:
                self.api.requests.append(request)
            self.api.store.changed.notify_all()
        if fault is not None and self._do_fault(fault):
            return
        try:
            self._route(url.path, {k: v[-1] for k, v in parse_qs(url.query).items()}, body)
        except StatusError as error:
            self._send(error.code, error.body())
        except ConflictError:
            self._send(409, StatusError(409, "the object has been modified").body())

    def _route(self, path: str, query: dict[str, str], body: Object) -> None:
        if path in ("/healthz", "/livez", "/readyz"):
            self._send_bytes(200, TEXT, b"ok")
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
        target = api_status.parse_path(path)
        # Who may not ask is told before whether there is anything.
        if target is not None:
            self._authorize(target)
        if target is None or not (target.is_served or target.is_of_known_group):
            self._send_bytes(404, TEXT, b"404 page not found\n")
            return
        if not target.is_served:
            raise api_status.not_served(target)
        try:
            self._do(target, query, body)
        except KeyError as error:
            raise api_status.not_found(target) from error

    def _do(self, target: Target, query: dict[str, str], body: Object) -> None:
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
        if not certificate and not kind:
            return ANONYMOUS
        return self.api.tokens.get(token, "") if kind == "Bearer" else ""

    def _authorize(self, target: Target) -> None:
        granted = self.api.granted
        known = self.user != ANONYMOUS
        if not known or not api_reviews.is_granted(
            self.user, granted, target.resource, target.name
        ):
            raise api_status.forbidden(self.user, self.command, target)

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
                found = server.continues.get(query["continue"])
            if found is None:
                raise api_status.bad_continue(query["continue"])
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
        start = max(version, self.version_before)
        until = time.monotonic() + float(query.get("timeoutSeconds", "1800"))
        bookmark = self._next_bookmark(until)
        while time.monotonic() < until:
            changes, version, is_over = self._wait_for_changes(version, ended, min(bookmark, until))
            if changes is None:
                error = StatusError(410, f"too old resource version: {version}")
                self._send_event("ERROR", error.body())
                break
            for change in changes:
                self._send_change(target, selector, change)
            if is_over:
                break
            if time.monotonic() >= bookmark:
                bookmark = self._next_bookmark(until)
                reached = store.last_change(target.resource)
                # k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go, process: only what is newer
                # than all when the watch was opened. There is none while no such object changes.
                if bookmarks and reached > start:
                    self._send_event("BOOKMARK", _bookmark(target.resource, reached))
        self._end_chunks()

    def _next_bookmark(self, until: float) -> float:
        """Return when the next one is due: each minute, and shortly before the end."""
        now = time.monotonic()
        last = until - BOOKMARK_BEFORE_END
        regular = now + self.api.bookmark_every
        return min(last, regular) if last > now else regular

    def _wait_for_changes(
        self, version: int, ended: int, until: float
    ) -> tuple[tuple[Change, ...] | None, int, bool]:
        """Wait for changes, the time of the next bookmark, or the end of the watch."""
        server, store = self.api, self.api.store
        with store.changed:
            while True:
                is_over = server.watch_end != ended or server.stopping.is_set()
                changes = store.changes_after(version)
                rest = until - time.monotonic()
                if changes is None or changes or is_over or rest <= 0:
                    now = version if changes is None else max(version, store.version)
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
        if length and len(content) < length:
            raise ConnectionResetError("the client ended in the middle of its request")
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


def _bookmark(resource: str, version: int) -> Object:
    api_version, kind = KINDS[resource]
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    return {"kind": kind, "apiVersion": api_version, "metadata": metadata}
