"""Ask the API server: single objects, this node's pods by LIST and WATCH.

Every call has a deadline, every answer a bound. What is not the answer that was asked for raises;
nothing here decides what that means.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import requests

from checkpointd.clients import kube_answers, kube_connection, kube_transport, tls_words
from checkpointd.clients.credentials import Credentials, Secrets
from checkpointd.clients.kube_answers import Listed, Missing, NotFoundError, WatchEvent
from checkpointd.clients.kube_connection import Dialer, OpenSockets, Peer
from checkpointd.clients.kube_transport import Adapter
from checkpointd.errors import RejectedError, SilentError, SourceError
from checkpointd.json_fields import Json

PAGE_SIZE = 25
"""Pods of one page: a daemon that lists 110 pods at once stays 8 MiB larger."""
LARGEST_ANSWER = 64 * 1024 * 1024
LARGEST_EVENT = 8 * 1024 * 1024
"""Bytes of one line of a watch: etcd takes 1.5 MiB an object, JSON may triple them."""
LIST_TRIES = 3
"""How often a LIST starts anew after a 410 in its middle (its snapshot was compacted)."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Hold the seconds that a call may take: to connect, and for the whole of its answer."""

    connect: float = 5.0
    read: float = 10.0


class KubeClient:
    """Talk to one API server from one thread; ``interrupt`` and ``close`` may come from others.

    ``credentials`` is asked before each call, so that another kubeconfig or a rotated certificate
    holds from the next connection on. All calls raise RefusedError, SilentError, RejectedError, or
    SourceError where the credentials cannot be read.
    """

    def __init__(
        self,
        credentials: Callable[[], Credentials],
        timeouts: Timeouts | None = None,
        page_size: int = PAGE_SIZE,
    ) -> None:
        self._credentials = credentials
        self._timeouts = timeouts or Timeouts()
        self._page_size = page_size
        self._sockets = OpenSockets()
        self._connected: _Connected | None = None
        self._unknown_to_server: Secrets | None = None
        self.serial = 0
        """Grows when other credentials come into use: what is asked then may be another server."""
        self.server_date = ""
        """When the server sent its last answer, as its HTTP header Date says."""

    @property
    def peer(self) -> Peer | None:
        """Return the address that the present connection leads to."""
        return None if self._connected is None else self._connected.dialer.peer

    @property
    def user(self) -> str:
        """Return the user that the present credentials stand for, "" where they do not say."""
        return "" if self._connected is None else self._connected.user

    def is_outdated(self) -> bool:
        """Tell whether the present connection was made with what the files no longer hold.

        A token alone does not count: a connection outlives it (client-go closes none for one
        either). Nothing is run, and files that cannot be read change nothing.
        """
        try:
            credentials = self._credentials()
            return self._connected is not None and not self._connected.has(
                credentials, credentials.read_known()
            )
        except SourceError:
            return False

    def drop_connections(self) -> None:
        """Close what is open: the next call connects anew."""
        if self._connected is not None:
            self._connected.session.close()

    def interrupt(self) -> None:
        """End the call that is under way."""
        self._sockets.shut(for_good=False)

    def close(self) -> None:
        """End the call that is under way and all later ones."""
        self._sockets.shut(for_good=True)

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """Return one JSON object."""
        return self._read(self._send(path, params or {}, self._timeouts.read))

    def post(self, path: str, body: Json) -> Json:
        """Send one JSON object and return the one that the server makes of it."""
        return self._read(self._send(path, {}, self._timeouts.read, body))

    def get_node(self, name: str) -> Json | Missing:
        """Return the Node."""
        return self._get_object("nodes", name, f"/api/v1/nodes/{_segment(name)}")

    def get_namespace(self, name: str) -> Json | Missing:
        """Return the Namespace."""
        return self._get_object("namespaces", name, f"/api/v1/namespaces/{_segment(name)}")

    def get_service(self, namespace: str, name: str) -> Json | Missing:
        """Return the Service."""
        path = f"/api/v1/namespaces/{_segment(namespace)}/services/{_segment(name)}"
        return self._get_object("services", name, path)

    def get_daemon_set(self, namespace: str, name: str) -> Json | Missing:
        """Return the DaemonSet."""
        path = f"/apis/apps/v1/namespaces/{_segment(namespace)}/daemonsets/{_segment(name)}"
        return self._get_object("daemonsets", name, path)

    def get_lease(self, namespace: str, name: str) -> Json | Missing:
        """Return the Lease."""
        path = (
            f"/apis/coordination.k8s.io/v1/namespaces/{_segment(namespace)}/leases/{_segment(name)}"
        )
        return self._get_object("leases", name, path)

    def list_pods(self, node_name: str, parse: Callable[[Json], T]) -> Listed[T]:
        """List a node's pods, from etcd, page by page; only what ``parse`` returns stays.

        A continue token that has expired starts the list anew: half a list is none.
        """
        for _try in range(LIST_TRIES):
            listed = self._list_once(node_name, parse)
            if listed is not None:
                return listed
        raise RejectedError("the list of pods expired again and again while it was read", 410)

    @contextmanager
    def watch_pods(
        self, node_name: str, resource_version: str, quiet: Callable[[], float]
    ) -> Generator[Iterator[WatchEvent], None, None]:
        """Open a watch of a node's pods: its events since ``resource_version``, until a normal end.

        ``quiet`` is asked before each read for the seconds that may pass without a byte: then
        SilentError.
        """
        params = {
            **_of_node(node_name),
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
        }
        with ExitStack() as stack:
            with self._limit():
                sent = self._send("/api/v1/pods", params, quiet())
                response, connected = stack.enter_context(sent)
                if _is_unknown(response, connected):
                    raise _refusal(connected, response.status_code, _read_body(response))
                if response.status_code != 200:
                    wait = response.headers.get("Retry-After", "")
                    raise kube_answers.rejection(response.status_code, _read_body(response), wait)
            yield (
                kube_answers.parse_event(line) for line in self._lines(response, connected, quiet)
            )

    def _read(self, sent: AbstractContextManager[tuple[requests.Response, _Connected]]) -> Json:
        with self._limit(), sent as (response, connected):
            body = _read_body(response)
            if _is_unknown(response, connected):
                raise _refusal(connected, response.status_code, body)
        is_created = response.status_code == 201
        return kube_answers.parse_answer(
            200 if is_created else response.status_code,
            response.headers.get("Content-Type", ""),
            body,
            response.headers.get("Retry-After", ""),
        )

    def _list_once(self, node_name: str, parse: Callable[[Json], T]) -> Listed[T] | None:
        items: list[T] = []
        params = {**_of_node(node_name), "limit": str(self._page_size)}
        while True:
            try:
                page = self.get("/api/v1/pods", params)
            except RejectedError as error:
                if error.status == 410 and "continue" in params:
                    return None
                raise
            version, following = kube_answers.read_page(page, items, parse)
            del page
            if not following:
                return Listed(tuple(items), version)
            params["continue"] = following

    def _get_object(self, kind: str, name: str, path: str) -> Json | Missing:
        try:
            found = self.get(path)
        except NotFoundError as error:
            if (error.kind, error.name) == (kind, name):
                return Missing(kind, name)
            raise
        if kube_answers.read_text(found, "metadata", "name") != name:
            raise RejectedError(f"{path}: another object was returned")
        return found

    @contextmanager
    def _limit(self) -> Generator[None, None, None]:
        """End what is done inside after the time of one call, though bytes may still drip in."""
        seconds = self._timeouts.connect + self._timeouts.read
        lock = threading.Lock()
        done, passed = threading.Event(), threading.Event()

        def end() -> None:
            with lock:
                if not done.is_set():
                    passed.set()
                    self.interrupt()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except SourceError:
            if not passed.is_set():
                raise
        finally:
            timer.cancel()
            with lock:
                done.set()
        if passed.is_set():
            raise SilentError(f"no whole answer in {seconds:g} s")

    @contextmanager
    def _send(
        self, path: str, params: Mapping[str, str], read: float, body: Json | None = None
    ) -> Generator[tuple[requests.Response, _Connected], None, None]:
        """Send one GET, or POST a body; with 401 once more, with credentials read anew."""
        connected = self._connect()
        response = self._send_once(connected, path, params, read, body)
        if response.status_code == 401 and self._renew(connected):
            response.close()
            connected = self._connect()
            response = self._send_once(connected, path, params, read, body)
        self.server_date = response.headers.get("Date", "")
        if response.status_code == 401:
            self._unknown_to_server = connected.secrets
        try:
            yield response, connected
        except kube_transport.ERRORS as error:
            self.drop_connections()
            raise kube_transport.translate(error, connected.dialer) from error
        finally:
            response.close()

    def _send_once(
        self,
        connected: _Connected,
        path: str,
        params: Mapping[str, str],
        read: float,
        body: Json | None,
    ) -> requests.Response:
        url = f"https://{connected.host}{connected.credentials.prefix}{path}"
        token = connected.secrets.token
        try:
            return connected.session.request(
                "GET" if body is None else "POST",
                url,
                params=dict(params),
                json=body,
                headers={"Authorization": f"Bearer {token}"} if token else None,
                timeout=(self._timeouts.connect, read),
                allow_redirects=False,
                stream=True,
            )
        except kube_transport.ERRORS as error:
            self.drop_connections()
            raise kube_transport.translate(error, connected.dialer) from error

    def _connect(self) -> _Connected:
        """Return the session of the credentials as they are now. Raises SourceError."""
        credentials = self._credentials()
        self._knock(credentials)
        secrets = credentials.read()
        if self._connected is None or not self._connected.has(credentials, secrets):
            self._forget()
            self._connected = _Connected(credentials, secrets, self._sockets)
            self.serial += 1
        self._connected.secrets = secrets
        return self._connected

    def _knock(self, credentials: Credentials) -> None:
        """See whether anybody listens before a plugin is run, which may take long.

        So it is known at once that the API server refuses. Raises RefusedError, SilentError.
        """
        if credentials.plugin is not None and credentials.plugin.must_run():
            kube_connection.connect(credentials, self._sockets, self._timeouts.connect).close()

    def _renew(self, refused: _Connected) -> bool:
        """Prepare the one more try after a 401; False where it would be as before.

        What a server has refused already is sent once a call, not twice.
        """
        plugin, login = refused.credentials.plugin, refused.secrets.login
        if plugin is not None and login is not None:
            try:
                return plugin.renew(login) is not None
            except SourceError:
                return False  # the error of the 401 says why
        if refused.secrets == self._unknown_to_server:
            return False
        self._forget()
        return True

    def _lines(
        self, response: requests.Response, connected: _Connected, quiet: Callable[[], float]
    ) -> Iterator[bytes]:
        """Yield the lines of a stream as they come; one that the end cuts off is dropped."""
        rest = b""
        try:
            for chunk in response.raw.stream(65536, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line for line in lines if line.strip())
                if len(rest) > LARGEST_EVENT:
                    raise RejectedError(f"an event is larger than {LARGEST_EVENT} bytes")
                connected.dialer.set_timeout(quiet())
        except kube_transport.ERRORS as error:
            raise kube_transport.translate(error, connected.dialer) from error

    def _forget(self) -> None:
        self.drop_connections()
        self._connected = None


