"""Put our manifests into the kubelet's static-pod directory, and take them out again.

The kubelet reads every entry whose name does not begin with a dot (kubelet facts, K-1): a manifest
appears there whole, by one rename, or not at all. What we did not write is never touched. The
directory is opened anew each time, because it may be replaced while we run.
"""

from __future__ import annotations

import errno
import hashlib
import re
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from checkpointd import json_fields
from checkpointd.clock import Clock
from checkpointd.errors import ActionError, DamagedError, FieldError, StoreError
from checkpointd.model import naming, pods
from checkpointd.store.durable import Disk
from checkpointd.store.walk import Directory

SUFFIX = ".json"
READ_LIMIT = 10 * 1024 * 1024
"""The kubelet reads no more of a manifest (pkg/kubelet/config/common.go: maxConfigLength)."""


HASTE_SECONDS = 2.0

_KIND_POD = re.compile(rb"(?<![\w-])kind[\"']?\s*:\s*[\"']?Pod(?![\w-])")
_ANY_NAME = re.compile(rb"(?<![\w-])name[\"']?\s*:\s*\S")


class ManifestDirectory:
    """Place and remove manifests. Methods raise ActionError or StoreError."""

    def __init__(self, disk: Disk, path: Callable[[], Path]) -> None:
        self._disk = disk
        self._path = path

    def place(self, file: str, content: bytes) -> str:
        """Make ``file`` hold ``content``, at once and durably; return its sha256.

        Writes nothing if it does already. Raises ActionError if the file is not ours, or if another
        one defines the same pod: the kubelet would silently take one of both (K-2).
        """
        _check_name(file)
        with self._open() as directory:
            present = self._find(directory, file)
            if present != content:
                if present is not None and not is_ours(present):
                    raise ActionError(f"{directory.path / file} is not ours: move it away")
                self._refuse_collision(directory, file, content)
                with _explaining(directory.path):
                    self._disk.save_file(directory, file, content)
        return hashlib.sha256(content).hexdigest()

    def remove(self, file: str, pod: tuple[str, str] | None = None) -> bool:
        """Remove our manifest durably; False if it is gone. ActionError if it is foreign.

        ``pod`` is namespace and name of the copy that was placed under this name: then what an
        edit by hand made of it goes too, but never the manifest of another pod.
        """
        _check_name(file)
        if not self._path().exists():
            return False
        with Directory.open(self._path()) as directory:
            present = self._find(directory, file)
            if present is None:
                return False
            if not is_ours(present) and (pod is None or not is_left_of(present, *pod)):
                raise ActionError(f"{directory.path / file} is not ours: it stays")
            with _explaining(directory.path):
                self._disk.unlink(directory, file)
                self._disk.fsync_directory(directory)
        return True

    def remove_leftovers(self) -> tuple[str, ...]:
        """Remove the temporary files that a crash of ours left, no others; return their names."""
        if not self._path().exists():
            return ()
        removed: list[str] = []
        with Directory.open(self._path()) as directory:
            for name in directory.names():
                found = directory.status(name) if name.startswith(naming.TEMPORARY_PREFIX) else None
                if found is not None and stat.S_ISREG(found.st_mode):
                    self._disk.unlink(directory, name)
                    removed.append(name)
        return tuple(removed)

    def _open(self) -> Directory:
        path = self._path().absolute()
        if path.is_symlink() and not path.exists():
            target = path.resolve()
            raise ActionError(f"{path} is a link to {target}, which is not there: make it")
        if not path.exists():
            _refuse_haste(path)
            with _explaining(path):
                self._make(path)
        try:
            return Directory.open(path)
        except DamagedError as error:
            raise ActionError(f"{path} is not a directory: set staticPodPath to one") from error

    def _make(self, path: Path) -> None:
        if not path.parent.exists():
            self._make(path.parent)
        with Directory.open(path.parent) as parent:
            self._disk.make_directory(parent, path.name)

    def _find(self, directory: Directory, file: str) -> bytes | None:
        try:
            return directory.find(file, READ_LIMIT)
        except DamagedError as error:
            raise ActionError(f"{directory.path / file} is not ours: {error}") from error

    def _refuse_collision(self, directory: Directory, file: str, content: bytes) -> None:
        wanted = pod_name(content)
        if wanted is None:
            raise ActionError(f"{file}: what should be placed is not a Pod")
        for name in directory.names():
            if name.startswith(".") or name == file:
                continue
            other = directory.find_following(name, READ_LIMIT)
            if other is not None and defines(other, *wanted):
                raise ActionError(
                    f"foreign manifest {directory.path / name} defines the same pod"
                    f" {'/'.join(wanted)}: move it away"
                )


def pod_name(content: bytes) -> tuple[str, str] | None:
    """Return namespace and name of the Pod in a JSON manifest, None where it is none."""
    try:
        pod = json_fields.parse_object(content, "manifest")
        name = json_fields.text(pod, "metadata", "name")
        return json_fields.optional_text(pod, "metadata", "namespace") or "default", name
    except FieldError:
        return None


def is_ours(content: bytes) -> bool:
    """Tell whether a manifest carries our annotations."""
    try:
        pod = json_fields.parse_object(content, "manifest")
        annotations = json_fields.mapping(pod, "metadata", "annotations")
    except FieldError:
        return False
    return pods.LEGACY_CHECKPOINT_OF in annotations and pods.COPY_SLOT in annotations


def is_left_of(content: bytes, namespace: str, name: str) -> bool:
    """Tell whether an edit left this pod in a manifest, or no pod at all: no other one."""
    try:
        pod = json_fields.parse_object(content, "manifest")
        found = json_fields.optional_text(pod, "metadata", "name")
        return not found or pod_name(content) == (namespace, name)
    except FieldError:
        return defines(content, namespace, name) or not (
            _KIND_POD.search(content) and _ANY_NAME.search(content)
        )


def defines(content: bytes, namespace: str, name: str) -> bool:
    """Tell whether a manifest, JSON or YAML, defines this pod.

    YAML is not parsed (it would cost the daemon 8 MiB): that a key "name" has this value is enough,
    for a copy's name ends in a digest that nothing else has.
    """
    if name.encode() not in content:
        return False
    found = pod_name(content)
    if found is not None:
        return found == (namespace, name)
    key = rb"(?<![\w-])name[\"']?\s*:\s*[\"']?" + re.escape(name.encode()) + rb"(?![\w.-])"
    return re.search(key, content) is not None


def _refuse_haste(path: Path) -> None:
    """Leave a directory that went just now to whoever replaces it: theirs would land in ours."""
    try:
        age = Clock.wall().timestamp() - path.parent.stat().st_mtime
    except FileNotFoundError:
        return
    if 0 <= age < HASTE_SECONDS:
        raise ActionError(f"{path} went just now: it is made in {HASTE_SECONDS:g} s, unless it is")


@contextmanager
def _explaining(path: Path) -> Generator[None]:
    """Name the remedy for EROFS: the unit may write below /etc/kubernetes only."""
    try:
        yield
    except StoreError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno != errno.EROFS:
            raise
        raise ActionError(
            f"{path} cannot be written: its file system is read-only, or the unit may not write "
            f"there (systemctl edit checkpointd: [Service] ReadWritePaths={path.resolve()})"
        ) from error


def _check_name(file: str) -> None:
    is_plain = "/" not in file and "\0" not in file and len(file.encode()) <= 255
    if not (is_plain and file.startswith(naming.FILE_PREFIX) and file.endswith(SUFFIX)):
        raise ActionError(f"{file[:80]!r} cannot be the name of a manifest of ours")
