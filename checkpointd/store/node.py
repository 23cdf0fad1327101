"""Keep node.json: the world we know, contact with it, and what was discovered."""

from __future__ import annotations

from checkpointd.model.checkpoint import NodeRecord
from checkpointd.store import codec, layout
from checkpointd.store.durable import Disk, holds
from checkpointd.store.walk import Directory


def read_node(root: Directory, name: str = layout.NODE) -> NodeRecord | None:
    """Read node.json, None where there is none. Raises DamagedError, NewerSchemaError."""
    content = root.find(name)
    what = str(root.path / name)
    return None if content is None else codec.unseal_as(NodeRecord, content, what)


def save_node(disk: Disk, root: Directory, record: NodeRecord) -> bool:
    """Write node.json durably; False if it says this already. Raises StoreError.

    The one before is kept as node.json.1: without any record nothing is started, on a node whose
    API server may lie in this very store.
    """
    content = codec.seal(codec.encode(record))
    if holds(root, layout.NODE, content):
        return False
    temporary = disk.write_temporary(root, layout.NODE, content)
    if root.status(layout.NODE) is not None:
        disk.rename(root, layout.NODE, root, layout.PREVIOUS_NODE)
    disk.rename(root, temporary, root, layout.NODE)
    disk.fsync_directory(root)
    return True
