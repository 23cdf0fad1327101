"""Read the static-pod directory as the kubelet does, and say which pod each entry names.

The kubelet takes every entry whose name does not begin with a dot, whatever its extension (K-1).
Foreign manifests are mostly YAML; PyYAML is loaded when the first one is met (0.8 MiB, 30 ms, and
a millisecond per file): a scanner for lines that look like names would miss pods in flow style, and
a pod that is missed is one whose name we might take. Each content is parsed once, and a file whose
inode, size and times have not changed is not read again.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from checkpointd import json_fields
from checkpointd.clients import yaml_text
from checkpointd.clock import Clock
from checkpointd.errors import FieldError, SourceError
from checkpointd.json_fields import Json
from checkpointd.model import pods
from checkpointd.model.naming import FILE_PREFIX
from checkpointd.model.observation import ManifestFile
from checkpointd.model.pods import Slot

SIZE_LIMIT = 10 << 20
"""pkg/kubelet/config/common.go, maxConfigLength."""
YAML_LIMIT = 2 << 20
"""Bytes of YAML that are parsed: more than an API server takes (1.5 MiB), and soon done."""


SETTLED_SECONDS = 2.0
"""Seconds after which a file's times tell of each change: a clock tick of any file system."""


@dataclass(frozen=True, slots=True)
class _Stamp:
    """Hold what changes with a file's content (stat(2)); ``ctime`` cannot be set by anyone."""

    device: int
    inode: int
    size: int
    mtime: int
    ctime: int

    @property
    def changed(self) -> float:
        """Return when it last changed, in seconds of the wall clock."""
        return max(self.mtime, self.ctime) / 1e9


class ManifestReader:
    """Read the directory again and again; what was parsed is kept while it lies there."""

    def __init__(self) -> None:
        self._parsed: dict[tuple[str, str], ManifestFile] = {}
        self._settled: dict[str, tuple[_Stamp, ManifestFile]] = {}

    def read(self, path: Path) -> Mapping[str, ManifestFile]:
        """Return every entry by name; ``path`` may be a single file, as staticPodPath may.

        Raises SourceError where ``path`` cannot be read: its absence is no empty directory.
        """
        files = {entry.name: self._read_file(entry) for entry in _entries(path)}
        self._parsed = {(file.name, file.sha256): file for file in files.values() if file.sha256}
        self._settled = {name: kept for name, kept in self._settled.items() if name in files}
        return files

    def _read_file(self, path: Path) -> ManifestFile:
        now = Clock.wall().timestamp()
        stamp = _find_stamp(path)
        kept = self._settled.get(path.name)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        file = self._read_content(path)
        self._settled.pop(path.name, None)
        if stamp is not None and file.sha256 and now - stamp.changed > SETTLED_SECONDS:
            self._settled[path.name] = (stamp, file)
        return file

    def _read_content(self, path: Path) -> ManifestFile:
        try:
            content = _read_content(path)
        except SourceError as error:
            return ManifestFile(name=path.name, sha256="", problem=str(error))
        digest = hashlib.sha256(content).hexdigest()
        known = self._parsed.get((path.name, digest))
        return parse_manifest(path.name, content, digest) if known is None else known


@dataclass(frozen=True, slots=True)
class Place:
    """Say what is odd about a static-pod directory: what must be mended, what is only noted."""

    problem: str = ""
    note: str = ""
    is_absent: bool = False


def judge_place(path: Path) -> Place:
    """Look at the static-pod directory itself, and say in a sentence what is odd and what to do."""
    make = f"mkdir -m 0700 {os.path.realpath(path)}"
    if not path.exists():
        if not path.is_symlink():
            return Place(f"there is no static-pod directory {path}: {make}", is_absent=True)
        target = os.path.realpath(path)
        return Place(f"{path} is a link to {target}, which is not there: {make}")
    if not path.is_dir():
        return Place(
            f"{path} is no directory, no copy can be placed: set the kubelet's staticPodPath to one"
        )
    if path.is_symlink():
        return Place(note=f"{path} is a link to {os.path.realpath(path)}: copies are placed there")
    return Place()


def parse_manifest(name: str, content: bytes, sha256: str) -> ManifestFile:
    """Return which pod a manifest names; ``problem`` says why it names none."""
    file = ManifestFile(name=name, sha256=sha256)
    try:
        return _with_pod(file, _parse(content))
    except FieldError as error:
        return replace(file, problem=str(error))


def _with_pod(file: ManifestFile, pod: Json) -> ManifestFile:
    if json_fields.optional_text(pod, "kind") != "Pod":
        raise FieldError("kind: not a Pod")
    named = replace(
        file,
        # pkg/kubelet/config/common.go, applyDefaults: a static pod without namespace is in default.
        namespace=json_fields.optional_text(pod, "metadata", "namespace") or "default",
        pod_name=json_fields.text(pod, "metadata", "name"),
        uid=json_fields.optional_text(pod, "metadata", "uid"),
    )
    notes = json_fields.mapping(pod, "metadata", "annotations")
    if not file.name.startswith(FILE_PREFIX) or pods.COPY_SLOT not in notes:
        return named
    return _with_our_notes(named, notes)


def _with_our_notes(file: ManifestFile, notes: Json) -> ManifestFile:
    slot = json_fields.text(notes, pods.COPY_SLOT)
    number = json_fields.optional_text(notes, pods.COPY_ACTIVATION)
    return replace(
        file,
        ours=True,
        slot=Slot(file.namespace, slot),
        generation=json_fields.optional_text(notes, pods.COPY_GENERATION),
        activation=int(number) if re.fullmatch(r"[0-9]{1,18}", number) else 0,
        parent_uid=json_fields.optional_text(notes, pods.COPY_PARENT_UID),
        parent_name=json_fields.optional_text(notes, pods.LEGACY_CHECKPOINT_OF),
    )


def _parse(content: bytes) -> Json:
    if content.lstrip().startswith(b"{"):
        try:
            return json_fields.parse_object(content, "manifest")
        except FieldError:
            # The kubelet takes it for YAML then, and flow style begins like JSON.
            if len(content) > YAML_LIMIT:
                raise
    return _parse_yaml(content)


def _parse_yaml(content: bytes) -> Json:
    if len(content) > YAML_LIMIT:
        raise FieldError(f"manifest: over {YAML_LIMIT} bytes of YAML")
    return json_fields.as_object(yaml_text.parse_first(content, "manifest"), "manifest")


def _entries(path: Path) -> list[Path]:
    try:
        if path.is_file():
            return [path]
        return sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error


def _find_stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _read_content(path: Path) -> bytes:
    """Read a file that may be anything: a FIFO must not stop us, a huge one not fill us."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from error
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise SourceError("a directory: the kubelet skips it")
        if stat.S_ISFIFO(mode):
            # pkg/kubelet/config/file_linux.go, consumeWatchEvent opens what appears as it is.
            raise SourceError(
                "a FIFO: a kubelet that sees one appear opens it, waits for ever and reads no other"
                " manifest: remove it and restart the kubelet"
            )
        if not stat.S_ISREG(mode):
            raise SourceError("not a regular file: the kubelet refuses it")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(content) > SIZE_LIMIT:
        raise SourceError(f"over {SIZE_LIMIT} bytes: the kubelet refuses it")
    return content
