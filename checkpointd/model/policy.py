"""Hold what root's configuration says to decide and to render. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from checkpointd.model.selection import Selection


class Witness(Enum):
    """Name the witnesses of "runs" that can be switched off."""

    RUNTIME = "runtime"
    KERNEL = "kernel"
    RUNNING_PODS = "runningpods"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Hold the deadlines of design section 3 (its table), in seconds."""

    refused_within: float = 2.0
    silent_for: float = 15.0
    answers_apart: float = 10.0
    boot_hold: float = 30.0
    boot_hold_blocking: float = 120.0
    boot_hold_at_most: float = 90.0
    jitter: float = 0.2
    tombstone_hold: float = 30.0
    cut_off: float = 60.0
    lease_stale: float = 40.0
    unlisted_for: float = 10.0
    hand_back: float = 120.0
    hand_back_ready: float = 10.0
    hand_back_exits: int = 3
    start_deadline: float = 120.0
    offer_again: float = 60.0
    offer_again_most: float = 1800.0
    retire_daemon_set: float = 300.0
    retire_node_deleted: float = 3600.0
    retire_store: float = 300.0
    min_dwell: float = 30.0
    crash_back_off: float = 10.0
    crash_back_off_most: float = 300.0
    proven_after: float = 60.0
    stop_quiet: float = 40.0
    stop_extra: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Hold all that decide may know of the configuration."""

    node_name: str = ""
    times: Times = field(default_factory=Times)
    selection: Selection = field(default_factory=Selection)
    witnesses: frozenset[Witness] = frozenset(Witness)
