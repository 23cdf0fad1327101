"""Find the processes of pods in the cgroup tree: v1 and v2, both drivers' names.

The kubelet names a pod's cgroup after its UID (pkg/kubelet/cm/pod_container_manager_linux.go,
GetPodContainerName); the runtime names the containers' below it. Only directories that these names
allow are looked at: the tree is never searched.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from checkpointd.clients import proc
from checkpointd.errors import SourceError
from checkpointd.model.observation import Leaf, PodProcesses

PAUSE = "pause"
"""The comm of the process in a sandbox: build/pause/linux/pause.c."""
_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,252}")
_V1_CONTROLLERS = ("systemd", "pids", "memory", "cpu", "cpu,cpuacct", "cpuset", "unified")
_MONITOR = re.compile(r"crio-conmon-.*")
"""CRI-O's process beside each container, not of it."""
_LEAF = re.compile(r"(?:(?:cri-containerd|crio|docker|libpod)-)?([^/]+?)(?:\.scope)?")
_GONE = frozenset({errno.ENOENT, errno.ENODEV})


class Cgroups:
    """Read the cgroups of pods.

    ``cgroup_root`` gives the kubelet's --cgroup-root as it is known now. Found directories are
    kept: a known pod costs one listing and a read per leaf.
    """

    def __init__(self, root: Path, procfs: proc.Procfs, cgroup_root: Callable[[], str]) -> None:
        self._root = root
        self._procfs = procfs
        self._cgroup_root = cgroup_root
        self._known: dict[str, str] = {}

    def read_pods(self, uids: Iterable[str]) -> Mapping[str, PodProcesses]:
        """Return the processes of each pod. Raises SourceError."""
        pods = {uid: self.read_pod(uid) for uid in uids}
        self._known = {uid: path for uid, path in self._known.items() if uid in pods}
        return pods

    def read_pod(self, uid: str) -> PodProcesses:
        """Return the processes of a pod by container; no leaves where it has no cgroup.

        Raises SourceError where there is no cgroup tree, or it may not be read.
        """
        known = self._known.pop(uid, None)
        candidates = () if known is None else (known,)
        for directory in (*candidates, *self._directories(uid)):
            leaves = self._read_leaves(directory)
            if leaves is not None:
                self._known[uid] = directory
                return PodProcesses(uid=uid, leaves=leaves)
        return PodProcesses(uid=uid, leaves=())

    def _directories(self, uid: str) -> Iterator[str]:
        """Yield where the pod's cgroup may be, lazily: the first is right but on mixed nodes."""
        hierarchies = self._hierarchies()
        # A UID that is no plain name has no cgroup: the kubelet itself would panic on it.
        if not _UID.fullmatch(uid):
            return
        paths = pod_paths(uid, self._cgroup_root())
        for hierarchy in hierarchies:
            yield from (f"{hierarchy}/{path}" for path in paths)

    def _hierarchies(self) -> tuple[str, ...]:
        try:
            names = frozenset(path.name for path in self._root.iterdir())
        except OSError as error:
            raise SourceError(f"{self._root}: {error.strerror}") from error
        if "cgroup.controllers" in names:
            return (str(self._root),)
        found = tuple(f"{self._root}/{name}" for name in _V1_CONTROLLERS if name in names)
        if not found:
            raise SourceError(f"{self._root}: no cgroup hierarchy")
        return found

    def _read_leaves(self, directory: str) -> tuple[Leaf, ...] | None:
        """Return the leaves below a pod's directory, None where it does not exist."""
        try:
            names = _subdirectories(directory)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise SourceError(f"{directory}: {error.strerror}") from error
        found = [
            self._leaf(_container_id(name), _read_tree(f"{directory}/{name}"))
            for name in names
            if not _MONITOR.fullmatch(name)
        ]
        # A VM runtime may keep its processes in the pod's own directory.
        own = _read_procs(directory)
        return (*found, self._leaf("", own)) if own else tuple(found)

    def _leaf(self, container: str, pids: tuple[int, ...]) -> Leaf:
        only_pause = len(pids) == 1 and self._procfs.read_name(pids[0]) == PAUSE
        return Leaf(id=container, pids=pids, only_pause=only_pause)


def pod_paths(uid: str, cgroup_root: str) -> tuple[str, ...]:
    """Return where below a hierarchy the cgroup of a pod may be, for both drivers.

    The systemd driver joins the names of all levels with ``-``, writes ``_`` for ``-`` within one,
    and repeats each level in the path: pkg/kubelet/cm/cgroup_manager_linux.go, ToSystemd, and
    ExpandSlice of runc's libcontainer.
    """
    above = tuple(part for part in cgroup_root.split("/") if part and part != "..")
    found: list[str] = []
    for middle in ((), ("burstable",), ("besteffort",)):
        parts = (*above, "kubepods", *middle, f"pod{uid}")
        found.append("/".join(parts))
        found.append(_slice_path(parts))
    return tuple(found)


def _slice_path(parts: tuple[str, ...]) -> str:
    escaped = [part.removesuffix(".slice").replace("-", "_") for part in parts]
    return "/".join("-".join(escaped[: depth + 1]) + ".slice" for depth in range(len(escaped)))


def _container_id(name: str) -> str:
    match = _LEAF.fullmatch(name)
    return name if match is None else match.group(1)


def _read_tree(directory: str) -> tuple[int, ...]:
    """Return the processes of a cgroup and of all below it: a container may nest its own."""
    pids = list(_read_procs(directory))
    try:
        names = _subdirectories(directory)
    except OSError as error:
        if error.errno in _GONE:
            return tuple(pids)
        raise SourceError(f"{directory}: {error.strerror}") from error
    for name in names:
        pids += _read_tree(f"{directory}/{name}")
    return tuple(pids)


def _subdirectories(directory: str) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _read_procs(directory: str) -> tuple[int, ...]:
    path = f"{directory}/cgroup.procs"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = _read_all(descriptor)
        finally:
            os.close(descriptor)
        return tuple(int(line) for line in content.split())
    except ValueError as error:
        raise SourceError(f"{path}: not a list of processes") from error
    except OSError as error:
        # A threaded cgroup answers EOPNOTSUPP: its processes are listed in the domain above it
        # (Documentation/admin-guide/cgroup-v2.rst, "Threads").
        if error.errno in _GONE or error.errno == errno.EOPNOTSUPP:
            return ()
        raise SourceError(f"{path}: {error.strerror}") from error


def _read_all(descriptor: int) -> bytes:
    parts: list[bytes] = []
    while part := os.read(descriptor, 65536):
        parts.append(part)
    return b"".join(parts)
