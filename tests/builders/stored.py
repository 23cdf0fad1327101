"""Build what the store keeps: each argument states what matters to the test."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from checkpointd.json_fields import Json
from checkpointd.model.checkpoint import Activation, Checkpoint, NodeRecord, generation_of
from checkpointd.model.files import Candidate, CopyKind, FileEntry, VolumeFiles
from checkpointd.model.moments import Instant
from checkpointd.model.pods import Slot
from checkpointd.store import generations, recovery
from checkpointd.store.checkpoints import CheckpointStore
from checkpointd.store.durable import Disk

SLOT = Slot("kube-system", "ds.kube-apiserver")
NOW = Instant(boot_id="boot-1", seconds=100.5, wall="2026-01-01T00:00:00.000Z")
COPY_UID = "0a1b2c3d-0000-4000-8000-00000000c0de"


def digest(*parts: object) -> str:
    """Return a hash that follows from ``parts``."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def entry(path: str, data: bytes | None, mode: int = 0o640) -> FileEntry:
    """Return a file, or a directory where ``data`` is None, of this user."""
    return FileEntry(path=path, data=data, mode=mode, uid=os.getuid(), gid=os.getgid())


def volume(name: str, files: Mapping[str, bytes]) -> VolumeFiles:
    """Return the content of a volume that shows ``files``."""
    entries = (
        entry("", None, 0o755),
        *(entry(path, data) for path, data in sorted(files.items())),
    )
    return VolumeFiles(
        volume=name, hash=digest(name, sorted(files.items())), placed="", entries=entries
    )


CERTS = volume("certs", {"tls.crt": b"certificate 1", "tls.key": b"key 1", "sub/ca.crt": b"ca"})
CONFIG = volume("config", {"config.json": b"{}"})


def candidate(
    *volumes: VolumeFiles, slot: Slot = SLOT, manifest: Json | None = None, name: str = "api-abc"
) -> Candidate:
    """Return a rendering with these volumes, else with CERTS and CONFIG."""
    files = volumes or (CERTS, CONFIG)
    pod = {"apiVersion": "v1", "kind": "Pod"} if manifest is None else manifest
    contents = {each.volume: each.hash for each in files}
    return Candidate(
        slot=slot,
        parent_uid="parent-1",
        parent_name=name,
        hash=digest(sorted(contents.items()), pod),
        spec_hash=digest(pod),
        manifest=pod,
        contents=contents,
        files=files,
        placed="",
        kind=CopyKind.EXCLUSIVE,
        images={},
        grace_seconds=30,
        hostname="",
        warnings=(),
    )


def checkpoint(*candidates: Candidate, slot: Slot = SLOT, activations: int = 0) -> Checkpoint:
    """Return a checkpoint with the generations of ``candidates``, the last the newest."""
    made = [generation_of(each, n, NOW) for n, each in enumerate(candidates, start=1)]
    metas = [generations.meta_of(c, g, None) for c, g in zip(candidates, made, strict=True)]
    if not metas:
        fake = candidate(slot=slot)
        metas = [generations.meta_of(fake, generation_of(fake, 1, NOW), None)]
    found = recovery.rebuilt(metas[-1], tuple(metas) if made else ())
    return replace(found, activations=activations)


def activation(of: Candidate, number: int = 1, uid: str = COPY_UID) -> Activation:
    """Return an activation of this generation."""
    return Activation(
        number=number,
        name=f"{of.parent_name}-{number:06x}",
        uid=uid,
        generation=of.hash,
        file=f"checkpointd.{of.slot.namespace}.{of.parent_name}-{number:06x}.json",
        offered=NOW,
        grace_seconds=of.grace_seconds,
    )


def node_record(**fields: object) -> NodeRecord:
    """Return node.json's content."""
    plain = NodeRecord(
        node_name="node-1",
        boot_id="boot-1",
        anchor="service",
        anchor_uid="service-uid",
        node_uid="node-uid",
        in_contact=True,
        contact_changed=NOW,
        node_deleted_since=None,
        all_gone_since=None,
        discovered={"manifest_dir": "/etc/kubernetes/manifests"},
    )
    return replace(plain, **fields)  # type: ignore[arg-type]  # the test says which


def open_store(root: Path, disk: Disk | None = None) -> CheckpointStore:
    """Return an empty store, loaded."""
    root.mkdir(mode=0o700, exist_ok=True)
    store = CheckpointStore(root, disk or Disk())
    store.load()
    return store


def write(store: CheckpointStore, *candidates: Candidate) -> Checkpoint:
    """Store generations and the state that names them."""
    for number, each in enumerate(candidates, start=1):
        store.write_generation(each, number, NOW)
    saved = checkpoint(*candidates, slot=candidates[0].slot)
    store.save_checkpoint(saved)
    return saved


def slot_path(store: CheckpointStore, slot: Slot = SLOT) -> Path:
    """Return the directory of a slot."""
    return store.root / "checkpoints" / slot.namespace / slot.name


def tree(top: Path) -> dict[str, bytes | str]:
    """Return all files (bytes), links (target) and directories (their mode) below ``top``."""
    found: dict[str, bytes | str] = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            found[name] = f"{path.stat().st_mode & 0o7777:o}"
        else:
            found[name] = path.read_bytes()
    return found
