"""Say what was found: how bad it is, what it costs and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """Say how bad a finding is; the later ones are worse."""

    OK = "ok"
    NOTE = "note"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAULT = "fault"

    @property
    def exit_code(self) -> int:
        """Return what `doctor` exits with where this is the worst."""
        return {Level.UNKNOWN: 1, Level.WARNING: 1, Level.FAULT: 2}.get(self, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Hold one finding; ``costs`` and ``remedy`` are "" where all is well."""

    level: Level
    subject: str
    says: str
    costs: str = ""
    remedy: str = ""


def good(subject: str, says: str) -> Finding:
    """Say that something is as it should be."""
    return Finding(level=Level.OK, subject=subject, says=says)


def note(subject: str, says: str, remedy: str = "") -> Finding:
    """Say what may be of interest."""
    return Finding(level=Level.NOTE, subject=subject, says=says, remedy=remedy)


def unknown(subject: str, why: str, remedy: str = "") -> Finding:
    """Say what could not be looked at."""
    return Finding(level=Level.UNKNOWN, subject=subject, says=why, remedy=remedy)


def warning(subject: str, says: str, costs: str, remedy: str) -> Finding:
    """Say what takes something away."""
    return Finding(level=Level.WARNING, subject=subject, says=says, costs=costs, remedy=remedy)


def fault(subject: str, says: str, costs: str, remedy: str) -> Finding:
    """Say what keeps checkpointd from its work."""
    return Finding(level=Level.FAULT, subject=subject, says=says, costs=costs, remedy=remedy)
