"""Write, verify and remove generations: the files first, then manifest and meta, complete or not.

Nothing in a generation is ever rewritten. What changes about it (proven, failed) is kept in
state.json alone: that file is written before it is acted on, keeps its predecessor, and needs no
second write to agree with.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from checkpointd import json_fields
from checkpointd.errors import DamagedError, FieldError, StoreError
from checkpointd.json_fields import Json
from checkpointd.model.checkpoint import Checkpoint, Generation
from checkpointd.model.files import Candidate, FileEntry, VolumeFiles
from checkpointd.model.pods import Controller, Slot
from checkpointd.store import codec, layout
from checkpointd.store.durable import Attributes, Disk
from checkpointd.store.walk import Directory

Checksums = Mapping[str, str]
"""Path in the volume ("" is the volume itself) → checksum of kind, mode, owner and bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Hold meta.json. ``generation`` is as it was first stored: neither proven nor failed."""

    slot: Slot
    generation: Generation
    parent_uid: str
    controller: Controller | None
    serves_api: bool
    manifest: str
    files: Mapping[str, Checksums]


# ---- content ------------------------------------------------------------------------------------
def complete(files: VolumeFiles) -> dict[tuple[str, ...], FileEntry]:
    """Return the entries by path with every directory on the way. Raises StoreError."""
    entries = {layout.volume_path(entry.path): entry for entry in files.entries}
    for path in list(entries):
        for length in range(len(path)):
            above = path[:length]
            plain = FileEntry(
                path="/".join(above), data=None, mode=0o755, uid=os.geteuid(), gid=os.getegid()
            )
            if entries.setdefault(above, plain).data is not None:
                raise StoreError(f"{files.volume}: {'/'.join(above)!r} is file and directory")
    if () not in entries:
        entries[()] = FileEntry(path="", data=None, mode=0o755, uid=os.geteuid(), gid=os.getegid())
    return entries


def entry_checksum(mode: int, uid: int, gid: int, content: bytes | None) -> str:
    """Return the checksum of one file, or of a directory where ``content`` is None."""
    kind = "d" if content is None else "f"
    head = f"{kind} {stat.S_IMODE(mode):o} {uid}:{gid}\n".encode()
    return hashlib.sha256(head + (content or b"")).hexdigest()


def entry_checksums(files: VolumeFiles) -> Checksums:
    """Return what the checksums of ``files`` are once they are written."""
    return {
        "/".join(path): entry_checksum(entry.mode, entry.uid, entry.gid, entry.data)
        for path, entry in complete(files).items()
    }


def stored_checksums(directory: Directory) -> Checksums:
    """Return the checksums of what is in a content directory. Raises StoreError."""
    found: dict[str, str] = {}
    _add_checksums(directory, "", found)
    return found


def _add_checksums(directory: Directory, at: str, found: dict[str, str]) -> None:
    own = os.fstat(directory.fd)
    found[at] = entry_checksum(own.st_mode, own.st_uid, own.st_gid, None)
    for name in directory.names():
        path = f"{at}/{name}" if at else name
        status = directory.status(name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            with directory.child(name) as inner:
                _add_checksums(inner, path, found)
            continue
        read = directory.find_with_status(name)
        if read is not None:
            content, status = read
            found[path] = entry_checksum(status.st_mode, status.st_uid, status.st_gid, content)


def verify_content(slot: Directory, volume: str, content_hash: str, wanted: Checksums) -> None:
    """Compare one stored content with its checksums. Raises DamagedError that names the files."""
    with slot.descend(layout.CONTENT, volume, content_hash) as directory:
        if directory is None:
            raise DamagedError(f"{slot.path / layout.CONTENT / volume / content_hash}: missing")
        found = stored_checksums(directory)
        if found != wanted:
            paths = found.keys() | wanted.keys()
            wrong = sorted(path for path in paths if found.get(path) != wanted.get(path))
            names = ", ".join(path or "the directory" for path in wrong[:5])
            raise DamagedError(f"{directory.path}: the checksum does not fit: {names}")


def write_content(disk: Disk, volume: Directory, files: VolumeFiles) -> None:
    """Write one content of a volume, all or nothing, durably. Raises StoreError."""
    name = layout.component(files.hash)
    temporary = layout.temporary(name)
    disk.remove_tree(volume, temporary)
    disk.mkdir(volume, temporary)
    with volume.child(temporary) as directory:
        _write_tree(disk, directory, (), complete(files))
    disk.rename(volume, temporary, volume, name)
    disk.fsync_directory(volume)


def _write_tree(
    disk: Disk,
    directory: Directory,
    at: tuple[str, ...],
    entries: Mapping[tuple[str, ...], FileEntry],
) -> None:
    for path, entry in sorted(entries.items()):
        if len(path) != len(at) + 1 or path[:-1] != at:
            continue
        if entry.data is not None:
            disk.write_new(directory, path[-1], entry.data, _attributes(entry))
            continue
        disk.mkdir(directory, path[-1])
        with directory.child(path[-1]) as inner:
            _write_tree(disk, inner, path, entries)
    # Last: its mode or owner may forbid us to write in it (the unit has no CAP_DAC_OVERRIDE).
    disk.set_attributes(directory.fd, directory.path, _attributes(entries[at]))
    disk.fsync_directory(directory)


def _attributes(entry: FileEntry) -> Attributes:
    return Attributes(
        mode=stat.S_IMODE(entry.mode), uid=entry.uid, gid=entry.gid, label=entry.label
    )


# ---- generations --------------------------------------------------------------------------------
def meta_of(candidate: Candidate, generation: Generation, known: Checkpoint | None) -> Meta:
    """Return the meta of a generation about to be written; ``known`` is the slot's checkpoint."""
    return Meta(
        slot=candidate.slot,
        generation=generation,
        parent_uid=candidate.parent_uid,
        controller=None if known is None else known.parent.controller,
        serves_api=known is not None and known.serves_api,
        manifest=codec.checksum(manifest_bytes(candidate.manifest)),
        files={files.volume: entry_checksums(files) for files in candidate.files},
    )


