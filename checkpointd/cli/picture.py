"""Read the daemon's picture of itself, and find out whether the daemon that drew it still lives."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from checkpointd import settings
from checkpointd.clock import Clock
from checkpointd.errors import FieldError, SourceError
from checkpointd.model.moments import Instant
from checkpointd.model.status import NodeStatus
from checkpointd.settings import Paths
from checkpointd.store import status as status_file

MOST_BYTES = 64 << 20
CLOCK_SLACK = 2.0
"""Seconds by which a process may seem to start after what it wrote: /proc counts in ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Hold status.json, the present moment, and whether its writer still runs."""

    status: NodeStatus
    now: Instant
    alive: bool

    @property
    def moment(self) -> Instant:
        """Return when the picture holds: now, or when a daemon that is dead drew it last.

        Ages are counted from here: what a dead daemon saw is not "so for an hour".
        """
        return self.now if self.alive else self.status.written


def read(config_file: Path) -> Picture:
    """Read status.json where the configuration says.

    Raises SourceError if there is none or it may not be read, FieldError if it is broken,
    NewerSchemaError if a newer program wrote it.
    """
    paths = settings.read_paths(config_file)
    status = _read_status(paths.status_file)
    now = _now(paths.boot_id)
    return Picture(status=status, now=now, alive=_is_alive(paths, status, now))


def _read_status(file: Path) -> NodeStatus:
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES)
    except FileNotFoundError as error:
        raise SourceError(
            f"{file} is not there: no daemon has run since the boot.\n"
            "Start it: systemctl start checkpointd\n"
            "If it does not stay up: journalctl -u checkpointd -b"
        ) from error
    except OSError as error:
        hint = ": run this as root" if isinstance(error, PermissionError) else ""
        raise SourceError(f"{file} cannot be read: {error.strerror}{hint}") from error
    try:
        return status_file.parse_status(content)
    except FieldError as error:
        raise FieldError(
            f"{file} cannot be understood: {error}\n"
            "The daemon writes it anew: systemctl restart checkpointd (copies stay as they are)"
        ) from error


def _now(boot_id_file: Path) -> Instant:
    try:
        return Clock(boot_id_file).now()
    except OSError as error:
        raise SourceError(f"{boot_id_file} cannot be read: {error.strerror}") from error


def _is_alive(paths: Paths, status: NodeStatus, now: Instant) -> bool:
    """Tell whether the process that wrote ``status`` lives: its pid may be another's by now.

    A pid that was given anew belongs to a process that started after the file was written.
    """
    if status.boot_id != now.boot_id:
        return False
    started = _process_started(paths.proc / str(status.pid) / "stat")
    return started is not None and started <= status.written.seconds + CLOCK_SLACK


def _process_started(stat: Path) -> float | None:
    """Return field 22 of /proc/PID/stat in seconds since the boot (proc(5)); None: no process.

    The command in field 2 may hold blanks and parentheses. A zombie (field 3) has ended, and one
    that was stopped does nothing until its watchdog ends it.
    """
    try:
        fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZXTt" else int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
