"""Connect to the API server: TCP, TLS, and what a failure on the way means.

``Dialer`` makes the connections, so that no bundle or proxy of the system is ever used, each phase
has a deadline, and another thread can end a blocked read.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from checkpointd.clients import http_proxy, tls_words
from checkpointd.clients.credentials import Credentials, Secrets
from checkpointd.clients.tls_words import Remedies
from checkpointd.errors import RefusedError, RejectedError, SilentError, SourceError

KEEP_ALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""tcp(7): a peer that vanished without a word ends a watch after a minute, at no request's cost."""

LOOK_AGAIN = 60.0
LOOK_SECONDS = 2.0
"""Seconds between looks at a certificate that is not trusted, and for one."""

_CLOSED = (
    ConnectionResetError,
    ConnectionAbortedError,
    BrokenPipeError,
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
)


@dataclass(frozen=True, slots=True)
class Peer:
    """Say which address answered."""

    address: str
    port: int

    def __str__(self) -> str:
        return (
            f"[{self.address}]:{self.port}"
            if ":" in self.address
            else f"{self.address}:{self.port}"
        )


def make_context(credentials: Credentials, secrets: Secrets | None = None) -> ssl.SSLContext:
    """Make the TLS context of these credentials alone, of ``secrets`` where they were read before.

    Raises SourceError naming file and key.
    """
    secrets = credentials.read() if secrets is None else secrets
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if credentials.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif credentials.ca is not None:
        _load_ca(context, secrets.ca, credentials.ca.key)
    if secrets.pair:
        _load_pair(context, secrets.pair, _pair_key(credentials))
    return context


