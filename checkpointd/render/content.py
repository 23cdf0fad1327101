"""Hash the files of a volume, and make their labels ones that a copy may read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.model.files import FileEntry, VolumeFiles
from checkpointd.render import wire


def content_hash(entries: Iterable[FileEntry]) -> str:
    """Return the SHA-256 over paths, bytes, modes, owners and labels, in the order of paths."""
    total = hashlib.sha256()
    for entry in sorted(entries, key=lambda entry: entry.path):
        data = "-" if entry.data is None else hashlib.sha256(entry.data).hexdigest()
        fields = (entry.path, data, f"{entry.mode:o}", str(entry.uid), str(entry.gid), entry.label)
        # A NUL is in no path and no label: two different lists never give the same text.
        total.update(("\0".join(fields) + "\0\0").encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def volume_files(volume: str, placed: str, entries: Iterable[FileEntry]) -> VolumeFiles:
    """Return a volume's files in the order of paths, with their hash."""
    ordered = tuple(sorted(entries, key=lambda entry: entry.path))
    return VolumeFiles(volume=volume, hash=content_hash(ordered), placed=placed, entries=ordered)


def share_labels(files: VolumeFiles, pod: Json) -> VolumeFiles:
    """Return the files with SELinux labels that another pod of the same spec may read.

    Where the spec names no level the runtime gives each pod categories of its own, and the kubelet
    relabels secrets to them; nobody relabels a hostPath (kubelet facts K-15). The label without
    categories is what runtimes use for shared content. Raises FieldError.
    """
    if _names_level(pod):
        return files
    shared = tuple(
        replace(entry, label=_without_categories(entry.label)) for entry in files.entries
    )
    return files if shared == files.entries else volume_files(files.volume, files.placed, shared)


def _names_level(pod: Json) -> bool:
    path = ("securityContext", "seLinuxOptions", "level")
    return json_fields.has_field(pod, "spec", *path) or any(
        json_fields.has_field(container, *path) for _path, container in wire.containers(pod)
    )


def _without_categories(label: str) -> str:
    # user:role:type:sensitivity[:categories], selinux(8).
    return ":".join(label.split(":")[:4])
