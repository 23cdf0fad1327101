"""Fork the processes of embedded nodes from one that has imported everything; be their kernel.

A fork takes milliseconds where a start takes half a second. Like a kernel it keeps the nodes'
cgroup trees and proc directories: a process stands there before its first instruction, and is
gone from there once it has ended. When its standard input ends, so does everything that it forked.

    python -m tests.fakes.machine.forking SOCKET

Requests are lines of JSON on SOCKET, one per connection: ``spawn`` is answered with the PID and,
later, with the exit; ``kill`` of a group once all of it has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

PRELOADED = (
    "tests.fakes.machine.containerd",
    "tests.fakes.machine.controllers",
    "tests.fakes.machine.kubelet",
    "tests.fakes.machine.programs",
    "tests.fakes.faulty_daemon",
    # What the daemon imports when it first needs it.
    "google.protobuf.message_factory",
    "google.protobuf.text_format",
    "grpc.experimental",
    "pyinotify",
)
_SET_NAME = 15
"""PR_SET_NAME of include/uapi/linux/prctl.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """Say what to run, and where it shall be seen.

    ``module``'s ``main(arguments)`` is called, or ``execute`` is executed instead. ``name`` and
    ``command`` are what the proc directory ``proc`` says of it ("": it is not seen), ``cgroup`` its
    directory in the tree ("": none), ``membership`` the content of its /proc/PID/cgroup.
    """

    group: str
    name: str
    log: str
    module: str = ""
    arguments: tuple[str, ...] = ()
    execute: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    directory: str = ""
    proc: str = ""
    cgroup: str = ""
    membership: str = "0::/system.slice\n"


@dataclass(slots=True)
class _Child:
    spawn: Spawn
    connection: socket.socket


@dataclass(slots=True)
class _Killing:
    connection: socket.socket
    pids: set[int]


class Kernel:
    """Fork, reap and keep the books, in one thread."""

    def __init__(self, path: str) -> None:
        self._children: dict[int, _Child] = {}
        self._killings: list[_Killing] = []
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(64)
        self._wake, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._writing = writing

    def run(self) -> None:
        """Serve until standard input ends, then end everything."""
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake, selectors.EVENT_READ, self._reap)
        self._selector.register(0, selectors.EVENT_READ, None)
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._end()
                    return
                cast("Callable[[], None]", key.data)()

    def _end(self) -> None:
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while self._children:
            pid, status = os.waitpid(-1, 0)
            self._note_death(pid, status)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        with connection.makefile("rb") as reader:
            line = reader.readline()
        if not line:
            connection.close()
            return
        request = cast("dict[str, object]", json.loads(line))
        if request.pop("op") == "kill":
            self._kill(connection, str(request["group"]))
        else:
            self._spawn(connection, Spawn(**request))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - made by the client below

    def _kill(self, connection: socket.socket, group: str) -> None:
        pids = {pid for pid, child in self._children.items() if child.spawn.group == group}
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self._killings.append(_Killing(connection, pids))
        self._answer_killings()

    def _spawn(self, connection: socket.socket, spawn: Spawn) -> None:
        if spawn.execute and not spawn.directory:
            # No copy of this process is made: a tenth of a fork's time.
            pid = _execute(spawn)
            place(spawn, pid)
            self._children[pid] = _Child(spawn, connection)
            _send(connection, {"pid": pid})
            return
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(writing)
            self._become(spawn, reading)
        os.close(reading)
        place(spawn, pid)
        self._children[pid] = _Child(spawn, connection)
        os.close(writing)
        _send(connection, {"pid": pid})

    def _become(self, spawn: Spawn, reading: int) -> None:
        """Be the child: never return."""
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.read(reading, 1)
            self._forget(reading)
            code = run(spawn)
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 1
        except BaseException:  # noqa: BLE001 - a fork must never come back into the server's loop
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _forget(self, reading: int) -> None:
        self._selector.close()
        self._listener.close()
        for child in self._children.values():
            child.connection.close()
        for killing in self._killings:
            killing.connection.close()
        for descriptor in (reading, self._wake, self._writing):
            os.close(descriptor)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            self._note_death(pid, status)
        self._answer_killings()

    def _note_death(self, pid: int, status: int) -> None:
        child = self._children.pop(pid)
        remove(child.spawn, pid)
        _send(child.connection, {"exited": os.waitstatus_to_exitcode(status)})
        child.connection.close()
        for killing in self._killings:
            killing.pids.discard(pid)

    def _answer_killings(self) -> None:
        for killing in [one for one in self._killings if not one.pids]:
            _send(killing.connection, {"killed": True})
            killing.connection.close()
            self._killings.remove(killing)


