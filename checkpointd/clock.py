"""Read the clock: the only module that does. Everything else takes ``now`` as a parameter."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from pathlib import Path

from checkpointd.model.moments import Instant


class Clock:
    """Tell instants of this boot.

    ``boot_id_file`` is /proc/sys/kernel/random/boot_id (proc(5)) but in tests. It is read once: a
    process lives within one boot. CLOCK_BOOTTIME runs on in suspend and knows no jumps.
    """

    def __init__(self, boot_id_file: Path = Path("/proc/sys/kernel/random/boot_id")) -> None:
        self.boot_id = boot_id_file.read_text(encoding="ascii").strip()

    def now(self) -> Instant:
        """Return the present instant, its wall time in UTC with milliseconds."""
        wall = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        return Instant(
            boot_id=self.boot_id,
            seconds=time.clock_gettime(time.CLOCK_BOOTTIME),
            wall=wall.replace("+00:00", "Z"),
        )

    @staticmethod
    def wall() -> datetime:
        """Return the wall time, for certificates, tokens and operators' ``until``."""
        return datetime.now(timezone.utc)
