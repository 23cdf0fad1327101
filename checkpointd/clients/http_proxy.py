"""Reach a server through an HTTP proxy: the tunnel of CONNECT (RFC 9110, section 9.3.6).

Only where a kubeconfig names one (``proxy-url``), as the kubelet's client does. The environment's
proxies are never used. What a proxy says is no word of the server's: that it refuses, or cannot
reach it, is silence.
"""

from __future__ import annotations

import base64
import re
import socket
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from checkpointd.errors import SilentError, SourceError

LARGEST_HEAD = 16 * 1024
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: |\r)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """Hold where a proxy is; ``key`` names the kubeconfig's key in errors."""

    host: str
    port: int
    key: str
    authorization: str = field(default="", repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"the proxy {host}:{self.port}"


def parse(url: str, key: str) -> Proxy:
    """Parse a ``proxy-url``. Raises SourceError, which does not tell its password.

    client-go also knows https and socks5 proxies (clientcmd/validation.go); nodes have hardly any.
    """
    expected = f"{key}: expected http://[<user>:<password>@]<host>[:<port>]"
    try:
        parts = urlsplit(url)
        port = parts.port or 80
    except ValueError:
        raise SourceError(expected) from None
    if parts.scheme in ("https", "socks5"):
        raise SourceError(f"{expected}: a proxy that speaks {parts.scheme} is not supported")
    if parts.scheme != "http" or not parts.hostname:
        raise SourceError(expected)
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
    return Proxy(host=parts.hostname, port=port, key=key, authorization=authorization)


def open_tunnel(connected: socket.socket, proxy: Proxy, server: str) -> None:
    """Have the proxy connect to ``server`` (host:port). Raises SilentError, OSError."""
    lines = [f"CONNECT {server} HTTP/1.1", f"Host: {server}", "User-Agent: checkpointd"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    connected.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    head = b""
    while b"\r\n\r\n" not in head:
        # Nothing follows the head before we speak: TLS is begun by the client.
        chunk = connected.recv(LARGEST_HEAD)
        head += chunk
        if not chunk or len(head) > LARGEST_HEAD:
            raise SilentError(f"{server}: {proxy} gives no answer to CONNECT")
    status = _STATUS.match(head)
    if status is None:
        raise SilentError(f"{server}: {proxy} does not speak HTTP")
    if status[1] == b"407":
        raise SilentError(f"{server}: {proxy} wants other credentials: see {proxy.key}")
    if not status[1].startswith(b"2"):
        raise SilentError(f"{server}: {proxy} does not reach it: HTTP {status[1].decode()}")
