"""The table of measured times that a run prints at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

PROPERTY = "seconds on a real node"

# Of bootkube's pod-checkpointer (2020) on such a node. "Not its own": what the kubelet and the API
# server need, whoever places the manifest.
REFERENCE = {
    ("API server deleted", "last process gone to manifest"): "5.0 s",
    ("API server deleted", "last process gone to API ready"): "9.6 s (4.6 s of it not its own)",
    ("API server deleted", "API ready to hand-back"): "29 s",
    ("API server deleted", "hand-back: API outage"): "16.4 s (0 to 4.6 s of it not its own)",
}


class Times:
    """Collects the measured times of one test among its report's properties."""

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        """Append to `properties`, which reach the process that prints the summary."""
        self._properties = properties

    def add(self, scenario: str, what: str, seconds: float) -> None:
        """Add one measured time."""
        self._properties.append((PROPERTY, [scenario, what, seconds]))


def table(properties: Iterable[tuple[str, object]]) -> list[str]:
    """Return the times among all reports' properties as lines of text; none where there is none."""
    rows = [tuple(value) for name, value in properties if name == PROPERTY and is_row(value)]
    if not rows:
        return []
    head = ("scenario", "measured", "seconds", "pod-checkpointer")
    body = [(s, w, f"{t:.3f}", REFERENCE.get((s, w), "-")) for s, w, t in sorted(rows)]
    widths = [max(len(row[column]) for row in (head, *body)) for column in range(4)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *body)
    ]


def is_row(value: object) -> TypeGuard[Sequence[Any]]:
    """Say whether a property's value is what Times adds."""
    return isinstance(value, list)
