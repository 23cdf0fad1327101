"""The receiving end of the journal's native protocol, datagrams and sealed memfds."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from pathlib import Path
from types import TracebackType

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class JournalSocket:
    """Listen at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def __enter__(self) -> JournalSocket:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def receive(self, timeout: float = 10.0) -> dict[str, str]:
        """Return the fields of the next record. Raises TimeoutError."""
        self._socket.settimeout(timeout)
        descriptors = array.array("i")
        content, ancillary, _, _ = self._socket.recvmsg(1 << 20, socket.CMSG_SPACE(4))
        for _, _, payload in ancillary:
            descriptors.frombytes(payload)
        for descriptor in descriptors:
            content = _read_sealed(descriptor)
        return _parse(content)


def _read_sealed(descriptor: int) -> bytes:
    try:
        # journald refuses one that could still change: src/journal/journald-native.c.
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise ValueError("memfd is not sealed")
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)


def _parse(content: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    while content:
        line, _, content = content.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack_from("<Q", content)
            value, content = content[8 : 8 + size], content[8 + size + 1 :]
        fields[name.decode()] = value.decode()
    return fields
