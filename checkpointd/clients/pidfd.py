"""Learn at once when one of many processes dies, through pidfds in one epoll.

Where the kernel has no pidfds (before 5.3) or descriptors run out, nothing is held and the caller
polls: this speeds up, it never decides.
"""

from __future__ import annotations

import errno
import os
import select


class Deaths:
    """Hold pidfds of the watched processes. ``wake`` may be called by any thread."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._by_pid: dict[int, int] = {}
        self._by_descriptor: dict[int, int] = {}
        self._closed = False
        self.is_complete = True

    def watch(self, pids: frozenset[int]) -> frozenset[int]:
        """Watch exactly ``pids``; return those that are dead already.

        ``is_complete`` is False afterwards where some could not be watched.
        """
        for pid in self._by_pid.keys() - pids:
            self._drop(pid)
        self.is_complete = True
        return frozenset(pid for pid in pids - self._by_pid.keys() if not self._open(pid))

    def wait(self, seconds: float) -> frozenset[int]:
        """Wait for deaths, a wake, or ``seconds``; return who died. Each is told once."""
        dead: set[int] = set()
        for descriptor, _ in self._epoll.poll(seconds):
            if descriptor == self._wake:
                self._clear_wake()
            elif descriptor in self._by_descriptor:
                pid = self._by_descriptor[descriptor]
                dead.add(pid)
                self._drop(pid)
        return frozenset(dead)

    def wake(self) -> None:
        """End the present wait, or the next one."""
        if not self._closed:
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close all descriptors. The thread that waits must have ended."""
        self._closed = True
        for pid in tuple(self._by_pid):
            self._drop(pid)
        os.close(self._wake)
        self._epoll.close()

    def _open(self, pid: int) -> bool:
        """Watch ``pid``; False where it is dead. A zombie has a pidfd, which is readable."""
        try:
            descriptor = os.pidfd_open(pid)
        except OSError as error:
            self.is_complete = self.is_complete and error.errno == errno.ESRCH
            return error.errno != errno.ESRCH
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if poll.poll(0):
            os.close(descriptor)
            return False
        self._epoll.register(descriptor, select.EPOLLIN)
        self._by_pid[pid] = descriptor
        self._by_descriptor[descriptor] = pid
        return True

    def _drop(self, pid: int) -> None:
        descriptor = self._by_pid.pop(pid)
        del self._by_descriptor[descriptor]
        self._epoll.unregister(descriptor)
        os.close(descriptor)

    def _clear_wake(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            pass
