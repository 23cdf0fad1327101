"""Find ports of loopback and keep them: nobody else takes them while nobody listens on them.

The system's own choice would lie in the range of outgoing connections: one of those could take the
port of an API server that is down, or connect to itself.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from random import SystemRandom
from types import TracebackType

LOWEST, HIGHEST = 10300, 32000
"""Below net.ipv4.ip_local_port_range (32768 to 60999)."""


class Ports:
    """Hand out ports. Each is bound, not listened on, until the end: a server may still take it."""

    def __init__(self) -> None:
        self._kept = ExitStack()
        self._random = SystemRandom()

    def __enter__(self) -> Ports:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept.close()

    def take(self) -> int:
        """Return a port on which nobody listens and which nobody else was given."""
        while True:
            port = self._random.randint(LOWEST, HIGHEST)
            keeper = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                # Without SO_REUSEADDR, so that a port that another keeper has is refused; with it
                # afterwards, so that a server that sets it too may bind (socket(7)).
                keeper.bind(("127.0.0.1", port))
            except OSError:
                keeper.close()
                continue
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._kept.enter_context(keeper)
            return port
