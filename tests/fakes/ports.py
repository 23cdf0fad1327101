"""Find ports of loopback that stay free while nobody listens on them.

The system's own choice would lie in the range of outgoing connections: one of those could take the
port of an API server that is down, or connect to itself.
"""

from __future__ import annotations

import socket
from random import SystemRandom

LOWEST, HIGHEST = 10300, 32000
"""Below net.ipv4.ip_local_port_range (32768 to 60999)."""


def free_port() -> int:
    """Return a port on which nobody listens."""
    random = SystemRandom()
    while True:
        port = random.randint(LOWEST, HIGHEST)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
