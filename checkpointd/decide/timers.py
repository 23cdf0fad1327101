"""Answer "have so many seconds passed?" and remember when the next answer changes."""

from __future__ import annotations

import hashlib

from checkpointd.model.moments import Instant
from checkpointd.model.pods import Slot


class Timers:
    """Collect the deadlines that one decision looked at.

    A deadline of another boot runs in full again: it counts from ``started``, the daemon's start in
    this boot; after a cancelled shutdown one that began before counts from ``thawed`` (design,
    section 3).
    """

    def __init__(self, now: Instant, started: Instant, thawed: Instant | None = None) -> None:
        self.now = now
        self._started = started
        self._thawed = thawed
        self.pending: list[Instant] = []

    def passed(self, since: Instant | None, seconds: float) -> bool:
        """Tell whether ``seconds`` have passed since ``since``; never for None."""
        if since is None:
            return False
        start = self._start(since)
        if self.now.seconds - start.seconds >= seconds:
            return True
        self.pending.append(start.plus(seconds))
        return False

    def _start(self, since: Instant) -> Instant:
        start = since if since.boot_id == self.now.boot_id else self._started
        thawed = self._thawed
        return thawed if thawed is not None and start.is_before(thawed) else start

    def reached(self, moment: Instant | None) -> bool:
        """Tell whether ``moment`` has come; a moment of another boot, or None, has."""
        if moment is None or moment.boot_id != self.now.boot_id:
            return True
        if self.now.seconds >= moment.seconds:
            return True
        self.pending.append(moment)
        return False

    def fresh(self) -> Timers:
        """Return the same clock, without the deadlines that were looked at."""
        return Timers(self.now, self._started, self._thawed)

    @property
    def first(self) -> Instant | None:
        """Return the next deadline, None where there is none."""
        return min(self.pending, key=lambda instant: instant.seconds, default=None)

    def next(self, at_most: float) -> Instant:
        """Return the next deadline, ``at_most`` seconds away."""
        limit = self.now.plus(at_most)
        return min([limit, *self.pending], key=lambda instant: instant.seconds)


def jitter(node_name: str, slot: Slot, hold: float, share: float) -> float:
    """Return the seconds that this node adds to a hold: hash(node, slot) mod ``share`` of it."""
    digest = hashlib.sha256(f"{node_name}\n{slot}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32 * share * hold
