"""Read credentials from small files that may rotate, or from the kubeconfig itself.

Errors name file and key, never a value. Nothing is written to disk.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from checkpointd.errors import SourceError

LARGEST_FILE = 1024 * 1024
"""Bytes of a kubeconfig, certificate, key or token: client-go's own limit for tokens is lower."""
_TRIES = 3

Stamp = tuple[int, int, int]
"""mtime in nanoseconds, inode, size: another one means that a file was rotated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Hold one credential: in a file that may rotate, or embedded.

    ``key`` names kubeconfig and key in errors.
    """

    key: str
    path: Path | None = None
    embedded: bytes = field(default=b"", repr=False)

    def read(self) -> bytes:
        """Return its bytes as they are now. Raises SourceError."""
        return self.embedded if self.path is None else read_file(self.path, self.key)

    def stamp(self) -> Stamp:
        """Return what changes when its file rotates. Raises SourceError."""
        return (0, 0, len(self.embedded)) if self.path is None else stamp_of(self.path, self.key)


def read_pair(certificate: Part, key: Part) -> bytes:
    """Return certificate and key as one PEM, both of one moment. Raises SourceError.

    A kubelet has both in one file, a link that it turns to the next: that is read once. Two files
    are read again where one changed meanwhile.
    """
    if certificate.path is not None and certificate.path == key.path:
        return certificate.read()
    pair = b""
    for _try in range(_TRIES):
        before = (certificate.stamp(), key.stamp())
        pair = certificate.read() + b"\n" + key.read()
        if before == (certificate.stamp(), key.stamp()):
            break
    return pair


def check_token(content: bytes, key: str) -> str:
    """Return a bearer token as it goes into a header. Raises SourceError that names ``key``."""
    token = content.strip()
    if not token or not all(33 <= byte <= 126 for byte in token):
        raise SourceError(f"{key}: not a token: empty, or with other characters")
    return token.decode("ascii")


def stamp_of(path: Path, key: str) -> Stamp:
    """Return the stamp of a file. Raises SourceError that names ``key``."""
    try:
        status = path.stat()
    except OSError as error:
        raise SourceError(f"{key}: {path}: {error.strerror}") from error
    return (status.st_mtime_ns, status.st_ino, status.st_size)


def read_file(path: Path, key: str) -> bytes:
    """Read a whole small file. Raises SourceError that names ``key``."""
    try:
        # Not blocking: a FIFO in its place must not stop us.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise SourceError(f"{key}: {path}: {error.strerror}") from error
    if len(content) > LARGEST_FILE:
        raise SourceError(f"{key}: {path}: larger than {LARGEST_FILE} bytes")
    return content
