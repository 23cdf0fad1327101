"""Hold what render makes of a parent: the files of its volumes and a candidate generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from checkpointd.json_fields import Json
from checkpointd.model.pods import Slot


class CopyKind(Enum):
    """Say whether a copy may run beside its parent (design, section 3, rule 4)."""

    SHAREABLE = "shareable"
    EXCLUSIVE = "exclusive"
    BLOCKING = "blocking"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """Carry one file or directory of a volume as the pod sees it.

    ``path`` is relative and posix; "" is the volume's own directory. ``data`` is None for a
    directory. ``label`` is the SELinux label, "" where there is none.
    """

    path: str
    # Not in its repr: what a log line or a traceback shows must be no secret.
    data: bytes | None = field(repr=False)
    mode: int
    uid: int
    gid: int
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeFiles:
    """Carry one consistent generation of one volume.

    ``hash`` covers paths, bytes, modes, owners and labels. ``placed`` is when the kubelet put it
    there (RFC 3339, the ``..data`` directory's time).
    """

    volume: str
    hash: str
    placed: str
    entries: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Say why a pod is not checkpointed: which field, the reason, the remedy."""

    field: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason} ({self.remedy})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Carry one complete rendering of a parent: what a generation is made of.

    ``manifest`` is the copy's Pod without name, UID, hostname and our annotations; its volumes of
    ours name ``hostPath.path`` as ``{volume}`` place-holders that placing fills. ``hash`` is over
    ``manifest`` and ``contents`` (volume name → content hash), ``spec_hash`` over ``manifest``
    alone. ``files`` is empty once the generation is stored. ``images`` maps an image as the spec
    names it to the id that ran, "" where unknown.
    """

    slot: Slot
    parent_uid: str
    parent_name: str
    hash: str
    spec_hash: str
    manifest: Json
    contents: Mapping[str, str]
    files: tuple[VolumeFiles, ...]
    placed: str
    kind: CopyKind
    images: Mapping[str, str]
    grace_seconds: int
    hostname: str
    warnings: tuple[str, ...]
    writable_host_path: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Carry all reasons for which a parent cannot be checkpointed."""

    parent_uid: str
    refusals: tuple[Refusal, ...]
