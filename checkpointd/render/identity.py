"""Say who a copy is: the metadata that it keeps, and which pods are never parents."""

from __future__ import annotations

import re
from collections.abc import Iterator

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.model import pods
from checkpointd.model.files import Refusal
from checkpointd.render import wire

CONFIG_PREFIX = "kubernetes.io/config."
"""config.source, config.seen, config.hash, config.mirror: the kubelet's own words (K-6, K-9)."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
LEGACY_PREFIX = "checkpointer.alpha.coreos.com/"

_UID = re.compile(r"[A-Za-z0-9-]{1,128}")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def is_uid(text: str) -> bool:
    """Tell whether ``text`` can be the UID of an API pod and hence a path component."""
    return _UID.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Tell whether ``text`` is a DNS subdomain (RFC 1123) of 253 bytes at most."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def metadata(pod: Json) -> wire.Object:
    """Return what a copy keeps of its parent's metadata: namespace, labels, most annotations.

    Name and UID are set when the copy is placed. Raises FieldError.
    """
    kept: dict[str, object] = {"namespace": json_fields.text(pod, "metadata", "namespace")}
    labels = dict(json_fields.texts(pod, "metadata", "labels"))
    annotations = {
        key: value
        for key, value in json_fields.texts(pod, "metadata", "annotations").items()
        if not is_dropped(key)
    }
    return (
        kept
        | ({"labels": labels} if labels else {})
        | ({"annotations": annotations} if annotations else {})
    )


def is_dropped(annotation: str) -> bool:
    """Tell whether a copy does not keep this annotation of its parent."""
    return annotation == LAST_APPLIED or annotation.startswith(
        (CONFIG_PREFIX, LEGACY_PREFIX, pods.OUR_PREFIX)
    )


def is_marked(pod: Json, mark: str, value: str = "true") -> bool:
    """Tell whether the pod carries this annotation of ours. Raises FieldError."""
    return json_fields.texts(pod, "metadata", "annotations").get(mark) == value


def refusals(pod: Json) -> Iterator[Refusal]:
    """Yield why this pod can be nobody's parent. Raises FieldError."""
    yield from _malformed_names(pod)
    for key, value in json_fields.texts(pod, "metadata", "annotations").items():
        kind = _non_parent(key, value)
        if kind:
            yield Refusal(
                field=f"metadata.annotations[{key}]",
                reason=f"{kind} is never a parent",
                remedy="mark the pod that it was made from",
            )


def _malformed_names(pod: Json) -> Iterator[Refusal]:
    checks = {
        "name": is_subdomain(json_fields.text(pod, "metadata", "name")),
        "namespace": is_subdomain(json_fields.text(pod, "metadata", "namespace")),
        "uid": is_uid(json_fields.text(pod, "metadata", "uid")),
    }
    for field, is_sound in checks.items():
        if not is_sound:
            yield Refusal(
                field=f"metadata.{field}",
                reason="not in the form that the API server gives it",
                remedy="give the pod a name that Kubernetes allows",
            )


def _non_parent(annotation: str, value: str) -> str:
    if annotation == "kubernetes.io/config.mirror":
        return "a mirror pod"
    if annotation == "kubernetes.io/config.source" and value != "api":
        return "a static pod"
    if annotation in (pods.LEGACY_CHECKPOINT_OF, pods.COPY_SLOT):
        return "a copy"
    return ""
