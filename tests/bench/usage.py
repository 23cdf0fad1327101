"""Ask the kernel what a process has used."""

from __future__ import annotations

import time
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, all its threads together, to the nanosecond.

    The clock's number is made as the kernel's include/linux/posix-timers_types.h does
    (make_process_cpuclock with CPUCLOCK_SCHED).
    """
    return time.clock_gettime((~pid << 3) | 2)


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
