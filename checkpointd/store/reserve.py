"""Keep 1 MiB in hand for the writes that must not fail on a full disk: states and manifests."""

from __future__ import annotations

import os

from checkpointd.errors import StoreError
from checkpointd.store import layout
from checkpointd.store.durable import Disk
from checkpointd.store.walk import Directory

SIZE = 1 << 20
MARGIN = 4 * SIZE
"""Taken back only when this much is free: else the next write would find the disk full again."""


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


def give_up(disk: Disk, root: Directory) -> bool:
    """Free the reserved space; False if it is gone already."""
    if root.status(layout.RESERVE) is None:
        return False
    disk.unlink(root, layout.RESERVE)
    return True