class _Connected:
    """Hold the session that one set of credentials made."""

    def __init__(self, credentials: Credentials, secrets: Secrets, sockets: OpenSockets) -> None:
        self.credentials = credentials
        self.secrets = secrets
        self.user = tls_words.find_user(secrets)
        self.dialer = Dialer(credentials, secrets, sockets)
        self.host = credentials.server
        self.session = requests.Session()
        # No proxies, bundles or .netrc of the environment.
        self.session.trust_env = False
        self.session.headers.update(
            {
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "checkpointd",
            }
        )
        self.session.mount("https://", Adapter(credentials, self.dialer))

    def has(self, credentials: Credentials, secrets: Secrets) -> bool:
        """Tell whether this session can go on with these credentials: the token may be another."""
        return self.credentials == credentials and (self.secrets.ca, self.secrets.pair) == (
            secrets.ca,
            secrets.pair,
        )


def _is_unknown(response: requests.Response, connected: _Connected) -> bool:
    """Tell whether the server does not know who we are.

    Who shows nothing is system:anonymous, who may nothing, unless --anonymous-auth is off.
    """
    shows_nothing = connected.secrets == Secrets(ca=connected.secrets.ca)
    return response.status_code == 401 or (response.status_code == 403 and shows_nothing)


def _refusal(connected: _Connected, code: int, body: bytes) -> RejectedError:
    rejection = kube_answers.rejection(code, body)
    why = tls_words.explain_refusal(connected.credentials, connected.secrets)
    return RejectedError(f"{rejection}: {why}", code)


def _of_node(node_name: str) -> dict[str, str]:
    return {"fieldSelector": f"spec.nodeName={node_name}"}


def _segment(name: str) -> str:
    """Return a name that is one segment of a path. Raises RejectedError: ``..`` would lead away."""
    if not re.fullmatch(r"[a-zA-Z0-9]([-a-zA-Z0-9]|\.(?!\.))*", name):
        raise RejectedError("not a name that an object can have")
    return name


def _read_body(response: requests.Response) -> bytes:
    chunks: list[bytes] = []
    size = 0
    for chunk in response.raw.stream(65536, decode_content=False):
        size += len(chunk)
        if size > LARGEST_ANSWER:
            raise RejectedError(f"the answer is larger than {LARGEST_ANSWER} bytes")
        chunks.append(chunk)
    return b"".join(chunks)
