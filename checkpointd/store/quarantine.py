"""Move what is damaged out of the way: it is kept for people, and never read again.

The newest are kept: a disk that goes on failing must not fill itself with what it spoilt.
"""

from __future__ import annotations

import contextlib
import stat

from checkpointd.errors import StoreError
from checkpointd.store import layout
from checkpointd.store.durable import Disk
from checkpointd.store.walk import Directory

_NAME_LIMIT = 180
MOST_ENTRIES = 32
MOST_BYTES = 64 << 20


def put_away(disk: Disk, root: Directory, parent: Directory, name: str) -> str:
    """Move ``name`` out of ``parent`` into the quarantine of the store; return its name there.

    The name tells where it was. Both directories are fsynced. Raises StoreError.
    """
    disk.make_directory(root, layout.QUARANTINE)
    with root.child(layout.QUARANTINE) as quarantine:
        target = _free_name(quarantine, root, parent, name)
        disk.rename(parent, name, quarantine, target)
        disk.fsync_directory(quarantine)
        disk.fsync_directory(parent)
        _remove_oldest(disk, quarantine, target)
    return target


def _remove_oldest(disk: Disk, quarantine: Directory, newest: str) -> None:
    """Keep so many entries and bytes, the newest in any case; what cannot be removed stays."""
    left, bytes_left = MOST_ENTRIES - 1, MOST_BYTES - _size(quarantine, newest)
    for name in sorted(quarantine.names(), key=lambda name: _age(quarantine, name), reverse=True):
        if name == newest:
            continue
        left, bytes_left = left - 1, bytes_left - _size(quarantine, name)
        if left < 0 or bytes_left < 0:
            with contextlib.suppress(StoreError):
                disk.remove_tree(quarantine, name)


def _age(quarantine: Directory, name: str) -> int:
    """Return when it was put there: its rename was the last change of its inode."""
    found = quarantine.status(name)
    return 0 if found is None else found.st_ctime_ns


def _size(parent: Directory, name: str) -> int:
    """Return the bytes of a file or a tree."""
    found = parent.status(name)
    if found is None or not stat.S_ISDIR(found.st_mode):
        return 0 if found is None else found.st_size
    with parent.child(name) as directory:
        return sum(_size(directory, inner) for inner in directory.names())


def _free_name(quarantine: Directory, root: Directory, parent: Directory, name: str) -> str:
    place = (parent.path / name).relative_to(root.path)
    plain = ".".join(place.parts).lstrip(".").encode(errors="replace").decode()[-_NAME_LIMIT:]
    taken = set(quarantine.names())
    number = 0
    while f"{plain}.{number}" in taken:
        number += 1
    return f"{plain}.{number}"
