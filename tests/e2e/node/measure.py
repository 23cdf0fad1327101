"""Measure, from the host and without asking the daemon, what happened when.

All times are time.monotonic(), which is the same clock inside of the machines.
"""

from __future__ import annotations

import ctypes
import http.client
import os
import select
import ssl
import struct
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.node.api import Connection
from tests.e2e.node.machine import Machine
from tests.e2e.node.waiting import wait_for

IN_CREATE, IN_DELETE, IN_MOVED_TO, IN_MOVED_FROM, IN_CLOSE_WRITE = 0x100, 0x200, 0x80, 0x40, 0x8
_libc = ctypes.CDLL(None, use_errno=True)


class DeathWatch:
    """The moment at which the last of some processes died."""

    def __init__(self, pids: Iterable[int]) -> None:
        """Watch processes that must be alive now."""
        self._descriptors = [os.pidfd_open(pid) for pid in pids]
        assert self._descriptors, "no process to watch"
        self._died_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="deaths", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for descriptor in self._descriptors:
            select.select([descriptor], [], [])
        self._died_at = time.monotonic()
        for descriptor in self._descriptors:
            os.close(descriptor)

    def wait(self, timeout: float) -> float:
        """Return the moment, once all have died."""
        return wait_for("the processes have died", lambda: self._died_at, timeout)


@dataclass(frozen=True)
class Change:
    """One change of a file's name in a watched directory."""

    at: float
    name: str
    appeared: bool


class DirectoryWatch:
    """What appeared in a directory of a machine and what went, with times."""

    def __init__(self, machine: Machine, inside: str) -> None:
        """Watch the directory `inside` of a running machine until close() or its power cut."""
        self.changes: list[Change] = []
        self._inotify = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        path = os.fsencode(machine.path(inside))
        mask = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM
        if self._inotify < 0 or _libc.inotify_add_watch(self._inotify, path, mask) < 0:
            raise OSError(ctypes.get_errno(), f"inotify on {inside}")
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="directory", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        header = struct.Struct("iIII")
        while True:
            readable, _, _ = select.select([self._inotify, self._stop_read], [], [])
            if self._stop_read in readable:
                return
            at = time.monotonic()
            buffer = os.read(self._inotify, 65536)
            offset = 0
            while offset < len(buffer):
                _, mask, _, length = header.unpack_from(buffer, offset)
                offset += header.size
                name = os.fsdecode(buffer[offset : offset + length].rstrip(b"\0"))
                offset += length
                if mask & (IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM):
                    self.changes.append(
                        Change(at, name, appeared=bool(mask & (IN_CREATE | IN_MOVED_TO)))
                    )

    def wait_for(self, prefix: str, *, appeared: bool, since: float, timeout: float) -> Change:
        """Return the first change since a moment of a name with that prefix."""

        def first() -> Change | None:
            return next(
                (
                    change
                    for change in list(self.changes)
                    if change.name.startswith(prefix)
                    and change.appeared is appeared
                    and change.at >= since
                ),
                None,
            )

        return wait_for(f"{prefix}* {'appears' if appeared else 'goes'}", first, timeout, 0.01)

    def close(self) -> None:
        """Stop watching."""
        os.write(self._stop_write, b"x")
        self._thread.join()
        for descriptor in (self._inotify, self._stop_read, self._stop_write):
            os.close(descriptor)


class Prober:
    """When a service answered and when it did not, asked every 20 ms for as long as it runs."""

    def __init__(
        self,
        machine: Machine,
        address: tuple[str, int],
        path: str,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Ask from inside of a running machine; a status of 200 is an answer."""
        self._connection = Connection(machine.leader, address, context, timeout=1)
        self._path = path
        self.turns: list[tuple[float, bool]] = []  # when the answer turned to yes or to no
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            answered = self._ask()
            if not self.turns or self.turns[-1][1] is not answered:
                self.turns.append((time.monotonic(), answered))
        self._connection.close()

    def _ask(self) -> bool:
        try:
            status, _, _ = self._connection.exchange("GET", self._path)
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return False
        return status == 200

    def wait_for(self, *, answers: bool, since: float, timeout: float) -> float:
        """Return the first moment after `since` at which the service answers (or does not)."""

        def first() -> float | None:
            turns = list(self.turns)
            before = [answered for at, answered in turns if at <= since]
            if before and before[-1] is answers:
                return since
            return next((at for at, now in turns if at > since and now is answers), None)

        return wait_for(f"{self._path} answers: {answers}", first, timeout, 0.01)

    def outages(self, since: float) -> list[float]:
        """Return the length in seconds of each outage that began after `since` and ended."""
        lengths: list[float] = []
        down: float | None = None
        for at, answered in list(self.turns):
            if not answered and at >= since:
                down = at
            elif answered and down is not None:
                lengths.append(at - down)
                down = None
        return lengths

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()
        self._thread.join()


@dataclass(frozen=True)
class Entry:
    """All of a directory's entry, or of the directory itself, that a write or a rename changes."""

    content: bytes
    mode: int
    uid: int
    gid: int
    changed_at: int


def snapshot(directory: Path) -> dict[str, Entry]:
    """Return a flat directory as it is; "." is the directory.

    Its time of change tells of a name that came and went between two snapshots.
    """
    found: dict[str, Entry] = {}
    for path in (directory, *directory.iterdir()):
        status = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found["." if path == directory else path.name] = Entry(
            content, status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns
        )
    return found


def now() -> float:
    """Return the present moment on the clock of all times here."""
    return time.monotonic()


def wall_clock_to_monotonic(seconds: float) -> float:
    """Turn a file's time into one of time.monotonic()."""
    return seconds - time.clock_gettime(time.CLOCK_REALTIME) + time.monotonic()


def processes_of(machine: Machine, uid: str, command: str) -> list[int]:
    """Return the host's process ids of a pod's processes that run `command`."""
    found: list[int] = []
    for path, _, files in os.walk(machine.cgroup("pids")):
        if f"pod{uid}" in path and "cgroup.procs" in files:
            for pid in (Path(path) / "cgroup.procs").read_text().split():
                if Path(f"/proc/{pid}/comm").read_text().strip() == command[:15]:
                    found.append(int(pid))
    return found


def only_process(machine: Machine, uid: str, command: str = "httpd") -> int:
    """Return a pod's process that runs `command` (a web server, unless told), once it runs."""

    def running() -> int | None:
        found = processes_of(machine, uid, command)
        return found[0] if found else None

    return wait_for(f"{command} of pod {uid} runs", running, 60)


@dataclass(frozen=True)
class MountedFile:
    """What a container sees of one file of a volume."""

    content: bytes
    mode: int
    uid: int
    gid: int


def files_seen_by(pid: int, directory: str) -> dict[str, MountedFile]:
    """Return all files below a directory as process `pid` sees it, by path.

    The kubelet's own names (`..data` and what it points to) are only followed.
    """
    found: dict[str, MountedFile] = {}
    top = Path(f"/proc/{pid}/root{directory}")
    for path, directories, files in os.walk(top, followlinks=True):
        directories[:] = [name for name in directories if not name.startswith("..")]
        for name in files:
            if name.startswith(".."):
                continue
            file = Path(path) / name
            status = file.stat()
            found[str(file.relative_to(top))] = MountedFile(
                file.read_bytes(), status.st_mode, status.st_uid, status.st_gid
            )
    return found
