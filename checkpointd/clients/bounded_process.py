"""Run one program that others wrote: for a bounded time, with bounded output, and leave no child.

No thread and no shell. The program gets a session of its own, so that what it starts can be found
and killed with it. subprocess is imported when first a program runs.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from checkpointd.errors import SourceError

if TYPE_CHECKING:
    from subprocess import Popen

ERRORS_KEPT = 4096
"""Bytes of standard error that are kept; the rest is read and thrown away."""
LOOK_EVERY = 0.05
"""Seconds between looks for the end where the kernel has no pidfds (before 5.3)."""
_CHUNK = 65536
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Ended:
    """Hold how a program ended. ``code`` is negative for the signal that killed it."""

    code: int
    output: bytes
    errors: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Hold what a program may take. ``stop`` is a descriptor: readable, it ends the program."""

    seconds: float
    output: int
    stop: int | None = None


def run(command: Sequence[str], environment: Mapping[str, str], bounds: Bounds) -> Ended:
    """Run ``command`` with nothing to read and return its end.

    Raises OSError where it cannot be started, and SourceError where it took too long, wrote too
    much, or was to stop: then it was killed. Its children are killed in each case.
    """
    import subprocess

    process = subprocess.Popen(  # noqa: S603 - no shell; what is run is root's to say
        command,
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        with process, ExitStack() as stack:
            stack.callback(_kill_all, process.pid)
            output, errors = _follow(process, bounds, stack)
            # Before it is reaped: until then its process group is its own.
            stack.close()
            return Ended(process.wait(), output, errors)
    except _BoundsError as error:
        raise SourceError(str(error)) from None


class _BoundsError(Exception):
    """End a program that goes beyond its bounds."""


def _follow(process: Popen[bytes], bounds: Bounds, stack: ExitStack) -> tuple[bytes, bytes]:
    """Read until the program ends. What its children hold open is not waited for."""
    end = time.monotonic() + bounds.seconds
    selector = stack.enter_context(selectors.DefaultSelector())
    assert process.stdout is not None
    assert process.stderr is not None
    streams = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    output, errors = streams.values()
    for descriptor in streams:
        os.set_blocking(descriptor, False)
        selector.register(descriptor, selectors.EVENT_READ)
    pidfd = _watch_end(process.pid, selector, stack)
    if bounds.stop is not None:
        selector.register(bounds.stop, selectors.EVENT_READ)
    while not _has_ended(process.pid):
        left = end - time.monotonic()
        if left <= 0:
            raise _BoundsError(f"killed: not done in {bounds.seconds:g} s")
        ready = [key.fd for key, _ in selector.select(left if pidfd else min(left, LOOK_EVERY))]
        if bounds.stop in ready:
            raise _BoundsError("killed: checkpointd stops")
        for descriptor in streams.keys() & set(ready):
            if not _drain(descriptor, streams[descriptor], bounds.output):
                selector.unregister(descriptor)
        _bound(output, errors, bounds)
    for descriptor, content in streams.items():
        _drain(descriptor, content, bounds.output)
    _bound(output, errors, bounds)
    return bytes(output), bytes(errors)


def _bound(output: bytearray, errors: bytearray, bounds: Bounds) -> None:
    del errors[ERRORS_KEPT:]
    if len(output) > bounds.output:
        raise _BoundsError(f"killed: it wrote more than {bounds.output} bytes")


def _drain(descriptor: int, content: bytearray, most: int) -> bool:
    """Read what is there, but little more than ``most`` bytes; False at the end of the stream."""
    while len(content) <= most:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        content += chunk
    return True


def _watch_end(pid: int, selector: selectors.BaseSelector, stack: ExitStack) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    stack.callback(os.close, descriptor)
    selector.register(descriptor, selectors.EVENT_READ)
    return True


def _has_ended(pid: int) -> bool:
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, pid, options) is not None


def _kill_all(pid: int) -> None:
    """Kill a program, its process group, and what else it started and has not let go of."""
    for _round in range(_ROUNDS):
        # Found before any is killed: the children of the dead are init's, and nobody's to find.
        children = _find_children(pid)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        for child in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        if not children:
            return


def _find_children(pid: int) -> frozenset[int]:
    """Return who lives of its session and of its descendants (proc_pid_stat(5))."""
    living = list(_read_processes())
    found: set[int] = {one for one, _, session in living if session == pid}
    while more := {one for one, parent, _ in living if parent in found | {pid}} - found:
        found |= more
    return frozenset(found - {pid})


def _read_processes() -> list[tuple[int, int, int]]:
    """Return (pid, parent, session) of all that live; zombies do not."""
    found: list[tuple[int, int, int]] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError, ValueError):
            # The name stands in brackets and may hold anything, brackets too.
            fields = (entry / "stat").read_text("latin-1").rpartition(")")[2].split()
            if fields[0] not in "ZX":
                found.append((int(entry.name), int(fields[1]), int(fields[3])))
    return found
