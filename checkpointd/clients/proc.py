"""Read /proc: which processes exist, what they are, and which pod owns a listening port.

Nothing here remembers or decides. What a process says of itself (name, arguments) is hostile: only
processes of this PID namespace, of root (or of our own user) and outside pod cgroups count as the
kubelet. psutil lists processes and reads their arguments; the two reads that are made all the time
(``stat`` and ``comm``) are made directly, at a tenth of the cost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from checkpointd.errors import SourceError
from checkpointd.model.moments import Instant

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_POD_CGROUP = re.compile(
    r"/(?:kubepods|burstable|besteffort)/pod([0-9A-Za-z-]+)(?:/|$)"
    r"|kubepods(?:-burstable|-besteffort)?-pod([0-9A-Za-z_]+)\.slice(?:/|$)"
)
_RUNTIMES = frozenset({"containerd", "crio", "dockerd", "cri-dockerd"})
_SHIM = "containerd-shim"
"""Its comm is cut to this by the kernel (TASK_COMM_LEN is 16)."""
_LISTEN = "0A"
"""TCP_LISTEN in include/net/tcp_states.h, as /proc/net/tcp writes it."""


@dataclass(frozen=True, slots=True)
class Process:
    """Name one process for good: a PID may be used again, not with the same start."""

    pid: int
    start_ticks: int

    def started(self, boot_id: str) -> Instant:
        """Return its start: field 22 of /proc/PID/stat counts like CLOCK_BOOTTIME."""
        return Instant(boot_id=boot_id, seconds=self.start_ticks / TICKS_PER_SECOND)


@dataclass(frozen=True, slots=True)
class Holder:
    """Name a process that has a socket open, as which descriptor; ``pod`` is None for the host."""

    pid: int
    descriptor: str
    socket: str
    pod: str | None


class Procfs:
    """Read one procfs. Making it tells psutil where that is, for the whole program."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        psutil.PROCFS_PATH = self.root

    def read_process(self, pid: int) -> Process | None:
        """Return the process ``pid``, None where it is gone or a zombie."""
        stat = _read(f"{self.root}/{pid}/stat")
        if stat is None:
            return None
        # The name stands in parentheses and may itself hold any character: proc_pid_stat(5).
        fields = stat[stat.rfind(")") + 2 :].split()
        if len(fields) < 20 or fields[0] in "ZXx":
            return None
        return Process(pid, int(fields[19]))

    def read_name(self, pid: int) -> str:
        """Return the comm of ``pid`` (15 characters at most), "" where it is gone."""
        return (_read(f"{self.root}/{pid}/comm") or "").rstrip("\n")

    def read_pod(self, pid: int) -> str | None:
        """Return the UID of the pod in whose cgroup ``pid`` is, None where it is in none."""
        return parse_pod(_read(f"{self.root}/{pid}/cgroup") or "")

    def list_pids(self) -> tuple[int, ...]:
        """Return all PIDs. Raises SourceError."""
        try:
            return tuple(psutil.pids())
        except OSError as error:
            raise SourceError(f"{self.root}: {error.strerror}") from error
        except IndexError:
            # psutil wants to know the lowest PID, even of none.
            return ()

    def read_arguments(self, pid: int) -> tuple[str, ...]:
        """Return the command line of ``pid``.

        Raises SourceError where it is gone, a zombie, or hides it: no arguments are not the same.
        """
        try:
            arguments = tuple(psutil.Process(pid).cmdline())
        except (psutil.Error, OSError, RuntimeError) as error:
            raise SourceError(f"process {pid}: {type(error).__name__}") from error
        if not arguments:
            raise SourceError(f"process {pid}: no command line")
        return arguments

    def find_kubelet(self) -> Process | None:
        """Return the kubelet's process: of several the oldest. Raises SourceError."""
        found = [
            process
            for pid in self.list_pids()
            if self._is_called_kubelet(pid) and self._is_of_the_host(pid)
            if (process := self.read_process(pid)) is not None
        ]
        return min(found, key=lambda process: process.start_ticks, default=None)

    def find_runtime(self) -> Process | None:
        """Return a process that can start containers, or a shim of one. Raises SourceError."""
        for pid in self.list_pids():
            name = self.read_name(pid)
            if (name in _RUNTIMES or name == _SHIM) and self._is_of_the_host(pid):
                process = self.read_process(pid)
                if process is not None:
                    return process
        return None

    def is_systemd(self) -> bool:
        """Tell whether PID 1 is systemd."""
        return self.read_name(1) == "systemd"

    def find_listeners(self, port: int) -> frozenset[str] | None:
        """Return the UIDs of the pods that own a socket which listens on TCP ``port``.

        None where that cannot be known: no table of sockets, or processes of pods whose descriptors
        may not be read (CAP_SYS_PTRACE is missing). Sockets of the host's processes are no pod's.
        """
        sockets = self.list_listening(port)
        holders = None if sockets is None else self.find_holders(sockets)
        if holders is None:
            return None
        return frozenset(holder.pod for holder in holders if holder.pod is not None)

    def list_listening(self, port: int) -> frozenset[str] | None:
        """Return the sockets that listen on TCP ``port``, None without a table of sockets."""
        table = _read(f"{self.root}/net/tcp")
        if table is None:
            return None
        # No tcp6 where IPv6 is switched off.
        table += _read(f"{self.root}/net/tcp6") or ""
        return frozenset(f"socket:[{inode}]" for inode in _inodes(table, f":{port:04X}"))

    def find_holders(
        self, sockets: frozenset[str], *, of_pods: bool = True
    ) -> tuple[Holder, ...] | None:
        """Return the processes, of pods or of the host, that have one of ``sockets`` open.

        None where there may be others, whose descriptors may not be read. Raises SourceError.
        """
        found: list[Holder] = []
        unreadable = False
        for pid in self.list_pids() if sockets else ():
            pod = self.read_pod(pid)
            if (pod is not None) is not of_pods:
                continue
            links = self._descriptors(pid)
            unreadable = unreadable or links is None
            for descriptor, link in (links or {}).items():
                if link in sockets:
                    found.append(Holder(pid, descriptor, link, pod))
        held = frozenset(holder.socket for holder in found)
        return None if unreadable and held != sockets else tuple(found)

    def still_holds(self, holder: Holder) -> bool:
        """Tell whether a process still has that socket open, and is of the same pod."""
        try:
            link = Path(f"{self.root}/{holder.pid}/fd/{holder.descriptor}").readlink()
        except OSError:
            return False
        return str(link) == holder.socket and self.read_pod(holder.pid) == holder.pod

    def _is_called_kubelet(self, pid: int) -> bool:
        if self.read_name(pid) == "kubelet":
            return True
        # Not through psutil: this is read of every process.
        arguments = (_read(f"{self.root}/{pid}/cmdline") or "").split("\0")
        program = arguments[0].rpartition("/")[2]
        if program == "hyperkube":
            return len(arguments) > 1 and arguments[1] == "kubelet"
        return program == "kubelet"

    def _is_of_the_host(self, pid: int) -> bool:
        status = _read(f"{self.root}/{pid}/status") or ""
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        nested = len(fields.get("NSpid", "").split()) > 1
        owner = fields.get("Uid", "").split()
        trusted = len(owner) == 4 and int(owner[1]) in (0, os.geteuid())
        return trusted and not nested and self.read_pod(pid) is None

    def _descriptors(self, pid: int) -> dict[str, str] | None:
        directory = f"{self.root}/{pid}/fd"
        try:
            return dict(_links(directory))
        except FileNotFoundError:
            return {}
        except OSError:
            return None


def parse_pod(cgroup: str) -> str | None:
    """Return the pod's UID in the text of /proc/PID/cgroup, None where there is none.

    The names are those of GetPodContainerName (pkg/kubelet/cm/pod_container_manager_linux.go) and
    of the systemd driver, which writes ``_`` for ``-``.
    """
    match = _POD_CGROUP.search(cgroup)
    if match is None:
        return None
    plain, escaped = match.group(1), match.group(2)
    return plain if plain is not None else escaped.replace("_", "-")


def _inodes(table: str, port: str) -> Iterator[str]:
    for line in table.splitlines():
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN and fields[1].endswith(port):
            yield fields[9]


def _links(directory: str) -> Iterator[tuple[str, str]]:
    for path in Path(directory).iterdir():
        try:
            yield path.name, str(path.readlink())
        except FileNotFoundError:
            continue


def _read(path: str) -> str | None:
    """Return a small file of procfs, None where the process is gone or hides it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts: list[bytes] = []
        while part := os.read(descriptor, 65536):
            parts.append(part)
        return b"".join(parts).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)