def _load_ca(context: ssl.SSLContext, ca: bytes, key: str) -> None:
    try:
        context.load_verify_locations(cadata=ca.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise SourceError(f"{key}: no certificate in PEM") from error


def _pair_key(credentials: Credentials) -> str:
    if credentials.plugin is not None:
        return credentials.plugin.spec.key
    parts = (credentials.client_certificate, credentials.client_key)
    return ", ".join(part.key for part in parts if part is not None)


def _load_pair(context: ssl.SSLContext, pair: bytes, key: str) -> None:
    """Load certificate and key through memory: OpenSSL takes them from files only."""
    descriptor = os.memfd_create("client-pair", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pair)
        # An empty password: else OpenSSL would ask for one at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    except (ssl.SSLError, ValueError) as error:
        raise SourceError(f"{key}: not a pair in PEM") from error
    finally:
        os.close(descriptor)


class Dialer:
    """Open connections for one set of credentials; keep those open, to end them from outside.

    ``peer`` is the address of the last connection whose handshake was done.
    """

    def __init__(self, credentials: Credentials, secrets: Secrets, sockets: OpenSockets) -> None:
        self._credentials = credentials
        self._secrets = secrets
        self._name = credentials.verify_name
        self._server = credentials.server
        self._context = make_context(credentials, secrets)
        self._sockets = sockets
        self._last: ssl.SSLSocket | None = None
        self._distrusted: tuple[int, float, str] | None = None
        self.peer: Peer | None = None

    def connect(self, timeout: float) -> ssl.SSLSocket:
        """Connect and shake hands. Raises RefusedError, SilentError, RejectedError."""
        plain = connect(self._credentials, self._sockets, timeout)
        try:
            peer = self._find_peer(plain)
            _set_options(plain)
            secure = self._context.wrap_socket(plain, server_hostname=self._name)
        except ssl.SSLCertVerificationError as error:
            plain.close()
            raise RejectedError(f"{self._server}: {self._distrust(error)}") from error
        except OSError as error:
            plain.close()
            raise self.translate(error, "in the TLS handshake") from error
        self._sockets.add(secure)
        self._last, self.peer = secure, peer
        return secure

    def _find_peer(self, connected: socket.socket) -> Peer | None:
        """Return who is at the other end; behind a proxy nobody knows."""
        if self._credentials.proxy is not None:
            return None
        return Peer(*cast("tuple[str, int]", connected.getpeername()[:2]))

    def set_timeout(self, seconds: float) -> None:
        """Bound each further read of the last connection."""
        if self._last is not None and self._last.fileno() >= 0:
            self._last.settimeout(seconds)

    def translate(self, error: OSError, phase: str) -> SourceError:
        """Say what a failure of the operating system or of TLS means for us."""
        if isinstance(error, ssl.SSLError) and tls_words.is_about_us(error):
            why = tls_words.explain_refusal(self._credentials, self._secrets)
            return RejectedError(f"{self._server}: it refuses our certificate: {why}")
        return translate_connection(self._credentials, error, phase)

    def _distrust(self, error: ssl.SSLCertVerificationError) -> str:
        """Say why, with what the server shows: that takes one more connection, now and then."""
        code, now = error.verify_code, time.monotonic()
        if self._distrusted is not None:
            known, at, words = self._distrusted
            if known == code and now - at < LOOK_AGAIN:
                return words
        shown = None
        with suppress(SourceError):
            opened = connect(self._credentials, self._sockets, LOOK_SECONDS)
            shown = tls_words.fetch_certificate(opened, self._name)
        key = self._credentials.cluster_key
        remedies = Remedies(
            ca=f"{key}.certificate-authority{'-data' if self._has_embedded_ca else ''}",
            name=f"{key}.tls-server-name",
            expected=self._name,
        )
        words = tls_words.explain_distrust(error, shown, remedies)
        self._distrusted = (code, now, words)
        return words

    @property
    def _has_embedded_ca(self) -> bool:
        ca = self._credentials.ca
        return ca is not None and ca.path is None


def connect(credentials: Credentials, sockets: OpenSockets, timeout: float) -> socket.socket:
    """Connect to the server, without TLS yet. Raises RefusedError, SilentError.

    Each address is tried; the time is shared out among them.
    """
    proxy = credentials.proxy
    host, port = (credentials.host, credentials.port) if proxy is None else (proxy.host, proxy.port)
    addresses = resolve(host, port, timeout)
    failure: OSError = ConnectionRefusedError()
    for address in addresses:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            # Of a kernel without IPv6 (ipv6.disable=1) there is none, and "localhost" has both.
            opened = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            failure = error
            continue
        try:
            sockets.add(opened)
            opened.settimeout(timeout / len(addresses))
            opened.connect(address)
            if proxy is not None:
                http_proxy.open_tunnel(opened, proxy, credentials.server)
        except SilentError:
            opened.close()
            raise
        except OSError as error:
            opened.close()
            failure = error
        else:
            opened.settimeout(timeout)
            return opened
    raise translate_connection(credentials, failure, "when connecting") from failure


def translate_connection(credentials: Credentials, error: OSError, phase: str) -> SourceError:
    """Say what a failure to connect, shake hands, write or read means.

    Through a proxy no server is known to refuse.
    """
    if credentials.proxy is None:
        return _translate(credentials.server, error, phase)
    translated = _translate(f"{credentials.server} through {credentials.proxy}", error, phase)
    return SilentError(str(translated)) if isinstance(translated, RefusedError) else translated


def _translate(server: str, error: OSError, phase: str) -> SourceError:
    if isinstance(error, TimeoutError):
        return SilentError(f"{server}: no answer in time {phase}")
    if isinstance(error, ConnectionRefusedError):
        return RefusedError(f"{server}: connection refused")
    if isinstance(error, _CLOSED):
        return RefusedError(f"{server}: connection closed {phase}")
    if isinstance(error, ssl.SSLError):
        return RejectedError(f"{server}: {error.reason or 'TLS failed'} {phase}")
    return SilentError(f"{server}: {error.strerror or type(error).__name__} {phase}")


class OpenSockets:
    """Hold the sockets that are open, so that another thread can shut them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._closed = False

    def add(self, opened: socket.socket) -> None:
        """Keep a socket. Raises ConnectionAbortedError once ``shut`` was called for good."""
        with self._lock:
            self._open = [one for one in self._open if one.fileno() >= 0]
            self._open.append(opened)
            if self._closed:
                raise ConnectionAbortedError

    def shut(self, *, for_good: bool) -> None:
        """Shut all that is open: a read blocked on it returns at once. From any thread."""
        with self._lock:
            self._closed = self._closed or for_good
            for one in self._open:
                try:
                    # Not SSLSocket.shutdown, which takes TLS away from under a read.
                    socket.socket.shutdown(one, socket.SHUT_RDWR)
                except OSError:
                    continue  # it was closed, or its connection has ended
            self._open.clear()


def _set_options(opened: socket.socket) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE.items():
        opened.setsockopt(socket.IPPROTO_TCP, option, value)


def resolve(host: str, port: int, timeout: float) -> tuple[tuple[str, int], ...]:
    """Return the addresses of ``host``. Raises SilentError.

    getaddrinfo has no timeout of its own and a dead resolver takes half a minute, so it runs in a
    thread that is left behind; a host that is an address needs no resolver.
    """
    found: list[tuple[str, int]] = []
    failure: list[OSError] = []

    def look_up() -> None:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            failure.append(error)
        else:
            found.extend((str(info[4][0]), port) for info in infos)

    if _is_address(host):
        return ((host, port),)
    thread = threading.Thread(target=look_up, name="api-resolve", daemon=True)
    thread.start()
    thread.join(timeout)
    if not found:
        why = failure[0].strerror if failure else "no answer in time"
        raise SilentError(f"{host}: its name cannot be resolved: {why}")
    return tuple(dict.fromkeys(found))


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False
