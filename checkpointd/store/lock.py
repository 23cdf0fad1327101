"""Hold the store for one instance: two that write would undo each other's state."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from types import TracebackType

from checkpointd.errors import LockedError
from checkpointd.store import layout, walk
from checkpointd.store.walk import Directory

_PID_WIDTH = 20
"""Bytes: the next one is written over the last, with nothing to cut off or to allocate."""


class Lock:
    """Hold flock(2) on ``lock`` in the store; the kernel gives it up when the process ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the store up."""
        os.close(self._fd)


def acquire(root: Directory) -> Lock:
    """Lock the store and note our pid in the file. Raises LockedError, StoreError."""
    path = root.path / layout.LOCK
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(layout.LOCK, flags, 0o600, dir_fd=root.fd)
    except OSError as error:
        raise walk.explain("lock", path, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        pid = os.pread(fd, _PID_WIDTH, 0).decode(errors="replace").strip()
        os.close(fd)
        if error.errno == errno.EWOULDBLOCK:
            raise LockedError(
                f"{root.path} is held by process {pid or 'unknown'}: stop that one first"
            ) from error
        raise walk.explain("lock", path, error) from error
    with contextlib.suppress(OSError):
        # It is only for people: a full disk must not keep us from starting.
        os.pwrite(fd, f"{os.getpid():<{_PID_WIDTH}}".encode(), 0)
    return Lock(fd)
