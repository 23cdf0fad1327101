"""Write status.json for people: when the picture changed, at most once a second."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from checkpointd import __version__
from checkpointd.clock import Clock
from checkpointd.errors import StoreError
from checkpointd.model.moments import Instant
from checkpointd.model.status import NodeStatus
from checkpointd.store import status as status_file

EVERY = 1.0
MODE = 0o600


class Display:
    """Write the picture to ``<run>/status.json`` and remember the last one.

    It is no part of the store: /run forgets it at a reboot, so it is renamed into place but not
    synced to disk.
    """

    def __init__(self, run: Path, clock: Clock, runtime_socket: Callable[[], str]) -> None:
        self._file = run / "status.json"
        self._clock = clock
        self._runtime_socket = runtime_socket
        self._shown: NodeStatus | None = None
        self._shown_at: Instant | None = None
        self.pending = False

    def show(self, draw: Callable[[], NodeStatus]) -> None:
        """Draw and write, unless it is too soon. Raises StoreError."""
        now = self._clock.now()
        if self._shown_at is not None and now.seconds_since(self._shown_at) < EVERY:
            self.pending = True
            return
        self.pending = False
        self._shown_at = now
        picture = self._sign(draw())
        if picture != self._shown:
            self._write(status_file.write_status(picture))
            self._shown = picture

    def _sign(self, status: NodeStatus) -> NodeStatus:
        return replace(
            status,
            version=__version__,
            pid=os.getpid(),
            runtime=replace(status.runtime, socket=self._runtime_socket()),
        )

    def _write(self, content: bytes) -> None:
        temporary = self._file.with_name(f".{self._file.name}.new")
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(
                temporary,
                os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC,
                MODE,
            )
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            temporary.replace(self._file)
        except OSError as error:
            raise StoreError(f"{self._file}: {error.strerror}") from error
