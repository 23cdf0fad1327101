"""Start the daemon as systemd would, and hear what it notifies."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fakes.machine.forking import Spawn
from tests.fakes.machine.processes import Processes
from tests.fakes.notify_socket import NotifySocket
from tests.fakes.waiting import NotYetError, wait_for

LISTEN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Heard:
    """Hold one notification and when it came (time.monotonic)."""

    at: float
    variables: dict[str, str]


class Daemon:
    """Hold one run of the daemon; ``heard`` are its notifications so far.

    A thread takes them: a socket that nobody reads takes ten datagrams, and then the sender waits.
    """

    def __init__(self, processes: Processes, spawn: Spawn, notify: Path) -> None:
        notify.unlink(missing_ok=True)
        self._socket = NotifySocket(str(notify))
        self.heard: list[Heard] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="notifications", daemon=True)
        self._thread.start()
        variables = {"NOTIFY_SOCKET": str(notify), **spawn.environ}
        self.started = time.monotonic()
        self.child = processes.spawn(replace(spawn, environ=variables))

    @property
    def pid(self) -> int:
        """Return its PID."""
        return self.child.pid

    @property
    def is_alive(self) -> bool:
        """Tell whether it runs."""
        return self.child.is_alive

    def said(self, variable: str) -> list[str]:
        """Return the values of one variable, in order."""
        return [h.variables[variable] for h in list(self.heard) if variable in h.variables]

    def wait_until_ready(self, seconds: float = 20.0) -> None:
        """Wait for READY=1. Raises TimeoutError."""

        def is_ready() -> bool:
            if self.said("READY"):
                return True
            if not self.is_alive:
                raise RuntimeError(f"the daemon exited {self.child.exit_code} before READY")
            raise NotYetError("no READY=1")

        wait_for("the daemon is ready", is_ready, seconds, every=0.005)

    def stop(self, seconds: float = 10.0) -> int:
        """End it with SIGTERM and return its exit code."""
        self.child.send(signal.SIGTERM)
        return self.child.wait(seconds)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.child.kill()

    def reload(self) -> None:
        """Send SIGHUP."""
        self.child.send(signal.SIGHUP)

    def close(self) -> None:
        """Stop hearing."""
        self._closed.set()
        self._thread.join()
        self._socket.__exit__(None, None, None)
        self.child.close()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                notice = self._socket.receive(LISTEN_SECONDS)
            except TimeoutError:
                continue
            self.heard.append(Heard(time.monotonic(), notice.variables))
