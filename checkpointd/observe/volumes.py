"""Read the files of a running parent's secrets and configMaps from the kubelet's own directories.

Exact bytes, modes, owners and labels, and no permission on secrets is needed. The kubelet lays a
volume out by pkg/volume/util/atomic_writer.go: ``..data`` is a link to ``..<time>.<random>`` beside
it, which is never changed once the link points to it. So each look opens one such directory and has
one consistent generation. Nothing is ever written here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from checkpointd.errors import SourceError, StoreError
from checkpointd.model.files import FileEntry, Refusal, VolumeFiles
from checkpointd.model.naming import is_label
from checkpointd.render import content, identity
from checkpointd.render.volumes import StoredVolume
from checkpointd.store import walk

TRIES = 5
"""Looks at one volume whose ``..data`` changes meanwhile; the kubelet writes once in a minute."""
DEPTH_LIMIT = 16
ENTRY_COST = 256
"""Bytes that an entry counts for beside its content: empty files are not free."""

_DATA = "..data"
_LABEL = "security.selinux"


class _TooLargeError(SourceError):
    """End a reading that would take more bytes than root allows."""


class _Budget:
    """Count down the bytes that one pod may still take."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, length: int) -> None:
        self.left -= length + ENTRY_COST
        if self.left < 0:
            raise _TooLargeError("too large")


def read_volumes(
    root: Path, pod_uid: str, wanted: Iterable[StoredVolume], limit: int
) -> Mapping[str, VolumeFiles] | Refusal:
    """Read all ``wanted`` volumes of a pod, all or nothing, ``limit`` bytes at most.

    ``root`` is the kubelet's (--root-dir). Raises SourceError where one is not there or half there.
    """
    budget = _Budget(limit)
    try:
        return {volume.name: _read_volume(root, pod_uid, volume, budget) for volume in wanted}
    except _TooLargeError:
        return Refusal(
            field="spec.volumes",
            reason=f"secrets and configMaps have more than {limit} bytes",
            remedy="raise max_bytes under [selection], or mount less",
        )
    except StoreError as error:
        raise SourceError(str(error)) from error


def read_targets(root: Path, pod_uid: str, wanted: Iterable[StoredVolume]) -> tuple[str, ...]:
    """Read only where each ``..data`` points to, "" where there is none. Raises SourceError.

    As long as these are the same, so are the files.
    """
    try:
        return tuple(_read_target(root, pod_uid, volume) for volume in wanted)
    except StoreError as error:
        raise SourceError(str(error)) from error


def _read_target(root: Path, pod_uid: str, wanted: StoredVolume) -> str:
    with _open_volume(root, pod_uid, wanted) as directory:
        return directory.link_target(_DATA)


def _read_volume(root: Path, pod_uid: str, wanted: StoredVolume, budget: _Budget) -> VolumeFiles:
    for _try in range(TRIES):
        with _open_volume(root, pod_uid, wanted) as directory:
            found = _read_once(directory, wanted, budget)
            if found is not None:
                return found
    raise SourceError(f"volume {wanted.name}: its content changed at each of {TRIES} looks")


@contextmanager
def _open_volume(
    root: Path, pod_uid: str, wanted: StoredVolume
) -> Generator[walk.Directory, None, None]:
    if not identity.is_uid(pod_uid) or not is_label(wanted.name) or not is_label(wanted.plugin):
        raise SourceError("a UID or a volume's name cannot be a path component")
    names = ("pods", pod_uid, "volumes", f"kubernetes.io~{wanted.plugin}", wanted.name)
    with walk.Directory.open(root) as top, top.descend(*names) as directory:
        if directory is None:
            raise SourceError(f"volume {wanted.name}: the kubelet has not set it up")
        yield directory


def _read_once(volume: walk.Directory, wanted: StoredVolume, budget: _Budget) -> VolumeFiles | None:
    """Read one generation; None where the kubelet put another in its place meanwhile."""
    target = _checked(volume.link_target(_DATA), wanted, volume)
    top = _entry("", volume.fd, None)
    left = budget.left
    try:
        if not target:
            entries, placed = [top], _time(os.fstat(volume.fd))
        else:
            with volume.child(target) as data:
                entries, placed = [top, *_read_tree(data, (), budget)], _time(os.fstat(data.fd))
    except StoreError:
        if volume.link_target(_DATA) == target:
            raise
        entries, placed = [], ""
    if volume.link_target(_DATA) != target:
        budget.left = left
        return None
    return content.volume_files(wanted.name, placed, entries)


def _checked(target: str, wanted: StoredVolume, volume: walk.Directory) -> str:
    """Return the plain name that ``..data`` points to; "" for an optional source that is absent."""
    if not target:
        if wanted.optional and not volume.names():
            return ""
        raise SourceError(f"volume {wanted.name}: the kubelet has not filled it yet")
    if not target.startswith("..") or target in ("..", _DATA) or "/" in target:
        raise SourceError(f"volume {wanted.name}: its ..data is not the kubelet's")
    return target


def _read_tree(directory: walk.Directory, at: tuple[str, ...], budget: _Budget) -> list[FileEntry]:
    if len(at) > DEPTH_LIMIT:
        raise SourceError(f"{directory.path}: nested too deep")
    entries: list[FileEntry] = []
    for name in directory.names():
        path = (*at, name)
        found = directory.status(name)
        if found is not None and stat.S_ISDIR(found.st_mode):
            with directory.child(name) as inner:
                budget.take(0)
                entries.append(_entry("/".join(path), inner.fd, None))
                entries += _read_tree(inner, path, budget)
        else:
            entries.append(_read_file(directory, name, "/".join(path), budget))
    return entries


def _read_file(directory: walk.Directory, name: str, path: str, budget: _Budget) -> FileEntry:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(name, flags, dir_fd=directory.fd)
    except OSError as error:
        raise walk.explain("open", directory.path / name, error) from error
    try:
        size = os.fstat(fd).st_size
        budget.take(size)
        data, _status = walk.read_open(fd, directory.path / name, size)
        return _entry(path, fd, data)
    finally:
        os.close(fd)


def _entry(path: str, fd: int, data: bytes | None) -> FileEntry:
    found = os.fstat(fd)
    return FileEntry(
        path=path,
        data=data,
        # The kubelet sets the set-group-ID bit on an fsGroup volume's directories so that new files
        # inherit the group (pkg/volume/volume_linux.go). Nothing is ever made in a copy's volume,
        # and the unit's RestrictSUIDSGID= refuses such a mode.
        mode=stat.S_IMODE(found.st_mode) & 0o777,
        uid=found.st_uid,
        gid=found.st_gid,
        label=_label(fd),
    )


def _label(fd: int) -> str:
    try:
        return os.getxattr(fd, _LABEL).rstrip(b"\0").decode("ascii", "replace")
    except OSError:
        # No SELinux, or a filesystem without labels: there is nothing to keep.
        return ""


def _time(found: os.stat_result) -> str:
    """Return the time of a directory as the API server writes times: RFC 3339, whole seconds."""
    moment = datetime.fromtimestamp(int(found.st_mtime), tz=timezone.utc)
    return moment.isoformat().replace("+00:00", "Z")
