"""Start, watch and end the processes of embedded nodes: the client of ``forking``."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, cast

from tests.fakes.machine.forking import Spawn

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 30.0


class Child:
    """Hold one forked process; its exit is told once, by whoever forked it."""

    def __init__(self, pid: int, connection: socket.socket, reader: IO[bytes]) -> None:
        self.pid = pid
        self.exit_code: int | None = None
        self.connection = connection
        self._reader = reader

    def wait(self, seconds: float) -> int:
        """Return the exit code (negative: the signal). Raises TimeoutError."""
        if self.exit_code is None:
            if not self._has_word(seconds):
                raise TimeoutError(f"process {self.pid} still runs after {seconds:g} s")
            self.take_exit()
        assert self.exit_code is not None
        return self.exit_code

    def take_exit(self) -> None:
        """Read the exit; the connection is closed then."""
        line = self._reader.readline()
        self.exit_code = json.loads(line)["exited"] if line else -signal.SIGKILL
        self.close()

    @property
    def is_alive(self) -> bool:
        """Tell whether it has not been told to have ended."""
        if self.exit_code is None and self._has_word(0):
            self.take_exit()
        return self.exit_code is None

    def _has_word(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def send(self, number: int) -> None:
        """Send a signal; nothing where it has ended. Safe beside a thread that waits."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self, seconds: float = 10.0) -> None:
        """End it with SIGKILL and wait."""
        self.send(signal.SIGKILL)
        self.wait(seconds)

    def close(self) -> None:
        """Close the connection over which the exit would be told."""
        self._reader.close()
        self.connection.close()


class Processes:
    """Fork through a server that is started elsewhere (``Forking``)."""

    def __init__(self, path: str) -> None:
        self.path = path

    def spawn(self, spawn: Spawn) -> Child:
        """Start a process."""
        connection = self._request({"op": "spawn", **asdict(spawn)})
        reader = connection.makefile("rb")
        line = reader.readline()
        if not line:
            raise ConnectionError("no process was forked")
        return Child(json.loads(line)["pid"], connection, reader)

    def kill_group(self, group: str) -> None:
        """End every process of a group with SIGKILL; return when all are gone."""
        with self._request({"op": "kill", "group": group}) as connection:
            connection.settimeout(START_SECONDS)
            if not connection.recv(64):
                raise ConnectionError("the group was not killed")

    def _request(self, request: dict[str, object]) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self.path)
        connection.sendall(json.dumps(request).encode() + b"\n")
        return connection


class Forking:
    """Run the server that forks, and everything that it forked, as long as the context lasts."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="checkpointd-forking-")
        path = str(Path(self._directory.name) / "socket")
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.machine.forking", path],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.processes = Processes(path)

    def __enter__(self) -> Processes:
        said = cast("IO[bytes]", self._server.stdout).readline()
        if said != b"serving\n":
            raise RuntimeError(f"the forking server did not start: {self._server.wait()}")
        return self.processes

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        cast("IO[bytes]", self._server.stdin).close()
        self._server.wait(START_SECONDS)
        cast("IO[bytes]", self._server.stdout).close()
        self._directory.cleanup()
