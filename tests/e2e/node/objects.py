"""Read JSON objects of the API by path, with a failure that says what was missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast


def find(value: object, *path: str | int) -> object | None:
    """Return what lies at `path` (keys and indices), or None where a step is not there."""
    for step in path:
        if isinstance(step, str) and isinstance(value, Mapping):
            value = cast("Mapping[str, object]", value).get(step)
        elif isinstance(step, int) and isinstance(value, Sequence):
            items = cast("Sequence[object]", value)
            value = items[step] if step < len(items) else None
        else:
            return None
    return value


def text(value: object, *path: str | int) -> str:
    """Return the string at `path`; anything else fails the test."""
    found = find(value, *path)
    assert isinstance(found, str), f"no string at {path} of {value!r:.500}"
    return found


def items(value: object, *path: str | int) -> list[object]:
    """Return the list at `path`, empty where there is none."""
    found = find(value, *path)
    return list(cast("Sequence[object]", found)) if isinstance(found, Sequence) else []


def is_ready(pod: object) -> bool:
    """Say whether a pod's condition Ready is true."""
    return any(
        find(condition, "type") == "Ready" and find(condition, "status") == "True"
        for condition in items(pod, "status", "conditions")
    )


def is_terminating(pod: object) -> bool:
    """Say whether a pod is being deleted."""
    return find(pod, "metadata", "deletionTimestamp") is not None


def is_mirror(pod: object) -> bool:
    """Say whether a pod is only the API's picture of a static pod."""
    return find(pod, "metadata", "annotations", "kubernetes.io/config.mirror") is not None
