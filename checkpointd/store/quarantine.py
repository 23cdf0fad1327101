"""Move what is damaged out of the way: it is kept for people, never deleted, never read again."""

from __future__ import annotations

from checkpointd.store import layout
from checkpointd.store.durable import Disk
from checkpointd.store.walk import Directory

_NAME_LIMIT = 180


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
    return target


def _free_name(quarantine: Directory, root: Directory, parent: Directory, name: str) -> str:
    place = (parent.path / name).relative_to(root.path)
    plain = ".".join(place.parts).lstrip(".").encode(errors="replace").decode()[-_NAME_LIMIT:]
    taken = set(quarantine.names())
    number = 0
    while f"{plain}.{number}" in taken:
        number += 1
    return f"{plain}.{number}"
