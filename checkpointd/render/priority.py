"""Keep a pod's priority class and number together, or neither.

The API's Priority admission forbids a mirror whose number is not its class's, and the kubelet never
resolves a class (K-10).
"""

from __future__ import annotations

from collections.abc import Iterator

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.model.files import Refusal
from checkpointd.render import wire

SYSTEM_CLASSES = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}
"""pkg/apis/scheduling/types.go: SystemCriticalPriority and the classes made of it."""


def rewrite(spec: Json) -> Json:
    """Return the spec with class and number, or with neither. Raises FieldError."""
    name = json_fields.optional_text(spec, "priorityClassName")
    if not name:
        return wire.without(spec, "priority", "priorityClassName")
    number = json_fields.optional_integer(spec, "priority")
    return {**spec, "priority": SYSTEM_CLASSES.get(name) if number is None else number}


def refusals(pod: Json) -> Iterator[Refusal]:
    """Yield a class whose number is not known. Raises FieldError."""
    name = json_fields.optional_text(pod, "spec", "priorityClassName")
    number = json_fields.optional_integer(pod, "spec", "priority")
    if name and number is None and name not in SYSTEM_CLASSES:
        yield Refusal(
            field="spec.priorityClassName",
            reason="only the API server knows the number of this class",
            remedy="write spec.priority beside it",
        )
