"""Be what runs in the containers of an embedded node: ``image``'s command names one of these.

There are no mounts without root: MOUNTS in the environment maps the paths that the pod knows to
those of the host, and each program looks its own paths up there. A program is what a real one of
its kind would be to its node: it listens, obeys or ignores SIGTERM, reads its files, exits.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from tests.fakes import api_server


def main(arguments: list[str]) -> int:
    """Run the program that the first argument names."""
    return PROGRAMS[arguments[0]](arguments[1:])


def host_path(path: str) -> Path:
    """Return where the host has a path of the pod."""
    mounts = cast("Mapping[str, str]", json.loads(os.environ.get("MOUNTS", "{}")))
    for mount in sorted(mounts, key=len, reverse=True):
        if path == mount or path.startswith(f"{mount}/"):
            return Path(mounts[mount] + path[len(mount) :])
    return Path(path)


def web(arguments: list[str]) -> int:
    """Serve the files of a directory; SIGTERM ends it at once unless it is ignored."""
    # Before there are threads: it waits for whoever asks for it, whichever thread it comes to.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--directory", default="/")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--reuse-port", action="store_true")
    options = parser.parse_args(arguments)
    directory = host_path(options.directory)

    class Files(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given: object) -> None:
            super().__init__(*given, directory=str(directory))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - socketserver's three

    server = _start_to_serve(options.port, Files, reuse=options.reuse_port)
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(f"serving on {options.port}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _wait_for_term(ignored=options.ignore_term)
    return 0


def run_api_server(arguments: list[str]) -> int:
    """Serve the API with the certificates of a mounted secret and the state of a "disk"."""
    found = [_look_up(word) if word.startswith("--pki=") else word for word in arguments]
    return api_server.main(found)


def _look_up(word: str) -> str:
    flag, _, path = word.partition("=")
    return f"{flag}={host_path(path)}"


def fail(arguments: list[str]) -> int:
    """Exit with 1 after some seconds."""
    threading.Event().wait(float(arguments[0]) if arguments else 0)
    return 1


def finish(arguments: list[str]) -> int:
    """Exit with 0 after some seconds, as an init container does."""
    threading.Event().wait(float(arguments[0]) if arguments else 0)
    return 0


PROGRAMS: Mapping[str, Callable[[list[str]], int]] = {
    "web": web,
    "kube-apiserver": run_api_server,
    "fail": fail,
    "finish": finish,
}


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


def _start_to_serve(
    port: int, handler: type[http.server.SimpleHTTPRequestHandler], *, reuse: bool
) -> _Server:
    """Listen; with ``reuse`` several may, as if each pod had a network of its own."""
    server = _Server(("127.0.0.1", port), handler, bind_and_activate=False)
    if reuse:
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        server.server_bind()
        server.server_activate()
    except OSError as error:
        print(f"{port}: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from error
    return server


def _wait_for_term(*, ignored: bool = False) -> None:
    if ignored:
        while True:
            time.sleep(3600)
    with contextlib.suppress(KeyboardInterrupt):
        signal.sigwait({signal.SIGTERM})
