"""Make every effect on a disk: each system call is one method, and what they add up to is durable.

A crash between any two calls leaves the old or the new state. Tests wire in a ``Disk`` whose
``effect`` ends the process at the n-th call; nothing here knows of them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from checkpointd.errors import StoreError
from checkpointd.store import layout, walk
from checkpointd.store.walk import Directory

T = TypeVar("T")

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Attributes:
    """Hold what a file has beside its bytes. None leaves the owner, "" the SELinux label."""

    mode: int = 0o600
    uid: int | None = None
    gid: int | None = None
    label: str = ""

    def fit(self, found: os.stat_result) -> bool:
        """Tell whether ``found`` has this mode and owner."""
        return (
            stat.S_IMODE(found.st_mode) == self.mode
            and self.uid in (None, found.st_uid)
            and self.gid in (None, found.st_gid)
        )


PRIVATE = Attributes()


class Disk:
    """Make effects, each relative to an open directory. Every method raises StoreError."""

    def effect(self, verb: str, path: Path, call: Callable[[], T]) -> T:
        """Make one system call; translate its error, naming ``path`` and the remedy."""
        try:
            return call()
        except OSError as error:
            raise walk.explain(verb, path, error) from error

    # ---- one system call each -------------------------------------------------------------------
    def mkdir(self, parent: Directory, name: str, mode: int = 0o700) -> None:
        """Make a directory."""
        self.effect("mkdir", parent.path / name, lambda: os.mkdir(name, mode, dir_fd=parent.fd))

    def create(self, parent: Directory, name: str) -> int:
        """Create a file that was not there, 0600, and return its descriptor."""
        return self.effect(
            "create", parent.path / name, lambda: os.open(name, _CREATE, 0o600, dir_fd=parent.fd)
        )

    def write(self, fd: int, path: Path, content: bytes) -> None:
        """Write all of ``content`` to an open file."""
        view = memoryview(content)
        while view:
            view = view[self.effect("write", path, partial(os.write, fd, view)) :]

    def allocate(self, fd: int, path: Path, size: int) -> None:
        """Reserve ``size`` bytes for an open file."""
        self.effect("allocate", path, lambda: os.posix_fallocate(fd, 0, size))

    def chown(self, fd: int, path: Path, uid: int, gid: int) -> None:
        """Set the owner of an open file; -1 leaves one."""
        self.effect("chown", path, lambda: os.fchown(fd, uid, gid))

    def chmod(self, fd: int, path: Path, mode: int) -> None:
        """Set the mode of an open file."""
        self.effect("chmod", path, lambda: os.fchmod(fd, mode))

    def label(self, fd: int, path: Path, label: str) -> None:
        """Set the SELinux label of an open file, where the file system has labels."""
        try:
            self.effect("label", path, lambda: os.setxattr(fd, walk.LABEL, label.encode()))
        except StoreError as error:
            # EPERM: without SELinux the kernel asks for CAP_SYS_ADMIN (security/commoncap.c:
            # cap_inode_setxattr), and then no one reads the label.
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in (errno.ENOTSUP, errno.EPERM):
                raise
            if cause.errno == errno.EPERM and has_selinux():
                raise

    def fsync(self, fd: int, path: Path) -> None:
        """Wait until an open file is on the disk."""
        self.effect("fsync", path, lambda: os.fsync(fd))

    def fsync_directory(self, directory: Directory) -> None:
        """Wait until the names in ``directory`` are on the disk."""
        self.effect("fsync", directory.path, lambda: os.fsync(directory.fd))

    def rename(self, source: Directory, old: str, target: Directory, new: str) -> None:
        """Rename; what is at the new name is replaced at once."""
        self.effect(
            "rename",
            target.path / new,
            lambda: os.rename(old, new, src_dir_fd=source.fd, dst_dir_fd=target.fd),
        )

    def link(self, source: Directory, old: str, target: Directory, new: str) -> None:
        """Give a file a second name."""
        self.effect(
            "link",
            target.path / new,
            lambda: os.link(
                old, new, src_dir_fd=source.fd, dst_dir_fd=target.fd, follow_symlinks=False
            ),
        )

    def symlink(self, content: str, parent: Directory, name: str) -> None:
        """Make a symbolic link."""
        self.effect("link", parent.path / name, lambda: os.symlink(content, name, dir_fd=parent.fd))

    def unlink(self, parent: Directory, name: str) -> None:
        """Remove a file or a link."""
        self.effect("remove", parent.path / name, lambda: os.unlink(name, dir_fd=parent.fd))

    def rmdir(self, parent: Directory, name: str) -> None:
        """Remove an empty directory."""
        self.effect("remove", parent.path / name, lambda: os.rmdir(name, dir_fd=parent.fd))

    # ---- what they add up to --------------------------------------------------------------------
    def set_attributes(self, fd: int, path: Path, attributes: Attributes) -> None:
        """Set owner, mode and label of an open file or directory; what fits is left."""
        found = os.fstat(fd)
        if not attributes.fit(found):
            if stat.S_ISDIR(found.st_mode):
                self._set_directory(fd, path, attributes, found)
            else:
                self._set_file(fd, path, attributes)
        if attributes.label:
            self.label(fd, path, attributes.label)

    def _set_file(self, fd: int, path: Path, attributes: Attributes) -> None:
        # The owner first: chown(2) of a file clears its set-user-ID and set-group-ID bits.
        self._set_owner(fd, path, attributes)
        if not attributes.fit(os.fstat(fd)):
            self.chmod(fd, path, attributes.mode)

    def _set_directory(
        self, fd: int, path: Path, attributes: Attributes, found: os.stat_result
    ) -> None:
        # The mode first, while the group is ours: without CAP_FSETID, chmod(2) drops the set-group-
        # ID bit (fsGroup gives it to volumes) under another group; chown(2) leaves a directory's.
        if stat.S_IMODE(found.st_mode) != attributes.mode:
            if attributes.mode & stat.S_ISGID and found.st_gid != os.getegid():
                self.chown(fd, path, -1, os.getegid())
            self.chmod(fd, path, attributes.mode)
        self._set_owner(fd, path, attributes)

    def _set_owner(self, fd: int, path: Path, attributes: Attributes) -> None:
        found = os.fstat(fd)
        uid, gid = attributes.uid, attributes.gid
        if uid not in (None, found.st_uid) or gid not in (None, found.st_gid):
            self.chown(fd, path, -1 if uid is None else uid, -1 if gid is None else gid)

    def write_new(
        self, parent: Directory, name: str, content: bytes, attributes: Attributes = PRIVATE
    ) -> None:
        """Create ``name`` with bytes and attributes, on the disk; its name is not yet."""
        path = parent.path / name
        fd = self.create(parent, name)
        try:
            self.write(fd, path, content)
            self.set_attributes(fd, path, attributes)
            self.fsync(fd, path)
        finally:
            os.close(fd)

    def write_temporary(
        self, directory: Directory, name: str, content: bytes, attributes: Attributes = PRIVATE
    ) -> str:
        """Write ``content`` beside ``name`` under a dot-name and return that; none on error."""
        temporary = layout.temporary(name)
        if directory.status(temporary) is not None:
            self.remove_tree(directory, temporary)
        try:
            self.write_new(directory, temporary, content, attributes)
        except StoreError:
            self.try_unlink(directory, temporary)
            raise
        return temporary

    def save_file(
        self, directory: Directory, name: str, content: bytes, attributes: Attributes = PRIVATE
    ) -> bool:
        """Replace ``name`` by ``content`` at once and durably; False if it is so already."""
        if holds(directory, name, content, attributes):
            return False
        temporary = self.write_temporary(directory, name, content, attributes)
        try:
            self.rename(directory, temporary, directory, name)
        except StoreError:
            self.try_unlink(directory, temporary)
            raise
        self.fsync_directory(directory)
        return True

    def make_directory(self, parent: Directory, name: str) -> bool:
        """Make a directory durably, 0700; False if it is there."""
        if parent.status(name) is not None:
            return False
        self.mkdir(parent, name)
        self.fsync_directory(parent)
        return True

    def try_unlink(self, directory: Directory, name: str) -> None:
        """Remove a file if that can be done: what stays is found at the next start."""
        try:
            self.unlink(directory, name)
        except StoreError:
            return

    def discard(self, parent: Directory, name: str) -> None:
        """Remove a tree so that after a crash it is whole, or unfinished under a dot-name."""
        gone = layout.temporary(name)
        if parent.status(gone) is not None:
            self.remove_tree(parent, gone)
        self.rename(parent, name, parent, gone)
        self.fsync_directory(parent)
        self.remove_tree(parent, gone)

    def remove_tree(self, parent: Directory, name: str) -> None:
        """Remove a file, a link, or a directory with all below it; not durable by itself."""
        found = parent.status(name)
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            self.unlink(parent, name)
            return
        with parent.child(name) as directory:
            self.take_back(directory)
            for inner in directory.names():
                self.remove_tree(directory, inner)
        self.rmdir(parent, name)

    def take_back(self, directory: Directory) -> None:
        """Make a directory writable for us: the unit has no CAP_DAC_OVERRIDE."""
        found = os.fstat(directory.fd)
        if found.st_uid != os.geteuid() or found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            ours = Attributes(mode=0o700, uid=os.geteuid())
            self.set_attributes(directory.fd, directory.path, ours)


def holds(
    directory: Directory, name: str, content: bytes, attributes: Attributes = PRIVATE
) -> bool:
    """Tell whether the file ``name`` has these bytes, mode and owner."""
    found = directory.status(name)
    if found is None or not stat.S_ISREG(found.st_mode):
        return False
    if found.st_size != len(content) or not attributes.fit(found):
        return False
    return directory.find(name) == content


def has_selinux() -> bool:
    """Tell whether this kernel runs SELinux (Documentation: selinuxfs)."""
    return Path("/sys/fs/selinux/enforce").exists()
