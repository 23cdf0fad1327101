"""Let requests speak HTTP over the dialer's connections, and say what its exceptions mean."""

from __future__ import annotations

from collections.abc import Iterable
from http.client import HTTPException

import requests
import requests.adapters
import urllib3.connection
import urllib3.connectionpool
import urllib3.exceptions

from checkpointd.clients.credentials import Credentials
from checkpointd.clients.kube_connection import Dialer
from checkpointd.errors import RejectedError, SourceError


class _Connection(urllib3.connection.HTTPConnection):
    """Be an HTTP connection whose socket the dialer makes."""

    def __init__(self, host: str, port: int | None, dialer: Dialer) -> None:
        super().__init__(host, port)
        self._dialer = dialer

    def connect(self) -> None:
        """Connect. Raises RefusedError, SilentError, RejectedError: urllib3 lets them pass."""
        timeout = self.timeout
        self.sock = self._dialer.connect(timeout if isinstance(timeout, int | float) else 10.0)


class _Pool(urllib3.connectionpool.HTTPConnectionPool):
    """Be the pool of one server. urllib3 takes it for plain HTTP: TLS is the dialer's."""

    def __init__(self, host: str, port: int, dialer: Dialer) -> None:
        super().__init__(host, port, maxsize=1)
        self._dialer = dialer

    # urllib3's protocol for connections differs from its own class in what is final.
    def _new_conn(self) -> _Connection:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.num_connections += 1
        return _Connection(self.host, self.port, self._dialer)


class Adapter(requests.adapters.HTTPAdapter):
    """Let requests use the dialer's connections and nothing of its own.

    Both ways to a pool are replaced: requests 2.32 took the second in place of the first.
    """

    def __init__(self, credentials: Credentials, dialer: Dialer) -> None:
        super().__init__(max_retries=0)
        self._dialer = dialer
        self._place = (credentials.host, credentials.port)
        self._pool = _Pool(*self._place, dialer)

    def get_connection(self, url: object, proxies: object = None) -> _Pool:
        """Return the pool (requests before 2.32)."""
        return self._pool

    def get_connection_with_tls_context(
        self, request: object, verify: object, proxies: object = None, cert: object = None
    ) -> _Pool:
        """Return the pool (requests from 2.32 on)."""
        return self._pool

    def cert_verify(self, conn: object, url: object, verify: object, cert: object) -> None:
        """Set nothing: the dialer has verified the server by its own authority."""

    def close(self) -> None:
        """Close the connection that is idle; the next request opens another."""
        self._pool.close()
        self._pool = _Pool(*self._place, self._dialer)


def translate(error: Exception, dialer: Dialer) -> SourceError:
    """Say what an exception of requests or urllib3 means for us, once connected."""
    for cause in _causes(error):
        if isinstance(cause, SourceError):
            return cause
        if isinstance(cause, requests.Timeout | urllib3.exceptions.TimeoutError | TimeoutError):
            return dialer.translate(TimeoutError(), "to the request")
        if isinstance(cause, OSError) and not isinstance(cause, requests.RequestException):
            return dialer.translate(cause, "before the answer was whole")
    return RejectedError(f"the answer is truncated or not HTTP ({type(error).__name__})")


ERRORS = (requests.RequestException, urllib3.exceptions.HTTPError, HTTPException, OSError)
"""All that requests and urllib3 raise, sooner or later."""


def _causes(error: BaseException) -> Iterable[BaseException]:
    """Walk an exception's causes, innermost last; urllib3 also hides them in ``args``."""
    seen: list[BaseException] = []
    waiting: list[BaseException] = [error]
    while waiting and len(seen) < 20:
        current = waiting.pop(0)
        if any(current is known for known in seen):
            continue
        seen.append(current)
        linked = (*current.args, current.__cause__, current.__context__)
        waiting.extend(link for link in linked if isinstance(link, BaseException))
    return seen
