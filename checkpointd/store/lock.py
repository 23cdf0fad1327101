"""Hold the store for one instance: two that write would undo each other's state."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
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
    """Lock the store and note our pid in the file. Raises LockedError, StoreError.

    The file is held open for reading only: else nobody could make its file system read-only while
    we run. On one that is read-only already there is no start: systemd would have made it so for
    good in the mount namespace of the unit, and tries again each second.
    """
    path = root.path / layout.LOCK
    if os.fstatvfs(root.fd).f_flag & os.ST_RDONLY:
        raise walk.explain("lock", path, OSError(errno.EROFS, os.strerror(errno.EROFS)))
    try:
        fd = _open(root, os.O_RDONLY)
    except FileNotFoundError:
        fd = _create(root, path)
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
    _note_pid(root)
    return Lock(fd)


def _open(root: Directory, flags: int) -> int:
    return os.open(layout.LOCK, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=root.fd)


def _create(root: Directory, path: Path) -> int:
    try:
        return _open(root, os.O_RDONLY | os.O_CREAT)
    except OSError as error:
        raise walk.explain("lock", path, error) from error


def _note_pid(root: Directory) -> None:
    """Note who holds it, for people: a full disk keeps nobody from starting."""
    with contextlib.suppress(OSError):
        fd = _open(root, os.O_WRONLY)
        try:
            os.pwrite(fd, f"{os.getpid():<{_PID_WIDTH}}".encode(), 0)
        finally:
            os.close(fd)
