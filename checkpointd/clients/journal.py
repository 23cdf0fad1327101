"""Write log records to journald by its native protocol, with their fields.

The protocol is systemd's docs/JOURNAL_NATIVE_PROTOCOL.md: one datagram per record; one that is too
long goes as a sealed memfd. A journal that takes nothing must not stop the daemon: what does not go
out in time is counted and told later. Where there is no journal, lines go to stderr.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from checkpointd import log

SOCKET = Path("/run/systemd/journal/socket")
SEND_TIMEOUT = 0.25
"""Seconds for one record: journald that hangs costs a cycle no more."""
_IDENTIFIER = "checkpointd"
_TOO_LONG = frozenset({errno.EMSGSIZE, errno.ENOBUFS})


class JournalHandler(logging.Handler):
    """Send records to the journal's socket, to ``fallback`` where there is none."""

    def __init__(self, path: Path = SOCKET, fallback: TextIO | None = None) -> None:
        super().__init__()
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(SEND_TIMEOUT)
        self._fallback = logging.StreamHandler(sys.stderr if fallback is None else fallback)
        self._fallback.setFormatter(log.PlainFormatter(prefix=True))
        self.lost = 0
        """Records that the journal did not take in time, since the last one that it took."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        try:
            self._send(encode(self._fields(record)))
            self.lost = 0
        except TimeoutError:
            # Its stderr would be the same journal.
            self.lost += 1
        except OSError:
            self._fallback.emit(record)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()

    def _fields(self, record: logging.LogRecord) -> Mapping[str, str]:
        told = {"RECORDS_LOST": str(self.lost)} if self.lost else {}
        return {
            "MESSAGE": self.format(record),
            "PRIORITY": str(log.priority(record.levelno)),
            "SYSLOG_IDENTIFIER": _IDENTIFIER,
            "CODE_FILE": record.pathname,
            "CODE_LINE": str(record.lineno),
            "CODE_FUNC": record.funcName or "",
            "THREAD_NAME": record.threadName or "",
            **log.fields_of(record),
            **told,
        }

    def _send(self, content: bytes) -> None:
        try:
            self._socket.sendto(content, self._path)
        except OSError as error:
            if error.errno not in _TOO_LONG:
                raise
            self._send_sealed(content)

    def _send_sealed(self, content: bytes) -> None:
        descriptor = os.memfd_create("checkpointd-log", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))
            self._socket.sendmsg([], [rights], 0, self._path)
        finally:
            os.close(descriptor)


def encode(fields: Mapping[str, str]) -> bytes:
    """Return the fields as the journal reads them; a value of several lines gets its length."""
    parts: list[bytes] = []
    for name, value in fields.items():
        encoded = value.encode("utf-8", "replace")
        if b"\n" in encoded:
            parts.append(name.encode() + b"\n" + struct.pack("<Q", len(encoded)) + encoded + b"\n")
        else:
            parts.append(name.encode() + b"=" + encoded + b"\n")
    return b"".join(parts)


def choose_handler(
    environ: Mapping[str, str], stream: TextIO, path: Path = SOCKET
) -> logging.Handler:
    """Return the journal's handler where ``stream`` is the journal's, else one for a terminal.

    JOURNAL_STREAM names device and inode of the stream that systemd connected: systemd.exec(5).
    """
    if path.exists() and environ.get("JOURNAL_STREAM", "") == _identity(stream):
        return JournalHandler(path, stream)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(log.PlainFormatter())
    return handler


def _identity(stream: TextIO) -> str:
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return "none"
    return f"{status.st_dev}:{status.st_ino}"
