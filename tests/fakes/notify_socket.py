"""The receiving end of sd_notify, as systemd has it: a datagram socket that asks who sent."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from types import TracebackType

_CREDENTIALS = struct.Struct("iII")


@dataclass(frozen=True)
class Notice:
    """Hold one datagram: its assignments, and the PID that the kernel says sent it."""

    variables: dict[str, str]
    pid: int


class NotifySocket:
    """Listen on ``address``: a path, or a name that begins with ``@``."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def __enter__(self) -> NotifySocket:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def receive(self, timeout: float = 10.0) -> Notice:
        """Return the next datagram. Raises TimeoutError."""
        self._socket.settimeout(timeout)
        content, ancillary, _, _ = self._socket.recvmsg(65536, socket.CMSG_SPACE(_CREDENTIALS.size))
        pid, _, _ = _CREDENTIALS.unpack(ancillary[0][2])
        lines = content.decode().split("\n")
        return Notice(dict(line.split("=", 1) for line in lines if line), pid)

    def is_empty(self) -> bool:
        """Tell whether nothing waits: datagrams of this process are there once they are sent."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        return False
