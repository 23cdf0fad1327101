"""Write and read status.json, the daemon's picture of itself for people. Pure: bytes in and out.

It is no sealed file of the store: it is rewritten all the time, read by other people's tools, and
nothing is decided from it. An older reader takes what it knows of a newer writer's fields.
"""

from __future__ import annotations

from checkpointd import json_fields
from checkpointd.errors import FieldError, NewerSchemaError
from checkpointd.json_fields import Json
from checkpointd.model.status import SCHEMA, NodeStatus
from checkpointd.store import codec


def write_status(status: NodeStatus) -> bytes:
    """Return the bytes of status.json, one line."""
    return codec.write_compact(to_json(status)) + b"\n"


def to_json(status: NodeStatus) -> Json:
    """Return what status.json holds: the nouns field by field, with schema, health and counts."""
    body = json_fields.as_object(codec.encode(status), "status")
    counts = {
        "checkpoints": len(status.checkpoints),
        "active": sum(each.phase.is_active for each in status.checkpoints),
        "refused": len(status.refused),
        "waiting": len(status.waiting),
    }
    return {**body, "schema": SCHEMA, "health": status.health.value, "counts": counts}


def parse_status(content: bytes) -> NodeStatus:
    """Read status.json. Raises FieldError if it is broken, NewerSchemaError for a newer writer."""
    document = json_fields.parse_object(content, "status.json")
    schema = json_fields.integer(document, "schema")
    if schema > SCHEMA:
        raise NewerSchemaError(
            f"status.json has schema {schema}, this program knows {SCHEMA}: "
            "call the checkpointd that the daemon was started from"
        )
    if schema < SCHEMA:
        raise FieldError(f"status.json has schema {schema}, this program knows only {SCHEMA}")
    return codec.decode(NodeStatus, document, "status.json")
