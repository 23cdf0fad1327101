"""Hold what was measured, and print it beside its budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

COLUMNS = ("pods", "what", "budget", "p50", "p99", "max", "n", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Say how often each thing is done, and for how many seconds the node is left idle."""

    starts: int = 10
    deletions: int = 12
    boots: int = 10
    floors: int = 30
    events: int = 20
    real_deletions: int = 5
    real_boots: int = 3
    idle_seconds: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Hold the samples of one figure, all in ``unit``; ``limits`` are p50 and p99 at most."""

    pods: int
    what: str
    unit: str
    samples: tuple[float, ...]
    limits: tuple[float, ...] = ()

    @property
    def is_within(self) -> bool:
        """Tell whether the budget is kept; a row without one keeps it."""
        found = (percentile(self.samples, 50), percentile(self.samples, 99))
        return all(value <= limit for value, limit in zip(found, self.limits, strict=False))

    def cells(self) -> tuple[str, ...]:
        """Return the row's texts, in the order of COLUMNS."""
        values = [*(percentile(self.samples, share) for share in (50, 99)), max(self.samples)]
        budget = " / ".join(f"{limit:g}" for limit in self.limits)
        return (
            str(self.pods),
            self.what,
            f"{budget} {self.unit}" if budget else "",
            *(f"{value:.{_decimals(value)}f} {self.unit}" for value in values),
            str(len(self.samples)),
            "" if self.is_within else "over budget",
        )


def percentile(samples: Iterable[float], share: float) -> float:
    """Return the smallest sample that ``share`` percent of them do not exceed (nearest rank)."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]


def table(rows: Sequence[Row]) -> str:
    """Return the rows as lines of text."""
    cells = [COLUMNS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if column in (1, len(COLUMNS) - 1) else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def _decimals(value: float) -> int:
    size = abs(value)
    return 0 if size >= 100 else 1 if size >= 10 else 2
