"""GET one document over HTTP within a deadline for the whole of it, bounded in size.

http.client over sockets of our own, because a time limit per read (all that libraries offer) lets a
server that drips one byte at a time hold a thread for ever. No proxy, no redirect, no bundle of
certificates of the system, no connection kept.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from checkpointd.clients import tls_words
from checkpointd.clients.tls_words import Remedies
from checkpointd.errors import RefusedError, RejectedError, SilentError, SourceError

if TYPE_CHECKING:  # not there at run time
    from _typeshed import WriteableBuffer

LOOK_SECONDS = 2.0
"""Seconds for a look at a certificate that is not trusted."""
_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Say where to ask. ``context`` is None for plain HTTP; the last two are for TLS alone."""

    host: str
    port: int
    path: str
    context: ssl.SSLContext | None = None
    server_name: str = ""
    remedies: Remedies | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.context is None else 'https'}://{host}:{self.port}{self.path}"


class Answer:
    """Hold the status of an answer and read its body."""

    def __init__(self, target: Target, response: http.client.HTTPResponse, most: int) -> None:
        self.status = response.status
        self._target = target
        self._response = response
        self._most = most

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it comes. Raises RejectedError beyond the size allowed."""
        size = 0
        while chunk := self._response.read1(_CHUNK):
            size += len(chunk)
            if size > self._most:
                raise RejectedError(f"{self._target}: the answer is larger than {self._most} bytes")
            yield chunk


@contextmanager
def get(
    target: Target, headers: Mapping[str, str], *, timeout: float, most: int
) -> Generator[Answer]:
    """GET ``target`` and read its answer, at most ``most`` bytes, inside the ``with``.

    Reading the body raises the same errors as this: RefusedError, SilentError, RejectedError.
    """
    end = time.monotonic() + timeout
    try:
        with _connect(target, timeout) as connected:
            connection = http.client.HTTPConnection(target.host, target.port)
            # http.client needs sendall and makefile alone.
            connection.sock = cast("socket.socket", _Deadline(connected, end))
            connection.request("GET", target.path, headers={"Connection": "close", **headers})
            with connection.getresponse() as response:
                yield Answer(target, response, most)
    except SourceError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise _translate(target, error) from error


def _connect(target: Target, timeout: float) -> socket.socket:
    end = time.monotonic() + timeout
    plain = socket.create_connection((target.host, target.port), timeout)
    if target.context is None:
        return plain
    try:
        # OpenSSL's handshake counts its timeout over all of its reads and writes.
        plain.settimeout(max(0.001, end - time.monotonic()))
        return target.context.wrap_socket(plain, server_hostname=target.server_name or None)
    except BaseException:
        plain.close()
        raise


class _Deadline:
    """Be a socket to http.client that gives every read and write what is left of the time."""

    def __init__(self, wrapped: socket.socket, end: float) -> None:
        self._wrapped = wrapped
        self._end = end

    def sendall(self, content: bytes) -> None:
        self._give_time()
        self._wrapped.sendall(content)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """Leave it to who opened it."""

    def recv_into(self, buffer: WriteableBuffer) -> int:
        self._give_time()
        return self._wrapped.recv_into(buffer)

    def _give_time(self) -> None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._wrapped.settimeout(left)


class _Reader(io.RawIOBase):
    def __init__(self, source: _Deadline) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._source.recv_into(buffer)


def _translate(target: Target, error: Exception) -> SourceError:
    if isinstance(error, TimeoutError):
        return SilentError(f"{target}: no answer in time")
    if isinstance(error, ssl.SSLCertVerificationError):
        return RejectedError(f"{target}: {_distrust(target, error)}")
    if isinstance(error, OSError):
        reason = error.strerror or getattr(error, "reason", "") or type(error).__name__
        return RefusedError(f"{target}: {reason}")
    return RejectedError(f"{target}: the answer is not HTTP ({type(error).__name__})")


def _distrust(target: Target, error: ssl.SSLCertVerificationError) -> str:
    """Say why, with what the server shows: that takes one more connection."""
    shown = None
    with suppress(OSError):
        opened = socket.create_connection((target.host, target.port), LOOK_SECONDS)
        shown = tls_words.fetch_certificate(opened, target.server_name)
    remedies = target.remedies or Remedies(ca="its CA", name="its name", expected=target.host)
    return tls_words.explain_distrust(error, shown, remedies)
