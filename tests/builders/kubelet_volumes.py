"""Lay out a pod's volume as the kubelet does (pkg/volume/util/atomic_writer.go)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path

_COUNTER = count(1)


def volume_directory(root: Path, pod_uid: str, plugin: str, volume: str) -> Path:
    """Return where the kubelet with this root directory keeps the volume."""
    return root / "pods" / pod_uid / "volumes" / f"kubernetes.io~{plugin}" / volume


def write_volume(
    directory: Path, files: Mapping[str, bytes], *, modes: Mapping[str, int] | None = None
) -> str:
    """Put a new generation in place and remove the old one; return what ``..data`` points to."""
    directory.mkdir(parents=True, exist_ok=True)
    target = f"..2026_01_01_00_00_00.{next(_COUNTER)}"
    (directory / target).mkdir(mode=0o755)
    for path, content in files.items():
        file = directory / target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod((modes or {}).get(path, 0o644))
        first = path.split("/")[0]
        if not (directory / first).is_symlink():
            (directory / first).symlink_to(f"..data/{first}")
    point(directory, target)
    return target


def point(directory: Path, target: str) -> None:
    """Let ``..data`` point to ``target`` at once, and remove what it pointed to."""
    data = directory / "..data"
    old = data.readlink().name if data.is_symlink() else ""
    (directory / "..data_tmp").symlink_to(target)
    (directory / "..data_tmp").rename(data)
    if old and (directory / old).is_dir() and old != target:
        _remove(directory / old)


def _remove(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    directory.rmdir()
