"""Learn at once when something in a directory changes: the one module that imports pyinotify.

It only says that a directory is worth a look, never what changed: overflow, names that cannot be
decoded, deletion, move and replacement of the directory all come out as "look". Where inotify is
not to be had (ENOSYS, EMFILE, ENOSPC) nothing is ever said and the caller's full looks remain.
"""

from __future__ import annotations

import fcntl
import importlib
import logging
import math
import os
import select
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Protocol, cast

from checkpointd.errors import SourceError

Wanted = Callable[[str], bool]
"""Tell by the name of an entry whether its change is worth a look."""

# include/uapi/linux/inotify.h
_ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x4, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_ONLYDIR = 0x01000000
_MASK = (
    _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF
    | _MOVE_SELF | _ONLYDIR
)  # fmt: skip
_IGNORED, _OVERFLOW, _UNMOUNT = 0x8000, 0x4000, 0x2000
_LOST = _IGNORED | _UNMOUNT | _DELETE_SELF | _MOVE_SELF


class _Event(Protocol):
    mask: int


class _WatchManager(Protocol):
    """Describe pyinotify's class, which ships no types."""

    def get_fd(self) -> int: ...
    def add_watch(self, path: str, mask: int, *, quiet: bool) -> Mapping[str, int]: ...
    def rm_watch(self, wd: int, *, quiet: bool) -> object: ...


class _Reader(Protocol):
    """Describe pyinotify's Notifier."""

    def read_events(self) -> None: ...
    def process_events(self) -> None: ...
    def stop(self) -> None: ...


class _Library(Protocol):
    """Describe what is used of pyinotify."""

    WatchManagerError: type[Exception]
    PyinotifyError: type[Exception]

    def WatchManager(self) -> _WatchManager: ...  # noqa: N802 - the library's name
    def Notifier(  # noqa: N802 - the library's name
        self, manager: _WatchManager, callback: Callable[[_Event], None], /
    ) -> _Reader: ...


class DirectoryWatch:
    """Watch some directories, and wait for what happens in them.

    ``why_not`` says why inotify is not to be had; "" where it is. ``wake`` may be called by any
    thread.
    """

    def __init__(self) -> None:
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._held: dict[str, tuple[int, tuple[int, int]]] = {}
        self._wanted: Mapping[str, Wanted] = {}
        self._changed: set[str] = set()
        self._closed = False
        self.why_not = ""
        self._inotify: _Inotify | None = None
        self._open()

    def watch(self, directories: Mapping[str, Wanted]) -> None:
        """Watch exactly ``directories``, anew where another inode is at the path now."""
        self.why_not = ""
        if self._inotify is None:
            # Others of our user may have used up the instances (max_user_instances is 128).
            self._open()
        self._wanted = directories
        for path in self._held.keys() - directories.keys():
            self._release(path)
        for path in directories:
            inode = _inode(path)
            held = self._held.get(path)
            if held is not None and held[1] != inode:
                self._release(path)
            if inode is not None and path not in self._held:
                self._hold(path, inode)

    def wait(self, seconds: float) -> frozenset[str]:
        """Wait for a change, a wake, or ``seconds``; return the directories worth a look."""
        for descriptor, _ in self._poll.poll(max(0, math.ceil(seconds * 1000))):
            if descriptor == self._wake:
                self._clear_wake()
            elif self._inotify is not None and not self._inotify.read():
                self._changed.update(self._wanted)
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def wake(self) -> None:
        """End the present wait, or the next one."""
        if not self._closed:
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close the descriptors. The thread that waits must have ended."""
        self._closed = True
        if self._inotify is not None:
            self._inotify.close()
        os.close(self._wake)

    def _open(self) -> None:
        try:
            self._inotify = _Inotify(self._note)
            self._poll.register(self._inotify.descriptor, select.POLLIN)
        except SourceError as error:
            self.why_not = str(error)

    def _hold(self, path: str, inode: tuple[int, int]) -> None:
        if self._inotify is None:
            return
        try:
            self._held[path] = (self._inotify.add(path), inode)
        except SourceError as error:
            self.why_not = str(error)

    def _release(self, path: str) -> None:
        descriptor, _ = self._held.pop(path)
        if self._inotify is not None and all(wd != descriptor for wd, _ in self._held.values()):
            self._inotify.remove(descriptor)

    def _note(self, watch: int, mask: int, name: str) -> None:
        if mask & _OVERFLOW:
            self._changed.update(self._wanted)
        for path, (descriptor, _) in tuple(self._held.items()):
            if descriptor != watch:
                continue
            if mask & _LOST:
                # A moved directory would still be watched where it is now.
                self._release(path)
                self._changed.add(path)
            elif not name or self._wanted[path](name):
                self._changed.add(path)

    def _clear_wake(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            pass


class _Inotify:
    """Hold one inotify instance; pyinotify's exceptions end here."""

    def __init__(self, note: Callable[[int, int, str], None]) -> None:
        self._library = _load()
        self._note = note
        try:
            self._manager = self._library.WatchManager()
        except (OSError, self._library.PyinotifyError) as error:
            raise SourceError(f"inotify: {error}") from error
        self.descriptor = self._manager.get_fd()
        fcntl.fcntl(self.descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        self._reader = self._library.Notifier(self._manager, self._take)

    def add(self, path: str) -> int:
        """Watch a directory and return its number. Raises SourceError."""
        try:
            return self._manager.add_watch(path, _MASK, quiet=False)[path]
        except (OSError, KeyError, self._library.WatchManagerError) as error:
            raise SourceError(f"inotify: {path}: {error}") from error

    def remove(self, watch: int) -> None:
        """Watch it no more; the kernel may have said so first."""
        self._manager.rm_watch(watch, quiet=True)

    def read(self) -> bool:
        """Read what is there; False where it could not be understood: anything may be new."""
        try:
            self._reader.read_events()
            self._reader.process_events()
        except (OSError, ValueError, LookupError, self._library.PyinotifyError):
            # A name that is no UTF-8 makes pyinotify drop the whole batch.
            return False
        return True

    def close(self) -> None:
        """Close the instance."""
        self._reader.stop()

    def _take(self, event: _Event) -> None:
        watch: object = getattr(event, "wd", -1)
        name: object = getattr(event, "name", "")
        if isinstance(watch, int) and isinstance(name, str):
            self._note(watch, event.mask, name)


def _load() -> _Library:
    """Import pyinotify, which wants asyncore for a class that we never use.

    Python 3.12 dropped asyncore; where pyasyncore is not installed, a stub stands in for it.
    """
    try:
        library = importlib.import_module("pyinotify")
    except ModuleNotFoundError as error:
        if error.name != "asyncore":
            raise SourceError(f"inotify: {error}") from error
        library = _load_with_stub()
    quiet = logging.getLogger("pyinotify")
    quiet.handlers.clear()
    quiet.propagate = False
    quiet.setLevel(logging.CRITICAL + 1)
    return cast("_Library", library)


def _load_with_stub() -> ModuleType:
    stub = ModuleType("asyncore")
    stub.__dict__["file_dispatcher"] = type("file_dispatcher", (), {})
    sys.modules["asyncore"] = stub
    try:
        return importlib.import_module("pyinotify")
    finally:
        del sys.modules["asyncore"]


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - a string all the way to the kernel
    except OSError:
        return None
    return status.st_dev, status.st_ino