def run(spawn: Spawn) -> int:
    """Run what is to be run in this process, with its log as its output."""
    log = os.open(spawn.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ.update(spawn.environ)
    if spawn.directory:
        os.chdir(spawn.directory)
    if spawn.execute:
        os.execve(spawn.execute[0], list(spawn.execute), dict(os.environ))
    ctypes.CDLL(None).prctl(_SET_NAME, spawn.name.encode(), 0, 0, 0)
    sys.argv = [spawn.module, *spawn.arguments]
    main = cast("Callable[[list[str]], int]", importlib.import_module(spawn.module).main)
    return main(list(spawn.arguments))


def _execute(spawn: Spawn) -> int:
    """Execute a program and return its PID."""
    log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, spawn.log, log, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    environ = {**os.environ, **spawn.environ}
    return os.posix_spawn(
        spawn.execute[0], spawn.execute, environ, file_actions=actions, setsid=True
    )


# ---- the books ----------------------------------------------------------------------------------
def place(spawn: Spawn, pid: int) -> None:
    """Let a process be seen in proc directory and cgroup tree."""
    if spawn.cgroup:
        Path(spawn.cgroup).mkdir(parents=True, exist_ok=True)
        _write_procs(spawn.cgroup, f"{pid}\n")
    if not spawn.proc:
        return
    real, directory = Path(f"/proc/{pid}"), Path(spawn.proc) / str(pid)
    made = Path(spawn.proc) / f".{pid}"
    shutil.rmtree(made, ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
    made.mkdir()
    for name in ("stat", "status", "statm", "fd", "maps", "smaps", "io", "exe", "task"):
        (made / name).symlink_to(real / name)
    (made / "root").symlink_to("/")
    (made / "cwd").symlink_to(spawn.directory or os.getcwd())  # noqa: PTH109 - a link's text
    (made / "comm").write_text(f"{spawn.name[:15]}\n")
    (made / "cmdline").write_text("".join(f"{word}\0" for word in spawn.command or (spawn.name,)))
    (made / "cgroup").write_text(spawn.membership)
    made.rename(directory)


def remove(spawn: Spawn, pid: int) -> None:
    """Let a process be seen no more; its cgroup stays, empty, for the runtime to remove."""
    if spawn.cgroup and Path(spawn.cgroup).is_dir():
        _write_procs(spawn.cgroup, "")
    if spawn.proc:
        shutil.rmtree(Path(spawn.proc) / str(pid), ignore_errors=True)


def _write_procs(directory: str, content: str) -> None:
    fresh = Path(directory) / ".procs"
    # Whoever removes the cgroup at the same time has the last word.
    with contextlib.suppress(FileNotFoundError):
        fresh.write_text(content)
        fresh.rename(Path(directory) / "cgroup.procs")


def _send(connection: socket.socket, message: Mapping[str, object]) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def main(arguments: list[str]) -> int:
    """Import, say so, serve."""
    # Forks of a process with gRPC loaded: no channel exists yet, so nothing need be done at a fork.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    kernel = Kernel(arguments[0])
    print("serving", flush=True)
    kernel.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
