"""A cgroup tree of plain files, laid out as the kubelet and a runtime do (v1 or v2, both drivers).

Who is in a cgroup is what the test (or the embedded node) says: ``cgroup.procs`` is no live list.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SCOPES = {"containerd": "cri-containerd", "crio": "crio", "docker": "docker"}


@dataclass(frozen=True, kw_only=True)
class CgroupTree:
    """Lay out pods below ``root``.

    ``controllers`` are the mounted v1 hierarchies, () is v2. ``driver`` is ``cgroupfs`` or
    ``systemd``, ``runtime`` a key of SCOPES, ``cgroup_root`` the kubelet's --cgroup-root.
    """

    root: Path
    controllers: tuple[str, ...] = ()
    driver: str = "cgroupfs"
    runtime: str = "containerd"
    cgroup_root: str = ""

    def make(self) -> CgroupTree:
        """Make the hierarchies; return the tree."""
        for base in self._bases():
            (base / self.parent()).mkdir(parents=True, exist_ok=True)
        if not self.controllers:
            (self.root / "cgroup.controllers").write_text("cpu memory pids\n", encoding="ascii")
        return self

    def parent(self, qos: str = "") -> str:
        """Return where the pods of a QoS class are: "" (guaranteed), burstable or besteffort."""
        return self._path(tuple(part for part in (*self._above(), "kubepods", qos) if part))

    def pod(self, uid: str, qos: str = "burstable") -> str:
        """Return the path of a pod's cgroup below a hierarchy."""
        parts = (*self._above(), "kubepods", qos, f"pod{uid}")
        return self._path(tuple(part for part in parts if part))

    def container(self, uid: str, container: str, qos: str = "burstable") -> str:
        """Return the path of a container's cgroup below a hierarchy."""
        leaf = (
            f"{SCOPES[self.runtime]}-{container}.scope" if self.driver == "systemd" else container
        )
        return f"{self.pod(uid, qos)}/{leaf}"

    def place(self, path: str, pids: Sequence[int]) -> None:
        """Make the cgroup ``path`` in every hierarchy, with these processes."""
        for base in self._bases():
            directory = base / path
            self._make(base, directory)
            fresh = directory / ".procs"
            fresh.write_text("".join(f"{pid}\n" for pid in pids), encoding="ascii")
            fresh.replace(directory / "cgroup.procs")

    def remove(self, path: str) -> None:
        """Remove the cgroup ``path`` and all below it."""
        for base in self._bases():
            shutil.rmtree(base / path, ignore_errors=True)

    def membership(self, path: str) -> str:
        """Return what /proc/PID/cgroup says of a process in ``path``."""
        named = enumerate(self.controllers, start=1)
        lines = [f"{n}:{'name=' * (name == 'systemd')}{name}:/{path}\n" for n, name in named]
        return "".join(lines) or f"0::/{path}\n"

    def _make(self, base: Path, directory: Path) -> None:
        """Make a cgroup and those above it: each has a list of processes."""
        for above in (*reversed(directory.relative_to(base).parents), directory.relative_to(base)):
            (base / above).mkdir(exist_ok=True)
            (base / above / "cgroup.procs").touch()

    def _bases(self) -> tuple[Path, ...]:
        return tuple(self.root / name for name in self.controllers) or (self.root,)

    def _above(self) -> tuple[str, ...]:
        return tuple(part for part in self.cgroup_root.split("/") if part)

    def _path(self, parts: tuple[str, ...]) -> str:
        if self.driver == "cgroupfs":
            return "/".join(parts)
        escaped = [part.replace("-", "_") for part in parts]
        levels = ["-".join(escaped[: depth + 1]) + ".slice" for depth in range(len(escaped))]
        return "/".join(levels)
