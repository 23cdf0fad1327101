"""Name copies: pod name, UID, hostname and file of one activation.

Each activation has a name and a UID of its own, because a kubelet without its API source never
starts a second pod of a name that it has not seen end (kubelet facts, "Seen running").
"""

from __future__ import annotations

import hashlib

POD_NAME_LIMIT = 253
"""A DNS subdomain, RFC 1123; holds for the name with the node's name appended (kubelet K-6)."""
FULL_NAME_LIMIT = 255 - 63 - 36 - 2
"""What leaves room for namespace and UID in the pod's log directory, ``<namespace>_<name>_<uid>``:
one file name of 255 bytes at most (pkg/kubelet/kuberuntime/helpers.go: BuildPodLogsDirectory)."""
SHORTEST_CUT = 24
"""Bytes of the parent's name that are kept, hash and all, however long the node's name is."""
FILE_NAME_LIMIT = 200
OVERRIDE_LIMIT = 255 - len(".checkpointd-") - len(".json")
"""Bytes of a slot's name in ``overrides/``: a file name (NAME_MAX), unfinished ones included."""
FILE_PREFIX = "checkpointd."
TEMPORARY_PREFIX = ".checkpointd-"


def activation_digest(generation: str, boot_id: str, counter: int) -> str:
    """Return 32 hex digits that no other activation has."""
    text = f"{generation}\n{boot_id}\n{counter}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def copy_uid(digest: str) -> str:
    """Return a UID of lower-case hex and ``-``: other characters panic the kubelet (K-6)."""
    parts = (digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32])
    return "-".join(parts)


def copy_name(parent_name: str, digest: str, node_name: str) -> str:
    """Return parent's name and a suffix, cut and hashed so that it fits with the node's name.

    The result fits ``FULL_NAME_LIMIT``, and ``POD_NAME_LIMIT`` where the node's name is very long.
    """
    suffix = f"-{digest[:6]}"
    room = FULL_NAME_LIMIT - len(suffix) - len(node_name) - 1
    return cut(parent_name, max(room, SHORTEST_CUT)) + suffix


def copy_hostname(hostname: str, parent_name: str) -> str:
    """Return spec.hostname as the parent had it: its own, else its name, cut to a DNS label."""
    wanted = (hostname or parent_name)[:63].rstrip("-.")
    return wanted if is_label(wanted) else ""


def manifest_file(namespace: str, name: str) -> str:
    """Return the file name of a copy's manifest; over 200 bytes it is hashed."""
    plain = f"{FILE_PREFIX}{namespace}.{name}.json"
    if len(plain) <= FILE_NAME_LIMIT:
        return plain
    return f"{FILE_PREFIX}{hashlib.sha256(plain.encode()).hexdigest()}.json"


def override_name(namespace: str, slot: str) -> str:
    """Return the name of an operator's word on a slot; cut and hashed where it is too long."""
    return cut(f"{namespace}.{slot}", OVERRIDE_LIMIT)


def cut(name: str, limit: int) -> str:
    """Return ``name``, or its head and a hash where it is longer than ``limit``."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: limit - 9].rstrip('-.')}-{digest}"


def is_label(text: str) -> bool:
    """Tell whether ``text`` is a DNS label (RFC 1123)."""
    inner = text.replace("-", "")
    return (
        0 < len(text) <= 63
        and inner.isascii()
        and inner.isalnum()
        and text == text.lower()
        and text[0] != "-"
        and text[-1] != "-"
    )
