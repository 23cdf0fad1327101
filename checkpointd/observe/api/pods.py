"""Parse a pod of the API into what decisions need. Pure.

A pod that is not one raises FieldError; whoever lists must then not take it for gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from checkpointd import json_fields
from checkpointd.errors import FieldError
from checkpointd.json_fields import Json
from checkpointd.model import pods, selection
from checkpointd.model.pods import ApiPod, Controller
from checkpointd.model.selection import Mark, Selection

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""k8s.io/apimachinery/pkg/util/validation: names of namespaces, and of pods."""
_UID = re.compile(r"[0-9a-zA-Z]([-0-9a-zA-Z]{0,126}[0-9a-zA-Z])?")
"""The API makes UUIDs; ``_``, ``/`` and ``..`` would panic a kubelet (facts, K-6)."""

DEFAULT_GRACE = 30
"""corev1.DefaultTerminationGracePeriodSeconds."""
PRIORITY_BOUND = 1_000_000


@dataclass(frozen=True, slots=True)
class Identity:
    """Name a pod by strings that are safe as path components."""

    namespace: str
    name: str
    uid: str


def parse_identity(raw: Json) -> Identity:
    """Return namespace, name and UID. Raises FieldError for what Kubernetes does not allow."""
    return Identity(
        namespace=_matching(raw, _LABEL, "namespace", 63),
        name=_matching(raw, _SUBDOMAIN, "name", 253),
        uid=parse_uid(raw),
    )


def parse_uid(raw: Json) -> str:
    """Return the UID. Raises FieldError."""
    return _matching(raw, _UID, "uid", 128)


def parse_pod(raw: Json, wanted: Selection, node_name: str) -> ApiPod:
    """Return what decisions need of a pod bound to ``node_name``. Raises FieldError.

    ``raw`` is kept, without managedFields, for marked pods only.
    """
    identity = parse_identity(raw)
    if json_fields.optional_text(raw, "spec", "nodeName") != node_name:
        raise FieldError("spec.nodeName: another node's pod")
    labels = json_fields.texts(raw, "metadata", "labels")
    annotations = json_fields.texts(raw, "metadata", "annotations")
    mark = selection.find_mark(wanted, identity.namespace, labels, annotations)
    controller = _safe_controller(raw)
    priority, note = _activation_priority(annotations, mark)
    return ApiPod(
        namespace=identity.namespace,
        name=identity.name,
        uid=identity.uid,
        slot=pods.slot_for(identity.namespace, identity.name, controller),
        controller=controller,
        created=json_fields.optional_text(raw, "metadata", "creationTimestamp"),
        marked=mark.marked,
        mark_note=note,
        terminating=json_fields.has_field(raw, "metadata", "deletionTimestamp"),
        phase=json_fields.optional_text(raw, "status", "phase"),
        reason=json_fields.optional_text(raw, "status", "reason"),
        ready=_is_ready(raw),
        started=max(_starts(raw), default=""),
        images=tuple(dict.fromkeys(_images(raw))),
        restart_policy=json_fields.optional_text(raw, "spec", "restartPolicy") or "Always",
        grace_seconds=_grace(raw),
        activation_priority=priority,
        raw=_without_managed_fields(raw) if mark.marked else None,
        init_containers=frozenset(_init_containers(raw)),
        ready_containers=frozenset(_ready_containers(raw)),
    )


def _safe_controller(raw: Json) -> Controller | None:
    """Return the controller, None for one whose name no object can have.

    Whoever may create a pod may write any owner into it, and a DaemonSet's name becomes a path.
    """
    controller = pods.controller_of(raw)
    if controller is None or len(controller.name) > 253:
        return None
    return controller if _SUBDOMAIN.fullmatch(controller.name) else None


def _matching(raw: Json, pattern: re.Pattern[str], key: str, limit: int) -> str:
    value = json_fields.text(raw, "metadata", key)
    if len(value) > limit or not pattern.fullmatch(value):
        raise FieldError(f"metadata.{key}: not one that Kubernetes allows")
    return value


def _activation_priority(annotations: Mapping[str, str], mark: Mark) -> tuple[int, str]:
    """Return the priority and the note of the mark; a value that is no number counts as 0."""
    given = annotations.get(pods.ACTIVATION_PRIORITY_MARK, "")
    if not mark.marked or not given:
        return 0, mark.note
    if re.fullmatch(r"[-+]?[0-9]{1,7}", given) and abs(int(given)) <= PRIORITY_BOUND:
        return int(given), mark.note
    key = pods.ACTIVATION_PRIORITY_MARK
    return 0, f"annotation {key} is not a whole number within ±{PRIORITY_BOUND}: 0 is taken"


def _is_ready(raw: Json) -> bool:
    return any(
        json_fields.optional_text(condition, "type") == "Ready"
        and json_fields.optional_text(condition, "status") == "True"
        for condition in json_fields.objects(raw, "status", "conditions")
    )


def _starts(raw: Json) -> Iterator[str]:
    """Yield when each running container started: RFC 3339 in UTC, which sorts as text."""
    for status in json_fields.objects(raw, "status", "containerStatuses"):
        started = json_fields.optional_text(status, "state", "running", "startedAt")
        if started:
            yield started


def _ready_containers(raw: Json) -> Iterator[str]:
    """Yield the ids of running, ready containers, without the runtime's name before ``://``."""
    for status in json_fields.objects(raw, "status", "containerStatuses"):
        running = json_fields.has_field(status, "state", "running")
        container_id = json_fields.optional_text(status, "containerID").rpartition("://")[2]
        if running and container_id and json_fields.boolean(status, "ready"):
            yield container_id


def _images(raw: Json) -> Iterator[str]:
    for kind in ("initContainers", "containers"):
        for container in json_fields.objects(raw, "spec", kind):
            image = json_fields.optional_text(container, "image")
            if image:
                yield image


def _init_containers(raw: Json) -> Iterator[str]:
    for container in json_fields.objects(raw, "spec", "initContainers"):
        yield json_fields.text(container, "name")


def _grace(raw: Json) -> int:
    given = json_fields.optional_integer(raw, "spec", "terminationGracePeriodSeconds")
    return DEFAULT_GRACE if given is None else given


def _without_managed_fields(raw: Json) -> Json:
    metadata = json_fields.mapping(raw, "metadata")
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**raw, "metadata": kept}
