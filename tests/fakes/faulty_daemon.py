"""Be the daemon with a disk that kills the process before or after its n-th system call.

    python -m tests.fakes.faulty_daemon CONFIG [--kill before|after N] [--count FILE]

Without a kill it is the daemon. ``--count`` appends a line per system call, so that the number of
fault points is known.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from checkpointd.daemon import service
from checkpointd.store.durable import Disk

T = TypeVar("T")


class FatalDisk(Disk):
    """End the process around one call; write down all calls."""

    def __init__(self, kill_at: int, *, before: bool, count: Path | None) -> None:
        self._kill_at = kill_at
        self._before = before
        self._calls = 0
        self._log = None if count is None else os.open(
            count, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )  # fmt: skip

    def effect(self, verb: str, path: Path, call: Callable[[], T]) -> T:
        """Make one system call, or die."""
        self._calls += 1
        is_last = self._calls == self._kill_at
        if is_last and self._before:
            os.kill(os.getpid(), signal.SIGKILL)
        made = super().effect(verb, path, call)
        if self._log is not None:
            os.write(self._log, f"{verb} {path}\n".encode())
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return made


def main(arguments: list[str]) -> int:
    """Run the daemon."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--kill", choices=("before", "after"), default="before")
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--count", type=Path)
    options = parser.parse_args(arguments)
    disk = FatalDisk(options.at, before=options.kill == "before", count=options.count)
    return service.run(options.config, disk)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
