"""Name everything that lies in the store, and check each name before it becomes a path component.

::

    <root>/                                   0700 root
      lock                                    flock of the one instance, its pid inside
      reserve                                 1 MiB, given up when the disk is full
      node.json, node.json.1                  NodeRecord, sealed (codec.py); the one before it
      checkpoints/<namespace>/<slot>/
        state.json, state.json.1              Checkpoint, sealed; the one before it
        content/<volume>/<hash>/              one content of one volume, as the pod saw it
        generations/<hash>/manifest.json      the copy's Pod; its checksum is in meta.json
        generations/<hash>/meta.json          origin, checksums of all its files; sealed
        tokens/                               reserved
        active/<uid>/<volume>/..data          -> ..<hash>/, whose files are hard links into content/
        active/<uid>/<volume>/<key>           -> ..data/<key>
      overrides/node.json                     operators' words: {verb, until, reason}
      overrides/<namespace>.<slot>.json
      quarantine/                             what was damaged, the newest of it

A name that begins with ``.checkpointd-`` is unfinished or half removed, and ours to remove.
"""

from __future__ import annotations

from checkpointd.errors import StoreError
from checkpointd.model import naming
from checkpointd.model.pods import Slot

CHECKPOINTS = "checkpoints"
CONTENT = "content"
GENERATIONS = "generations"
ACTIVE = "active"
TOKENS = "tokens"
OVERRIDES = "overrides"
QUARANTINE = "quarantine"

NODE = "node.json"
PREVIOUS_NODE = "node.json.1"
STATE = "state.json"
PREVIOUS_STATE = "state.json.1"
MANIFEST = "manifest.json"
META = "meta.json"
LOCK = "lock"
RESERVE = "reserve"

TEMPORARY = naming.TEMPORARY_PREFIX
VISIBLE_DATA = "..data"
"""The kubelet's name for the link to the present content (K: volume/util/atomic_writer.go)."""

COMPONENT_LIMIT = 255
"""NAME_MAX of Linux's file systems, in bytes."""


def component(name: str) -> str:
    """Return ``name`` if it is one plain path component of ours; raise StoreError.

    A leading dot is refused: it is kept for what is unfinished.
    """
    if name.startswith("."):
        raise StoreError(f"{name!r} begins with a dot: it cannot be a name in the store")
    return any_component(name)


def any_component(name: str) -> str:
    """Return ``name`` if it is one path component, with or without a leading dot."""
    length = len(name.encode(errors="surrogateescape"))
    if name in ("", ".", "..") or "/" in name or "\0" in name or length > COMPONENT_LIMIT:
        raise StoreError(f"{name[:80]!r} cannot be a file name")
    return name


def volume_path(path: str) -> tuple[str, ...]:
    """Return the components of a file's path in a volume, () for the volume itself.

    Names that begin with ``..`` are the kubelet's own (atomic_writer.go: validatePath).
    """
    parts = tuple(any_component(part) for part in path.split("/")) if path else ()
    if parts and parts[0].startswith(".."):
        raise StoreError(f"{path!r}: a file of a volume cannot begin with '..'")
    return parts


def slot_directory(slot: Slot) -> str:
    """Return the directory name of a slot: over 200 bytes it is cut and hashed."""
    return component(naming.cut(slot.name, naming.FILE_NAME_LIMIT))


def override_file(slot: Slot) -> str:
    """Return the file name of an operator's word on a slot."""
    return component(f"{naming.override_name(slot.namespace, slot.name)}.json")


def data_directory(content_hash: str) -> str:
    """Return the name of the directory that ``..data`` points to.

    The kubelet names it by time. Ours follows from the content, so that doing it again after a
    crash finds what is there.
    """
    return f"..{component(content_hash)[:32]}"


def temporary(name: str) -> str:
    """Return the name of ``name`` while it is unfinished or half removed.

    It is always the same one: there is one writer, and what a crash left is found again.
    """
    return any_component(TEMPORARY + name)
