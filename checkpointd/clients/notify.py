"""Tell systemd how the daemon is (sd_notify), and no other process: the variables are taken away.

Datagrams come from the main process itself, as NotifyAccess=main asks. Where nobody listens, every
call does nothing.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import Protocol, cast

SEND_TIMEOUT = 1.0
"""Seconds after which a PID 1 that takes nothing is left alone."""


class _Socket(Protocol):
    def settimeout(self, value: float, /) -> None: ...
    def close(self) -> None: ...


class _SystemdNotifier(Protocol):
    """Describe sdnotify's class, which ships no types."""

    socket: _Socket | None

    def notify(self, state: str, /) -> None: ...


class Notifier:
    """Send states. ``ping_seconds`` is how often ``ping`` is due; None: no watchdog waits."""

    def __init__(self, sender: _SystemdNotifier | None, ping_seconds: float | None) -> None:
        self._sender = sender
        self.ping_seconds = ping_seconds

    def ready(self, status: str) -> None:
        """Say that the start is over."""
        self._send("READY=1", _status(status))

    def status(self, sentence: str) -> None:
        """Say in one sentence what the daemon does now; a PID 1 that takes nothing misses it."""
        self._send(_status(sentence), timeout=0.0)

    def ping(self) -> None:
        """Say that a cycle has ended. Nothing else may say so (style, rule 6)."""
        if self.ping_seconds is not None:
            self._send("WATCHDOG=1", timeout=0.0)

    def reloading(self) -> None:
        """Say that the configuration is read again; ``ready`` ends it (Type=notify-reload)."""
        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={microseconds}")

    def stopping(self, status: str) -> None:
        """Say that the end has begun."""
        self._send("STOPPING=1", _status(status))

    def close(self) -> None:
        """Close the socket."""
        if self._sender is not None and self._sender.socket is not None:
            self._sender.socket.close()
        self._sender = None

    def _send(self, *lines: str, timeout: float = SEND_TIMEOUT) -> None:
        """Send; the cycle must never wait for a PID 1 that reads nothing, but at its two ends."""
        if self._sender is not None:
            if self._sender.socket is not None:
                self._sender.socket.settimeout(timeout)
            # sdnotify writes Latin-1; systemd reads UTF-8.
            self._sender.notify("\n".join(lines).encode().decode("latin-1"))


def take_notifier() -> Notifier:
    """Make the notifier and take its variables out of the environment: no child may inherit them.

    WATCHDOG_USEC counts only where WATCHDOG_PID is absent or ours: sd_watchdog_enabled(3).
    """
    # sdnotify itself looks into the environment, so it goes first.
    sender = _connect() if os.environ.get("NOTIFY_SOCKET") else None
    os.environ.pop("NOTIFY_SOCKET", None)
    microseconds = os.environ.pop("WATCHDOG_USEC", "")
    pid = os.environ.pop("WATCHDOG_PID", "")
    is_ours = pid in ("", str(os.getpid()))
    enabled = microseconds.isdecimal() and int(microseconds) > 0 and is_ours
    return Notifier(sender, int(microseconds) / 2_000_000 if enabled else None)


def _connect() -> _SystemdNotifier:
    sender = cast("_SystemdNotifier", importlib.import_module("sdnotify").SystemdNotifier())
    if sender.socket is not None:
        sender.socket.settimeout(SEND_TIMEOUT)
    return sender


def _status(sentence: str) -> str:
    """Write STATUS=; a line break would begin another variable."""
    printable = "".join(character if character.isprintable() else " " for character in sentence)
    return f"STATUS={printable}"
