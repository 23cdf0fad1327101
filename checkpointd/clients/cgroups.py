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
from dataclasses import dataclass
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
_TRIES = 3
_GONE = frozenset({errno.ENOENT, errno.ENODEV})


@dataclass(frozen=True, slots=True)
class _Pod:
    """Hold where a pod's cgroup is and which it had below: (container, directory).

    ``links`` is the link count: 2 and one per directory below on cgroupfs, as on most others.
    """

    directory: str
    links: int
    leaves: tuple[tuple[str, str], ...]


class Cgroups:
    """Read the cgroups of pods.

    ``cgroup_root`` gives the kubelet's --cgroup-root as it is known now. What was found is kept: a
    known pod costs a stat and a read per leaf.
    """

    def __init__(self, root: Path, procfs: proc.Procfs, cgroup_root: Callable[[], str]) -> None:
        self._root = root
        self._procfs = procfs
        self._cgroup_root = cgroup_root
        self._known: dict[str, _Pod] = {}

    def read_pods(self, uids: Iterable[str]) -> Mapping[str, PodProcesses]:
        """Return the processes of each pod. Raises SourceError."""
        pods = {uid: self.read_pod(uid) for uid in uids}
        self._known = {uid: pod for uid, pod in self._known.items() if uid in pods}
        return pods

    def read_pod(self, uid: str) -> PodProcesses:
        """Return the processes of a pod by container; no leaves where it has no cgroup.

        Raises SourceError where there is no cgroup tree, or it may not be read.
        """
        pod = self._known.pop(uid, None)
        if pod is None or not _is_same(pod):
            pod = self._find(uid)
        for _ in range(_TRIES):
            if pod is None:
                return PodProcesses(uid=uid, leaves=())
            leaves = self._read_leaves(pod)
            if leaves is not None:
                self._known[uid] = pod
                return PodProcesses(uid=uid, leaves=leaves)
            pod = self._find(uid)
        raise SourceError(f"{self._root}: the cgroups of pod {uid} change all the time")

    def _read_leaves(self, pod: _Pod) -> tuple[Leaf, ...] | None:
        """Return the leaves, None where one is there no more: then others may have come."""
        found: list[Leaf] = []
        for container, directory in pod.leaves:
            pids = _read_tree(directory)
            if pids is None:
                return None
            found.append(self._leaf(container, pids))
        # A VM runtime may keep its processes in the pod's own directory.
        own = _read_procs(pod.directory)
        if own:
            found.append(self._leaf("", own))
        return tuple(found)

    def _find(self, uid: str) -> _Pod | None:
        surveys = (_survey(directory) for directory in self._directories(uid))
        return next((pod for pod in surveys if pod is not None), None)

    def _directories(self, uid: str) -> Iterator[str]:
        """Yield where the pod's cgroup may be."""
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


def _survey(directory: str) -> _Pod | None:
    """Return what a pod's directory has below, None where it does not exist."""
    links = _count_links(directory)
    names = _subdirectories(directory) if links else []
    leaves = tuple(
        (_container_id(name), f"{directory}/{name}")
        for name in names
        if not _MONITOR.fullmatch(name)
    )
    return _Pod(directory, links, leaves) if links else None


def _is_same(pod: _Pod) -> bool:
    """Tell whether there are as many directories as there were; whoever reads sees if one is gone.

    Where links are not counted (1, on some filesystems) it is always another one.
    """
    return pod.links > 1 and _count_links(pod.directory) == pod.links


def _count_links(directory: str) -> int:
    """Return the link count of a directory, 0 where there is none. Raises SourceError."""
    try:
        return os.stat(directory).st_nlink  # noqa: PTH116 - a string all the way to the kernel
    except OSError as error:
        if error.errno in _GONE:
            return 0
        raise SourceError(f"{directory}: {error.strerror}") from error


def _read_tree(directory: str) -> tuple[int, ...] | None:
    """Return the processes of a cgroup and of all below it, None where it is gone.

    A container may nest cgroups of its own.
    """
    pids = _read_procs(directory)
    if pids is not None and _count_links(directory) not in (0, 2):
        for name in _subdirectories(directory):
            pids += _read_tree(f"{directory}/{name}") or ()
    return pids


def _subdirectories(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        if error.errno in _GONE:
            return []
        raise SourceError(f"{directory}: {error.strerror}") from error


def _read_procs(directory: str) -> tuple[int, ...] | None:
    """Return the processes of one cgroup, None where it is gone. Raises SourceError."""
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
        if error.errno in _GONE:
            return None
        # A threaded cgroup answers EOPNOTSUPP: its processes are listed in the domain above it
        # (Documentation/admin-guide/cgroup-v2.rst, "Threads").
        if error.errno == errno.EOPNOTSUPP:
            return ()
        raise SourceError(f"{path}: {error.strerror}") from error


def _read_all(descriptor: int) -> bytes:
    parts: list[bytes] = []
    while part := os.read(descriptor, 65536):
        parts.append(part)
    return b"".join(parts)
