"""Keep 1 MiB in hand for the writes that must not fail on a full disk: states and manifests."""

from __future__ import annotations

import os

from checkpointd.errors import NoSpaceError, StoreError
from checkpointd.store import layout
from checkpointd.store.durable import Disk
from checkpointd.store.walk import Directory

SIZE = 1 << 20
MARGIN = 4 * SIZE
"""Taken back only when this much is free: else the next write would find the disk full again."""
REMEDY = f"free {MARGIN >> 20} MiB there, see df and df -i"


def fill(disk: Disk, root: Directory) -> bool:
    """Reserve the space if it is not reserved and there is room; False if not. Never raises."""
    try:
        return _fill(disk, root)
    except StoreError:
        return False


def _fill(disk: Disk, root: Directory) -> bool:
    found = root.status(layout.RESERVE)
    if found is not None and found.st_size >= SIZE:
        return False
    room = os.fstatvfs(root.fd)
    if room.f_bavail * room.f_frsize < MARGIN:
        return False
    if found is not None:
        disk.unlink(root, layout.RESERVE)
    fd = disk.create(root, layout.RESERVE)
    try:
        disk.allocate(fd, root.path / layout.RESERVE, SIZE)
    except StoreError:
        disk.try_unlink(root, layout.RESERVE)
        raise
    finally:
        os.close(fd)
    return True


def require(disk: Disk, root: Directory) -> None:
    """Have the space reserved, else raise NoSpaceError: what is left is for states and manifests.

    Raises StoreError where nothing can be written at all.
    """
    if not _is_there(root) and not _fill(disk, root):
        raise NoSpaceError(
            f"{root.path}: the disk is full, and what is left is kept for words and activations "
            f"({REMEDY})"
        )


def find_fault(disk: Disk, root: Directory) -> str:
    """Take the space back if there is room again; say what is wrong with the disk, or ""."""
    room = os.fstatvfs(root.fd)
    if room.f_flag & os.ST_RDONLY:
        return (
            f"the store {root.path} is on a read-only file system: nothing is stored, and no copy "
            "starts or steps aside. Find out why (dmesg), then: mount -o remount,rw"
        )
    if _is_there(root) or fill(disk, root):
        return ""
    return (
        f"the disk of the store {root.path} is full: what was kept in reserve is used for words "
        f"and activations, no new generation is stored; {REMEDY}"
    )


def _is_there(root: Directory) -> bool:
    return root.status(layout.RESERVE) is not None


def give_up(disk: Disk, root: Directory) -> bool:
    """Free the reserved space; False if it is gone already."""
    if root.status(layout.RESERVE) is None:
        return False
    disk.unlink(root, layout.RESERVE)
    return True
