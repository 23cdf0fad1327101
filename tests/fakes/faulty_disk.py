"""Disks that fail on purpose: killed at a call, full, or only watched."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from checkpointd.store import layout, walk
from checkpointd.store.durable import Disk

T = TypeVar("T")


def kill_self() -> None:
    """End this process as a power cut would: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyDisk(Disk):
    """End the process before or after the effect number ``at`` (from 1); 0 never does.

    ``counting(verb, path)`` says which effects count. ``calls`` is how many there were.
    """

    def __init__(
        self,
        at: int = 0,
        when: str = "before",
        *,
        die: Callable[[], None] = kill_self,
        counting: Callable[[str, Path], bool] = lambda _verb, _path: True,
    ) -> None:
        if when not in ("before", "after"):
            raise ValueError(f"{when!r} is neither before nor after")
        self.calls = 0
        self.log: list[tuple[str, Path]] = []
        self._at = at
        self._when = when
        self._die = die
        self._counting = counting

    def arm(self, at: int, when: str) -> None:
        """Count from here on, and end the process at this effect."""
        self.calls, self._at, self._when = 0, at, when
        self.log.clear()

    def effect(self, verb: str, path: Path, call: Callable[[], T]) -> T:
        if not self._counting(verb, path):
            return super().effect(verb, path, call)
        self.calls += 1
        self.log.append((verb, path))
        is_it = self.calls == self._at
        if is_it and self._when == "before":
            self._die()
        result = super().effect(verb, path, call)
        if is_it and self._when == "after":
            self._die()
        return result


class FullDisk(Disk):
    """Have ``free`` bytes left (None: no limit): more fails with ENOSPC; the reserve gives back."""

    def __init__(self) -> None:
        self.free: int | None = None

    def write(self, fd: int, path: Path, content: bytes) -> None:
        self._take(path, len(content))
        super().write(fd, path, content)

    def allocate(self, fd: int, path: Path, size: int) -> None:
        self._take(path, size)
        super().allocate(fd, path, size)

    def unlink(self, parent: walk.Directory, name: str) -> None:
        super().unlink(parent, name)
        if name == layout.RESERVE and self.free is not None:
            self.free += 1 << 20

    def _take(self, path: Path, size: int) -> None:
        if self.free is None:
            return
        if size > self.free:
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise walk.explain("write", path, error) from error
        self.free -= size


class ReadOnlyDisk(Disk):
    """Refuse every effect with EROFS."""

    def effect(self, verb: str, path: Path, call: Callable[[], T]) -> T:
        error = OSError(errno.EROFS, os.strerror(errno.EROFS))
        raise walk.explain(verb, path, error) from error


class NoLinkDisk(Disk):
    """Know no hard links, as a disk between two file systems."""

    def link(self, source: walk.Directory, old: str, target: walk.Directory, new: str) -> None:
        error = OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        raise walk.explain("link", target.path / new, error) from error
