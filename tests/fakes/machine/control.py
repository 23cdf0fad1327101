"""Speak between the processes of an embedded node: one line of JSON each way per connection."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

Fields = dict[str, Any]
ANSWER_SECONDS = 30.0


def ask(path: str, operation: str, **fields: object) -> Fields:
    """Ask once. Raises OSError where nobody answers, RuntimeError with the other side's error."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(path)
        connection.sendall(json.dumps({"op": operation, **fields}).encode() + b"\n")
        with connection.makefile("rb") as reader:
            line = reader.readline()
    if not line:
        raise ConnectionResetError(f"{path}: no answer to {operation}")
    answer = cast("Fields", json.loads(line))
    if "error" in answer:
        raise RuntimeError(f"{operation}: {answer['error']}")
    return answer


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        line = self.rfile.readline()
        if not line:
            return
        request = cast("Fields", json.loads(line))
        operations = cast("ControlServer", self.server).operations
        try:
            answer = operations[request.pop("op")](**request)
        except Exception as error:  # noqa: BLE001 - told to who asked, in whose log it belongs
            answer = {"error": f"{type(error).__name__}: {error}"}
        self.wfile.write(json.dumps(answer or {}).encode() + b"\n")

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:
            return


class ControlServer(socketserver.ThreadingUnixStreamServer):
    """Answer each connection in a thread of its own, by the table of operations."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: str, operations: Mapping[str, Callable[..., Fields | None]]) -> None:
        self.operations = operations
        Path(path).unlink(missing_ok=True)
        super().__init__(path, _Handler)

    def start(self) -> None:
        """Serve in the background."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: who asked may have been killed."""