def manifest_bytes(manifest: Json) -> bytes:
    """Return the bytes of manifest.json."""
    return codec.write_compact(manifest) + b"\n"


def read_meta(slot: Directory, generation_hash: str) -> Meta:
    """Read meta.json. Raises DamagedError, NewerSchemaError."""
    layout.component(generation_hash)
    with slot.descend(layout.GENERATIONS, generation_hash) as directory:
        if directory is None:
            raise DamagedError(f"{slot.path}: generation {generation_hash} is missing")
        what = str(directory.path / layout.META)
        meta = codec.unseal_as(Meta, directory.read(layout.META), what)
        if meta.generation.hash != generation_hash or set(meta.files) != set(
            meta.generation.contents
        ):
            raise DamagedError(f"{what}: it tells of another generation")
        return meta


def read_manifest(slot: Directory, meta: Meta) -> Json:
    """Read manifest.json. Raises DamagedError if its checksum in ``meta`` contradicts it."""
    with slot.descend(layout.GENERATIONS, meta.generation.hash) as directory:
        if directory is None:
            raise DamagedError(f"{slot.path}: generation {meta.generation.hash} is missing")
        content = directory.read(layout.MANIFEST)
        what = str(directory.path / layout.MANIFEST)
    if codec.checksum(content) != meta.manifest:
        raise DamagedError(f"{what}: the checksum does not fit ({len(content)} bytes)")
    try:
        return json_fields.parse_object(content, what)
    except FieldError as error:
        raise DamagedError(str(error)) from error


def write_generation(disk: Disk, slot: Directory, meta: Meta, manifest: Json) -> None:
    """Write meta and manifest, both or nothing, durably; the content is there already."""
    name = layout.component(meta.generation.hash)
    temporary = layout.temporary(name)
    disk.make_directory(slot, layout.GENERATIONS)
    with slot.child(layout.GENERATIONS) as parent:
        disk.remove_tree(parent, temporary)
        disk.mkdir(parent, temporary)
        with parent.child(temporary) as directory:
            disk.write_new(directory, layout.MANIFEST, manifest_bytes(manifest))
            disk.write_new(directory, layout.META, codec.seal(codec.encode(meta)))
            disk.fsync_directory(directory)
        disk.rename(parent, temporary, parent, name)
        disk.fsync_directory(parent)


def prune(disk: Disk, slot: Directory, keep: frozenset[str]) -> None:
    """Remove the generations that are not in ``keep``, then the contents that none names.

    What an earlier try began goes too. Raises DamagedError before a content goes if what a kept
    generation names cannot be read.
    """
    with slot.descend(layout.GENERATIONS) as generations:
        if generations is not None:
            _sweep(disk, generations)
        for name in [] if generations is None else generations.directories():
            if name not in keep and generations is not None:
                disk.discard(generations, name)
        kept = [] if generations is None else generations.directories()
    named = {
        content for name in kept for content in read_meta(slot, name).generation.contents.items()
    }
    with slot.descend(layout.CONTENT) as contents:
        for volume in [] if contents is None else contents.directories():
            if contents is not None:
                _prune_volume(disk, contents, volume, named)


def _prune_volume(
    disk: Disk, contents: Directory, volume: str, named: set[tuple[str, str]]
) -> None:
    with contents.child(volume) as directory:
        _sweep(disk, directory)
        for name in directory.directories():
            if (volume, name) not in named:
                disk.discard(directory, name)
        is_empty = not directory.names()
    if is_empty:
        disk.rmdir(contents, volume)


def _sweep(disk: Disk, directory: Directory) -> None:
    for name in directory.names():
        if name.startswith(layout.TEMPORARY):
            disk.remove_tree(directory, name)
