"""Measure what this machine takes for the steps that no program can leave out."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from checkpointd.clients import pidfd
from checkpointd.clients.cri.client import CriClient
from tests.bench.crowd import Crowd, Program
from tests.bench.figures import Row
from tests.fakes.machine.forking import Spawn

IMPORTS = "import grpc, google.protobuf.message, psutil, pyinotify, requests"
TELL_RSS = "print(next(l for l in open('/proc/self/status') if l.startswith('VmRSS')).split()[1])"


def measure(node: Crowd, pods: int, rounds: int) -> Iterator[Row]:
    """Yield the floors: disk, process wake-up, runtime, start of Python."""
    yield _row(pods, "a file and its directory on the disk", lambda: _sync(node), rounds)
    yield _row(pods, "a death, until a pidfd wakes us", lambda: _wake(node), rounds)
    client = CriClient(str(node.layout.cri_socket))
    client.read()
    yield _row(pods, "all sandboxes and containers over CRI", client.read, rounds)
    client.close()
    python = node.program.python
    yield _row(pods, "start of Python", lambda: _run(python, "pass"), rounds)
    yield _row(pods, "start of Python, libraries imported", lambda: _run(python, IMPORTS), rounds)
    yield Row(
        pods=pods,
        what="floor: memory of Python with the libraries",
        unit="MiB",
        samples=(_rss(node.program),),
    )


def _row(pods: int, what: str, call: Callable[[], object], rounds: int) -> Row:
    return Row(
        pods=pods,
        what=f"floor: {what}",
        unit="ms",
        samples=tuple(_time(call) for _ in range(rounds)),
    )


def _time(call: Callable[[], object]) -> float:
    began = time.monotonic()
    told = call()
    # A call may say itself when it began.
    return (time.monotonic() - (told if isinstance(told, float) else began)) * 1000


def _sync(node: Crowd) -> None:
    directory = node.layout.root
    fresh = directory / ".fresh"
    with fresh.open("wb") as stream:
        stream.write(b"x" * 4096)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.rename(directory / "synced")
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


def _wake(node: Crowd) -> float:
    """Kill a process that is watched as the daemon watches; return when it was killed."""
    child = node.processes.spawn(
        Spawn(
            group=node.group,
            name="victim",
            log=os.devnull,
            execute=("/bin/sleep", "60"),
        )
    )
    deaths = pidfd.Deaths()
    deaths.watch(frozenset({child.pid}))
    began = time.monotonic()
    os.kill(child.pid, signal.SIGKILL)
    while child.pid not in deaths.wait(5.0):
        pass
    deaths.close()
    child.close()
    return began


def _run(python: str, code: str) -> None:
    subprocess.run([python, "-c", code], check=True, stdout=subprocess.DEVNULL, cwd=Path.home())


def _rss(program: Program) -> float:
    told = subprocess.run(
        [program.python, "-c", f"{IMPORTS}\n{TELL_RSS}"], check=True, capture_output=True, text=True
    )
    return int(told.stdout) / 1024
