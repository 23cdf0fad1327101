"""Look at the store: what it lies on, who may read it, how much room there is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from checkpointd.cli.examine.finding import Finding, fault, good, note, unknown, warning
from checkpointd.cli.examine.scene import Scene

MOUNTS = Path("/proc/self/mountinfo")
LITTLE_BYTES = 64 << 20
LITTLE_FILES = 2000
LEAST_BYTES = 2 << 20
"""Less than the reserve and one state: words are at risk, not only new generations."""
VOLATILE = frozenset({"tmpfs", "ramfs"})
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "glusterfs"})
OPEN = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Hold what one file system is: its type, and whether it is read-only."""

    kind: str
    where: str
    read_only: bool


def examine_store(scene: Scene) -> Iterator[Finding]:
    """Say what the store is, and what is recorded of the cluster."""
    path = scene.paths.state
    try:
        status = path.stat()
    except FileNotFoundError:
        yield note("store", f"{path} does not exist: the daemon has not run yet")
        path = _existing(path)
    except OSError as error:
        yield unknown("store", f"{path}: {error.strerror}", "run this as root")
        return
    else:
        yield from _access(path, status)
    yield from _file_system(path)
    yield from room(path, os.statvfs(path))
    yield from _record(scene)


def _existing(path: Path) -> Path:
    return next(parent for parent in path.parents if parent.exists())


def _access(path: Path, status: os.stat_result) -> Iterator[Finding]:
    if status.st_mode & OPEN or status.st_uid != 0:
        mode = stat.filemode(status.st_mode)
        yield warning(
            "store",
            f"{path} is open to others than root ({mode}, uid {status.st_uid})",
            "it holds the secrets of pods",
            f"chown root:root {path}; chmod 0700 {path}",
        )
    else:
        yield good("store", f"{path}, for root alone")


def _file_system(path: Path) -> Iterator[Finding]:
    try:
        mount = find_mount(path.resolve(), MOUNTS.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        yield unknown("file system", str(error))
        return
    if mount is None:
        yield unknown("file system", f"no mount has {path}")
        return
    yield judge_mount(mount)


def judge_mount(mount: Mount) -> Finding:
    """Say whether a file system can hold a store."""
    words = f"{mount.kind} at {mount.where}"
    if mount.read_only:
        costs = "nothing is stored, no copy is started or stopped"
        return fault("file system", f"{words} is read-only", costs, "see dmesg; remount it")
    if mount.kind in VOLATILE:
        costs = "every checkpoint is gone after a reboot"
        return fault("file system", f"{words} lies in memory", costs, "set [paths] state")
    if mount.kind in REMOTE or mount.kind.startswith("fuse"):
        costs = "without the network there are no checkpoints"
        return warning("file system", f"{words} needs others", costs, "set [paths] state")
    return good("file system", words)


def find_mount(path: Path, mountinfo: str) -> Mount | None:
    """Return the file system of ``path``: the last of the deepest mounts over it.

    proc_pid_mountinfo(5): mount point and options are fields 5 and 6, the type follows " - ".
    """
    found: Mount | None = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 6 or not right:
            continue
        where = Path(_unescape(fields[4]))
        kind, _source, options = (*right.split(), "", "", "")[:3]
        deeper = found is None or len(where.parts) >= len(Path(found.where).parts)
        if (where == path or where in path.parents) and deeper:
            read_only = "ro" in fields[5].split(",") or "ro" in options.split(",")
            found = Mount(kind=kind, where=str(where), read_only=read_only)
    return found


def _unescape(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def room(path: Path, found: os.statvfs_result) -> Iterator[Finding]:
    """Say how much room there is on the file system of ``path``."""
    free = found.f_bavail * found.f_frsize
    words = f"{free >> 20} MiB are free at {path}"
    remedy = "free space there"
    if free < LEAST_BYTES:
        yield fault("room", words, "states cannot be written: no copy is started", remedy)
    elif free < LITTLE_BYTES:
        yield warning("room", words, "new generations may not fit", remedy)
    else:
        yield good("room", words)
    # Some file systems (btrfs) count no inodes.
    if found.f_files and found.f_favail < LITTLE_FILES:
        costs = "new generations may not fit"
        yield warning("room", f"{found.f_favail} inodes are free at {path}", costs, remedy)


def _record(scene: Scene) -> Iterator[Finding]:
    if scene.record_problem:
        yield warning(
            "record",
            scene.record_problem,
            "without a readable node.json, or the one before it, nothing is started",
            "journalctl -u checkpointd -b says what was done about it",
        )
    elif scene.record is None or not scene.record.node_uid:
        yield note(
            "record",
            "checkpointd has not yet reached the API server and found its Node there: it starts "
            "nothing before it has",
        )
    else:
        yield good("record", f"this cluster is known (Node {scene.record.node_uid})")
