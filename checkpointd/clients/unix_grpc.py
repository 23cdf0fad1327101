"""Call gRPC services on unix sockets: bytes in, bytes out, a deadline on every call.

Everything runs in the caller's thread. grpc is imported when first a server listens: it costs 90
to 260 ms and 16 to 20 MiB, and most commands need none of it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Protocol, cast
from urllib.parse import quote

from checkpointd.errors import RefusedError, RejectedError, SilentError, SourceError

UNKNOWN = 2
NOT_FOUND = 5
UNIMPLEMENTED = 12
"""``RejectedError.status`` of a gRPC answer (grpc/doc/statuscodes.md); UNKNOWN is all the rest.

HTTP's codes are above 99.
"""

_LONGEST_PATH = 107  # sun_path without its final NUL (unix(7))
_LONGEST_DETAILS = 200
_LONGEST_KNOCK = 5.0
_OPTIONS = (
    # The kubelet's bound on a CRI answer (pkg/kubelet/cri/remote/utils.go: maxMsgSize).
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.default_authority", "localhost"),
    # An open stream is waited for in the thread that reads it (grpc.experimental.ChannelOptions),
    # with half the wake-ups. In 1.85 each stream leaks 9 KiB: open few, for long.
    ("SingleThreadedUnaryStream", 1),
)


class _Answers(Protocol):
    def __iter__(self) -> Iterator[bytes]: ...
    def cancel(self) -> object: ...


class _Unary(Protocol):
    def __call__(self, request: bytes, timeout: float) -> bytes: ...


class _UnaryStream(Protocol):
    def __call__(self, request: bytes, timeout: float) -> _Answers: ...


class _Channel(Protocol):
    """What a grpc.Channel is without serializers: bytes in, bytes out."""

    def unary_unary(self, method: str) -> _Unary: ...
    def unary_stream(self, method: str) -> _UnaryStream: ...


def check_socket(endpoint: str) -> str:
    """Return the path of a unix socket endpoint (``unix:///path``, ``unix:/path``, ``/path``).

    Raises RejectedError for everything else.
    """
    path = endpoint.removeprefix("unix://") if "://" in endpoint else endpoint
    path = path.removeprefix("unix:")
    parts = PurePosixPath(path).parts
    if not path.startswith("/") or "\0" in path or ".." in parts or "://" in path:
        raise RejectedError(f"{endpoint!r} is not the path of a unix socket")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise RejectedError(f"{endpoint!r} is too long for a unix socket")
    return path


class UnixGrpc:
    """Call methods of the gRPC services on one unix socket. Safe to use from several threads.

    A connection that fails is given up, so that the next call makes a new one at once instead of
    waiting for gRPC's back-off.
    """

    def __init__(self, endpoint: str) -> None:
        self.path = check_socket(endpoint)
        self._lock = threading.Lock()
        self._channel: _Channel | None = None
        self._answered = False

    def call(self, method: str, request: bytes, timeout: float) -> bytes:
        """Call ``/<package>.<Service>/<Method>`` and return its answer within ``timeout`` seconds.

        Tried once more where a connection that had worked turns out to be dead (the server was
        restarted): call only what is idempotent. Raises RefusedError, SilentError, RejectedError.
        """
        end = time.monotonic() + timeout
        had_answered = self._answered
        try:
            return self._call_once(method, request, timeout)
        except RefusedError:
            if not had_answered:
                raise
            return self._call_once(method, request, max(0.0, end - time.monotonic()))

    def stream(self, method: str, request: bytes, timeout: float) -> Stream:
        """Open a stream of answers that ends after ``timeout`` seconds at the latest.

        Raises RefusedError, SilentError where nobody listens; the stream itself raises the rest.
        """
        self._knock(min(timeout, _LONGEST_KNOCK))
        return Stream(method, self._open().unary_stream(method)(request, timeout=timeout))

    def close(self) -> None:
        """Give up the connection; calls that are under way keep it until they end."""
        with self._lock:
            self._channel = None
            self._answered = False

    def _call_once(self, method: str, request: bytes, timeout: float) -> bytes:
        # The server's time does not run while grpc is imported for the first call.
        left = self._knock(timeout)
        channel = self._open()
        import grpc

        try:
            answer = channel.unary_unary(method)(request, timeout=left)
        except grpc.RpcError as error:
            translated = translate(method, error)
            if isinstance(translated, RefusedError):
                self.close()
            raise translated from error
        self._answered = True
        return answer

    def _open(self) -> _Channel:
        # Read when grpc is imported. Its fork handlers warn on stderr, and nothing here forks.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc

        with self._lock:
            if self._channel is None:
                target = f"unix:{quote(self.path, safe='/')}"
                self._channel = cast("_Channel", grpc.insecure_channel(target, options=_OPTIONS))
            return self._channel

    def _knock(self, timeout: float) -> float:
        """Return the seconds left once it is known that somebody listens.

        Not gRPC's to find out: 1.51 leaks 5 KiB with each channel that cannot connect.
        """
        if self._channel is not None:
            return timeout
        begun = time.monotonic()
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(max(0.001, timeout))
            try:
                probe.connect(self.path)
            except (TimeoutError, BlockingIOError) as error:
                raise SilentError(f"{self.path}: nobody accepts connections") from error
            except OSError as error:
                raise RefusedError(f"{self.path}: {error.strerror}: is it running?") from error
        return max(0.0, timeout - (time.monotonic() - begun))


class Stream:
    """Iterate over the answers of one call; ``cancel`` (from any thread) ends the wait."""

    def __init__(self, method: str, call: _Answers) -> None:
        self._method = method
        self._call = call

    def __iter__(self) -> Iterator[bytes]:
        """Yield answers until the stream ends. Raises RefusedError, SilentError, RejectedError."""
        import grpc

        try:
            yield from self._call
        except grpc.RpcError as error:
            raise translate(self._method, error) from error

    def cancel(self) -> None:
        """End the stream."""
        self._call.cancel()


def translate(method: str, error: Exception) -> SourceError:
    """Make our error of gRPC's: what kind of silence or answer it was."""
    import grpc

    if not isinstance(error, grpc.Call):
        return RejectedError(f"{method}: {type(error).__name__}")
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return SilentError(f"{method}: no answer in time: it hangs, or has too much to do")
    details = " ".join((error.details() or "").split())[:_LONGEST_DETAILS]
    message = f"{method}: {code.name}: {details}" if details else f"{method}: {code.name}"
    if code is grpc.StatusCode.UNAVAILABLE:
        return RefusedError(message)
    if code is grpc.StatusCode.CANCELLED:
        return SilentError(message)
    numbers = {"NOT_FOUND": NOT_FOUND, "UNIMPLEMENTED": UNIMPLEMENTED}
    return RejectedError(message, status=numbers.get(code.name, UNKNOWN))
