"""The table of measured times that a run prints at its end."""

from __future__ import annotations

from dataclasses import dataclass, field

# Of bootkube's pod-checkpointer (2020) on such a node. "Not its own": what the kubelet and the API
# server need, whoever places the manifest.
REFERENCE = {
    ("API server deleted", "last process gone to manifest"): "5.0 s",
    ("API server deleted", "last process gone to API ready"): "9.6 s (4.6 s of it not its own)",
    ("API server deleted", "API ready to hand-back"): "29 s",
    ("API server deleted", "hand-back: API outage"): "16.4 s (0 to 4.6 s of it not its own)",
}


@dataclass
class Times:
    """Rows of scenario, what was measured, seconds."""

    rows: list[tuple[str, str, float]] = field(default_factory=list[tuple[str, str, float]])

    def add(self, scenario: str, what: str, seconds: float) -> None:
        """Add one measured time."""
        self.rows.append((scenario, what, seconds))

    def lines(self) -> list[str]:
        """Return the table as lines of text."""
        head = ("scenario", "measured", "seconds", "pod-checkpointer")
        body = [(s, w, f"{t:.3f}", REFERENCE.get((s, w), "-")) for s, w, t in self.rows]
        widths = [max(len(row[column]) for row in (head, *body)) for column in range(4)]
        return [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (head, *body)
        ]
