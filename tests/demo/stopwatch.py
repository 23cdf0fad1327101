"""Measure from outside: when a process dies, a manifest appears, the API answers and does not."""

from __future__ import annotations

import http.client
import os
import select
import ssl
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LOOK_SECONDS = 0.001
PROBE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Outage:
    """Hold one time without an answer, seconds of time.monotonic."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """Return how long it was."""
        return self.ended - self.began


class Prober:
    """Ask the API server for /readyz all the time and keep the outages."""

    def __init__(self, port: int, ca: Path) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(ca))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._probe, daemon=True)
        self._down: float | None = None
        self.outages: list[Outage] = []

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def is_answering(self) -> bool:
        """Tell whether the last probe was answered."""
        return self._down is None

    def take(self) -> list[Outage]:
        """Return the outages since the last call."""
        taken, self.outages = self.outages, []
        return taken

    def _probe(self) -> None:
        while not self._stopping.wait(PROBE_SECONDS):
            began = time.monotonic()
            if self._answers():
                if self._down is not None:
                    self.outages.append(Outage(self._down, time.monotonic()))
                    self._down = None
            elif self._down is None:
                self._down = began

    def _answers(self) -> bool:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=1, context=self._context
        )
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class Moment:
    """Hold when something happened, once it has."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._happened = threading.Event()

    def set(self) -> None:
        """Say that it happens now."""
        self._at = time.monotonic()
        self._happened.set()

    def wait(self, what: str, seconds: float) -> float:
        """Return when it happened. Raises TimeoutError."""
        if not self._happened.wait(seconds) or self._at is None:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        return self._at


@contextmanager
def watch_death(pid: int) -> Generator[Moment, None, None]:
    """Note when a process ends."""
    moment = Moment()
    descriptor = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    stopping = threading.Event()

    def follow() -> None:
        while not stopping.is_set():
            if poll.poll(100):
                moment.set()
                return

    with _running(follow, stopping):
        yield moment
    os.close(descriptor)


@contextmanager
def watch_manifest(directory: Path, pattern: str) -> Generator[Moment, None, None]:
    """Note when a file of that pattern is in place."""
    moment, stopping = Moment(), threading.Event()

    def follow() -> None:
        while not stopping.wait(LOOK_SECONDS):
            if any(directory.glob(pattern)):
                moment.set()
                return

    with _running(follow, stopping):
        yield moment


@contextmanager
def _running(target: Callable[[], None], stopping: threading.Event) -> Generator[None, None, None]:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
