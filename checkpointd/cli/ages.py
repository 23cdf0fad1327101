"""Say times as people do: "12 s ago", "for 3 min", "in 2 h 5 min". Pure."""

from __future__ import annotations

from datetime import datetime

from checkpointd.model.moments import Instant

UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
FINE_BELOW = 10 * 60
"""Below ten minutes seconds still matter; above, the next unit is enough."""


def span(seconds: float) -> str:
    """Write a duration in its two largest units, the second where it matters."""
    left = max(0, round(seconds))
    for index, (size, unit) in enumerate(UNITS):
        if left < size and unit != "s":
            continue
        whole, rest = divmod(left, size)
        finer = UNITS[index + 1] if index + 1 < len(UNITS) else None
        part = rest // finer[0] if finer else 0
        if finer is None or not part or (finer[1] == "s" and left >= FINE_BELOW):
            return f"{whole} {unit}"
        return f"{whole} {unit} {part} {finer[1]}"
    return "0 s"


def ago(then: Instant | None, now: Instant) -> str:
    """Say how long ago ``then`` was."""
    if then is None:
        return "never"
    seconds = seconds_between(then, now)
    return "before this boot" if seconds is None else f"{span(seconds)} ago"


def lasting(since: Instant | None, now: Instant) -> str:
    """Say for how long something has been so."""
    if since is None:
        return ""
    seconds = seconds_between(since, now)
    return "since before this boot" if seconds is None else f"for {span(seconds)}"


def until(at: Instant, now: Instant) -> str:
    """Say when something is due. A deadline of another boot runs anew: it has no time."""
    if at.boot_id != now.boot_id:
        return "its time runs anew after the boot"
    left = at.seconds - now.seconds
    return "due now" if left <= 0 else f"in {span(left)}"


def seconds_between(then: Instant, now: Instant) -> float | None:
    """Return the seconds between two instants, by wall time over a boot; None: not known."""
    if then.boot_id == now.boot_id:
        return now.seconds - then.seconds
    try:
        return (_wall(now) - _wall(then)).total_seconds()
    except (ValueError, TypeError):
        return None


def _wall(moment: Instant) -> datetime:
    # Python 3.10's fromisoformat knows no "Z".
    return datetime.fromisoformat(moment.wall.replace("Z", "+00:00"))
