"""Be the daemon with a disk that kills the process before or after its n-th system call.

    python -m tests.fakes.faulty_daemon CONFIG [--kill before|after --at N] [--count FILE]
    python faulty_daemon.py CONFIG --orders FILE [--count FILE]

Without a kill it is the daemon. ``--orders`` takes its fault ("before 17") from the first line of a
file, off which it goes: a unit that starts it again and again dies once per line, then lives.
``--count`` appends a line per system call, so that the number of fault points is known, and one for
the end. It needs nothing of the tests: it can be copied to a node.
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
            self._die(f"before {self._calls}: {verb} {path}")
        made = super().effect(verb, path, call)
        self._note(f"{verb} {path}")
        if is_last:
            self._die(f"after {self._calls}: {verb} {path}")
        return made

    def _die(self, where: str) -> None:
        self._note(f"killed {where}")
        os.kill(os.getpid(), signal.SIGKILL)

    def _note(self, line: str) -> None:
        if self._log is not None:
            os.write(self._log, f"{line}\n".encode(errors="replace"))


def take_order(orders: Path) -> tuple[str, int]:
    """Take the first line off the file of orders; ("before", 0), which is no fault, if none."""
    lines = orders.read_text().splitlines() if orders.exists() else []
    if not lines:
        return "before", 0
    orders.write_text("".join(f"{line}\n" for line in lines[1:]))
    moment, at = lines[0].split()
    return moment, int(at)


def main(arguments: list[str]) -> int:
    """Run the daemon."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--kill", choices=("before", "after"), default="before")
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--orders", type=Path)
    parser.add_argument("--count", type=Path)
    options = parser.parse_args(arguments)
    moment, at = (
        (options.kill, options.at) if options.orders is None else take_order(options.orders)
    )
    disk = FatalDisk(at, before=moment == "before", count=options.count)
    return service.run(options.config, disk)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
