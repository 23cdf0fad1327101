"""Walk the store by directory descriptors: a link in the way is never followed.

Reads only. Translates OSError into StoreError that names the path and the remedy.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from checkpointd.errors import DamagedError, NoSpaceError, StoreError

READ_LIMIT = 64 * 1024 * 1024
"""Bytes of one file: far over what the caps per namespace allow (design, section 8)."""

LABEL = "security.selinux"

_REMEDIES = {
    errno.EROFS: "the file system is read-only: find out why (dmesg), then remount it",
    errno.EACCES: "run as root, and see what forbids it (SELinux, ACLs, the unit's sandbox)",
    errno.EPERM: "run as root, and see what forbids it (immutable flag, SELinux, the sandbox)",
    errno.EIO: "the disk fails: see dmesg",
    errno.EMFILE: "too many open files: raise LimitNOFILE",
}
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_WRONG_KIND = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR)


def explain(verb: str, path: Path, error: OSError) -> StoreError:
    """Return the StoreError for ``error``: what was tried, on which path, what to do about it."""
    reason = error.strerror or str(error)
    if error.errno in _NO_SPACE:
        return NoSpaceError(f"{verb} {path}: {reason} (free space there: df, df -i)")
    if error.errno in _WRONG_KIND:
        return DamagedError(f"{verb} {path}: {reason} (not what we put there)")
    remedy = _REMEDIES.get(error.errno or 0, "")
    return StoreError(f"{verb} {path}: {reason}{f' ({remedy})' if remedy else ''}")


class Directory:
    """Hold an open directory; close it with ``with``. ``path`` is for messages."""

    __slots__ = ("fd", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd

    @classmethod
    def open(cls, path: Path) -> Directory:
        """Open ``path``; links on the way are followed: it is a place that the host gave us."""
        try:
            return cls(path, os.open(path, _DIRECTORY))
        except OSError as error:
            raise explain("open", path, error) from error

    def __enter__(self) -> Directory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self.fd)

    def child(self, name: str) -> Directory:
        """Open the directory ``name``. Raises StoreError; DamagedError for a link or a file."""
        path = self.path / name
        try:
            return Directory(path, os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd))
        except OSError as error:
            raise explain("open", path, error) from error

    @contextmanager
    def descend(self, *names: str) -> Generator[Directory | None]:
        """Open the directory at the end of ``names``; None where one of them is absent."""
        here: Directory | None = Directory(self.path, os.dup(self.fd))
        try:
            for name in names:
                above = here
                if above is None:
                    break
                with above:
                    here = None
                    here = above.child(name) if above.status(name) is not None else None
            yield here
        finally:
            if here is not None:
                os.close(here.fd)

    def names(self) -> list[str]:
        """Return all names, sorted."""
        try:
            return sorted(os.listdir(self.fd))  # noqa: PTH208 - pathlib knows no descriptors
        except OSError as error:
            raise explain("list", self.path, error) from error

    def status(self, name: str) -> os.stat_result | None:
        """Return lstat of ``name``, None where it is absent."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain("look at", self.path / name, error) from error

    def directories(self) -> list[str]:
        """Return the names of the directories in it that are not unfinished."""
        return [
            name
            for name in self.names()
            if not name.startswith(".")
            and (found := self.status(name)) is not None
            and stat.S_ISDIR(found.st_mode)
        ]

    def link_target(self, name: str) -> str:
        """Return where the link ``name`` points to; "" where there is none."""
        found = self.status(name)
        if found is None or not stat.S_ISLNK(found.st_mode):
            return ""
        try:
            return os.readlink(name, dir_fd=self.fd)
        except OSError as error:
            raise explain("read", self.path / name, error) from error

    def find(self, name: str, limit: int = READ_LIMIT) -> bytes | None:
        """Return the bytes of the regular file ``name``, None where it is absent.

        Raises DamagedError for a link, anything but a file, or more than ``limit`` bytes.
        """
        found = self.find_with_status(name, limit)
        return None if found is None else found[0]

    def read(self, name: str, limit: int = READ_LIMIT) -> bytes:
        """Return the bytes of the regular file ``name``. Raises DamagedError if it is absent."""
        found = self.find(name, limit)
        if found is None:
            raise DamagedError(f"{self.path / name}: missing")
        return found

    def find_following(self, name: str, limit: int) -> bytes | None:
        """Return the bytes of ``name`` as the kubelet reads it, through links; else None.

        None too for what is no regular file, too long, or cannot be read.
        """
        try:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=self.fd)
        except OSError:
            return None
        try:
            return read_open(fd, self.path / name, limit)[0]
        except StoreError:
            return None
        finally:
            os.close(fd)

    def find_with_status(
        self, name: str, limit: int = READ_LIMIT
    ) -> tuple[bytes, os.stat_result] | None:
        """Return bytes and fstat of the regular file ``name``, None where it is absent."""
        path = self.path / name
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            fd = os.open(name, flags, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain("open", path, error) from error
        try:
            return read_open(fd, path, limit)
        finally:
            os.close(fd)


def label_of(fd: int) -> str:
    """Return the SELinux label of an open file or directory, "" where it has none."""
    try:
        return os.getxattr(fd, LABEL).rstrip(b"\0").decode(errors="replace")
    except OSError:
        return ""


def read_open(fd: int, path: Path, limit: int) -> tuple[bytes, os.stat_result]:
    """Read an open file whole. Raises DamagedError for what is no regular file or too long."""
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedError(f"{path}: not a regular file")
        if found.st_size > limit:
            raise DamagedError(f"{path}: {found.st_size} bytes, at most {limit} are read")
        chunks: list[bytes] = []
        while chunk := os.read(fd, 1 << 20):
            chunks.append(chunk)
    except OSError as error:
        raise explain("read", path, error) from error
    return b"".join(chunks), found
