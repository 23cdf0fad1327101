"""Name pods as the API server tells of them, cut down to what decisions need."""

from __future__ import annotations

from dataclasses import dataclass, field

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.model import naming

CHECKPOINT_MARK = "checkpointd.io/checkpoint"
LEGACY_CHECKPOINT_MARK = "checkpointer.alpha.coreos.com/checkpoint"
"""The mark of bootkube's pod-checkpointer, honoured like ours."""
LEGACY_CHECKPOINT_OF = "checkpointer.alpha.coreos.com/checkpoint-of"
"""Written on every copy; a pod that carries it is never a parent."""
RESTART_MARK = "checkpointd.io/restart"
PORT_SHARING_MARK = "checkpointd.io/port-sharing"
TWO_WRITERS_MARK = "checkpointd.io/two-writers"
ACTIVATION_PRIORITY_MARK = "checkpointd.io/activation-priority"

COPY_SLOT = "checkpointd.io/slot"
COPY_PARENT_UID = "checkpointd.io/parent-uid"
COPY_GENERATION = "checkpointd.io/generation"
COPY_ACTIVATION = "checkpointd.io/activation"
COPY_VERSION = "checkpointd.io/written-by"
OUR_PREFIX = "checkpointd.io/"

SLOT_LIMIT = 200
"""Bytes of a slot's name: it is a directory of the store."""


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """Name what successive parents share: ``ds.<controller>`` or ``pod.<name>`` in a namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Name the owner whose ownerReference says ``controller: true``."""

    api_version: str
    kind: str
    name: str
    uid: str = ""

    @property
    def is_daemon_set(self) -> bool:
        """Tell whether this is apps/* DaemonSet: its pods on one node follow each other."""
        return self.kind == "DaemonSet" and self.api_version.startswith("apps/")


def controller_of(pod: Json) -> Controller | None:
    """Return the owner of a raw pod that says ``controller: true``. Raises FieldError."""
    for owner in json_fields.objects(pod, "metadata", "ownerReferences"):
        if json_fields.boolean(owner, "controller"):
            return Controller(
                api_version=json_fields.text(owner, "apiVersion"),
                kind=json_fields.text(owner, "kind"),
                name=json_fields.text(owner, "name"),
                uid=json_fields.optional_text(owner, "uid"),
            )
    return None


def slot_for(namespace: str, name: str, controller: Controller | None) -> Slot:
    """Return the slot of a pod: a DaemonSet's pods on this node share one (design, section 5)."""
    if controller is not None and controller.is_daemon_set:
        return Slot(namespace, naming.cut(f"ds.{controller.name}", SLOT_LIMIT))
    return Slot(namespace, naming.cut(f"pod.{name}", SLOT_LIMIT))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPod:
    """Say what the API server last said of one pod of this node.

    ``marked`` is the answer of ``model.selection`` with root's configuration; ``mark_note`` says
    why a mark does not count. ``started`` is the latest start of its running containers and
    ``created`` its creation, both RFC 3339 as the API wrote them. ``ready`` is the Ready condition
    being "True"; ``containers_ready`` that every container is ready now. ``raw`` is kept for marked
    pods only. ``ready_containers`` are the runtime's ids of the running containers called ready.
    """

    namespace: str
    name: str
    uid: str
    slot: Slot
    controller: Controller | None
    created: str
    marked: bool
    mark_note: str
    terminating: bool
    phase: str
    reason: str
    ready: bool
    started: str
    images: tuple[str, ...]
    restart_policy: str
    grace_seconds: int
    activation_priority: int
    raw: Json | None = field(repr=False)
    init_containers: frozenset[str] = frozenset()
    ready_containers: frozenset[str] = frozenset()

    @property
    def is_finished(self) -> bool:
        """Tell whether its phase is Succeeded or Failed: the kubelet starts it no more."""
        return self.phase in ("Succeeded", "Failed")
