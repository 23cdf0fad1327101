"""Say when: instants of one boot, and values with the time for which they have been so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """Mark a moment: CLOCK_BOOTTIME seconds of one boot; ``wall`` (ISO 8601, UTC) is for people."""

    boot_id: str
    seconds: float
    wall: str = ""

    def seconds_since(self, earlier: Instant) -> float:
        """Return the seconds from ``earlier`` to this; 0.0 where it is of another boot.

        A deadline of another boot runs in full again (design, section 3).
        """
        return self.seconds - earlier.seconds if earlier.boot_id == self.boot_id else 0.0

    def is_before(self, later: Instant) -> bool:
        """Tell whether this lies before ``later``; an instant of another boot is always before."""
        return self.boot_id != later.boot_id or self.seconds < later.seconds

    def plus(self, seconds: float) -> Instant:
        """Return the instant ``seconds`` later in the same boot (without a wall time)."""
        return Instant(boot_id=self.boot_id, seconds=self.seconds + seconds)


@dataclass(frozen=True, slots=True)
class Seen(Generic[T_co]):
    """Carry a source's answer: read last ``at``, the same without a break since ``since``."""

    value: T_co
    at: Instant
    since: Instant


@dataclass(frozen=True, slots=True)
class Unknown:
    """Carry the lack of an answer: never a "no"."""

    why: str
    since: Instant


Reading = Seen[T_co] | Unknown
"""What every source yields. Written ``Seen[X] | Unknown`` in annotations."""


def seen(value: T, at: Instant) -> Seen[T]:
    """Make a fresh answer; the fold finds its true ``since``."""
    return Seen(value, at, at)
