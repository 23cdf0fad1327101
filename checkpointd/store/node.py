"""Keep node.json: the world we know, contact with it, and what was discovered."""

from __future__ import annotations

from checkpointd.model.checkpoint import NodeRecord
from checkpointd.store import codec, layout
from checkpointd.store.durable import Disk
from checkpointd.store.walk import Directory


def read_node(root: Directory) -> NodeRecord | None:
    """Read node.json, None where there is none. Raises DamagedError, NewerSchemaError."""
    content = root.find(layout.NODE)
    what = str(root.path / layout.NODE)
    return None if content is None else codec.unseal_as(NodeRecord, content, what)


def save_node(disk: Disk, root: Directory, record: NodeRecord) -> bool:
    """Write node.json durably; False if it says this already. Raises StoreError."""
    return disk.save_file(root, layout.NODE, codec.seal(codec.encode(record)))
