"""Be the installed daemon, and write down when a manifest of ours is durably in place.

    python timed_daemon.py LIB CONFIG TIMES

LIB holds the installed package; a line "seconds name" (time.monotonic) per manifest goes to TIMES.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

# In place of this script's directory: the daemon is to be the installed one.
sys.path[0] = sys.argv[1]

from checkpointd import daemon  # noqa: E402 - from where the line above says
from checkpointd.model import naming  # noqa: E402 - from where the line above says
from checkpointd.store.durable import Disk  # noqa: E402 - from where the line above says
from checkpointd.store.walk import Directory  # noqa: E402 - from where the line above says


class TimedDisk(Disk):
    """Note the end of the fsync that follows the rename of a manifest."""

    def __init__(self, times: Path) -> None:
        self._times = os.open(times, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._renamed: Path | None = None

    def rename(self, source: Directory, old: str, target: Directory, new: str) -> None:
        """Rename."""
        super().rename(source, old, target, new)
        self._renamed = target.path / new if new.startswith(naming.FILE_PREFIX) else None

    def fsync_directory(self, directory: Directory) -> None:
        """Wait until the names are on the disk."""
        super().fsync_directory(directory)
        if self._renamed is not None and self._renamed.parent == directory.path:
            os.write(self._times, f"{time.monotonic()} {self._renamed.name}\n".encode())
            self._renamed = None


if __name__ == "__main__":
    sys.exit(daemon.run(Path(sys.argv[2]), TimedDisk(Path(sys.argv[3]))))
